r"""Graph matching problems that are to order a vector, relaxed over its permutahedron.

If the relations of the labels come from positions v on a line,

.. math:: B_{jl} = \gamma v_j v_l + p_j + q_l,

then :math:`\langle A, X B X^\top \rangle` is quadratic in :math:`x = X v` up to linear terms. If
those depend on labels through :math:`v_j` and :math:`v_j^2` only, the function depends on x alone,
and n numbers replace n^2 matrix entries. Seriation and 2-SUM are of this kind,
:math:`B_{jl} = -(j - l)^2`, and so is any least-squares layout on a line.

The permutahedron of v, the convex hull of its permutations, has :math:`2^n - 2` facets. A sorting
network of K comparators describes it with n + 2K variables, the values on the wires (Goemans 2015;
Lim and Wright 2014). A comparator with inputs a, b and outputs lo, hi is relaxed to

.. math:: lo + hi = a + b, \qquad lo \le a, \qquad lo \le b,

and the last values on the wires are those of v in increasing order. Then exactly the points of the
permutahedron can enter the network: every permutation of v can, since the network sorts it; and a
comparator's inputs are a mixture of its outputs and their exchange, so the inputs of the network
are a doubly stochastic matrix times v. Batcher's (1968) has O(n log^2 n) comparators.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog

from permvi.inference.convex.matrices import Roundings, minimise
from permvi.inference.map import Quadratic

# Outputs of a comparator that are closer than this are equal.
_EQUAL = 1e-12


def batcher(n: int) -> list[tuple[int, int]]:
    """Return the comparators (i, j), i < j, of Batcher's merge exchange sort of n wires, in order.

    Each puts the smaller value on wire i (Knuth 1998, Algorithm 5.2.2M).
    """
    found = []
    rounds = max(n - 1, 0).bit_length()
    p = 1 << max(rounds - 1, 0)
    while p > 0 and n > 1:
        q, r, d = 1 << (rounds - 1), 0, p
        while d > 0:
            found += [(i, i + d) for i in range(n - d) if i & p == r]
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return found


class Inequalities(NamedTuple):
    """``A x <= b`` for x (n,): A of shape (k, n) and b (k,)."""

    A: np.ndarray
    b: np.ndarray


class Permutahedron:
    """The convex hull of all permutations of a vector, perhaps cut by inequalities.

    Args:
        values: (n,) the vector.
        extra: Additional inequalities that points have to satisfy.
    """

    def __init__(self, values: np.ndarray, extra: Inequalities | None = None) -> None:
        self.values = np.asarray(values, dtype=np.float64)
        if self.values.ndim != 1 or not len(self.values) or not np.isfinite(self.values).all():
            raise ValueError(f"values must be a finite vector, got shape {self.values.shape}.")
        self.extra = extra
        self._order = np.argsort(self.values, kind="stable")

    def contains(self, x: np.ndarray, tol: float = 1e-9) -> bool:
        """Return whether x (n,) is inside and satisfies the inequalities.

        x is inside (Rado 1952) if it has the sum of v and, for all k, its k smallest entries add up
        to no less than those of v.
        """
        slack = np.cumsum(np.sort(x)) - np.cumsum(self.values[self._order])
        inside = slack.min() >= -tol and abs(slack[-1]) <= tol
        if self.extra is None:
            return bool(inside)
        return bool(inside and (self.extra.A @ x <= self.extra.b + tol).all())

    def best_vertex(self, slopes: np.ndarray) -> np.ndarray:
        """Return the point x (n,) of smallest ``<slopes, x>``, by sorting or a linear programme.

        Raises:
            ValueError: No point satisfies the inequalities.
        """
        if self.extra is not None:
            return self._solve(slopes).x[: len(slopes)]
        x = np.empty(len(slopes))
        x[np.argsort(-slopes, kind="stable")] = self.values[self._order]
        return x

    def nearest_permutation(self, x: np.ndarray) -> np.ndarray:
        """Return the permutation (n,) whose ``values[perm]`` is nearest to x: in the same order."""
        perm = np.empty(len(x), dtype=np.int64)
        perm[np.argsort(x, kind="stable")] = self._order
        return perm

    def mixture(self, x: np.ndarray) -> np.ndarray:
        """Return a doubly stochastic M (n, n), the product of mixtures, with ``M values = x``."""
        n = len(x)
        wires = self._solve(np.zeros(n), fixed=x).x
        M, last = np.eye(n), np.arange(n)
        for k, (i, j) in enumerate(self._comparators):
            low, high, first = wires[n + 2 * k], wires[n + 2 * k + 1], wires[last[i]]
            share = (high - first) / (high - low) if high - low > _EQUAL else 1.0
            share = float(np.clip(share, 0.0, 1.0))
            mixed = share * M[:, i] + (1 - share) * M[:, j]
            M[:, j] = (1 - share) * M[:, i] + share * M[:, j]
            M[:, i] = mixed
            last[i], last[j] = n + 2 * k, n + 2 * k + 1
        found = np.empty_like(M)
        found[:, self._order] = M
        return found

    @cached_property
    def _comparators(self) -> list[tuple[int, int]]:
        return batcher(len(self.values))

    @cached_property
    def _network(self) -> tuple[sparse.csr_array, np.ndarray, sparse.csr_array]:
        """Return the equations with their right sides, and the matrix of inequalities ``<= 0``."""
        n, num = len(self.values), len(self._comparators)
        size = n + 2 * num
        last = np.arange(n)
        equal, below = sparse.lil_array((num + n, size)), sparse.lil_array((2 * num, size))
        for k, (i, j) in enumerate(self._comparators):
            low, high = n + 2 * k, n + 2 * k + 1
            equal[k, [low, high]], equal[k, [last[i], last[j]]] = 1.0, -1.0
            for row, wire in ((2 * k, last[i]), (2 * k + 1, last[j])):
                below[row, low], below[row, wire] = 1.0, -1.0
            last[i], last[j] = low, high
        for wire in range(n):
            equal[num + wire, last[wire]] = 1.0
        sides = np.concatenate([np.zeros(num), self.values[self._order]])
        return equal.tocsr(), sides, below.tocsr()

    def _solve(self, slopes: np.ndarray, fixed: np.ndarray | None = None) -> OptimizeResult:
        """Solve the linear programme over all wires, perhaps with fixed inputs."""
        n = len(slopes)
        equal, sides, below = self._network
        bounds = np.full((equal.shape[1], 2), (self.values.min(), self.values.max()))
        limits = np.zeros(below.shape[0])
        if self.extra is not None and fixed is None:
            width = equal.shape[1] - n
            extra = sparse.hstack([self.extra.A, sparse.csr_array((len(self.extra.b), width))])
            below, limits = sparse.vstack([below, extra]), np.append(limits, self.extra.b)
        if fixed is not None:
            bounds[:n] = fixed[:, None]
        found = linprog(
            np.append(slopes, np.zeros(equal.shape[1] - n)),
            A_ub=below,
            b_ub=limits,
            A_eq=equal,
            b_eq=sides,
            bounds=bounds,
            method="highs",
        )
        if found.x is None:
            raise ValueError(f"extra must leave some point, got none ({found.message}).")
        return found


# The remainder, relative to the whole, has to be a rounding error.
_TOLERANCE = 1e-9


class VectorForm(NamedTuple):
    """``x' Q x + <c, x> + constant`` with ``x = values[perm]``, for all permutations."""

    Q: np.ndarray
    c: np.ndarray
    values: np.ndarray
    constant: float


def vector_form(quadratic: Quadratic) -> VectorForm | None:
    """Write a square quadratic function as a function of a permuted vector, or return None."""
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
    # The rest of B is a function of the row plus one of the column.
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
    """Return a table without its row and column means."""
    return _centred_columns(_centred_columns(table).T).T


def _centred_columns(table: np.ndarray) -> np.ndarray:
    return table - table.mean(axis=0)


def _negligible(rest: np.ndarray, whole: np.ndarray) -> bool:
    return bool(np.abs(rest).max() <= _TOLERANCE * np.abs(whole).max())


class VectorMinimum(NamedTuple):
    """A small value of a function of permutations, and a bound on the smallest.

    Attributes:
        x: (n,) the relaxed solution, a point of the permutahedron.
        bound: A lower bound on the function over all permutations (that satisfy the inequalities).
        perm: (n,) the best permutation found, ``x = values[perm]``.
        value: Its value.
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
    """Find the permutation x of ``values`` with the smallest ``<c, x>``.

    It is exact without inequalities, since the vertices of the relaxation are permutations. With
    inequalities, the rounded solution need not satisfy them.

    Args:
        c: (n,) the slopes.
        values: (n,) the vector to permute.
        extra: Additional inequalities for x.

    Raises:
        ValueError: Shapes do not fit, or no point satisfies the inequalities.
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
    """Find a permutation x of ``values`` with a small ``x' Q x + <c, x>``, and bound the smallest.

    Frank-Wolfe solves the relaxation. Every point on the way is rounded to the permutation of the
    same order, and the best one is returned. Inequalities, such as those that choose between an
    order and its reverse, bind the relaxation only.

    Args:
        Q: (n, n) a real matrix, whose symmetric part counts.
        c: (n,) the linear part.
        values: (n,) the vector to permute.
        extra: Additional inequalities for x.
        max_iter: The most steps; the bound holds after any number.

    Raises:
        ValueError: Shapes do not fit, or no point satisfies the inequalities.
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
    """Return the smallest eigenvalue of a symmetric matrix on vectors of sum zero."""
    n = len(Q)
    if n == 1:
        return 0.0
    centred = Q - Q.mean(axis=0)
    centred -= centred.mean(axis=1, keepdims=True)
    # The constant vector gets a larger eigenvalue than all others.
    above = float(np.abs(centred).sum()) + 1.0
    return float(np.linalg.eigvalsh(centred + above / n)[0])


def _vector(c: np.ndarray, values: np.ndarray) -> np.ndarray:
    c = np.asarray(c, dtype=np.float64)
    if c.shape != np.shape(values) or not np.isfinite(c).all():
        raise ValueError(f"c must be finite and of shape {np.shape(values)}, got {c.shape}.")
    return c
