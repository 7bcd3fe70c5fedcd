r"""Linear matching problems as lists of candidate pairs.

.. math:: \log p(x) = \sum_{(i,j) \in x} s_{ij} + \sum_{i \text{ alone}} r_i
          + \sum_{j \text{ alone}} c_j - \log Z

over all sets x of candidate pairs in which no row and no column occurs twice. A row or column with
an infinite weight of -inf for being alone has to be matched.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, min_weight_full_bipartite_matching

from permvi.problem.unmatched import unmatched_weights


@dataclass(frozen=True, eq=False)
class SparseProblem:
    """Candidate pairs and their log weights, sorted by row and then by column.

    Attributes:
        rows: (E,) the row of each pair.
        cols: (E,) its column.
        scores: (E,) its log weight.
        row_alone: (n,) log weights of unmatched rows, -inf where a row has to be matched.
        col_alone: (m,) the same for columns.
    """

    rows: np.ndarray
    cols: np.ndarray
    scores: np.ndarray
    row_alone: np.ndarray
    col_alone: np.ndarray

    @classmethod
    def from_table(
        cls,
        scores: np.ndarray,
        mask: np.ndarray | None = None,
        row_unmatched: ArrayLike | None = None,
        col_unmatched: ArrayLike | None = None,
    ) -> "SparseProblem":
        """The pairs that an (n, m) mask allows; what may be None is as in `solve_exact`."""
        n, m = scores.shape
        rows, cols = np.nonzero(np.ones((n, m), bool) if mask is None else mask)
        given_rows, given_cols = (
            None if weights is None else np.asarray(weights, dtype=np.float64)
            for weights in (row_unmatched, col_unmatched)
        )
        alone = map(np.array, unmatched_weights(given_rows, given_cols, (n, m)))
        return cls(rows, cols, np.asarray(scores[rows, cols], dtype=np.float64), *alone)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return len(self.row_alone), len(self.col_alone)

    @cached_property
    def row_ends(self) -> np.ndarray:
        """(n+1,) where the pairs of each row begin, and where those of the last end."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    @cached_property
    def by_col(self) -> np.ndarray:
        """(E,) the pairs sorted by column and then by row."""
        return np.lexsort((self.rows, self.cols))

    @cached_property
    def col_ends(self) -> np.ndarray:
        """(m+1,) where the pairs of each column begin in ``by_col``, and where the last end."""
        return np.searchsorted(self.cols[self.by_col], np.arange(self.shape[1] + 1))

    def part(self, rows: np.ndarray, cols: np.ndarray, pairs: np.ndarray) -> "SparseProblem":
        """The problem of some rows and columns (sorted) and of the pairs (sorted) among them."""
        return SparseProblem(
            np.searchsorted(rows, self.rows[pairs]),
            np.searchsorted(cols, self.cols[pairs]),
            self.scores[pairs],
            self.row_alone[rows],
            self.col_alone[cols],
        )

    def table(self) -> np.ndarray:
        """(n, m) log weights, -inf where there is no pair: for small problems."""
        table = np.full(self.shape, -np.inf)
        table[self.rows, self.cols] = self.scores
        return table

    def pairs_of(self, perms: np.ndarray) -> np.ndarray:
        """The pair that each row has in matchings (..., n), E where it is alone.

        Raises:
            ValueError: A row has a column that is none of its candidates.
        """
        n, m = self.shape
        keys = self.rows * m + self.cols
        wanted = np.arange(n) * m + perms
        # With no pairs at all there is still nobody to find.
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        alone = perms < 0
        if not (alone | (np.append(keys, -1)[place] == wanted)).all():
            raise ValueError("perms must consist of candidate pairs, got a pair that is none.")
        return np.where(alone, len(keys), place)

    def log_weight(self, perm: np.ndarray) -> float:
        """The unnormalised log density of one matching (n,)."""
        alone_rows = perm < 0
        alone_cols = np.ones(self.shape[1], bool)
        alone_cols[perm[~alone_rows]] = False
        matched = self.scores[self.pairs_of(perm)[~alone_rows]].sum()
        return float(matched + self.row_alone[alone_rows].sum() + self.col_alone[alone_cols].sum())


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
