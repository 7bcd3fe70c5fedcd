"""The statistics of subjects that share one sparse regression, each up to a permutation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

# Called with permutations (C, J, m) and weights (C, E) of C chains, or of the best restart (C = 1).
Observe = Callable[[np.ndarray, np.ndarray], None]


class Lists(NamedTuple):
    """One list of labels for each label, laid end to end.

    Attributes:
        entries: (K,) the entries of all lists.
        start: (m + 1,) where each list begins.
    """

    entries: np.ndarray
    start: np.ndarray

    @classmethod
    def of(cls, table: np.ndarray) -> "Lists":
        """List the columns where each row of a boolean table (m, m) is True."""
        start = np.concatenate([[0], np.cumsum(table.sum(axis=1))])
        return cls(np.nonzero(table)[1].astype(np.int64), start.astype(np.int64))


class Sums(NamedTuple):
    """Statistics in the order of the labels, summed over the subjects of each of G groups.

    Attributes:
        K0: (G, m, m) sums of ``C0``.
        K1: (G, m, m) sums of ``C1``.
        present: (G, m) booleans, True for labels that are recorded.
    """

    K0: np.ndarray
    K1: np.ndarray
    present: np.ndarray


@dataclass(frozen=True, eq=False)
class SharedRegression:
    r"""Statistics of J recordings :math:`y_t = P_j W P_j^\top y_{t-1} + \sigma \epsilon_t`.

    All subjects have as many rows as there are labels. Rows without a recording fill up smaller
    subjects: their statistics are zero, and they take the labels that are left over.

    Attributes:
        C0: (J, m, m) sums of :math:`y_{t-1} y_{t-1}^\top`.
        C1: (J, m, m) sums of :math:`y_t y_{t-1}^\top`.
        squares: (J, m) sums of :math:`y_t^2`.
        num_steps: (J,) numbers of transitions.
        recorded: (J, m) booleans, False for rows without a recording.
        support: (m, m) booleans: W[a, b], the weight of label b in the input of label a, may
            differ from zero.
        mask: (J, m, m) booleans, True where a row may have a label; every one is in some matching.
        prior: (J, m, m) log weights of pairs, zeros where there are none.
    """

    C0: np.ndarray
    C1: np.ndarray
    squares: np.ndarray
    num_steps: np.ndarray
    recorded: np.ndarray
    support: np.ndarray
    mask: np.ndarray
    prior: np.ndarray

    @property
    def num_subjects(self) -> int:
        """J, the number of subjects."""
        return len(self.C0)

    @property
    def size(self) -> int:
        """m, the number of labels."""
        return len(self.support)

    @property
    def count(self) -> float:
        """The number of values that the recordings predict."""
        return float((self.num_steps * self.recorded.sum(axis=1)).sum())

    @cached_property
    def complete(self) -> bool:
        """Whether every subject has a recording of every label."""
        return bool(self.recorded.all())

    @cached_property
    def inputs(self) -> Lists:
        """The inputs of each label: E entries, one for each edge of the support."""
        return Lists.of(self.support)

    @cached_property
    def touched(self) -> Lists:
        """The rows of W whose evidence depends on a label: the label itself and its outputs."""
        return Lists.of(self.support.T | np.eye(self.size, dtype=bool))

    @cached_property
    def neighbours(self) -> Lists:
        """The inputs and outputs of each label."""
        return Lists.of(self.support | self.support.T)

    def by_label(self, rows: np.ndarray) -> Sums:
        """Order the statistics by label, one group for each subject; ``rows[j, a]`` has label a."""
        place = (np.arange(len(rows))[:, None, None], rows[:, :, None], rows[:, None, :])
        return Sums(self.C0[place], self.C1[place], np.take_along_axis(self.recorded, rows, axis=1))

    def pool(self, sums: Sums) -> Sums:
        """Add all groups up if every label is recorded everywhere; else leave them as they are."""
        if not self.complete:
            return sums
        return Sums(sums.K0.sum(axis=0)[None], sums.K1.sum(axis=0)[None], sums.present[:1])

    def log_prior(self, perms: np.ndarray) -> float:
        """Return the log prior of permutations (J, m)."""
        return float(np.take_along_axis(self.prior, perms[..., None], axis=-1).sum())

    def log_constant(self, noise: float) -> float:
        """Return the part of the log density that depends on the noise variance alone."""
        return -0.5 * float(self.squares.sum() / noise + self.count * np.log(2 * np.pi * noise))


class Scales(NamedTuple):
    """The variances of the model.

    Attributes:
        weight: Prior variance of the weights on the support.
        noise: Noise variance.
    """

    weight: float
    noise: float

    @property
    def ridge(self) -> float:
        """The ridge of the regressions, added to the diagonal of their second moments."""
        return self.noise / self.weight

    @property
    def regression(self) -> tuple[float, float]:
        """The ridge and the noise variance, from which evidence is computed."""
        return self.ridge, self.noise
