"""Frank-Wolfe over relaxed matchings: each step moves towards the best one under the gradient."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from permvi.inference.map.quadratic import Quadratic
from permvi.inference.map.starts import solve

Gradient = Callable[[np.ndarray], np.ndarray]
# (X, D, gradient) -> the steps in [0, 1] to go from X in the directions D.
LineSearch = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]

# A relaxed matching that moves less than this (root mean square of its rows) has arrived.
_TOLERANCE = 0.01


class Ascent(NamedTuple):
    """Where Frank-Wolfe has arrived.

    Attributes:
        perms: (r, ..., n) the matchings nearest to the last iterates.
        num_gradients: How many gradients were evaluated, over all starts.
    """

    perms: np.ndarray
    num_gradients: int


def frank_wolfe(
    gradient: Gradient,
    line_search: LineSearch,
    starts: np.ndarray,
    mask: np.ndarray | None,
    max_iter: int,
) -> Ascent:
    """Climb from several relaxed matchings at once (Frank and Wolfe 1956; Vogelstein et al. 2015).

    Starts whose gradient is not finite stop where they are.

    Args:
        gradient: Of the log density: (r, ..., n, m) -> (r, ..., n, m).
        line_search: How far to go.
        starts: (r, n, m), or (r, S, n, m) for several sites.
        mask: (n, m) or (S, n, m) booleans, True where allowed, or None.
        max_iter: The most steps from each start.
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
        direction = matrices(solve(slopes, mask), X.shape[-1]) - X[active]
        steps = line_search(X[active], direction, slopes)
        moves = steps.reshape(-1, *(1 for _ in axes)) * direction
        X[active] += moves
        distance = np.sqrt((moves**2).sum(axis=axes) / np.prod(X.shape[1:-1]))
        active = active[distance > _TOLERANCE]
        if not len(active):
            break
    return Ascent(solve(X, mask), num_gradients)


def exact_line_search(quadratic: Quadratic) -> LineSearch:
    """The best step of a quadratic function: where its slope vanishes, or one of the ends."""

    def steps(X: np.ndarray, direction: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        del X
        linear = (slopes * direction).sum(axis=(-2, -1))
        square = quadratic.curvature(direction)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.clip(-linear / (2 * square), 0.0, 1.0)
        return np.where(square < 0, inside, (square + linear > 0).astype(np.float64))

    return steps


def matrices(perms: np.ndarray, num_cols: int) -> np.ndarray:
    """0/1 matrices (..., n, m) of matchings (..., n), with rows of zeros for -1."""
    return np.eye(num_cols + 1)[perms][..., :num_cols]
