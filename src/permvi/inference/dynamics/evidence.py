"""Permutations of all subjects with the exact evidence of the weights they imply, ready to move."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from permvi.inference.dynamics.moves import Moves
from permvi.inference.dynamics.regression import Scales, SharedRegression

# The ridge is looked for within this factor of where it was.
_RIDGE_FACTOR = 30.0
_RIDGE_TOLERANCE = 0.01


class Screen(NamedTuple):
    """Cheap scores that decide which moves are worth an exact evidence.

    Attributes:
        A: (J, T, m, m) pair scores of each subject, by rows.
        B: (J, T, m, m) by labels.
        thresholds: (num,) what each move has to gain in them.
    """

    A: np.ndarray
    B: np.ndarray
    thresholds: np.ndarray


class CollapsedState:
    """Permutations (J, m) and what `evidence_kernels.walk` keeps up to date along with them.

    Args:
        problem: The statistics.
        perms: (J, m) the labels of the rows.
        scales: The variances.
    """

    def __init__(self, problem: SharedRegression, perms: np.ndarray, scales: Scales) -> None:
        self.problem, self.scales = problem, scales
        self.num_evaluations = 0
        self.move_to(perms)

    @property
    def perms(self) -> np.ndarray:
        """(J, m) the labels of the rows."""
        return np.argsort(self._rows, axis=1)

    @property
    def log_density(self) -> float:
        """Log evidence and log prior of the permutations, up to what `log_evidence` adds."""
        prior = np.take_along_axis(self.problem.prior, self.perms[..., None], axis=-1).sum()
        return float(self._evidence.sum() + prior)

    @property
    def log_evidence(self) -> float:
        """The log density with all that depends on the scales, so that these can be compared."""
        variance = self.scales.noise
        left = self.problem.squares.sum() / variance
        return self.log_density - 0.5 * float(
            left + self.problem.count * np.log(2 * np.pi * variance)
        )

    @property
    def statistics(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(G, m, m), (G, m, m) and (G, m): the statistics by label, and who is recorded."""
        return self._K0, self._K1, self._present

    def refresh(self) -> None:
        """Compute everything anew from the permutations: differences of sums lose digits."""
        K0, K1 = by_label(self.problem, self._rows)
        present = np.take_along_axis(self.problem.recorded, self._rows, axis=1)
        if self.problem.complete:
            K0, K1, present = K0.sum(axis=0)[None], K1.sum(axis=0)[None], present[:1]
        self._K0, self._K1, self._present = K0, K1, present
        self._evidence = self._rows_evidence(*self.scales.regression)

    def move_to(self, perms: np.ndarray) -> None:
        """Replace the permutations by others, (J, m)."""
        self._rows = np.argsort(perms, axis=1)
        self.refresh()

    def walk(
        self,
        moves: Moves,
        order: np.ndarray,
        thresholds: np.ndarray,
        screen: Screen | None = None,
    ) -> np.ndarray:
        """Try moves in an order (num,), see `evidence_kernels.walk`; return what each gains."""
        # Only now: this loads numba.
        from permvi.inference.dynamics import evidence_kernels

        problem, gains = self.problem, np.empty(len(order))
        if screen is None:
            nothing = np.empty((problem.num_subjects, 0, 0, 0))
            screen = Screen(nothing, nothing, np.full(len(order), -np.inf))
        self.num_evaluations += evidence_kernels.walk(
            self._K0, self._K1, self._present, problem.C0, problem.C1, self._rows, problem.mask,
            problem.prior, *problem.inputs, *problem.touched, self._evidence,
            *self.scales.regression, moves.exchanges, moves.ends, order, thresholds,
            screen.A, screen.B, *problem.neighbours, screen.thresholds, gains,
        )  # fmt: skip
        return gains

    def learn_scales(self, *, weight: bool, noise: bool) -> None:
        """Set the variances that are to be learned to where the evidence is largest.

        The ridge is all that has to be searched for: given it, either variance follows from the
        other, and where both are learned the best noise variance is the mean of what the
        regressions leave.
        """
        if not (weight or noise):
            return
        problem, old = self.problem, self.scales
        count, squares = problem.count, float(problem.squares.sum())

        def scales_at(log_ridge: float) -> tuple[Scales, float]:
            ridge = float(np.exp(log_ridge))
            # At infinite noise the quadratic form is gone.
            penalty = self._rows_evidence(ridge, np.inf).sum()
            left = squares - 2 * (self._rows_evidence(ridge, 1.0).sum() - penalty)
            if not noise:
                variance = old.noise
            elif not weight:
                variance = ridge * old.weight
            else:
                variance = left / count
            value = penalty - left / (2 * variance) - count / 2 * np.log(variance)
            return Scales(variance / ridge if weight else old.weight, variance), float(value)

        centre, reach = np.log(old.ridge), np.log(_RIDGE_FACTOR)
        best = minimize_scalar(
            lambda log_ridge: -scales_at(log_ridge)[1],
            bounds=(centre - reach, centre + reach),
            method="bounded",
            options={"xatol": _RIDGE_TOLERANCE},
        )
        self.scales = scales_at(best.x)[0]
        self._evidence = self._rows_evidence(*self.scales.regression)

    def _rows_evidence(self, ridge: float, noise: float) -> np.ndarray:
        from permvi.inference.dynamics import evidence_kernels

        inputs, start = self.problem.inputs
        most = int(np.diff(start).max())
        evidence, work = np.empty(self.problem.size), np.empty((most + 1, most + 1))
        evidence_kernels.all_evidence(
            self._K0, self._K1, self._present, inputs, start, ridge, noise, work, evidence
        )
        return evidence


def by_label(problem: SharedRegression, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(J, m, m) the statistics C0 and C1 in the order of the labels; rows is (J, m)."""
    j = np.arange(len(rows))[:, None, None]
    place = (j, rows[:, :, None], rows[:, None, :])
    return problem.C0[place], problem.C1[place]
