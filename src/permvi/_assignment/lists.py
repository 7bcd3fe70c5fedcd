"""The best matching of a list of pairs, and prices that prove it best.

`permvi._assignment.duality` does this for tables. A row or column whose log weight of staying alone
is -inf has to be matched.
"""

from typing import NamedTuple

import numpy as np

INFEASIBLE = (
    "candidate pairs must leave a feasible matching, got none: rows or columns that have to be "
    "matched share too few partners."
)


class Pairs(NamedTuple):
    """A list of pairs with their log weights, and the log weights of staying alone.

    Attributes:
        rows: (E,) the row of each pair, in increasing order.
        cols: (E,) the column of each pair.
        scores: (E,) the log weight of each pair.
        row_alone: (n,) log weights of unmatched rows.
        col_alone: (m,) log weights of unused columns.
    """

    rows: np.ndarray
    cols: np.ndarray
    scores: np.ndarray
    row_alone: np.ndarray
    col_alone: np.ndarray

    @property
    def transposed(self) -> "Pairs":
        """The same pairs with rows and columns exchanged."""
        order = np.lexsort((self.rows, self.cols))
        flipped = self.cols[order], self.rows[order], self.scores[order]
        return Pairs(*flipped, self.col_alone, self.row_alone)


class Solution(NamedTuple):
    """The matching of largest weight, and prices that prove it best.

    The prices of a row and a column add up to at least the log weight of their pair, and to exactly
    that in the best matching. So a matching with a pair whose prices exceed its log weight by g is
    at least ``exp(g)`` times less probable than the best one.

    Attributes:
        perm: (n,) the column of each row, -1 for unmatched.
        row_prices: (n,).
        col_prices: (m,).
    """

    perm: np.ndarray
    row_prices: np.ndarray
    col_prices: np.ndarray


def solve_pairs(pairs: Pairs, stopped: np.ndarray | None = None) -> Solution:
    """Return the matching of largest weight and its prices.

    Args:
        pairs: The pairs and weights.
        stopped: (1,) a flag that another thread sets to end the search.

    Raises:
        ValueError: No matching is feasible.
        KeyboardInterrupt: ``stopped`` was set before the end.
    """
    stopped = np.zeros(1, bool) if stopped is None else stopped
    n, m = len(pairs.row_alone), len(pairs.col_alone)
    row_free, col_free = pairs.row_alone > -np.inf, pairs.col_alone > -np.inf
    if n == m and not (row_free.any() and col_free.any()):
        # All are matched, whatever the weights of staying alone.
        must, free = np.full(n, -np.inf), np.zeros(m)
        return _match(pairs._replace(row_alone=must, col_alone=free), stopped)
    if col_free.all():
        return _match(pairs, stopped)
    if row_free.all():
        flipped = _match(pairs.transposed, stopped)
        perm = np.full(n, -1)
        matched = np.flatnonzero(flipped.perm >= 0)
        perm[flipped.perm[matched]] = matched
        return Solution(perm, flipped.col_prices, flipped.row_prices)
    return _match_embedded(pairs, stopped)


def _match(pairs: Pairs, stopped: np.ndarray) -> Solution:
    """Match rows with columns that may all stay unused."""
    # Imported here because it loads numba.
    from permvi._assignment.list_kernels import match_rows

    starts = np.searchsorted(pairs.rows, np.arange(len(pairs.row_alone) + 1))
    cols = np.ascontiguousarray(pairs.cols, dtype=np.int64)
    weights = (np.ascontiguousarray(part, dtype=np.float64) for part in pairs[2:])
    found = Solution(*match_rows(starts, cols, *weights, stopped))
    if stopped[0]:
        raise KeyboardInterrupt
    if found.perm.min(initial=-1) < -1:
        raise ValueError(INFEASIBLE)
    return found


def _match_embedded(pairs: Pairs, stopped: np.ndarray) -> Solution:
    """Match where only some of the rows and some of the columns may stay alone.

    This is a perfect matching of twice the size: row i gets an extra column for staying alone and
    column j an extra row. If i and j are matched, their extra column and row are matched to each
    other at no cost.
    """
    n, m = len(pairs.row_alone), len(pairs.col_alone)
    free_rows = np.flatnonzero(pairs.row_alone > -np.inf)
    free_cols = np.flatnonzero(pairs.col_alone > -np.inf)
    rows = np.concatenate([pairs.rows, free_rows, n + free_cols, n + pairs.cols])
    cols = np.concatenate([pairs.cols, m + free_rows, free_cols, m + pairs.rows])
    alone = pairs.row_alone[free_rows], pairs.col_alone[free_cols]
    gains = np.concatenate([pairs.scores, *alone, np.zeros(len(pairs.scores))])
    order = np.argsort(rows, kind="stable")
    must, free = np.full(n + m, -np.inf), np.zeros(n + m)
    found = _match(Pairs(rows[order], cols[order], gains[order], must, free), stopped)
    perm = np.where(found.perm[:n] < m, found.perm[:n], -1)
    return Solution(perm, found.row_prices[:n], found.col_prices[:m])
