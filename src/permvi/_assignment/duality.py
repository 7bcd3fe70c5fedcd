"""The best matching, and prices that prove it best.

The linear programme of (partial) matchings has the dual

    minimise  sum_i a_i + sum_j b_j   subject to   table[i, c] <= a_i + b_c,

with a and b zero for the ground. At the optimum every weight the best matching uses is tight. So
after subtracting the prices all log weights are at most 0, the best matching has log weight 0, and
the sum of all weights lies between 1 and the number of matchings: exp can neither overflow nor
lose anything that matters, whatever the scale of the scores.
"""

import numpy as np


def best_matching(table: np.ndarray) -> np.ndarray | None:
    """The matching (n,) of largest weight under (n+1, m+1) grounded log weights.

    It has -1 for the ground. None if none is feasible.
    """
    n, m = table.shape[0] - 1, table.shape[1] - 1
    pairs, row_alone, col_alone = table[:n, :m], table[:n, m], table[n, :m]
    if np.isfinite(col_alone).all():
        return _match_rows(pairs - col_alone, row_alone)
    if np.isfinite(row_alone).all():
        rows = _match_rows((pairs - row_alone[:, None]).T, col_alone)
        return None if rows is None else _invert(rows, n)
    return _match_both(pairs, row_alone, col_alone)


def residual_graph(table: np.ndarray, choice: np.ndarray) -> np.ndarray:
    """What it costs to let go of one column and take another, as a (m+1, m+1) matrix of lengths.

    An edge c -> d says that the row holding column c could take d instead, losing
    ``table[i, c] - table[i, d]``; +inf where it may not. The last node is the ground. Cycles are
    the ways from one feasible matching to another; those of the best one have no negative length.
    """
    n, m = table.shape[0] - 1, table.shape[1] - 1
    held = table[np.arange(n), choice]
    lengths = np.full((m + 1, m + 1), np.inf)
    # All unmatched rows hold the ground, so that node offers the cheapest of their changes.
    np.minimum.at(lengths, choice, held[:, None] - table[:n])
    lengths[m] = np.minimum(lengths[m], -table[n])
    alone = np.setdiff1d(np.arange(m), choice)
    lengths[alone, m] = table[n, alone]
    np.fill_diagonal(lengths, 0.0)
    return lengths


def reduce_by_prices(table: np.ndarray, choice: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The grounded table less optimal prices: entries <= 0 up to rounding, 0 on ``choice``.

    The result is ``table[i, c] - a_i - b_c``. ``choice`` (n,) is the best matching and ``lengths``
    its residual graph, in which shortest distances y are such prices: ``b_c = y_ground - y_c``, and
    a_i follows from the tight entry of row i.
    """
    n = table.shape[0] - 1
    prices = _shortest_distances(lengths)
    prices -= prices[-1]
    held = table[np.arange(n), choice]
    reduced = table + prices
    # Differences first: scores and prices may be large where their reduced values are small.
    reduced[:n] = (table[:n] - held[:, None]) + (prices - prices[choice][:, None])
    return reduced


def _shortest_distances(lengths: np.ndarray) -> np.ndarray:
    # Bellman-Ford from a source at distance 0 of every node. It needs as many rounds as there are
    # nodes at most; stopping there also ends a cycle whose length rounding made negative.
    distances = np.zeros(len(lengths))
    for _ in range(len(lengths)):
        shorter = (distances[:, None] + lengths).min(axis=0)
        if (shorter == distances).all():
            break
        distances = shorter
    return distances


def _match_rows(gains: np.ndarray, alone: np.ndarray) -> np.ndarray | None:
    """The best choice of each row where columns may be left over at no cost."""
    m = gains.shape[1]
    spare = np.repeat(alone[:, None], np.isfinite(alone).sum(), axis=1)
    cols = _assign(np.concatenate([gains, spare], axis=1))
    return None if cols is None else np.where(cols < m, cols, -1)


def _match_both(
    pairs: np.ndarray, row_alone: np.ndarray, col_alone: np.ndarray
) -> np.ndarray | None:
    """The best choice of each row where some rows and some columns have to be matched."""
    n, m = pairs.shape
    required = max(np.isinf(row_alone).sum(), np.isinf(col_alone).sum())
    if required > min(n, m):
        return None
    padded = np.zeros((n + m - required, n + m - required))
    padded[:n, :m] = pairs
    padded[:n, m:] = row_alone[:, None]
    padded[n:, :m] = col_alone
    cols = _assign(padded)
    return None if cols is None else np.where(cols[:n] < m, cols[:n], -1)


def _assign(gains: np.ndarray) -> np.ndarray | None:
    # Loading it takes half a second, and lists of pairs have their own solver.
    from scipy.optimize import linear_sum_assignment

    if gains.shape[0] > gains.shape[1]:
        return None
    try:
        return linear_sum_assignment(gains, maximize=True)[1]
    except ValueError:
        # The input is known to be free of NaN, so this is SciPy's "cost matrix is infeasible".
        return None


def _invert(rows: np.ndarray, n: int) -> np.ndarray:
    choice = np.full(n, -1)
    cols = np.flatnonzero(rows >= 0)
    choice[rows[cols]] = cols
    return choice
