"""Back to valid marginals: the nearest ones without negative entries."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from permvi.inference.fourier.marginals import from_marginals, to_marginals
from permvi.inference.fourier.transform import Coefficients
from permvi.inference.fourier.young import Partition

# How far entries may be below zero, and positive ones from where the optimum has them.
_TOLERANCE = 1e-9
_MAX_STEPS = 3000


class Projection(NamedTuple):
    """Coefficients with valid marginals.

    Attributes:
        coefficients: Of the given band limit.
        distance: How far the marginals moved, in the Euclidean norm.
        converged: Whether the optimum was reached.
    """

    coefficients: Coefficients
    distance: float
    converged: bool


def project(coefficients: Mapping[Partition, np.ndarray], order: int) -> Projection:
    r"""The nearest function of the band limit whose marginals of that order are probabilities.

    Nearest in the Euclidean norm of the marginals. At order one these are the doubly stochastic
    matrices, the marginals of distributions. At higher orders the set is a relaxation, larger than
    that: entries are non-negative and all fit together.

    With :math:`\Pi` the projection on marginals of functions of sum zero, the solution is
    :math:`T + \Pi \Lambda` with multipliers :math:`\Lambda \ge 0` that minimise the convex function
    :math:`\frac12 \lVert \Pi \Lambda \rVert^2 + \langle \Lambda, T \rangle`. They are found by
    accelerated projected gradients (Beck and Teboulle 2009) with restarts (O'Donoghue and Candes
    2015).

    Args:
        coefficients: All of the band limit, with sum one.
        order: The band limit.
    """
    n = sum(next(iter(coefficients)))
    start = to_marginals(coefficients, order)
    found, converged = dict(coefficients), bool(start.min() >= 0)
    valid, multipliers, momentum = start, np.zeros_like(start), 1.0
    point = multipliers
    for _ in range(0 if converged else _MAX_STEPS):
        change = from_marginals(point, n, order)
        change[(n,)] = np.zeros((1, 1))
        valid = start + to_marginals(change, order)
        found = {each: coefficients[each] + change[each] for each in change}
        # Zero where multipliers and entries are non-negative and one of each pair is zero.
        if np.abs(np.minimum(valid, point)).max() <= _TOLERANCE:
            converged = True
            break
        new = np.maximum(point - valid, 0.0)
        if ((point - new) * (new - multipliers)).sum() > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = new + (momentum - 1) / following * (new - multipliers)
        multipliers, momentum = new, following
    return Projection(found, float(np.linalg.norm(valid - start)), converged)
