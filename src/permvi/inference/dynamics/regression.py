"""Subjects that share one sparse regression, each up to a permutation: the statistics it takes."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from permvi._checks import whole


@dataclass(frozen=True, eq=False)
class SharedRegression:
    r"""J recordings :math:`y_t = P_j W P_j^\top y_{t-1} + \sigma \epsilon_t`, as statistics.

    All subjects have as many rows as there are labels. Rows without a recording, by which smaller
    subjects are filled up, have zeros for statistics and take the labels that are left over.

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
        """J."""
        return len(self.C0)

    @property
    def size(self) -> int:
        """m, the number of labels."""
        return len(self.support)

    @property
    def count(self) -> float:
        """How many numbers the recordings predict."""
        return float((self.num_steps * self.recorded.sum(axis=1)).sum())

    @cached_property
    def complete(self) -> bool:
        """Whether every subject has a recording of everything."""
        return bool(self.recorded.all())

    @cached_property
    def inputs(self) -> tuple[np.ndarray, np.ndarray]:
        """The inputs of all labels in one list (E,), and where each label's begin (m + 1,)."""
        return _lists(self.support)

    @cached_property
    def touched(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of W whose evidence a label has a part in: itself, and what it is input of."""
        return _lists(self.support.T | np.eye(self.size, dtype=bool))

    @cached_property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels that a label is an input of, or that are inputs of it."""
        return _lists(self.support | self.support.T)


def _lists(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the rows of a table are True, in one list, and where each row's part begins."""
    start = np.concatenate([[0], np.cumsum(table.sum(axis=1))])
    return np.nonzero(table)[1].astype(np.int64), start.astype(np.int64)


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
        """What is added to the diagonal of a regression's second moments."""
        return self.noise / self.weight

    @property
    def regression(self) -> tuple[float, float]:
        """The ridge and the noise variance, which evidence is computed from."""
        return self.ridge, self.noise


@dataclass(frozen=True)
class CollapsedOptions:
    """How hard to search and how long to sample.

    Attributes:
        num_restarts: Searches from different starts; the first starts from the barycentre.
        num_steps: Proposals of each chain; by default in proportion to the exchanges that are
            plausible where the searches end.
        num_draws: Draws that each chain leaves.
        temperature: Of the posterior that is sampled. Above 1 the evidence counts for less than
            the model says, as it should where the model is not quite right: weights are taken to be
            independent, but those of the two directions of an edge seldom are.
    """

    num_restarts: int = 4
    num_steps: int | None = None
    num_draws: int = 250
    temperature: float = 1.5

    def __post_init__(self) -> None:
        for name in ("num_restarts", "num_draws"):
            whole(name, getattr(self, name))
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a positive number, got {self.temperature!r}.")
        if self.num_steps is not None and whole("num_steps", self.num_steps) < self.num_draws:
            raise ValueError(
                f"num_steps must be at least num_draws ({self.num_draws}), got {self.num_steps}."
            )


class Weights(NamedTuple):
    """Posterior moments of the weights on the edges, (E,) each, over permutations and weights."""

    mean: np.ndarray
    sd: np.ndarray


class CollapsedResult(NamedTuple):
    """Draws of permutations, and how the searches behind them agree.

    Attributes:
        draws: (R, num, J, m) permutations, of equal weight, of all chains.
        log_densities: (R, num) exact log evidence and prior of the draws, untempered.
        mode: (J, m) the best permutations found.
        mode_log_density: Theirs.
        log_evidence_offset: What makes a log density, up to a constant, that of the recordings.
        found: (R, J, m) the optima that independent searches ended in.
        found_log_densities: (R,) theirs.
        scales: The variances, learned or given.
        weights: Moments of W.
        num_evaluations: How many exact evidences, their differences and gradients were computed.
    """

    draws: np.ndarray
    log_densities: np.ndarray
    mode: np.ndarray
    mode_log_density: float
    log_evidence_offset: float
    found: np.ndarray
    found_log_densities: np.ndarray
    scales: Scales
    weights: Weights
    num_evaluations: int
