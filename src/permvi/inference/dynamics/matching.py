"""One subject's permutation given beliefs about the weights: a quadratic assignment problem.

A subject's recording gives an estimate of every weight between its neurons (`Edges`), the other
subjects give beliefs about the weights between labels (`Beliefs`), and the log evidence that the
first are noisy copies of the second is a sum over edges (`PairScores`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from permvi.inference.dynamics.regression import Scales, SharedRegression, Sums
from permvi.inference.map import polytope

_MAX_STEPS = 60
_TOLERANCE = 1e-8


class Edges(NamedTuple):
    """Debiased ridge estimates of one subject's weights, scaled to one standard error.

    Attributes:
        z: (m, m) the estimates, zero on the diagonal and where nothing is recorded.
        s: The standard error of all entries.
        recorded: (m, m) one where both neurons are recorded, else zero.
    """

    z: np.ndarray
    s: float
    recorded: np.ndarray


def estimate_edges(problem: SharedRegression, subject: int, scales: Scales) -> Edges:
    r"""Estimate all weights of a subject, in the order of its rows.

    The labels are unknown, so every pair may be an edge with probability :math:`\rho`, the density
    of the support. The estimate is a dense ridge regression whose prior variance is :math:`\rho`
    times that of the weights. With :math:`C = (C_0 + \lambda I)^{-1}`, column b of :math:`C_1 C`
    shrinks its own weight by :math:`g_b = 1 - \lambda C_{bb}`. Dividing by :math:`g_b` leaves an
    error from the noise and from the other weights, of variance

    .. math::
        \bigl[\sigma^2 (C C_0 C)_{bb} + \lambda^2 v \rho \textstyle\sum_{k \ne b} C_{kb}^2 \bigr]
        / g_b^2 .
    """
    here = np.flatnonzero(problem.recorded[subject])
    density = problem.support.mean()
    ridge = scales.ridge / density
    C0, C1 = (stat[subject][np.ix_(here, here)] for stat in (problem.C0, problem.C1))
    inverse = np.linalg.inv(C0 + ridge * np.eye(len(here)))
    own = np.diag(inverse)
    kept = 1 - ridge * own
    leaked = (inverse**2).sum(axis=0) - own**2
    # C C0 C = C - ridge C C
    noise = own - ridge * (leaked + own**2)
    variance = (scales.noise * noise + ridge**2 * scales.weight * density * leaked) / kept**2
    errors = np.sqrt(variance)
    s = float(errors.mean())
    z = np.zeros((problem.size, problem.size))
    z[np.ix_(here, here)] = C1 @ inverse / kept * (s / errors)
    np.fill_diagonal(z, 0.0)
    both = problem.recorded[subject].astype(np.float64)
    return Edges(z, s, np.outer(both, both))


class Beliefs(NamedTuple):
    """Independent normal beliefs about the weights.

    Attributes:
        mean: (m, m), zero off the support.
        variance: (m, m), zero off the support.
    """

    mean: np.ndarray
    variance: np.ndarray


def prior_beliefs(problem: SharedRegression, scales: Scales) -> Beliefs:
    """Return the prior of the weights."""
    return Beliefs(np.zeros(problem.support.shape), scales.weight * problem.support)


def posterior_beliefs(problem: SharedRegression, sums: Sums, scales: Scales) -> Beliefs:
    """Return the posterior of the weights given some subjects' statistics by label.

    Only means and variances are kept; correlations within a row are left out.
    """
    # Imported here because it loads numba.
    from permvi.inference.dynamics import evidence_kernels

    mean, variance = evidence_kernels.row_posteriors(sums, problem.inputs, scales.ridge)
    return Beliefs(mean, scales.noise * variance)


@dataclass(frozen=True, eq=False)
class PairScores:
    """The score ``sum_t <A_t, X B_t X'> + <C, X>`` of a permutation X, a sum over edges.

    Attributes:
        A: (T, m, m) factors by pair of rows, zero on the diagonals.
        B: (T, m, m) factors by pair of labels, zero on the diagonals and off the support.
        C: (m, m) scores by row and label.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray

    @cached_property
    def _sparse(self) -> list[tuple[csr_array, csr_array]]:
        """Each B and its transpose as sparse arrays, whose products start no BLAS threads."""
        return [(csr_array(B), csr_array(B.T)) for B in self.B]

    def slope(self, perm: np.ndarray) -> np.ndarray:
        """Return the gradient ``sum_t A X B' + A' X B`` of the quadratic part at a permutation."""
        rows = np.argsort(perm)
        total = np.zeros(self.C.shape)
        for A, (B, transposed) in zip(self.A, self._sparse, strict=True):
            total += B @ A[:, rows].T + transposed @ A[rows]
        return total.T

    def slope_at(self, X: np.ndarray) -> np.ndarray:
        """Return the gradient of the quadratic part at any (m, m) matrix."""
        total = np.zeros(self.C.shape)
        for A, (B, transposed) in zip(self.A, self._sparse, strict=True):
            total += A @ (B @ X.T).T + A.T @ (transposed @ X.T).T
        return total

    def value(self, perm: np.ndarray) -> float:
        """Return the score of a permutation."""
        edges = (self.A * self.B[:, perm[:, None], perm]).sum()
        return float(edges + self.C[np.arange(len(perm)), perm].sum())

    def restricted(self, perm: np.ndarray, rows: np.ndarray) -> "PairScores":
        """Restrict the score to permutations of the labels of rows (k,), up to a constant.

        Column q of the result is the label of ``rows[q]`` in ``perm``, (m,); other rows keep
        theirs.
        """
        inner, outer = np.ix_(rows, rows), np.ix_(perm[rows], perm[rows])
        A, B = (
            np.stack([each[at] for each in part]) for part, at in ((self.A, inner), (self.B, outer))
        )
        # Edges among the rows are part of the slope, but not of the fixed part.
        own = PairScores(A, B, np.zeros(A.shape[1:])).slope(np.arange(len(rows)))
        fixed = np.ix_(rows, perm[rows])
        return PairScores(A, B, (self.slope(perm) + self.C)[fixed] - own)

    def swap_gains(self, perm: np.ndarray) -> np.ndarray:
        """Return (m, m) what swapping the labels of two rows adds, for all pairs of rows."""
        moved = (self.slope(perm) + self.C)[:, perm]
        gains = moved + moved.T - np.diag(moved) - np.diag(moved)[:, None]
        # So far the edge between the two rows was counted as if one of them stayed.
        for A, B in zip(self.A, self.B, strict=True):
            placed = B[perm[:, None], perm]
            gains += (A + A.T) * (placed + placed.T)
        return gains


def pair_scores(edges: Edges, beliefs: Beliefs, prior: np.ndarray) -> PairScores:
    r"""Score permutations by the log evidence of a subject's estimates under the beliefs.

    With :math:`z_{ik} \sim N(w, s^2)` and :math:`w \sim N(\mu, v)`, up to a constant,

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
        # Without the estimates, the terms are constant only if every pair is recorded.
        recorded = edges.recorded.copy()
        np.fill_diagonal(recorded, 0.0)
        A.append(recorded)
        B.append(0.5 * np.log(edges.s**2 * precision) - 0.5 * beliefs.mean**2 * precision)
    for matrix in B:
        np.fill_diagonal(matrix, 0.0)
    return PairScores(np.stack(A), np.stack(B), prior)


def frank_wolfe(scores: PairScores, start: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, int]:
    """Maximise a score over doubly stochastic matrices by Frank-Wolfe steps, then round.

    The gradient of the quadratic part is linear in X, so each step needs it at a permutation only
    (Vogelstein et al. 2015).

    Args:
        scores: The score to maximise.
        start: (m, m) doubly stochastic, or a permutation (m,).
        mask: (m, m) booleans, True where allowed.

    Returns:
        (m,) the permutation nearest to the last matrix, and the number of gradients.
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
    """Take the best allowed swap until none gains anything."""
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
