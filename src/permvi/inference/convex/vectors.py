r"""Which graph matchings are questions about the order of a vector?

If the relations of the labels come from positions v on a line,

.. math:: B_{jl} = \gamma v_j v_l + p_j + q_l,

then :math:`\langle A, X B X^\top \rangle` is quadratic in :math:`x = X v` up to linear terms, and
where those depend on labels through :math:`v_j` and :math:`v_j^2` only, all of it is a function of
x. Seriation and 2-SUM are of this kind, :math:`B_{jl} = -(j - l)^2`, and so is any least-squares
layout on a line. Then n numbers take the place of n^2 matrix entries.
"""

from typing import NamedTuple

import numpy as np

from permvi.inference.convex.matrices import Roundings, minimise
from permvi.inference.convex.networks import Inequalities, Permutahedron
from permvi.inference.map import Quadratic

# What is left over, relative to the whole, has to be a rounding error.
_TOLERANCE = 1e-9


class VectorForm(NamedTuple):
    """``x' Q x + <c, x> + constant`` with ``x = values[perm]``, for all permutations."""

    Q: np.ndarray
    c: np.ndarray
    values: np.ndarray
    constant: float


def vector_form(quadratic: Quadratic) -> VectorForm | None:
    """The function of a permuted vector that a square quadratic function is, or None."""
    n, m = quadratic.shape
    if n != m or n < 2:
        return None
    A, B = quadratic.A, quadratic.B
    core = _centred(B)
    size, axes = np.linalg.eigh((core + core.T) / 2)
    leading = int(np.argmax(np.abs(size)))
    gamma, v = float(size[leading]), axes[:, leading]
    rest = B - gamma * np.outer(v, v)
    if gamma == 0 or not _negligible(_centred(rest), core):
        return None
    # What is left of B is a function of the row plus one of the column.
    p, q = rest.mean(axis=1) - rest.mean(), rest.mean(axis=0)
    linear = np.outer(A.sum(axis=1), p) + np.outer(A.sum(axis=0), q) + quadratic.C
    shapes = _centred_columns(np.stack([v, v**2], axis=1))
    coefficients = np.linalg.lstsq(shapes, _centred(linear).T, rcond=None)[0]
    if not _negligible(_centred(linear) - coefficients.T @ shapes.T, linear):
        return None
    slopes, squares = coefficients
    Q = gamma * (A + A.T) / 2 + np.diag(squares)
    form = VectorForm(Q, slopes, v, 0.0)
    identity = np.arange(n)
    at_v = float(v @ Q @ v + slopes @ v)
    return form._replace(constant=float(quadratic.values(identity)) - at_v)


def _centred(table: np.ndarray) -> np.ndarray:
    """A table without row and column means."""
    return _centred_columns(_centred_columns(table).T).T


def _centred_columns(table: np.ndarray) -> np.ndarray:
    return table - table.mean(axis=0)


def _negligible(rest: np.ndarray, whole: np.ndarray) -> bool:
    return bool(np.abs(rest).max() <= _TOLERANCE * np.abs(whole).max())


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
