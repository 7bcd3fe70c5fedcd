r"""A linear matching problem as the permanent of a square matrix.

With more columns than rows, m - n rows of zero scores take the columns that are left over. Every
matching of the n rows then belongs to (m - n)! permutations of equal weight, so

.. math:: \sum_x e^{\langle S, x \rangle} = \mathrm{per}(e^{\tilde S}) / |m - n|!,

and the marginals of the corner are those of the problem. Scores are reduced by the prices of the
best matching (see `permvi.inference.exact.duality`): none is positive, the best matching has log
weight zero, and nothing overflows in float32.
"""

import math
from typing import NamedTuple

import numpy as np

from permvi import assignment
from permvi.inference.exact.blocks import decompose
from permvi.inference.exact.problem import build_weights

# Of matchings that are worse than the best by this factor exp(.), nothing is left in float64.
_NEGLIGIBLE = -1e4


class SquareProblem(NamedTuple):
    """A reduced square problem.

    Attributes:
        scores: (N, N) log weights, at most zero up to rounding; -inf where no matching that
            matters uses a pair.
        shape: (n, m), of which N is the larger.
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


def square_problem(scores: np.ndarray, mask: np.ndarray | None = None) -> SquareProblem:
    """Make a problem square and reduce its scores.

    Args:
        scores: (n, m) log weights of pairs; -inf forbids a pair.
        mask: (n, m) booleans, the pairs that are allowed.

    Raises:
        ValueError: No matching is feasible.
    """
    n, m = scores.shape
    size = max(n, m)
    padding = ((0, size - n), (0, size - m))
    padded = np.pad(np.asarray(scores, dtype=np.float64), padding)
    allowed = None if mask is None else np.pad(mask, padding, constant_values=True)
    found = decompose(build_weights(padded, allowed))
    reduced = found.reduced.table[:size, :size]
    matters = assignment.prune_mask(reduced >= _NEGLIGIBLE)
    corner = matters[:n, :m]
    choices = corner.sum(axis=1 if n <= m else 0)
    best = found.best[:n]
    return SquareProblem(
        scores=np.where(matters, reduced, -np.inf),
        shape=(n, m),
        best=np.where(best < m, best, -1),
        offset=found.best_log_weight - math.lgamma(abs(n - m) + 1),
        best_log_weight=found.best_log_weight,
        settled=bool((choices == 1).all()),
    )
