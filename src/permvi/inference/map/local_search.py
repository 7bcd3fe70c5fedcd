"""Hill climbing by single swaps: of two rows, or of a row and an unused column."""

from typing import NamedTuple

import numpy as np

from permvi.problem.evaluation import Evaluate, Evaluations


class Neighbourhood:
    """All allowed single swaps in matchings of S sites.

    A matching is written as a permutation of more rows and columns: rows beyond the last hold
    unused columns, and columns beyond the last mean "unmatched". Then every change is a swap of two
    rows.

    Args:
        allowed: (n, m) or (S, n, m) booleans, True where row i may have column j.
        partial: Whether pairs may be left out; if not, as many rows as possible are matched.
    """

    def __init__(self, allowed: np.ndarray, *, partial: bool = False) -> None:
        table = np.asarray(allowed)
        if table.dtype != bool or table.ndim not in (2, 3):
            raise ValueError(
                "allowed must be booleans of shape (n, m) or (S, n, m), got dtype "
                f"{table.dtype} and shape {table.shape}."
            )
        table = table.reshape(-1, *table.shape[-2:])
        self.num_sites, self.num_rows, self.num_cols = table.shape
        size = sum(table.shape[1:]) if partial else max(table.shape[1:])
        self._allowed = np.ones((self.num_sites, size, size), bool)
        self._allowed[:, : self.num_rows, : self.num_cols] = table
        first, second = np.triu_indices(size, 1)
        # Swaps among the rows beyond the last change nothing.
        self._first, self._second = (rows[first < self.num_rows] for rows in (first, second))

    @property
    def num_swaps(self) -> int:
        """The number of swaps in one site, allowed or not."""
        return len(self._first)

    def padded(self, perms: np.ndarray) -> np.ndarray:
        """Return matchings (r, S, n) as permutations (r, S, size).

        Raises:
            ValueError: One of them is not a matching, or not allowed.
        """
        size, m = self._allowed.shape[-1], self.num_cols
        full = np.empty((*perms.shape[:-1], size), np.int64)
        for index in np.ndindex(perms.shape[:-1]):
            perm = perms[index]
            left_out = perm < 0
            free = np.setdiff1d(np.arange(m), perm)
            rows = np.where(left_out, m + np.cumsum(left_out) - 1, perm)
            beyond = np.concatenate([free, np.arange(m + left_out.sum(), size)])
            if len(rows) + len(beyond) != size or len(np.unique(rows)) != len(rows):
                raise ValueError(f"starts must be matchings, got {perm.tolist()}.")
            full[index] = np.concatenate([rows, beyond])
            if not self._allowed[index[-1], np.arange(size), full[index]].all():
                raise ValueError(f"starts must respect the mask, got {perm.tolist()}.")
        return full

    def plain(self, padded: np.ndarray) -> np.ndarray:
        """Return the matchings (..., n) or (..., S, n) of permutations (..., S, size)."""
        perms = padded[..., : self.num_rows]
        perms = perms[..., 0, :] if self.num_sites == 1 else perms
        return np.where(perms < self.num_cols, perms, -1)

    def around(self, padded: np.ndarray, site: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all allowed permutations one swap away in one site from (r, S, size) permutations.

        They have the shape (k, S, size); with them come the indices (k,) of their origins.
        """
        i, j, table = self._first, self._second, self._allowed[site]
        here = padded[:, site]
        base, pair = np.nonzero(table[i, here[:, j]] & table[j, here[:, i]])
        found = padded[base]
        rows = np.arange(len(base))
        found[rows, site, i[pair]] = here[base, j[pair]]
        found[rows, site, j[pair]] = here[base, i[pair]]
        return found, base

    def shaken(self, padded: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
        """Make ``num`` random allowed swaps in each of the permutations (r, S, size)."""
        found = padded.copy()
        for perm in found:
            for site in rng.integers(self.num_sites, size=num):
                table, here = self._allowed[site], perm[site]
                i = rng.integers(self.num_rows)
                partners = np.flatnonzero(table[i, here] & table[:, here[i]])
                j = rng.choice(partners)
                here[i], here[j] = here[j], here[i]
        return found


# How many neighbours are held at a time, unless one matching alone has more.
_MAX_NEIGHBOURS = 50_000


class Climb(NamedTuple):
    """Where hill climbing has arrived."""

    ends: np.ndarray  # (r,) places in the memory, -1 if the budget ended before a start began
    finished: bool  # whether every start has reached a local optimum within the budget


def local_search(
    log_density_batch: Evaluate,
    starts: np.ndarray,
    allowed: np.ndarray,
    max_evaluations: int = 100_000,
    *,
    partial: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Climb from many starts to local optima and return everything that was evaluated.

    Each step goes to the best matching one swap away (of two rows, or of a row and an unused
    column), if it is better. All starts climb at once: their neighbours are evaluated in one call,
    and no matching twice. Several sites are changed in turn.

    Args:
        log_density_batch: Maps (k, n) or (k, S, n) matchings, -1 for unmatched, to (k,) log
            densities, -inf allowed.
        starts: (r, n) or (r, S, n) allowed matchings.
        allowed: (n, m) or (S, n, m) booleans, True where row i may have column j.
        max_evaluations: The most evaluations.
        partial: Whether pairs may be left out; if not, as many rows as possible are matched.

    Returns:
        The distinct matchings (k, n) or (k, S, n) in the order of evaluation, and their (k,) log
        densities.

    Raises:
        ValueError: A start is not allowed, or shapes do not fit.
    """
    hood = Neighbourhood(allowed, partial=partial)
    memory = Evaluations(log_density_batch, hood.num_cols, max_evaluations)
    hill_climb(memory, starts, hood)
    return memory.matchings, memory.values


def hill_climb(memory: Evaluations, starts: np.ndarray, hood: Neighbourhood) -> Climb:
    """Run `local_search` with a memory and a neighbourhood that several climbs may share."""
    starts = np.asarray(starts)
    event = starts.shape[1:]
    wanted = (hood.num_sites, hood.num_rows) if hood.num_sites > 1 else (hood.num_rows,)
    if starts.dtype.kind not in "iu" or event != wanted:
        raise ValueError(
            f"starts must be integers of shape (r, {', '.join(map(str, wanted))}), got dtype "
            f"{starts.dtype} and shape {starts.shape}."
        )
    places = hood.padded(starts.reshape(-1, hood.num_sites, hood.num_rows))
    ends = memory.find(hood.plain(places))
    stale = np.where(ends < 0, hood.num_sites, 0)
    site, together = 0, max(1, _MAX_NEIGHBOURS // max(1, hood.num_swaps))
    while (stale < hood.num_sites).any() and memory.left > 0:
        # The others join when the first ones have arrived.
        active = np.flatnonzero(stale < hood.num_sites)[:together]
        around, base = hood.around(places[active], site)
        found = memory.find(hood.plain(around))
        values = np.append(memory.values, -np.inf)[found]
        for climber, start, end in _runs(base, len(active)):
            here, best = active[climber], start + _argmax(values[start:end])
            if end > start and values[best] > memory.values[ends[here]]:
                places[here], ends[here], stale[here] = around[best], found[best], 0
            else:
                stale[here] += 1
        site = (site + 1) % hood.num_sites
    return Climb(ends, memory.left > 0)


def _argmax(values: np.ndarray) -> int:
    return int(np.argmax(values)) if len(values) else 0


def _runs(base: np.ndarray, num: int) -> list[tuple[int, int, int]]:
    """Return (which, start, end) of the runs of equal entries in a sorted array."""
    bounds = np.searchsorted(base, np.arange(num + 1))
    return [(k, int(bounds[k]), int(bounds[k + 1])) for k in range(num)]
