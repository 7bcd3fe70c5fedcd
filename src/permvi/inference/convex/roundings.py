"""Permutations that relaxed solutions are rounded to, and the best of them."""

from collections.abc import Callable

import numpy as np


class Roundings:
    """The permutation of the smallest value among all that points were rounded to.

    Args:
        rounded: The permutation (n,) of a point.
        value: Of a permutation.

    Attributes:
        perm: (n,) the best one so far.
        value: Its value.
    """

    perm: np.ndarray

    def __init__(
        self, rounded: Callable[[np.ndarray], np.ndarray], value: Callable[[np.ndarray], float]
    ) -> None:
        self._rounded, self._value_of = rounded, value
        self._seen: set[bytes] = set()
        self.value = np.inf

    @property
    def num_values(self) -> int:
        """How many values were computed."""
        return len(self._seen)

    def look_at(self, point: np.ndarray) -> None:
        """Round a point, and keep the result if it is better."""
        perm = self._rounded(point)
        if perm.tobytes() in self._seen:
            return
        self._seen.add(perm.tobytes())
        value = self._value_of(perm)
        if value < self.value:
            self.value, self.perm = value, perm
