"""Convex quadratic functions over a polytope, with a bound on the optimum (Jaggi 2013)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Map = Callable[[np.ndarray], np.ndarray]

# The gap, relative to the value, at which nothing is left to gain.
_TOLERANCE = 1e-7


class Minimum(NamedTuple):
    """Where Frank-Wolfe has arrived.

    Attributes:
        x: The last point.
        value: The function there.
        bound: A lower bound on the function's minimum: the best of those that the iterates gave.
        num_gradients: How many gradients were evaluated.
    """

    x: np.ndarray
    value: float
    bound: float
    num_gradients: int


def minimise(
    gradient: Map,
    curvature: Callable[[np.ndarray], float],
    best_vertex: Map,
    start: np.ndarray,
    value: float,
    max_iter: int,
    visit: Callable[[np.ndarray], None],
) -> Minimum:
    r"""Minimise a convex quadratic function f by steps towards vertices, each as long as is best.

    At a point x with the best vertex y under the slopes g there, convexity says that
    :math:`\min f \ge f(x) - \langle g, x - y \rangle`, wherever the iteration stops.

    Args:
        gradient: Of f.
        curvature: ``f(x + d) - f(x) - <gradient(x), d>`` by d, at least zero.
        best_vertex: The vertex with the smallest inner product with given slopes.
        start: A point of the polytope.
        value: f there.
        max_iter: The most steps.
        visit: Called with every iterate and every vertex, of which one may round to something good.
    """
    x, bound = start, -np.inf
    for step in range(max_iter):
        slopes = gradient(x)
        vertex = best_vertex(slopes)
        visit(x)
        visit(vertex)
        direction = vertex - x
        gap = -float((slopes * direction).sum())
        bound = max(bound, value - gap)
        if gap <= _TOLERANCE * max(1.0, abs(value)):
            return Minimum(x, value, bound, step + 1)
        bend = curvature(direction)
        length = min(1.0, gap / (2 * bend)) if bend > 0 else 1.0
        x = x + length * direction
        value += length * (length * bend - gap)
    visit(x)
    return Minimum(x, value, bound, max_iter)
