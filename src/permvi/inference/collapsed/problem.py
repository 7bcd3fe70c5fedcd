"""Subjects that share one sparse regression, each up to a permutation: the statistics it takes."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


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
