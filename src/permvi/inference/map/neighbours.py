"""Matchings one swap away: of two rows, or of a row and a free column."""

import numpy as np


class Neighbourhood:
    """All single swaps in matchings of S sites, with what a table allows.

    A matching is written as a permutation of more rows and columns: a row beyond the last holds a
    column that is free, and a column beyond the last stands for being unmatched. Then every change
    is a swap of two rows.

    Args:
        allowed: (n, m) or (S, n, m) booleans, True where row i may have column j.
        partial: Whether pairs may be left out; else as many are matched as there can be.
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
        """How many swaps there are in one site, allowed or not."""
        return len(self._first)

    def padded(self, perms: np.ndarray) -> np.ndarray:
        """Matchings (r, S, n) as permutations (r, S, size).

        Raises:
            ValueError: One of them is no matching, or is not allowed.
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
        """The matchings (..., S, n) of permutations (..., S, size), -1 for unmatched."""
        perms = padded[..., : self.num_rows]
        return np.where(perms < self.num_cols, perms, -1)

    def around(self, padded: np.ndarray, site: int) -> tuple[np.ndarray, np.ndarray]:
        """All allowed permutations that differ by one swap in one site.

        Args:
            padded: (r, S, size) permutations.
            site: Where they are changed.

        Returns:
            (k, S, size) permutations, and the (k,) indices of those that they come from.
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
        """Permutations (r, S, size) after ``num`` random allowed swaps in each."""
        found = padded.copy()
        for perm in found:
            for site in rng.integers(self.num_sites, size=num):
                table, here = self._allowed[site], perm[site]
                i = rng.integers(self.num_rows)
                partners = np.flatnonzero(table[i, here] & table[:, here[i]])
                j = rng.choice(partners)
                here[i], here[j] = here[j], here[i]
        return found
