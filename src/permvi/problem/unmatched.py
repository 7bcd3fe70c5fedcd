r"""The rule for what may stay unmatched, and tables in which "unmatched" is one more choice.

**The rule.** A row must be matched unless it has a weight of staying unmatched or there are more
rows than columns. A column must be used unless it has a weight of staying unused, there are more
columns than rows, or rows may stay unmatched, since each of these leaves a column unused. Where no
weight is given, staying unmatched has log weight 0.

**Grounded tables.** A row or column that stays unmatched is treated as matched to the *ground*, an
extra row and an extra column that take any number of partners. All log weights then fit one
(n+1, m+1) table:

    table[i, j]  score of the pair (i, j)              table[i, m]  row i stays unmatched
    table[n, j]  column j stays unused                 table[n, m]  0

with -inf for what is not allowed. Index -1 is the ground, which is also how matchings write it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from permvi import _checks
from permvi._assignment.duality import best_matching

if TYPE_CHECKING:
    from permvi.problem.problem import Problem

# Cells per chunk when counting the columns that matchings use, to limit memory.
_CELLS_PER_CHUNK = 1 << 22


class UnmatchedWeights(NamedTuple):
    """Log weights of staying unmatched, -inf for what must be matched.

    Attributes:
        rows: (n,) or (S, n) log weights of unmatched rows.
        cols: (m,) or (S, m) log weights of unused columns.
    """

    rows: Any
    cols: Any

    def of(self, perms: Any) -> Any:
        """Sum the log weights of all that matchings leave unmatched: (..., [S,] n) -> (...).

        This sums over sites where the weights have a site axis. NumPy in, NumPy out; JAX arrays may
        be traced.
        """
        xp = perms.__array_namespace__()
        axes = tuple(range(-self.rows.ndim, 0))
        used = (perms[..., :, None] == xp.arange(self.cols.shape[-1])).any(axis=-2)
        rows = xp.where(perms < 0, xp.asarray(self.rows), 0.0).sum(axis=axes)
        return rows + xp.where(used, 0.0, xp.asarray(self.cols)).sum(axis=axes)


def may_be_partial(rows: Any, cols: Any) -> bool:
    """Return whether weights of staying unmatched were given for rows or for columns."""
    return rows is not None or cols is not None


def unmatched_weights(rows: Any, cols: Any, shape: tuple[int, int]) -> UnmatchedWeights:
    """Fill in by the rule the weights of staying unmatched that are None.

    Args:
        rows: (n,) or (S, n) log weights of unmatched rows, or None.
        cols: (m,) or (S, m) log weights of unused columns, or None.
        shape: (n, m).

    Returns:
        Both weights, of the same number of axes.
    """
    n, m = shape
    free_cols = m > n or rows is not None
    rows = np.full(n, 0.0 if n > m else -np.inf) if rows is None else rows
    cols = np.full(m, 0.0 if free_cols else -np.inf) if cols is None else cols
    sites = max(rows.shape[:-1], cols.shape[:-1], key=len)
    return UnmatchedWeights(
        rows.__array_namespace__().broadcast_to(rows, (*sites, n)),
        cols.__array_namespace__().broadcast_to(cols, (*sites, m)),
    )


@dataclass(frozen=True, eq=False)
class LogWeights:
    """Log weights of all (partial) matchings of n rows and m columns.

    Attributes:
        table: (n+1, m+1) grounded log weights, -inf where not allowed, 0 in the last corner.
    """

    table: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns, without the ground."""
        return self.table.shape[0] - 1, self.table.shape[1] - 1

    def of(self, matchings: np.ndarray) -> np.ndarray:
        """Return the log weight of each matching: (..., n) integers in -1..m-1 -> (...).

        ``sum_i table[i, x_i] + sum over unused j of table[n, j]``, and -inf for matchings that are
        forbidden or use a column twice.
        """
        n, m = self.shape
        flat = matchings.reshape(-1, n)
        chunk = max(1, _CELLS_PER_CHUNK // (m + 1))
        parts = [self._of_chunk(flat[k : k + chunk]) for k in range(0, len(flat), chunk)]
        values = np.concatenate(parts) if parts else np.zeros(0)
        return values.reshape(matchings.shape[:-1])

    def _of_chunk(self, matchings: np.ndarray) -> np.ndarray:
        n, m = self.shape
        cells = matchings % (m + 1) + (m + 1) * np.arange(len(matchings))[:, None]
        uses = np.bincount(cells.ravel(), minlength=len(matchings) * (m + 1))
        uses = uses.reshape(-1, m + 1)[:, :m]
        values = self.table[np.arange(n), matchings].sum(axis=-1)
        values += np.where(uses == 0, self.table[n, :m], 0.0).sum(axis=-1)
        values[(uses > 1).any(axis=-1)] = -np.inf
        return values


def build_weights(
    scores: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
    row_unmatched: ArrayLike | None = None,
    col_unmatched: ArrayLike | None = None,
) -> LogWeights:
    """Check the arguments of a linear matching problem and return its grounded table.

    The arguments are those of :func:`~permvi.inference.exact.solve_exact`. A known pair leaves its
    row and its column no other choice.
    """
    pairs = _checks.real_array("scores", scores)
    if pairs.ndim != 2 or 0 in pairs.shape:
        raise ValueError(f"scores must have shape (n, m) with n, m >= 1, got shape {pairs.shape}.")
    n, m = pairs.shape
    if mask is not None:
        pairs = np.where(_boolean("mask", mask, (n, m)), pairs, -np.inf)
    bad = np.argwhere(np.isnan(pairs) | (pairs == np.inf))
    if len(bad):
        i, j = bad[0]
        raise ValueError(
            "scores must be finite, or -inf for a forbidden pair, wherever mask allows a pair, "
            f"got {pairs[i, j]} at row {i}, column {j}."
        )
    rows = None if row_unmatched is None else _weights("row_unmatched", row_unmatched, n)
    cols = None if col_unmatched is None else _weights("col_unmatched", col_unmatched, m)
    if known is not None:
        known = _checks.check_matchings("known", known, (n, m))
        if known.shape != (n,):
            raise ValueError(f"known must have shape ({n},), got shape {known.shape}.")
        _checks.distinct_columns("known", known)
    return LogWeights(_ground(pairs, None, known, rows, cols))


def _ground(
    scores: np.ndarray,
    mask: np.ndarray | None = None,
    known: np.ndarray | None = None,
    row_unmatched: np.ndarray | None = None,
    col_unmatched: np.ndarray | None = None,
) -> np.ndarray:
    """Return the grounded table (n+1, m+1) of arguments that have been checked.

    Raises:
        ValueError: A known pair is forbidden.
    """
    n, m = scores.shape
    alone = unmatched_weights(row_unmatched, col_unmatched, (n, m))
    table = np.zeros((n + 1, m + 1))
    table[:n, :m] = scores if mask is None else np.where(mask, scores, -np.inf)
    table[:n, m], table[n, :m] = alone
    if known is None:
        return table
    rows = np.flatnonzero(known >= 0)
    cols = known[rows]
    values = table[rows, cols]
    for i, j in zip(rows[values == -np.inf], cols[values == -np.inf], strict=True):
        raise ValueError(
            f"known must respect mask and scores, got the forbidden pair of row {i} and column {j}."
        )
    table[rows, :] = -np.inf
    table[:, cols] = -np.inf
    table[rows, cols] = values
    return table


def grounded(problem: "Problem") -> np.ndarray:
    """Return (S, n+1, m+1) grounded log weights of a problem, -inf where not allowed.

    Pairs have score zero where the density is not linear.
    """
    names = ("scores", "mask", "row_unmatched", "col_unmatched")
    given = {name: getattr(problem, name) for name in names}
    if given["scores"] is None:
        given["scores"] = np.zeros(problem.shape)
    return tables_by_site(given, problem.num_sites)


def tables_by_site(arguments: Mapping[str, Any], num_sites: int) -> np.ndarray:
    """Return the grounded log weights (S, n+1, m+1) of the arguments of `solve_exact` by site.

    The arguments are arrays with or without a leading site axis, or None except for "scores".
    """
    n, m = np.shape(arguments["scores"])[-2:]
    events = {"row_unmatched": (n,), "col_unmatched": (m,), "known": (n,)}
    full = {
        name: np.broadcast_to(np.asarray(array), (num_sites, *events.get(name, (n, m))))
        for name, array in arguments.items()
        if array is not None
    }
    sites = ({name: array[s] for name, array in full.items()} for s in range(num_sites))
    return np.stack([_ground(**site) for site in sites])


def is_partial(problem: "Problem") -> bool:
    """Return whether rows may stay unmatched, or columns unused, beyond a surplus."""
    return problem.is_partial


def feasible(problem: "Problem", perms: np.ndarray) -> np.ndarray:
    """Return (num,) whether matchings (num, n) or (num, S, n) have finite log weight."""
    tables = grounded(problem)
    sites = perms.reshape(len(perms), *tables.shape[:1], -1)
    total = sum(LogWeights(table).of(sites[:, s]) for s, table in enumerate(tables))
    return np.isfinite(total)


def complete(tables: np.ndarray) -> np.ndarray:
    r"""Turn grounded log weights (..., n+1, m+1) into squares (..., n+m, n+m) of permutations.

    With log weights S of pairs and r, c of rows and columns that stay unmatched,

    .. math:: \begin{pmatrix} S & \mathrm{diag}(r) \\ 1 c^T & 0 \end{pmatrix}

    and -inf off the diagonal of its upper right block. Row i has a column of its own for being
    unmatched. The m rows below are all alike: they take the m columns that the n rows leave, in any
    order, so every partial matching belongs to exactly m! permutations of its own weight. (If each
    row below were bound to one column, a matching of k pairs would belong to k! permutations, which
    would favour long matchings.)
    """
    n, m = tables.shape[-2] - 1, tables.shape[-1] - 1
    squares = np.full((*tables.shape[:-2], n + m, n + m), -np.inf)
    squares[..., :n, :m] = tables[..., :n, :m]
    squares[..., np.arange(n), m + np.arange(n)] = tables[..., :n, m]
    squares[..., n:, :m] = tables[..., n:, :m]
    squares[..., n:, m:] = 0.0
    return squares


def best_matchings(tables: np.ndarray) -> np.ndarray:
    """Return the matchings (..., n) of largest weight under grounded tables (..., n+1, m+1).

    Raises:
        ValueError: A table allows no matching.
    """
    flat = tables.reshape(-1, *tables.shape[-2:])
    found = [best_matching(table) for table in flat]
    if any(perm is None for perm in found):
        raise ValueError("mask and unmatched weights must leave a feasible matching, got none.")
    return np.array(found).reshape(*tables.shape[:-2], -1)


def random_matchings(num: int, problem: "Problem", rng: np.random.Generator) -> np.ndarray:
    """Return (num, n) or (num, S, n) feasible matchings: the best ones under random weights.

    Every feasible matching is the best under some weights, so all of them can come up.
    """
    if not problem.is_partial:
        mask = None if problem.mask is None else np.asarray(problem.mask)
        return random_assignments(num, problem.layout.table_shape, mask, rng)
    perms = random_feasible(num, np.isfinite(grounded(problem)), rng)
    return perms[:, 0] if problem.num_sites == 1 else perms


def random_feasible(num: int, allowed: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return (num, S, n) random matchings that grounded booleans (S, n+1, m+1) allow."""
    tables = np.where(allowed, rng.gumbel(size=(num, *allowed.shape)), -np.inf)
    tables[..., -1, -1] = 0.0
    return best_matchings(tables)


def random_assignments(
    num: int, shape: tuple[int, ...], mask: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """Return (num, n) or (num, S, n) random matchings with as many pairs as possible.

    Args:
        num: Number of matchings.
        shape: (n, m), or (S, n, m) for several sites.
        mask: Booleans of that shape or of (n, m), or None.
        rng: The source of randomness.
    """
    # Only now: this loads JAX, which the exact engine does without.
    from permvi import assignment

    scores = rng.gumbel(size=(num, *shape))
    return np.asarray(assignment.solve(scores, mask, backend="host"), dtype=np.int64)


def _boolean(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != bool:
        raise TypeError(f"{name} must be a boolean array, got dtype {array.dtype}.")
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape {shape} of scores, got {array.shape}.")
    return array


def _weights(name: str, value: ArrayLike, size: int) -> np.ndarray:
    array = _checks.real_array(name, value)
    if array.shape not in ((), (size,)):
        raise ValueError(f"{name} must be a scalar or have shape ({size},), got {array.shape}.")
    _checks.below_infinity(name, array)
    return np.broadcast_to(array, (size,))
