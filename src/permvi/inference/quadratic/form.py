r"""The square form of a quadratic problem, in which every state is a permutation.

Rows and columns without weights take a surplus, as in `permvi.inference.map`. Where items may stay
unmatched, row i has a column of its own for that and as many rows as there are columns take what is
left, see `permvi.problem.unmatched.complete`. Each matching then belongs to the same number of
permutations. Forbidden pairs have a penalty, so that chains pass through them at high temperatures,
and permutations that use one do not count.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from permvi.inference.map import Quadratic
from permvi.inference.map.method import quadratic_of
from permvi.inference.quadratic.twins import Cells, Twins
from permvi.problem.prepare import Prepared
from permvi.problem.unmatched import best_matchings, complete, grounded

# The penalty of a forbidden pair in nats, beyond the largest gain that it could bring.
_PENALTY = 1.0


# Rows share a cell of references if a swap of them changes the best value by no more nats than
# these, the first by edges and the second by scores.
_NEAR_TWINS = 2.0, 6.0
# Lists are as fast as tables where rows have no more than this share of all edges on average, and
# they are needed beyond so many rows, where a table for each replica would not fit into memory.
_FEW_EDGES = 0.25
_MANY_ROWS = 400
# What an edge in a list costs, in entries of a table, and what a row that is not in the cache does.
_LISTED_WORK = 4.0
_ROW_WORK = 0.125


class Lists(NamedTuple):
    """The edges of A from each row, and those to it, see `tempering_kernels.listed_gain`.

    Attributes:
        begins: (2, N+1) where the edges of each row begin; (2, 0) if there are no lists.
        others: (2, edges) the other row of each edge.
        weights: (2, edges) their weights.
    """

    begins: np.ndarray
    others: np.ndarray
    weights: np.ndarray

    @classmethod
    def of(cls, A: np.ndarray) -> "Lists":
        """List the edges of A, (N, N), that are not zero, if that is of use."""
        n, num = len(A), np.count_nonzero(A)
        if num > _FEW_EDGES * n * n and n <= _MANY_ROWS:
            return cls(np.zeros((2, 0), np.int64), np.zeros((2, 0), np.int64), np.zeros((2, 0)))
        found = [np.nonzero(part) for part in (A, A.T)]
        return cls(
            np.stack([np.searchsorted(rows, np.arange(n + 1)) for rows, _ in found]),
            np.stack([others for _, others in found]),
            np.stack([part[places] for part, places in zip((A, A.T), found, strict=True)]),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Form:
    """``<A, X B X'> + <C, X>`` on permutations of N rows.

    Attributes:
        A, B, C: (N, N) arrays; C holds the penalties of forbidden pairs.
        symmetric: Whether A and B are.
        allowed: (N, N) booleans.
        shape: (n, m), the numbers of rows and columns that are not there to fill up.
        constant: What is added to the log density.
        log_copies: The log of the number of permutations of each matching.
        best: (N,) the best permutation known.
        best_value: Its value, without the constant.
        num_steps: The number of swaps of a chain between two looks at it.
        turned: (N, N) the transpose of B, or B itself if that is symmetric.
        lists: The edges of A, if they are few.
        twins: Rows and columns that can be exchanged.
        cells: The cells of references.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    symmetric: bool
    allowed: np.ndarray
    shape: tuple[int, int]
    constant: float
    log_copies: float
    best: np.ndarray
    best_value: float
    num_steps: int
    turned: np.ndarray
    lists: Lists
    twins: Twins
    cells: Cells

    @property
    def work(self) -> float:
        """What the difference of a swap costs, in sums over a row of a table."""
        n = len(self.best)
        if self.lists.begins.size == 0:
            return n
        return _LISTED_WORK * self.lists.others.shape[1] / n + _ROW_WORK * n

    @property
    def quadratic(self) -> Quadratic:
        """The form as a function of permutations, without the constant."""
        return Quadratic(self.A, self.B, self.C)

    def values(self, perms: np.ndarray) -> np.ndarray:
        """Return the values (r,) of permutations (r, N), without the constant."""
        return self.quadratic.values(perms)

    def matchings(self, perms: np.ndarray) -> np.ndarray:
        """Return permutations (..., N) as matchings (..., n), -1 for unmatched."""
        n, m = self.shape
        return np.where(perms[..., :n] < m, perms[..., :n], -1)


def square_form(prepared: Prepared) -> tuple[Quadratic, np.ndarray, float]:
    """Return a square problem (N, N), the allowed pairs, and the log of the copies of a matching.

    Raises:
        ValueError: The model has neither a quadratic form nor scores, or no matching is feasible.
    """
    found, problem = quadratic_of(prepared), prepared.problem
    if found is None and problem.scores is not None:
        # A linear density is a quadratic one without edges.
        A, B = (np.zeros((size, size)) for size in problem.shape)
        found = Quadratic(A, B, problem.host_scores, float(problem.constant))
    if found is None:
        raise ValueError(
            "model must have a quadratic form for method 'quadratic', got a "
            f"{type(prepared.model).__name__} without; see pv.methods()."
        )
    n, m = found.shape
    if not problem.is_partial:
        size = max(n, m)
        allowed = np.ones((size, size), bool)
        if problem.mask is not None:
            allowed[:n, :m] = problem.mask
        return found.padded().symmetrised(), allowed, math.lgamma(size - min(n, m) + 1.0)
    # Scores are part of the quadratic form already.
    tables = grounded(dataclasses.replace(problem, scores=None))
    best_matchings(tables)
    table = complete(tables)[0]
    allowed = np.isfinite(table)
    A, B, C = (np.zeros((n + m, n + m)) for _ in range(3))
    A[:n, :n], B[:m, :m] = found.A, found.B
    C[allowed] = table[allowed]
    C[:n, :m] += found.C
    whole = Quadratic(A, B, C, found.constant)
    return whole.symmetrised(), allowed, math.lgamma(m + 1.0)


def with_penalties(
    square: Quadratic,
    allowed: np.ndarray,
    log_copies: float,
    shape: tuple[int, int],
    best: np.ndarray,
) -> Form:
    """Return the form of a square problem, given its best permutation (N,)."""
    n = len(allowed)
    rows = np.arange(n)
    C = square.C.copy()
    if not allowed.all():
        # The most that any row can gain by leaving its column in the best permutation.
        slopes = square.gradient(np.eye(n)[best])
        gain = float((slopes - slopes[rows, best][:, None]).max())
        C[~allowed] = C[rows, best].min() - max(gain, 0.0) - _PENALTY
    A, B, C = (np.ascontiguousarray(array) for array in (square.A, square.B, C))
    twins = Twins.of(square, allowed)
    return Form(
        A,
        B,
        C,
        symmetric=square.is_symmetric,
        allowed=allowed,
        shape=shape,
        constant=square.constant,
        log_copies=log_copies,
        best=best.astype(np.int64),
        best_value=float(Quadratic(A, B, C).values(best)),
        num_steps=max(n, 10),
        turned=B if square.is_symmetric else np.ascontiguousarray(B.T),
        lists=Lists.of(A),
        twins=twins,
        cells=Cells.of(Twins.of(square, allowed, best, _NEAR_TWINS), twins, best),
    )
