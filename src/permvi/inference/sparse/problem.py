r"""Linear matching problems as lists of candidate pairs.

.. math:: \log p(x) = \sum_{(i,j) \in x} s_{ij} + \sum_{i \text{ alone}} r_i
          + \sum_{j \text{ alone}} c_j - \log Z

over all sets x of candidate pairs in which no row and no column occurs twice. A row or column with
an infinite weight of -inf for being alone has to be matched.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike


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
        alone = (
            np.full(size, 0.0 if size > other else -np.inf)
            if given is None
            else np.array(given, dtype=np.float64)
            for given, size, other in ((row_unmatched, n, m), (col_unmatched, m, n))
        )
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
