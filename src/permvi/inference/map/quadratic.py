"""Quadratic log densities of matchings, on the host in float64."""

import dataclasses
import functools
import time

import numpy as np

from permvi.inference.map.polytope import (
    Ascent,
    best_matrices,
    best_step,
    frank_wolfe,
    scaled,
    solve,
)

# The most edges whose weights are gathered at once.
_AT_ONCE = 4_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class Quadratic:
    r"""``<A, X B X'> + <C, X> + constant``, with ``X[i, j] = 1`` where ``perm[i] = j``.

    Attributes:
        A: (n, n) weights of ordered pairs of rows.
        B: (m, m) weights of ordered pairs of columns.
        C: (n, m) weights of pairs.
        constant: Added for all matchings.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    constant: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return self.C.shape[0], self.C.shape[1]

    def given(
        self, settled: np.ndarray, free_rows: np.ndarray, free_cols: np.ndarray
    ) -> "Quadratic":
        r"""Return the function of the remaining rows and columns, some pairs being known.

        A known pair (s, t) adds ``A[i, s] B[j, t] + A[s, i] B[t, j]`` to the weight of the pair
        (i, j), so the rest is quadratic again. ``settled`` (n,) has the known columns, -1 for
        others.
        """
        rows = np.flatnonzero(settled >= 0)
        cols = settled[rows]
        A, B = self.A, self.B
        outwards = A[np.ix_(free_rows, rows)] @ B[np.ix_(free_cols, cols)].T
        inwards = A[np.ix_(rows, free_rows)].T @ B[np.ix_(cols, free_cols)]
        known = (A[np.ix_(rows, rows)] * B[np.ix_(cols, cols)]).sum() + self.C[rows, cols].sum()
        return Quadratic(
            A[np.ix_(free_rows, free_rows)],
            B[np.ix_(free_cols, free_cols)],
            self.C[np.ix_(free_rows, free_cols)] + outwards + inwards,
            self.constant + float(known),
        )

    def padded(self) -> "Quadratic":
        """Return a square problem, in which rows and columns without weights take the surplus."""
        size = max(self.shape)
        A, B, C = (np.zeros((size, size)) for _ in range(3))
        n, m = self.shape
        A[:n, :n], B[:m, :m], C[:n, :m] = self.A, self.B, self.C
        return Quadratic(A, B, C, self.constant)

    def symmetrised(self) -> "Quadratic":
        """Return the same function with A and B symmetric, if one of them is; else itself.

        ``<A, X B X'>`` depends on the symmetric part of A alone if B is symmetric, and likewise.
        """
        parts = [(array + array.T) / 2 for array in (self.A, self.B)]
        same = [np.array_equal(*pair) for pair in zip(parts, (self.A, self.B), strict=True)]
        return dataclasses.replace(self, A=parts[0], B=parts[1]) if any(same) else self

    @functools.cached_property
    def is_symmetric(self) -> bool:
        """Whether both A and B are symmetric."""
        return np.array_equal(self.A, self.A.T) and np.array_equal(self.B, self.B.T)

    def values(self, perms: np.ndarray) -> np.ndarray:
        """Return the values (...) of permutations (..., n) of a square problem."""
        n = self.shape[0]
        flat = perms.reshape(-1, n)
        # The edges of many large graphs at once would not fit into memory.
        num = max(1, _AT_ONCE // max(n * n, 1))
        parts = [flat[begin : begin + num] for begin in range(0, len(flat), num)]
        edges = [
            (self.A * self.B[part[:, :, None], part[:, None, :]]).sum(axis=(1, 2)) for part in parts
        ]
        total = np.concatenate([*edges, np.zeros(0)]).reshape(perms.shape[:-1])
        return total + self.C[np.arange(n), perms].sum(axis=-1) + self.constant

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Return ``A X B' + A' X B + C``: (..., n, m) -> (..., n, m)."""
        return self.A @ X @ self.B.T + self.A.T @ X @ self.B + self.C

    def curvature(self, direction: np.ndarray) -> np.ndarray:
        """Return ``<A, D B D'>``: (..., n, m) directions -> (...)."""
        return ((self.A @ direction @ self.B.T) * direction).sum(axis=(-2, -1))

    def gradient_at(self, perm: np.ndarray) -> np.ndarray:
        """Return the gradient (n, m) at a permutation (n,), with one product instead of four."""
        inverse = np.argsort(perm)
        if self.is_symmetric:
            return 2.0 * (self.A[:, inverse] @ self.B) + self.C
        return self.A[:, inverse] @ self.B.T + self.A[inverse].T @ self.B + self.C


# A relaxed matching that moves less than this (root mean square of its rows) has arrived.
ARRIVED = 0.01


class _Climb:
    r"""The slopes of a square problem along the path of Frank-Wolfe from one point.

    They are affine in X: at :math:`X + t (V - X)` they are :math:`(1 - t) \nabla(X) + t
    \nabla(V)`, and the curvature towards V is half the inner product of :math:`\nabla(V) -
    \nabla(X)` and :math:`V - X`. So a step takes the gradient at one vertex, and nothing else of
    that size.
    """

    def __init__(self, quadratic: Quadratic, deadline: float) -> None:
        self._quadratic, self._deadline = quadratic, deadline
        self._slopes: np.ndarray | None = None

    def gradient(self, X: np.ndarray) -> np.ndarray:
        """Return the slopes (1, n, n) at X, which the last step has left if there was one."""
        if self._slopes is None:
            self._slopes = self._quadratic.gradient(X)
        return self._slopes

    def line_search(self, X: np.ndarray, vertices: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Return the (1,) best step towards a vertex; none if it is late."""
        if time.monotonic() > self._deadline:
            return np.zeros(1)
        there = self._quadratic.gradient_at(vertices[0].argmax(axis=1))
        way = vertices - X
        rise, bend = (slopes * way).sum(), 0.5 * ((there - slopes) * way).sum()
        steps = best_step(rise, bend).reshape(1)
        self._slopes = slopes + steps[0] * (there - slopes)
        return steps


def climb(
    quadratic: Quadratic,
    allowed: np.ndarray,
    start: np.ndarray,
    max_iter: int,
    deadline: float = np.inf,
) -> Ascent:
    """Climb from a relaxed matching (n, n) by Frank-Wolfe (FAQ: Vogelstein et al. 2015).

    The last point is (1, n, n). No step begins after the ``deadline`` of `time.monotonic`.
    """
    path = _Climb(quadratic, deadline)
    vertices = best_matrices(allowed)
    return frank_wolfe(path.gradient, vertices, path.line_search, start[None], max_iter, ARRIVED)


def upper_bound(quadratic: Quadratic, allowed: np.ndarray) -> float:
    r"""Return an upper bound on the values of a square problem: the smaller of two.

    That of Gilmore and Lawler (1962) is an assignment with the weights

    .. math:: A_{ii} B_{jj} + C_{ij} + \max_\pi \sum_{k \ne i} A_{ik} B_{j \pi(k)},

    where sorted numbers meet sorted numbers. If A and B are symmetric, :math:`\langle A, X B X^\top
    \rangle` is at most the inner product of their sorted eigenvalues (Finke, Burkard and Rendl
    1987), and the linear part at most an assignment.
    """
    A, B, C = quadratic.A, quadratic.B, quadratic.C
    n = len(A)
    rows, cols = (np.sort(M[~np.eye(n, dtype=bool)].reshape(n, n - 1), axis=1) for M in (A, B))
    weights = rows @ cols.T + np.outer(np.diag(A), np.diag(B)) + C
    perm = solve(weights, allowed)
    bound = float(weights[np.arange(n), perm].sum())
    if quadratic.is_symmetric:
        spectrum = float(np.linalg.eigvalsh(A) @ np.linalg.eigvalsh(B))
        best = solve(C, allowed)
        bound = min(bound, spectrum + float(C[np.arange(n), best].sum()))
    return bound + quadratic.constant


# Widths of the kernels of spectral starts, in units of the standard deviation of eigenvalues.
_WIDTHS = (0.8, 0.4, 1.6, 0.2)
_SHARPNESS = 2.0


def spectral_starts(quadratic: Quadratic, allowed: np.ndarray, num: int) -> np.ndarray:
    r"""Return up to four relaxed matchings (r, n, n) from the spectra of A and B.

    The similarity of row i and column j, with eigenvectors u of A and v of B, is

    .. math:: \sum_{kl} u_{ik} v_{jl} (1^\top u_k) (1^\top v_l)
              / ((\lambda_k - \mu_l)^2 + \eta^2)

    (GRAMPA: Fan, Mao, Wu and Xu 2020). It finds the region of a planted matching where climbs from
    the centre of the polytope do not, and Frank-Wolfe finds the rest.
    """
    n = len(allowed)
    values, sums, vectors = [], [], []
    for M in (quadratic.A, quadratic.B):
        M = (M + M.T) / 2
        M = M - M.mean()
        spread = M.std() * np.sqrt(n)
        found = np.linalg.eigh(M / (spread if spread > 0 else 1.0))
        values.append(found[0])
        vectors.append(found[1])
        sums.append(found[1].sum(axis=0))
    starts = []
    for width in _WIDTHS[:num]:
        kernel = np.outer(*sums) / (np.subtract.outer(*values) ** 2 + width**2)
        similarity = vectors[0] @ kernel @ vectors[1].T
        spread = similarity.std()
        z = (similarity - similarity.mean()) / (spread if spread > 0 else 1.0)
        starts.append(scaled(np.where(allowed, np.exp(_SHARPNESS * np.clip(z, -8, 8)), 0.0)))
    return np.array(starts).reshape(-1, n, n)
