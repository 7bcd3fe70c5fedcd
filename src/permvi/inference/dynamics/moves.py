"""Moves between permutations: exchanges of two labels, and cycles of more in some subjects."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Moves(NamedTuple):
    """Moves as `kernels.walk` takes them.

    Attributes:
        exchanges: (K, 3) subject (-1 for all that permit it) and two labels to exchange.
        ends: (num,) where in ``exchanges`` each move ends.
    """

    exchanges: np.ndarray
    ends: np.ndarray

    @classmethod
    def single(cls, exchanges: np.ndarray) -> "Moves":
        """Moves of one exchange each."""
        return cls(np.ascontiguousarray(exchanges, np.int64), np.arange(1, len(exchanges) + 1))

    def followed_by(self, other: "Moves") -> "Moves":
        """First these, then the others."""
        return Moves(
            np.concatenate([self.exchanges, other.exchanges]),
            np.concatenate([self.ends, other.ends + len(self.exchanges)]),
        )

    @property
    def num(self) -> int:
        """How many moves."""
        return len(self.ends)


def differences(perms: Iterable[np.ndarray], other: np.ndarray) -> Moves:
    """The cycles of labels that lead from permutations (J, m) to another one, and back.

    What turns one into the other falls apart into cycles, each of which can be tried by itself;
    those that several subjects have in common are one move. Both directions are there, so that
    drawing a move at random is a symmetric proposal.
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
    """The cycles, longer than one, of a permutation of labels, each from its least label on."""
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
