"""One subject's permutation given beliefs about the weights: a quadratic assignment problem."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from permvi.inference.dynamics.edges import Beliefs, Edges
from permvi.inference.map import polytope

_MAX_STEPS = 60
_TOLERANCE = 1e-8


@dataclass(frozen=True, eq=False)
class PairScores:
    r"""``sum_t <A_t, X B_t X'> + <C, X>``: the log evidence of a permutation, edge by edge.

    Attributes:
        A: (T, m, m) by pairs of rows, zero on the diagonals.
        B: (T, m, m) by pairs of labels, zero on the diagonals and off the support.
        C: (m, m) by row and label.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray

    @cached_property
    def _sparse(self) -> list[tuple[csr_array, csr_array]]:
        """Each B and its transpose; their products neither need nor start threads of their own."""
        return [(csr_array(B), csr_array(B.T)) for B in self.B]

    def slope(self, perm: np.ndarray) -> np.ndarray:
        """``sum_t A X B' + A' X B`` at a permutation."""
        rows = np.argsort(perm)
        total = np.zeros(self.C.shape)
        for A, (B, transposed) in zip(self.A, self._sparse, strict=True):
            total += B @ A[:, rows].T + transposed @ A[rows]
        return total.T

    def slope_at(self, X: np.ndarray) -> np.ndarray:
        """The same at any (m, m) matrix."""
        total = np.zeros(self.C.shape)
        for A, (B, transposed) in zip(self.A, self._sparse, strict=True):
            total += A @ (B @ X.T).T + A.T @ (transposed @ X.T).T
        return total

    def value(self, perm: np.ndarray) -> float:
        """The score of a permutation."""
        edges = (self.A * self.B[:, perm[:, None], perm]).sum()
        return float(edges + self.C[np.arange(len(perm)), perm].sum())

    def restricted(self, perm: np.ndarray, rows: np.ndarray) -> "PairScores":
        """The scores, up to a constant, of how some rows share their labels, the rest staying.

        Args:
            perm: (m,) the permutation.
            rows: (k,) the rows; column q of the result is the label of ``rows[q]``.
        """
        inner, outer = np.ix_(rows, rows), np.ix_(perm[rows], perm[rows])
        A, B = (
            np.stack([each[at] for each in part]) for part, at in ((self.A, inner), (self.B, outer))
        )
        # The slope counts the edges among the rows themselves, which are not fixed.
        own = PairScores(A, B, np.zeros(A.shape[1:])).slope(np.arange(len(rows)))
        fixed = np.ix_(rows, perm[rows])
        return PairScores(A, B, (self.slope(perm) + self.C)[fixed] - own)

    def swap_gains(self, perm: np.ndarray) -> np.ndarray:
        """(m, m) what swapping the labels of two rows adds, for all pairs of rows at once."""
        moved = (self.slope(perm) + self.C)[:, perm]
        gains = moved + moved.T - np.diag(moved) - np.diag(moved)[:, None]
        # The edge between the two rows has been counted as if one of them stayed.
        for A, B in zip(self.A, self.B, strict=True):
            placed = B[perm[:, None], perm]
            gains += (A + A.T) * (placed + placed.T)
        return gains


def pair_scores(edges: Edges, beliefs: Beliefs, prior: np.ndarray) -> PairScores:
    r"""Log evidence of a subject's estimates if its edges are those that the beliefs are about.

    With :math:`z_{ik} \sim N(w, s^2)` and :math:`w \sim N(\mu, v)`, up to what no permutation
    changes,

    .. math::
        \log p(z \mid \mu, v) = z^2 \Bigl(\frac{1}{2 s^2} - \frac{1}{2 (v + s^2)}\Bigr)
        + z \frac{\mu}{v + s^2} - \frac{\mu^2}{2 (v + s^2)} - \frac12 \log \frac{v + s^2}{s^2} .
    """
    precision = 1 / (beliefs.variance + edges.s**2)
    A, B = [edges.z**2], [0.5 / edges.s**2 - 0.5 * precision]
    if beliefs.mean.any():
        A.append(edges.z)
        B.append(beliefs.mean * precision)
    if not edges.recorded.all():
        # Where every pair is recorded, what does not depend on the estimates is a constant.
        recorded = edges.recorded.copy()
        np.fill_diagonal(recorded, 0.0)
        A.append(recorded)
        B.append(0.5 * np.log(edges.s**2 * precision) - 0.5 * beliefs.mean**2 * precision)
    for matrix in B:
        np.fill_diagonal(matrix, 0.0)
    return PairScores(np.stack(A), np.stack(B), prior)


def frank_wolfe(scores: PairScores, start: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, int]:
    """The permutation that steps towards the best one under the gradient arrive at.

    Gradients of the quadratic part are linear in X, so that each step needs that of a permutation
    only (Vogelstein et al. 2015).

    Args:
        scores: What to maximise.
        start: (m, m) doubly stochastic, or a permutation (m,).
        mask: (m, m) booleans, True where allowed.

    Returns:
        (m,) the permutation nearest to where it ended, and the number of gradients.
    """
    if start.ndim == 1:
        X, slope = np.eye(len(start))[start], scores.slope(start)
    else:
        X, slope = start, scores.slope_at(start)
    num_gradients = 1

    def line_search(X: np.ndarray, vertices: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        nonlocal slope, num_gradients
        direction = vertices - X
        rise = (slopes * direction).sum()
        if rise <= _TOLERANCE * abs((slopes * X).sum()):
            return np.zeros(1)
        change = scores.slope(np.argmax(vertices[0], axis=1)) - slope
        num_gradients += 1
        step = polytope.best_step(rise, 0.5 * (change * direction[0]).sum())
        slope = slope + step * change
        return step[None]

    found = polytope.frank_wolfe(
        lambda _: (slope + scores.C)[None],
        polytope.best_matrices(mask),
        line_search,
        X[None],
        _MAX_STEPS - 1,
    )
    return polytope.solve(found.X[0], mask), num_gradients


def climb(scores: PairScores, perm: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Take the best allowed swap while one gains anything."""
    perm = perm.copy()
    for _ in range(len(perm)):
        allowed = mask[:, perm]
        gains = np.where(allowed & allowed.T, scores.swap_gains(perm), -np.inf)
        np.fill_diagonal(gains, -np.inf)
        i, k = np.unravel_index(np.argmax(gains), gains.shape)
        if gains[i, k] <= _TOLERANCE:
            break
        perm[i], perm[k] = perm[k], perm[i]
    return perm
