r"""A linear matching problem as the permanent of a square matrix.

With more columns than rows, m - n rows of zero scores take the columns that are left over. Every
matching of the n rows then belongs to (m - n)! permutations of equal weight, so

.. math:: \sum_x e^{\langle S, x \rangle} = \mathrm{per}(e^{\tilde S}) / |m - n|!,

and the marginals of the corner are those of the problem.

Where rows and columns may stay unmatched, the square has n + m rows and every partial matching
belongs to m! permutations of its own weight, see `permvi.inference.partial.complete`.

Scores are reduced by the prices of the
best matching (see `permvi._assignment.duality`): none is positive, the best matching has log
weight zero, and nothing overflows in float32.
"""

import math
from typing import NamedTuple

import numpy as np

from permvi import assignment
from permvi.inference.exact.blocks import decompose
from permvi.inference.exact.problem import build_weights
from permvi.inference.partial import complete

# Of matchings that are worse than the best by this factor exp(.), nothing is left in float64.
_NEGLIGIBLE = -1e4


class SquareProblem(NamedTuple):
    """A reduced square problem.

    Attributes:
        scores: (N, N) log weights, at most zero up to rounding; -inf where no matching that
            matters uses a pair.
        shape: (n, m), of which N is the larger, or the sum where items may stay unmatched.
        best: (n,) the best matching, -1 for rows that are left over.
        offset: ``log sum_x exp(<S, x>) = offset + log per(exp(scores))``.
        best_log_weight: The log weight of the best matching.
        settled: Whether it is the only matching (that matters).
    """

    scores: np.ndarray
    shape: tuple[int, int]
    best: np.ndarray
    offset: float
    best_log_weight: float
    settled: bool


def square_problem(
    scores: np.ndarray,
    mask: np.ndarray | None = None,
    row_unmatched: np.ndarray | None = None,
    col_unmatched: np.ndarray | None = None,
) -> SquareProblem:
    """Make a problem square and reduce its scores.

    Args:
        scores: (n, m) log weights of pairs; -inf forbids a pair.
        mask: (n, m) booleans, the pairs that are allowed.
        row_unmatched: (n,) log weights of unmatched rows as in `solve_exact`, or None.
        col_unmatched: (m,) the same for columns.

    Raises:
        ValueError: No matching is feasible.
    """
    n, m = scores.shape
    partial = row_unmatched is not None or col_unmatched is not None
    if partial:
        weights = build_weights(scores, mask, None, row_unmatched, col_unmatched)
        padded, copies = complete(weights.table), m
    else:
        size = max(n, m)
        padding = ((0, size - n), (0, size - m))
        allowed = scores if mask is None else np.where(mask, scores, -np.inf)
        padded, copies = np.pad(np.asarray(allowed, dtype=np.float64), padding), abs(n - m)
    size = len(padded)
    found = decompose(build_weights(padded))
    reduced = found.reduced.table[:size, :size]
    matters = assignment.prune_mask(reduced >= _NEGLIGIBLE)
    choices = matters[:n].sum(axis=1) if n <= m or partial else matters[:, :m].sum(axis=0)
    best = found.best[:n]
    return SquareProblem(
        scores=np.where(matters, reduced, -np.inf),
        shape=(n, m),
        best=np.where(best < m, best, -1),
        offset=found.best_log_weight - math.lgamma(copies + 1),
        best_log_weight=found.best_log_weight,
        settled=bool((choices == 1).all()),
    )
