"""The best matching of a sparse problem, and the independent parts that it falls into.

As in `permvi.inference.exact.blocks`, but with lists instead of tables: a pair is in some matching
if and only if its two ends lie in one strongly connected component of the residual graph.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching

from permvi.inference.sparse.problem import SparseProblem


class Component(NamedTuple):
    """Rows, columns and pairs that know nothing of the others; all are sorted."""

    rows: np.ndarray
    cols: np.ndarray
    pairs: np.ndarray


def best_matching(problem: SparseProblem) -> np.ndarray:
    """(n,) the matching of largest weight, -1 for unmatched rows.

    One sparse assignment. Where rows or columns may be alone, row i has a column of its own for
    that and column j a row of its own; what is not needed of these is matched among themselves as
    the rows and columns are that they belong to, at no cost.

    Raises:
        ValueError: No matching is feasible.
    """
    n, m = problem.shape
    rows, cols, gains = problem.rows, problem.cols, problem.scores
    free_rows = np.flatnonzero(problem.row_alone > -np.inf)
    free_cols = np.flatnonzero(problem.col_alone > -np.inf)
    size = (n, m)
    if len(free_rows) or len(free_cols) or n != m:
        rows, cols, gains = (
            np.concatenate(parts)
            for parts in (
                (rows, free_rows, n + free_cols, n + problem.cols),
                (cols, m + free_rows, free_cols, m + problem.rows),
                (
                    gains,
                    problem.row_alone[free_rows],
                    problem.col_alone[free_cols],
                    np.zeros(len(gains)),
                ),
            )
        )
        size = (n + m, n + m)
    if not len(gains):
        raise ValueError(_INFEASIBLE)
    # SciPy takes a weight of zero for no pair; all perfect matchings have the same length.
    shifted = gains - (gains.max() + 1.0)
    try:
        found = min_weight_full_bipartite_matching(
            coo_array((shifted, (rows, cols)), shape=size).tocsr(), maximize=True
        )[1]
    except ValueError:
        raise ValueError(_INFEASIBLE) from None
    return np.where(found[:n] < m, found[:n], -1)


_INFEASIBLE = (
    "candidate pairs must leave a feasible matching, got none: rows or columns that have to be "
    "matched share too few partners."
)


def used_pairs(problem: SparseProblem, best: np.ndarray) -> np.ndarray:
    """(E,) whether a pair is in some feasible matching, given one of them."""
    m = problem.shape[1]
    may_row, may_col = problem.row_alone > -np.inf, problem.col_alone > -np.inf
    if may_row.all() and may_col.all():
        return np.ones(len(problem.rows), bool)
    # Node m is the ground, which holds the rows and columns that are alone.
    holds = np.where(best < 0, m, best)
    free = np.setdiff1d(np.arange(m), best)
    optional = np.flatnonzero(may_col)
    starts = (holds[problem.rows], holds[may_row], free, np.full(len(optional), m))
    ends = (problem.cols, np.full(may_row.sum(), m), np.full(len(free), m), optional)
    tails, heads = np.concatenate(starts), np.concatenate(ends)
    graph = coo_array((np.ones(len(tails), bool), (tails, heads)), shape=(m + 1, m + 1))
    _, label = connected_components(graph.tocsr(), directed=True, connection="strong")
    return label[holds[problem.rows]] == label[problem.cols]


def split(problem: SparseProblem, used: np.ndarray) -> list[Component]:
    """The connected parts of the used pairs; rows and columns without any are parts of their own.

    Args:
        problem: The problem.
        used: (E,) the pairs that count.
    """
    n, m = problem.shape
    pairs = np.flatnonzero(used)
    ends = (problem.rows[pairs], n + problem.cols[pairs])
    graph = coo_array((np.ones(len(pairs), bool), ends), shape=(n + m, n + m))
    count, label = connected_components(graph, directed=False)

    def grouped(labels: np.ndarray, members: np.ndarray) -> list[np.ndarray]:
        order = np.argsort(labels, kind="stable")
        return np.split(members[order], np.searchsorted(labels[order], np.arange(1, count)))

    return [
        Component(*parts)
        for parts in zip(
            grouped(label[:n], np.arange(n)),
            grouped(label[n:], np.arange(m)),
            grouped(label[ends[0]], pairs),
            strict=True,
        )
    ]
