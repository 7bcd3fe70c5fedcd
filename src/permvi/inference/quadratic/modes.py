"""The modes of a quadratic problem: where searches end, and what symmetries make of these."""

from typing import NamedTuple

import numpy as np

from permvi.inference.map import MapOptions, Quadratic, solve_quadratic

# Modes that are less probable than the best by more than this many nats do not matter.
_MARGIN = 8.0
_MOST_MODES = 256
_MOST_GENERATORS = 32


class Modes(NamedTuple):
    """The result of the search.

    Attributes:
        perms: (m, N) modes, the best one first.
        num_evaluations: Evaluations of the search, see `solve_quadratic`.
    """

    perms: np.ndarray
    num_evaluations: int


def find_modes(
    square: Quadratic, allowed: np.ndarray, rng: np.random.Generator, budget: int | None = None
) -> Modes:
    """Search a square problem for its modes, and complete them by symmetries.

    The search is that of method "map", which finds the same matching with the same ``rng``.
    ``budget`` limits its populations, see `solve_quadratic`.
    """
    mask = None if allowed.all() else allowed
    result = solve_quadratic(square, mask, MapOptions(), rng, budget=budget)
    ends = np.concatenate([result.perm[None], result.ends])
    values = square.values(ends)
    order = np.argsort(-values, kind="stable")
    ends = ends[order[values[order] >= values.max() - _MARGIN]]
    _, first = np.unique(ends, axis=0, return_index=True)
    perms = orbit(square, allowed, ends[np.sort(first)])
    return Modes(perms, result.num_evaluations)


def orbit(square: Quadratic, allowed: np.ndarray, modes: np.ndarray) -> np.ndarray:
    r"""Return modes (m, N), the best one first, and others that symmetries make of them.

    If P and Q are equally good, :math:`Q P^{-1}` may be an automorphism of the columns. It takes
    every mode R to :math:`Q P^{-1} R`, which is kept if its value is within the margin of the best.
    """
    rows = np.arange(modes.shape[1])
    least = float(square.values(modes[0])) - _MARGIN
    moves = modes[1 : 1 + _MOST_GENERATORS, np.argsort(modes[0])]
    moves = np.concatenate([moves, np.argsort(moves, axis=1)])
    fresh, known = modes, {perm.tobytes() for perm in modes}
    while len(fresh) and len(moves) and len(modes) < _MOST_MODES:
        found = moves[:, fresh].reshape(-1, len(rows))
        found = np.unique(found, axis=0)
        found = found[[perm.tobytes() not in known for perm in found]]
        found = found[allowed[rows, found].all(axis=1)]
        if len(found):
            found = found[square.values(found) >= least]
        fresh = found[: _MOST_MODES - len(modes)]
        known |= {perm.tobytes() for perm in fresh}
        modes = np.concatenate([modes, fresh])
    return modes
