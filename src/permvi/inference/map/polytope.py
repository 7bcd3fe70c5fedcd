"""The polytope of relaxed matchings: its vertices, where searches start, and Frank-Wolfe steps."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from permvi import assignment

# Starts need not be doubly stochastic to the last digit.
_SINKHORN_STEPS = 100

Map = Callable[[np.ndarray], np.ndarray]
# (points, vertices, slopes), each (r, ...) -> (r,) steps in [0, 1] from the points to the vertices.
LineSearch = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Ascent(NamedTuple):
    """The last points X (r, ...), and how many gradients all starts have evaluated together."""

    X: np.ndarray
    num_gradients: int


def frank_wolfe(
    gradient: Map,
    best_vertices: Map,
    line_search: LineSearch,
    starts: np.ndarray,
    max_iter: int,
    tolerance: float = 0.0,
) -> Ascent:
    """Climb from several points of a polytope at once (Frank and Wolfe 1956).

    A step goes from X towards the vertex V that is best under the gradient, to ``X + t (V - X)``.
    Searches differ in the arguments alone: graph matching has a quadratic function (Vogelstein et
    al. 2015) or a gradient by JAX; convex relaxations read a bound off the gap ``<slopes, V - X>``;
    dynamics carries its gradient along, which is linear in X. A start stops where its gradient is
    not finite.

    Args:
        gradient: The gradient of the function to maximise: (r, ...) -> (r, ...).
        best_vertices: Slopes (r, ...) -> the vertices (r, ...) of largest inner product with them.
        line_search: How far to go; zero ends the climb.
        starts: (r, ...) points of the polytope.
        max_iter: The most steps from each start.
        tolerance: A step that is no longer than this (root mean square of its rows) is the last.
    """
    X = np.array(starts, dtype=np.float64)
    axes = tuple(range(1, X.ndim))
    active, num_gradients = np.arange(len(X)), 0
    for _ in range(max_iter):
        slopes = gradient(X[active])
        num_gradients += len(active)
        finite = np.isfinite(slopes).all(axis=axes)
        active, slopes = active[finite], slopes[finite]
        if not len(active):
            break
        here, vertices = X[active], best_vertices(slopes)
        steps = line_search(here, vertices, slopes)
        moves = steps.reshape(-1, *(1 for _ in axes)) * (vertices - here)
        X[active] += moves
        distance = np.sqrt((moves**2).sum(axis=axes) / np.prod(X.shape[1:-1]))
        active = active[distance > tolerance]
        if not len(active):
            break
    return Ascent(X, num_gradients)


def best_step(rise: np.ndarray | float, bend: np.ndarray | float) -> np.ndarray:
    """The t in [0, 1] with the largest ``t rise + t^2 bend``: the exact step of a quadratic."""
    rise, bend = np.asarray(rise), np.asarray(bend)
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = np.clip(-rise / (2 * bend), 0.0, 1.0)
    return np.where(bend < 0, inside, (bend + rise > 0).astype(np.float64))


def best_matrices(mask: np.ndarray | None) -> Map:
    """Slopes (..., n, m) -> the 0/1 matrices (..., n, m) of the best matchings under a mask."""
    return lambda slopes: matrices(solve(slopes, mask), slopes.shape[-1])


def solve(scores: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """The best matchings (..., n) under scores (..., n, m), on the host."""
    return np.asarray(assignment.solve(scores, mask, backend="host"), dtype=np.int64)


def matrices(perms: np.ndarray, num_cols: int) -> np.ndarray:
    """0/1 matrices (..., n, m) of matchings (..., n), with rows of zeros for -1."""
    return np.eye(num_cols + 1)[perms][..., :num_cols]


def relaxed_starts(
    num: int, shape: tuple[int, ...], mask: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """(num, ..., n, m) relaxed matchings: the centre first, then random ones halfway to it.

    The centre has equal entries without a mask, and is the matrix of largest entropy with one. The
    random ones are scaled matrices of uniform numbers (Vogelstein et al. 2015). The shape is (n, m)
    or (S, n, m); the pruned mask may have either.
    """
    n, m = shape[-2:]
    size = max(n, m)
    square = (*shape[:-2], size, size)
    allowed = np.ones(square)
    if mask is not None:
        allowed[..., :n, :m] = mask
    centre = scaled(allowed)
    starts = (centre + scaled(allowed * rng.random((num, *square)))) / 2
    starts[0] = centre
    return starts[..., :n, :m]


def scaled(matrix: np.ndarray) -> np.ndarray:
    """Sinkhorn's scaling of numbers of order one: no logarithms, and nothing to compile."""
    for _ in range(_SINKHORN_STEPS):
        matrix = matrix / matrix.sum(axis=-1, keepdims=True)
        matrix = matrix / matrix.sum(axis=-2, keepdims=True)
    return matrix
