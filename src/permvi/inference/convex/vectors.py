r"""Functions of permuted vectors: relaxations over the permutahedron, bounds and roundings.

The minimum of a quadratic function :math:`f(x) = x^\top Q x + c^\top x` over the permutations
:math:`x = v_\pi` of a vector v, relaxed to their convex hull (Lim and Wright 2014). All of them
have the same norm and the same sum, so with :math:`\lambda` the smallest eigenvalue of Q on vectors
of sum zero,

.. math:: f(x) - \lambda (\lVert x \rVert^2 - \lVert v \rVert^2)

has the same values at permutations, is convex on the hull, and is the largest of its kind: whatever
Q is, its minimum over the hull bounds that of f from below.
"""

from typing import NamedTuple

import numpy as np

from permvi.inference.convex.frank_wolfe import minimise
from permvi.inference.convex.networks import Inequalities, Permutahedron
from permvi.inference.convex.roundings import Roundings


class VectorMinimum(NamedTuple):
    """A minimum over permutations, from both sides.

    Attributes:
        x: (n,) the relaxed solution, a point of the permutahedron.
        bound: A lower bound on the function over all permutations (that satisfy the inequalities).
        perm: (n,) the best permutation found, ``x = values[perm]``.
        value: The function there.
        num_evaluations: How many values and gradients were computed.
    """

    x: np.ndarray
    bound: float
    perm: np.ndarray
    value: float
    num_evaluations: int


def minimise_linear(
    c: np.ndarray, values: np.ndarray, extra: Inequalities | None = None
) -> VectorMinimum:
    """The permutation x of ``values`` with the smallest ``<c, x>``.

    Exact without inequalities, where the vertices of the relaxation are permutations. With them,
    the rounded solution need not satisfy them.

    Args:
        c: (n,) the slopes.
        values: (n,) the vector to permute.
        extra: Inequalities that x has to satisfy as well.

    Raises:
        ValueError: Shapes do not fit, or the inequalities leave nothing.
    """
    c, hull = _vector(c, values), Permutahedron(values, extra)
    x = hull.best_vertex(c)
    perm = hull.nearest_permutation(x)
    return VectorMinimum(x, float(c @ x), perm, float(c @ hull.values[perm]), 2)


def minimise_quadratic(
    Q: np.ndarray,
    c: np.ndarray,
    values: np.ndarray,
    extra: Inequalities | None = None,
    max_iter: int = 200,
) -> VectorMinimum:
    """A permutation x of ``values`` with a small ``x' Q x + <c, x>``, and a bound on the smallest.

    Frank-Wolfe on the relaxation; every point on the way is rounded to the permutation of the same
    order, and the best of them is returned. Where there are inequalities, such as those that choose
    between an order and its reverse, they bind the relaxation only.

    Args:
        Q: (n, n) any real matrix, of which the symmetric part counts.
        c: (n,) the linear part.
        values: (n,) the vector to permute.
        extra: Inequalities that x has to satisfy as well.
        max_iter: The most steps; the bound holds wherever they end.

    Raises:
        ValueError: Shapes do not fit, or the inequalities leave nothing.
    """
    c, hull = _vector(c, values), Permutahedron(values, extra)
    n = len(c)
    Q = np.asarray(Q, dtype=np.float64)
    if Q.shape != (n, n):
        raise ValueError(f"Q must have shape ({n}, {n}), got shape {Q.shape}.")
    Q = (Q + Q.T) / 2
    shift = _smallest_eigenvalue(Q)
    convex = Q - shift * np.eye(n)
    constant = shift * float(hull.values @ hull.values)

    def value(perm: np.ndarray) -> float:
        x = hull.values[perm]
        return float(x @ Q @ x + c @ x)

    best = Roundings(hull.nearest_permutation, value)
    start = hull.best_vertex(c)
    found = minimise(
        lambda x: 2 * convex @ x + c,
        lambda d: float(d @ convex @ d),
        hull.best_vertex,
        start,
        float(start @ convex @ start + c @ start) + constant,
        max_iter,
        best.look_at,
    )
    num = found.num_gradients + best.num_values
    return VectorMinimum(found.x, found.bound, best.perm, best.value, num)


def _smallest_eigenvalue(Q: np.ndarray) -> float:
    """The smallest eigenvalue of a symmetric matrix on vectors of sum zero."""
    n = len(Q)
    if n == 1:
        return 0.0
    centred = Q - Q.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    # The constant vector is moved out of the way of the others.
    above = float(np.abs(centred).sum()) + 1.0
    return float(np.linalg.eigvalsh(centred + above / n)[0])


def _vector(c: np.ndarray, values: np.ndarray) -> np.ndarray:
    c = np.asarray(c, dtype=np.float64)
    if c.shape != np.shape(values) or not np.isfinite(c).all():
        raise ValueError(f"c must be finite and of shape {np.shape(values)}, got {c.shape}.")
    return c
