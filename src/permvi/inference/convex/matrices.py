"""Bounds on quadratic matching by convex relaxation over the Birkhoff polytope, and roundings."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from permvi.inference.map import Quadratic
from permvi.inference.map.polytope import Map, best_step, frank_wolfe, matrices, solve


class Roundings:
    """The permutation ``perm`` (n,) of smallest ``value`` among the roundings of points.

    Args:
        rounded: Rounds a point to a permutation (n,).
        value: The value of a permutation.
    """

    perm: np.ndarray

    def __init__(
        self, rounded: Callable[[np.ndarray], np.ndarray], value: Callable[[np.ndarray], float]
    ) -> None:
        self._rounded, self._value_of = rounded, value
        self._seen: set[bytes] = set()
        self.value = np.inf

    @property
    def num_values(self) -> int:
        """The number of values computed."""
        return len(self._seen)

    def look_at(self, point: np.ndarray) -> None:
        """Round a point, and keep the permutation if it is better."""
        perm = self._rounded(point)
        if perm.tobytes() in self._seen:
            return
        self._seen.add(perm.tobytes())
        value = self._value_of(perm)
        if value < self.value:
            self.value, self.perm = value, perm


# The gap, relative to the value, at which nothing is left to gain.
_TOLERANCE = 1e-7


class Minimum(NamedTuple):
    """The last point of Frank-Wolfe, and the best lower bound that the iterates gave."""

    x: np.ndarray
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
    r"""Minimise a convex quadratic function f by Frank-Wolfe steps, each as long as is best.

    At a point x with the best vertex y under the slopes g there, convexity says that
    :math:`\min f \ge f(x) - \langle g, x - y \rangle`, wherever the iteration stops.

    Args:
        gradient: The gradient of f.
        curvature: ``f(x + d) - f(x) - <gradient(x), d>`` by d, at least zero.
        best_vertex: The vertex with the smallest inner product with given slopes.
        start: A point of the polytope, where f has this ``value``.
        value: See ``start``.
        max_iter: The most steps.
        visit: Called with every iterate and every vertex, to round them.
    """
    bound = -np.inf

    def line_search(X: np.ndarray, vertices: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        nonlocal bound, value
        visit(X[0])
        visit(vertices[0])
        direction = vertices[0] - X[0]
        gap = float((slopes[0] * direction).sum())
        bound = max(bound, value - gap)
        if gap <= _TOLERANCE * max(1.0, abs(value)):
            return np.zeros(1)
        bend = curvature(direction)
        length = float(best_step(gap, -bend))
        value += length * (length * bend - gap)
        return np.array([length])

    found = frank_wolfe(
        lambda X: -gradient(X[0])[None],
        lambda slopes: best_vertex(-slopes[0])[None],
        line_search,
        start[None],
        max_iter,
    )
    visit(found.X[0])
    return Minimum(found.X[0], bound, found.num_gradients)


class MatrixMaximum(NamedTuple):
    """A large value of a function of matchings, and a bound on the largest.

    Attributes:
        X: (n, m) the relaxed solution.
        bound: An upper bound on the function over all matchings.
        perm: (n,) the best matching found, -1 for unmatched.
        value: Its value.
        num_evaluations: How many values and gradients were computed.
    """

    X: np.ndarray
    bound: float
    perm: np.ndarray
    value: float
    num_evaluations: int


def maximise_quadratic(
    quadratic: Quadratic, mask: np.ndarray | None = None, max_iter: int = 200
) -> MatrixMaximum:
    """Find a matching with a large value, and a bound on the largest.

    Frank-Wolfe solves the relaxation with an assignment in each step. Every point on the way is
    rounded to the nearest matching, and the best one is returned.

    Args:
        quadratic: The function; rectangular ones leave the surplus of the longer side unmatched.
        mask: (n, m) booleans, True where allowed, pruned; or None.
        max_iter: The most steps; the bound holds after any number.
    """
    n, m = quadratic.shape
    square = quadratic.padded()
    size = max(n, m)
    allowed = None
    if mask is not None:
        allowed = np.ones((size, size), bool)
        allowed[:n, :m] = mask
    shift = _largest_eigenvalue(square.A, square.B)
    best = Roundings(
        lambda X: _nearest_permutation(X, allowed), lambda perm: -float(square.values(perm))
    )
    first = solve(square.C, allowed)
    found = minimise(
        lambda X: 2 * shift * X - square.gradient(X),
        lambda D: float(shift * (D**2).sum() - square.curvature(D)),
        lambda slopes: matrices(solve(-slopes, allowed), size),
        matrices(first, size),
        -float(square.values(first)),
        max_iter,
        best.look_at,
    )
    return MatrixMaximum(
        found.x[:n, :m],
        min(-found.bound, gilmore_lawler(square, allowed)),
        np.where(best.perm[:n] < m, best.perm[:n], -1),
        -best.value,
        found.num_gradients + best.num_values,
    )


def _nearest_permutation(X: np.ndarray, allowed: np.ndarray | None) -> np.ndarray:
    perm = np.argmax(X, axis=1)
    # If no two rows have the same largest column, nothing is left to assign.
    return perm if len(np.unique(perm)) == len(perm) else solve(X, allowed)


def gilmore_lawler(quadratic: Quadratic, mask: np.ndarray | None = None) -> float:
    """Return an upper bound on a square quadratic function over all allowed permutations.

    If i is matched with j, the other entries of row i of A meet those of row j of B in some order;
    their inner product is largest if both are sorted.
    """
    A, B = (_sorted_without_diagonal(part) for part in (quadratic.A, quadratic.B))
    loops = np.outer(np.diag(quadratic.A), np.diag(quadratic.B))
    weights = A @ B.T + loops + quadratic.C
    best = solve(weights, mask)
    return float(weights[np.arange(len(best)), best].sum()) + quadratic.constant


def _sorted_without_diagonal(A: np.ndarray) -> np.ndarray:
    n = len(A)
    return np.sort(A[~np.eye(n, dtype=bool)].reshape(n, n - 1), axis=1)


def _largest_eigenvalue(A: np.ndarray, B: np.ndarray) -> float:
    r"""Return an upper bound on the eigenvalues of ``<A, D B D'>`` on matrices D of sums zero.

    The form is that of :math:`A_s \otimes B_s + A_k \otimes B_k` with the symmetric and the
    antisymmetric parts. Eigenvalues of products are products of eigenvalues, all real: those of
    antisymmetric matrices are imaginary pairs, so the second term reaches the product of the
    largest moduli.
    """
    if len(A) == 1:
        return 0.0
    A, B = _on_sums_of_zero(A), _on_sums_of_zero(B)
    a, b = (np.linalg.eigvalsh((part + part.T) / 2)[[0, -1]] for part in (A, B))
    skew = [np.linalg.norm((part - part.T) / 2, 2) for part in (A, B)]
    return float(np.outer(a, b).max() + skew[0] * skew[1])


def _on_sums_of_zero(A: np.ndarray) -> np.ndarray:
    """Return a matrix (n-1, n-1) in an orthonormal basis of the vectors of sum zero."""
    n = len(A)
    basis = np.linalg.qr(np.eye(n)[:, 1:] - 1 / n)[0]
    return basis.T @ A @ basis
