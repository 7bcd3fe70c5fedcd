"""The k best matchings in decreasing order of weight (Murty 1968)."""

import heapq
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from permvi._assignment.duality import best_matching, reduce_by_prices, residual_graph
from permvi._checks import whole
from permvi.inference.exact.blocks import decompose
from permvi.problem.unmatched import LogWeights, build_weights


@dataclass(frozen=True, eq=False)
class _Cell:
    """A part of the solution space.

    Attributes:
        prefix: (q,) the choices of rows 0, ..., q-1, which are fixed.
        forbidden: Choices that row q may not make. Later rows are free.
        best: (n,) the best matching of the cell, or None while only a bound on it is known.
    """

    prefix: np.ndarray
    forbidden: np.ndarray
    best: np.ndarray | None = None


def k_best(
    scores: ArrayLike,
    k: int,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
    row_unmatched: ArrayLike | None = None,
    col_unmatched: ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the k distinct matchings of largest weight, exactly.

    Each matching found splits its cell of the solution space into cells in which some row chooses
    differently. Prices of the assignment problem bound the best weight of a cell, so that most
    cells are never solved, as proposed by Miller, Stone and Cox (1997). The arguments other than
    ``k``, the number of matchings, are those of :func:`~permvi.inference.exact.solve_exact`.

    Returns:
        Matchings (k', n), -1 for unmatched rows, and their log weights (k',) in decreasing order.
        A log weight is a log probability plus the log evidence. k' < k if fewer matchings exist.

    Raises:
        ValueError: No matching is feasible.

    References:
        Murty, *An algorithm for ranking all the assignments in order of increasing cost*,
        Operations Research 16, 1968. Miller, Stone and Cox, *Optimizing Murty's ranked assignment
        method*, IEEE Transactions on Aerospace and Electronic Systems 33, 1997.
    """
    k = whole("k", k)
    weights = build_weights(scores, mask, known, row_unmatched, col_unmatched)
    problem = decompose(weights)
    matchings = np.tile(problem.best, (k, 1))
    if not problem.blocks:
        return matchings[:1], weights.of(matchings[:1])
    # Search only over rows and columns that have a choice.
    rows = np.concatenate([block.rows for block in problem.blocks])
    cols = np.concatenate([block.cols for block in problem.blocks])
    n, m = problem.reduced.shape
    grounded = np.ix_(np.append(rows, n), np.append(cols, m))
    found = _search(LogWeights(problem.reduced.table[grounded]), k)
    matchings = matchings[: len(found)]
    matchings[:, rows] = np.append(cols, -1)[found]
    log_weights = weights.of(matchings)
    # The search compares reduced weights, which may round differently in the last digit.
    order = np.argsort(-log_weights, kind="stable")
    return matchings[order], log_weights[order]


def _search(weights: LogWeights, k: int) -> np.ndarray:
    """Return the k best matchings of a grounded table, (k', n)."""
    tie_break = itertools.count()
    root = _Cell(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    heap = [(0.0, next(tie_break), root)]
    found: list[np.ndarray] = []
    while heap and len(found) < k:
        _, _, cell = heapq.heappop(heap)
        if cell.best is None:
            best = _complete(weights.table, cell)
            if best is not None:
                solved = _Cell(cell.prefix, cell.forbidden, best)
                heapq.heappush(heap, (-float(weights.of(best)), next(tie_break), solved))
            continue
        found.append(cell.best)
        for bound, child in _partition(weights, cell, cell.best):
            heapq.heappush(heap, (-bound, next(tie_break), child))
    return np.array(found)


def _remaining(table: np.ndarray, cell: _Cell) -> tuple[np.ndarray, np.ndarray]:
    """Return the grounded table of the rows and columns left open by a cell, and those columns."""
    open_cols = np.ones(table.shape[1], dtype=bool)
    open_cols[cell.prefix] = False
    open_cols[-1] = True
    cols = np.flatnonzero(open_cols)
    rest = table[len(cell.prefix) :].copy()
    rest[0, cell.forbidden] = -np.inf
    return rest[:, cols], cols


def _complete(table: np.ndarray, cell: _Cell) -> np.ndarray | None:
    rest, cols = _remaining(table, cell)
    choice = best_matching(rest)
    if choice is None:
        return None
    return np.concatenate([cell.prefix, np.append(cols[:-1], -1)[choice]])


def _partition(weights: LogWeights, cell: _Cell, best: np.ndarray) -> list[tuple[float, _Cell]]:
    """Split ``cell`` without ``best`` into cells, each with an upper bound on its best weight."""
    start = len(cell.prefix)
    rest, cols = _remaining(weights.table, cell)
    choice = np.searchsorted(cols, best[start:] % weights.table.shape[1])
    choice[choice == len(cols) - 1] = -1
    reduced = reduce_by_prices(rest, choice, residual_graph(rest, choice))
    bounds = float(weights.of(best)) + _best_changes(reduced, choice)
    children = []
    for row, bound in enumerate(bounds.tolist(), start):
        if bound > -np.inf:
            earlier = cell.forbidden if row == start else cell.forbidden[:0]
            children.append((bound, _Cell(best[:row], np.append(earlier, best[row]))))
    return children


def _best_changes(reduced: np.ndarray, choice: np.ndarray) -> np.ndarray:
    """Bound the best log weight if row p must change while the rows before it may not, for each p.

    The row has to take another column, and its old column has to go to another row or the ground.
    These are two entries of the new matching, and no entry is above 0.
    """
    size = len(choice)
    new_col, new_row = reduced[:-1].copy(), reduced[:, choice]
    row, earlier = np.tril_indices(size)
    taken = (choice[earlier] >= 0) | (row == earlier)
    new_col[row[taken], choice[earlier[taken]]] = -np.inf
    new_row[earlier, row] = -np.inf
    return new_col.max(axis=1) + np.where(choice < 0, 0.0, new_row.max(axis=0))
