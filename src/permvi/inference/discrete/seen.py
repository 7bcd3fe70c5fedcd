"""Distinct matchings and their densities: what was evaluated once is never evaluated again."""

from collections.abc import Callable

import numpy as np

# The density of distinct choices (num, S, n) on the host, (num,).
Evaluate = Callable[[np.ndarray], np.ndarray]

_INTEGER_BITS = 62


def codes(choices: np.ndarray, num_choices: int) -> np.ndarray:
    """(num, S, n) -> (num,) sortable codes, equal exactly for equal matchings."""
    flat = choices.reshape(len(choices), -1)
    if flat.shape[1] * np.log2(num_choices) <= _INTEGER_BITS:
        powers = num_choices ** np.arange(flat.shape[1], dtype=np.int64)
        return flat.astype(np.int64) @ powers
    small = np.ascontiguousarray(flat, dtype=np.uint8 if num_choices <= 256 else np.uint16)
    return small.view(np.dtype((np.void, small.strides[0]))).ravel()


class Seen:
    """A growing set of matchings with their log densities.

    Args:
        num_choices: C.
        evaluate: The log density.
    """

    def __init__(self, num_choices: int, evaluate: Evaluate) -> None:
        self.num_evaluations = 0
        self._num_choices = num_choices
        self._evaluate = evaluate
        self._codes: np.ndarray | None = None
        self._choices: np.ndarray | None = None
        self._values = np.zeros(0)

    @property
    def choices(self) -> np.ndarray:
        """(num, S, n) the matchings, sorted by their codes."""
        if self._choices is None:
            raise ValueError("nothing was evaluated yet.")
        return self._choices

    @property
    def values(self) -> np.ndarray:
        """(num,) their log densities."""
        return self._values

    def __len__(self) -> int:
        return len(self._values)

    def contains(self, choices: np.ndarray) -> np.ndarray:
        """(num,) which of the matchings are there."""
        if self._codes is None:
            return np.zeros(len(choices), bool)
        return self._find(codes(choices, self._num_choices))[1]

    def add(self, choices: np.ndarray, values: np.ndarray) -> None:
        """Take in matchings whose densities were computed elsewhere, repeats and all."""
        self.num_evaluations += len(choices)
        self._merge(choices, values)

    def look_up(self, choices: np.ndarray) -> np.ndarray:
        """(num,) log densities of matchings, new ones evaluated and kept."""
        unknown = ~self.contains(choices)
        if unknown.any():
            _, first = np.unique(codes(choices[unknown], self._num_choices), return_index=True)
            new = choices[unknown][first]
            self.add(new, self._evaluate(new))
        return self._values[self._find(codes(choices, self._num_choices))[0]]

    def _find(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        table: np.ndarray = self._codes  # type: ignore[assignment]
        place = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
        return place, table[place] == wanted

    def _merge(self, choices: np.ndarray, values: np.ndarray) -> None:
        if self._choices is not None:
            choices = np.concatenate([self._choices, choices])
            values = np.concatenate([self._values, values])
        self._codes, first = np.unique(codes(choices, self._num_choices), return_index=True)
        self._choices, self._values = choices[first], np.asarray(values, np.float64)[first]
