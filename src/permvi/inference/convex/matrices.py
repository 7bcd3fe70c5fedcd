r"""Quadratic functions of permutation matrices: a concave relaxation over the Birkhoff polytope.

What is wanted is the largest :math:`q(X) = \langle A, X B X^\top \rangle + \langle C, X \rangle`
over permutations. All of them have :math:`\lVert X \rVert^2 = n`, so with :math:`\mu` no less than
the largest eigenvalue of the quadratic part on matrices whose rows and columns sum to zero,

.. math:: q(X) - \mu (\lVert X \rVert^2 - n)

has the same values at permutations and is concave in between: its maximum over the polytope bounds
q from above. This is the simplest convexification there is, and its bound is weak. Where that of
Gilmore (1962) and Lawler (1963), one assignment of what each pair could contribute at best, is
lower, it is taken instead.
"""

from typing import NamedTuple

import numpy as np

from permvi.inference.convex.frank_wolfe import minimise
from permvi.inference.convex.roundings import Roundings
from permvi.inference.map import Quadratic
from permvi.inference.map.frank_wolfe import matrices
from permvi.inference.map.starts import solve


class MatrixMaximum(NamedTuple):
    """A maximum over matchings, from both sides.

    Attributes:
        X: (n, m) the relaxed solution.
        bound: An upper bound on the function over all matchings.
        perm: (n,) the best matching found, -1 for unmatched.
        value: The function there.
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
    """A matching with a large value, and a bound on the largest.

    Frank-Wolfe on the relaxation, an assignment in each step; every point on the way is rounded to
    the nearest matching, and the best of them is returned.

    Args:
        quadratic: The function; rectangular ones leave the surplus of the longer side unmatched.
        mask: (n, m) booleans, True where allowed, pruned; or None.
        max_iter: The most steps; the bound holds wherever they end.
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
    # If rows agree already, nothing is left to assign.
    return perm if len(np.unique(perm)) == len(perm) else solve(X, allowed)


def gilmore_lawler(quadratic: Quadratic, mask: np.ndarray | None = None) -> float:
    """An upper bound on a square quadratic function over all permutations that a mask allows.

    If i is matched with j, the other entries of row i of A meet those of row j of B in some order;
    their inner product is largest where both are sorted.
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
    r"""At least the largest eigenvalue of ``<A, D B D'>`` on matrices D with sums zero.

    The form is that of :math:`A_s \otimes B_s + A_k \otimes B_k` with the symmetric and the
    antisymmetric parts. Eigenvalues of products are products of eigenvalues, all real: those of
    antisymmetric matrices are imaginary and come in pairs, so the second term reaches the product
    of the largest moduli.
    """
    if len(A) == 1:
        return 0.0
    A, B = _on_sums_of_zero(A), _on_sums_of_zero(B)
    a, b = (np.linalg.eigvalsh((part + part.T) / 2)[[0, -1]] for part in (A, B))
    skew = [np.linalg.norm((part - part.T) / 2, 2) for part in (A, B)]
    return float(np.outer(a, b).max() + skew[0] * skew[1])


def _on_sums_of_zero(A: np.ndarray) -> np.ndarray:
    """(n-1, n-1) a matrix in an orthonormal basis of the vectors of sum zero."""
    n = len(A)
    basis = np.linalg.qr(np.eye(n)[:, 1:] - 1 / n)[0]
    return basis.T @ A @ basis
