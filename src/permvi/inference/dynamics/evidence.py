"""The exact evidence of all subjects' permutations, the weights integrated out, and moves on it."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from permvi.inference.dynamics.regression import Scales, SharedRegression, Sums

# The ridge is searched for within this factor of its last value.
_RIDGE_FACTOR = 30.0
_RIDGE_TOLERANCE = 0.01


class Moves(NamedTuple):
    """Moves between permutations, each a sequence of exchanges of two labels.

    Attributes:
        exchanges: (K, 3) a subject and two of its labels; subject -1 stands for all subjects
            whose masks permit the exchange.
        ends: (num,) where in ``exchanges`` each move ends; it begins where the last one ends.
    """

    exchanges: np.ndarray
    ends: np.ndarray

    @classmethod
    def single(cls, exchanges: np.ndarray) -> "Moves":
        """Make moves of one exchange each."""
        return cls(np.ascontiguousarray(exchanges, np.int64), np.arange(1, len(exchanges) + 1))

    def followed_by(self, other: "Moves") -> "Moves":
        """Append other moves."""
        return Moves(
            np.concatenate([self.exchanges, other.exchanges]),
            np.concatenate([self.ends, other.ends + len(self.exchanges)]),
        )

    @property
    def num(self) -> int:
        """The number of moves."""
        return len(self.ends)


def differences(perms: Iterable[np.ndarray], other: np.ndarray) -> Moves:
    """Return the cycles of labels that lead from permutations (J, m) to another one, and back.

    Each cycle of the difference between two permutations can be tried by itself. Subjects that have
    a cycle in common share one move. Both directions are included, so that drawing a move at random
    is a symmetric proposal.
    """
    found: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    for each in perms:
        cycles: dict[tuple[int, ...], list[int]] = {}
        for j, (mine, theirs) in enumerate(zip(each, other, strict=True)):
            image = np.empty(len(mine), np.int64)
            image[mine] = theirs
            for cycle in _cycles(image):
                cycles.setdefault(cycle, []).append(j)
        for cycle, subjects in cycles.items():
            back = cycle[:1] + cycle[:0:-1]
            found |= {(cycle, tuple(subjects)), (back, tuple(subjects))}
    exchanges: list[tuple[int, int, int]] = []
    ends: list[int] = []
    for cycle, together in sorted(found):
        exchanges += [(j, cycle[0], label) for j in together for label in cycle[1:]]
        ends.append(len(exchanges))
    return Moves(np.array(exchanges, np.int64).reshape(-1, 3), np.array(ends, np.int64))


def _cycles(image: np.ndarray) -> Iterable[tuple[int, ...]]:
    """Yield the cycles, longer than one, of a permutation, each from its least label on."""
    seen = image == np.arange(len(image))
    for first in range(len(image)):
        cycle: list[int] = []
        label = first
        while not seen[label]:
            seen[label] = True
            cycle.append(label)
            label = int(image[label])
        if cycle:
            yield tuple(cycle)


class Screen(NamedTuple):
    """Cheap scores that decide which moves are worth an exact evidence.

    Attributes:
        A: (J, T, m, m) pair scores of each subject by rows; see `matching.PairScores`.
        B: (J, T, m, m) pair scores by labels, zero off the support.
        thresholds: (num,) what each move has to gain in these scores.
    """

    A: np.ndarray
    B: np.ndarray
    thresholds: np.ndarray


class Permuted:
    """Permutations (J, m) of all subjects; a subclass keeps what its evidence is computed from."""

    def __init__(self, problem: SharedRegression, perms: np.ndarray) -> None:
        self.problem = problem
        self.num_evaluations = 0
        self.move_to(perms)

    @property
    def perms(self) -> np.ndarray:
        """The label of each row, (J, m)."""
        return np.argsort(self._rows, axis=1)

    def move_to(self, perms: np.ndarray) -> None:
        """Replace the permutations, (J, m)."""
        self._rows = np.argsort(perms, axis=1)
        self.refresh()

    def refresh(self) -> None:
        """Recompute from the permutations what moves keep up to date, since they lose digits."""
        raise NotImplementedError


class CollapsedState(Permuted):
    """Permutations (J, m) of all subjects, and the statistics that moves keep up to date."""

    def __init__(self, problem: SharedRegression, perms: np.ndarray, scales: Scales) -> None:
        self.scales = scales
        super().__init__(problem, perms)

    @property
    def log_density(self) -> float:
        """Log evidence plus log prior of the permutations, up to a function of the scales."""
        return float(self._evidence.sum() + self.problem.log_prior(self.perms))

    @property
    def log_evidence(self) -> float:
        """The log density with its normalisation, comparable between scales."""
        return self.log_density + self.problem.log_constant(self.scales.noise)

    @property
    def statistics(self) -> Sums:
        """The statistics by label."""
        return self._sums

    @property
    def edge_probabilities(self) -> np.ndarray:
        """(m, m) one on the support and zero elsewhere: there are no other edges."""
        return self.problem.support.astype(np.float64)

    def refresh(self) -> None:
        """Recompute the statistics from the permutations, since updates lose digits."""
        self._sums = self.problem.pool(self.problem.by_label(self._rows))
        self._evidence = self._rows_evidence(*self.scales.regression)

    def walk(
        self, moves: Moves, order: np.ndarray, thresholds: np.ndarray, screen: Screen | None = None
    ) -> np.ndarray:
        """Try moves in an order (num,) as `evidence_kernels.walk` does; return what each gains."""
        # Imported here because it loads numba.
        from permvi.inference.dynamics import evidence_kernels

        problem = self.problem
        if screen is None:
            nothing = np.empty((problem.num_subjects, 0, 0, 0))
            screen = Screen(nothing, nothing, np.full(len(order), -np.inf))
        subjects = evidence_kernels.Subjects(
            problem.C0, problem.C1, problem.mask, problem.prior, self._rows
        )
        lists = problem.inputs, problem.touched, problem.neighbours
        num_evaluations, gains = evidence_kernels.walk(
            self._sums, subjects, lists, self._evidence, self.scales.regression, moves, order,
            thresholds, screen,
        )  # fmt: skip
        self.num_evaluations += num_evaluations
        return gains

    def learn_scales(self, *, weight: bool, noise: bool) -> None:
        """Set the variances that are learned to the values that maximise the evidence.

        Only the ridge is searched for. Given the ridge, either variance follows from the other; if
        both are learned, the best noise variance is the mean square residual of the regressions.
        """
        if not (weight or noise):
            return
        problem, old = self.problem, self.scales
        count, squares = problem.count, float(problem.squares.sum())

        def scales_at(log_ridge: float) -> tuple[Scales, float]:
            ridge = float(np.exp(log_ridge))
            # Infinite noise leaves the log determinants alone.
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

        return evidence_kernels.all_evidence(self._sums, self.problem.inputs, ridge, noise)
