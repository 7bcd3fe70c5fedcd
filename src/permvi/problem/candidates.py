r"""Linear matching problems as lists of candidate pairs.

.. math:: \log p(x) = \sum_{(i,j) \in x} s_{ij} + \sum_{i \text{ unmatched}} r_i
          + \sum_{j \text{ unused}} c_j - \log Z

over all sets x of candidate pairs in which no row and no column occurs twice. A row or column whose
log weight of staying alone (unmatched or unused) is -inf has to be matched.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from permvi._assignment.lists import Pairs, solve_pairs
from permvi.problem.unmatched import unmatched_weights

if TYPE_CHECKING:
    from permvi.problem.problem import Problem
    from permvi.problem.reduction import Reduction


@dataclass(frozen=True, eq=False)
class Candidates:
    """E candidate pairs and their log weights, sorted by row and then by column.

    Attributes:
        rows: (E,) the row of each pair.
        cols: (E,) the column of each pair.
        scores: (E,) the log weight of each pair.
        row_alone: (n,) log weights of unmatched rows, -inf where a row has to be matched.
        col_alone: (m,) log weights of unused columns, -inf where a column has to be matched.
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
    ) -> "Candidates":
        """Take the pairs that an (n, m) mask allows; the arguments are as in `solve_exact`."""
        n, m = scores.shape
        rows, cols = np.nonzero(np.ones((n, m), bool) if mask is None else mask)
        given_rows, given_cols = (
            None if weights is None else np.asarray(weights, dtype=np.float64)
            for weights in (row_unmatched, col_unmatched)
        )
        alone = map(np.array, unmatched_weights(given_rows, given_cols, (n, m)))
        return cls(rows, cols, np.asarray(scores[rows, cols], dtype=np.float64), *alone)

    @classmethod
    def of_problem(cls, problem: "Problem") -> "Candidates":
        """Take all allowed pairs of a linear problem; sites follow each other."""
        layout, scores, mask = problem.layout, problem.host_scores, problem.table_mask
        if layout.num_sites == 1:
            return cls.from_table(scores, mask, problem.row_unmatched, problem.col_unmatched)
        alone = problem.unmatched
        return cls.of_sites(
            np.broadcast_to(scores, layout.table_shape),
            mask,
            *(np.broadcast_to(a, (layout.num_sites, a.shape[-1])) for a in alone),
        )

    @classmethod
    def of_sites(
        cls,
        scores: np.ndarray,
        mask: np.ndarray,
        row_alone: np.ndarray,
        col_alone: np.ndarray,
    ) -> "Candidates":
        """Join S independent problems: tables (S, n, m), log weights (S, n) and (S, m).

        Row i of site s becomes row ``s * n + i``, and likewise for columns.
        """
        _, n, m = scores.shape
        sites, rows, cols = np.nonzero(mask)
        pairs = np.asarray(scores[sites, rows, cols], dtype=np.float64)
        return cls(sites * n + rows, sites * m + cols, pairs, row_alone.ravel(), col_alone.ravel())

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return len(self.row_alone), len(self.col_alone)

    @cached_property
    def row_ends(self) -> np.ndarray:
        """The first pair of each row, and E: (n+1,)."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    @cached_property
    def by_col(self) -> np.ndarray:
        """The pairs sorted by column and then by row, (E,)."""
        return np.lexsort((self.rows, self.cols))

    @cached_property
    def col_ends(self) -> np.ndarray:
        """The place in ``by_col`` of the first pair of each column, and E: (m+1,)."""
        return np.searchsorted(self.cols[self.by_col], np.arange(self.shape[1] + 1))

    def part(self, rows: np.ndarray, cols: np.ndarray, pairs: np.ndarray) -> "Candidates":
        """Return the problem of some rows and columns and of the pairs among them, all sorted."""
        return Candidates(
            np.searchsorted(rows, self.rows[pairs]),
            np.searchsorted(cols, self.cols[pairs]),
            self.scores[pairs],
            self.row_alone[rows],
            self.col_alone[cols],
        )

    def without(self, reduction: "Reduction") -> tuple[float, "Candidates"]:
        """Take out known pairs: return the sum of their log weights, and the problem that is left.

        Raises:
            KeyError: A known pair is not in the list.
        """
        n = self.shape[0]
        settled = np.asarray(reduction.settled)
        known = settled[self.rows] == self.cols
        if np.count_nonzero(known) < np.count_nonzero(settled >= 0):
            raise KeyError("candidate pairs must include all known pairs")
        used = np.zeros(self.shape[1], bool)
        used[settled[settled >= 0]] = True
        left = (settled[self.rows] < 0) & ~used[self.cols]
        rest = self.part(np.arange(n)[settled < 0], np.flatnonzero(~used), np.flatnonzero(left))
        return float(self.scores[known].sum()), rest

    def table(self) -> np.ndarray:
        """Return the dense table (n, m) of log weights, -inf where there is no pair."""
        table = np.full(self.shape, -np.inf)
        table[self.rows, self.cols] = self.scores
        return table

    def pairs_of(self, perms: np.ndarray) -> np.ndarray:
        """Return the pair of each row in matchings (..., n), E where the row is unmatched."""
        n, m = self.shape
        keys = self.rows * m + self.cols
        wanted = np.arange(n) * m + perms
        # There may be no pairs at all.
        place = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        alone = perms < 0
        if not (alone | (np.append(keys, -1)[place] == wanted)).all():
            raise ValueError("perms must use candidate pairs only, got another pair.")
        return np.where(alone, len(keys), place)

    def log_weight(self, perm: np.ndarray) -> float:
        """Return the unnormalised log density of one matching (n,)."""
        alone_rows = perm < 0
        alone_cols = np.ones(self.shape[1], bool)
        alone_cols[perm[~alone_rows]] = False
        matched = self.scores[self.pairs_of(perm)[~alone_rows]].sum()
        return float(matched + self.row_alone[alone_rows].sum() + self.col_alone[alone_cols].sum())


class Component(NamedTuple):
    """The rows, columns and pairs of an independent part of a problem, all sorted."""

    rows: np.ndarray
    cols: np.ndarray
    pairs: np.ndarray


def best_matching(problem: Candidates, stopped: np.ndarray | None = None) -> np.ndarray:
    """Return the matching of largest weight, (n,), -1 for unmatched rows.

    Raise ``ValueError`` if no matching is feasible, and ``KeyboardInterrupt`` if another thread
    sets the flag ``stopped``, (1,).
    """
    arrays = problem.rows, problem.cols, problem.scores, problem.row_alone, problem.col_alone
    return solve_pairs(Pairs(*arrays), stopped).perm


def far_matching(
    problem: Candidates, best: np.ndarray, stopped: np.ndarray | None = None
) -> np.ndarray:
    """Return the best matching (n,) among those that share the fewest pairs with ``best``.

    ``stopped`` is as in `best_matching`.
    """
    finite = (problem.scores, *(a[a > -np.inf] for a in (problem.row_alone, problem.col_alone)))
    spread = sum(float(np.ptp(array)) for array in finite if len(array))
    penalty = (1.0 + spread) * (1 + sum(problem.shape))
    pairs = problem.pairs_of(best)
    scores, rows = problem.scores.copy(), problem.row_alone.copy()
    scores[pairs[best >= 0]] -= penalty
    rows[best < 0] -= penalty
    penalised = Candidates(problem.rows, problem.cols, scores, rows, problem.col_alone)
    return best_matching(penalised, stopped)


def far_matchings(problem: "Problem") -> np.ndarray:
    """Return the best matching of a linear problem, and the best far from it: (2, n) or (2, S, n).

    The second one finds modes that no sequence of small steps leads to, such as the other way to go
    round a long cycle.
    """
    pairs = Candidates.of_problem(problem)
    best = best_matching(pairs)
    return np.stack([problem.layout.split(p) for p in (best, far_matching(pairs, best))])


def used_pairs(problem: Candidates, best: np.ndarray) -> np.ndarray:
    """Return (E,) whether each pair is in some feasible matching, given the best one."""
    m = problem.shape[1]
    may_row, may_col = problem.row_alone > -np.inf, problem.col_alone > -np.inf
    if may_row.all() and may_col.all():
        return np.ones(len(problem.rows), bool)
    # Node m is the ground, the partner of unmatched rows and unused columns.
    holds = np.where(best < 0, m, best)
    free = np.setdiff1d(np.arange(m), best)
    optional = np.flatnonzero(may_col)
    starts = (holds[problem.rows], holds[may_row], free, np.full(len(optional), m))
    ends = (problem.cols, np.full(may_row.sum(), m), np.full(len(free), m), optional)
    tails, heads = np.concatenate(starts), np.concatenate(ends)
    graph = coo_array((np.ones(len(tails), bool), (tails, heads)), shape=(m + 1, m + 1))
    _, label = connected_components(graph.tocsr(), directed=True, connection="strong")
    return label[holds[problem.rows]] == label[problem.cols]


def split(problem: Candidates, used: np.ndarray) -> list[Component]:
    """Return the connected parts of the graph of the ``used`` pairs, a boolean array (E,).

    A row or column without any such pair is a part of its own.
    """
    n, m = problem.shape
    pairs = np.flatnonzero(used)
    ends = (problem.rows[pairs], n + problem.cols[pairs])
    graph = coo_array((np.ones(len(pairs), bool), ends), shape=(n + m, n + m))
    count, label = connected_components(graph, directed=False)

    def grouped(labels: np.ndarray, members: np.ndarray) -> list[np.ndarray]:
        order = np.argsort(labels, kind="stable")
        return np.split(members[order], np.searchsorted(labels[order], np.arange(1, count)))

    rows, cols = grouped(label[:n], np.arange(n)), grouped(label[n:], np.arange(m))
    parts = zip(rows, cols, grouped(label[ends[0]], pairs), strict=True)
    return [Component(*part) for part in parts]
