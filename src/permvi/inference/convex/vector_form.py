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
