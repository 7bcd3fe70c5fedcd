"""One subject's permutation given the weights: a quadratic assignment problem."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from permvi.inference.collapsed.matching import PairScores
from permvi.inference.collapsed.problem import SharedRegression


@dataclass(frozen=True, eq=False)
class WeightScores(PairScores):
    r""":math:`\langle A_0, X W X^\top \rangle + \langle A_1, X W^\top D W X^\top \rangle`.

    W is much sparser than :math:`W^\top D W`, so slopes go through it twice instead.

    Attributes:
        W: (m, m) the weights.
        present: (m, 1) D, a factor for each label.
    """

    W: csr_array
    present: np.ndarray

    def slope(self, perm: np.ndarray) -> np.ndarray:
        """As `PairScores.slope`."""
        rows = np.argsort(perm)
        return self._slope(self.A[0][:, rows].T, self.A[0][rows], self.A[1][rows])

    def slope_at(self, X: np.ndarray) -> np.ndarray:
        """As `PairScores.slope_at`."""
        return self._slope((self.A[0] @ X).T, X.T @ self.A[0], X.T @ self.A[1])

    def _slope(self, outwards: np.ndarray, inwards: np.ndarray, squares: np.ndarray) -> np.ndarray:
        """From (m, m) tables whose first axis has been brought to the labels; A_1 is symmetric."""
        through = inwards + 2 * self.present * (self.W @ squares)
        return (self.W @ outwards + self.W.T @ through).T


def weight_scores(
    problem: SharedRegression, j: int, W: np.ndarray, perm: np.ndarray, noise: float
) -> WeightScores:
    r"""The log density of subject j given W, in the form of Koopmans and Beckmann (1957).

    :math:`\langle C_1, X W X^\top \rangle / \sigma^2
    - \langle C_0, X W^\top D W X^\top \rangle / 2 \sigma^2`, with D one for labels that have a
    recording. Where some have none, D ought to move with X; here it stays that of ``perm``.

    Args:
        problem: The statistics.
        j: The subject.
        W: (m, m) weights, zero off the support.
        perm: (m,) where the subject is.
        noise: The noise variance.
    """
    present = np.zeros((problem.size, 1))
    present[perm, 0] = problem.recorded[j]
    A = np.stack([problem.C1[j] / noise, -problem.C0[j] / (2 * noise)])
    B = np.stack([W, W.T @ (present * W)])
    return WeightScores(A, B, problem.prior[j], csr_array(W), present)
