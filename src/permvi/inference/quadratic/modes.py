"""The modes of a quadratic problem: where searches end, and what symmetries make of these."""

from typing import NamedTuple

import numpy as np

from permvi.inference.map import MapOptions, Quadratic, solve_quadratic
from permvi.inference.quadratic.twins import Twins

# Modes that are less probable than the best by more than this many nats do not matter.
_MARGIN = 8.0
_MOST_MODES = 256
_MOST_GENERATORS = 32
# What climbs from permutations that chains have seen may take, in swaps times rows.
_CLIMBING = 200_000_000
# Gains of swaps that are rounding errors, relative to the size of values.
_ROUNDING = 1e-9


class Modes(NamedTuple):
    """The result of the search.

    Attributes:
        perms: (m, N) modes, the best one first, none of them made of another one by twins.
        twins: The rows and columns that can be exchanged.
        num_evaluations: Evaluations of the search, see `solve_quadratic`.
    """

    perms: np.ndarray
    twins: Twins
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
    twins = Twins.of(square, allowed)
    perms = orbit(square, allowed, ends[twins.firsts(ends)], twins)
    return Modes(perms, twins, result.num_evaluations)


def climbed(
    square: Quadratic, allowed: np.ndarray, modes: np.ndarray, seen: np.ndarray, twins: Twins
) -> np.ndarray:
    """Return modes (m, N) and those to which permutations (k, N) climb, the best one first.

    Chains find their way into modes that the search has missed. The first permutations climb, as
    many as take a moment, and symmetries complete what they find.
    """
    from permvi.inference.map.tabu_kernels import swap_ascent

    num = min(len(seen), _CLIMBING // len(allowed) ** 3)
    parts = [np.ascontiguousarray(part) for part in (square.A, square.B, square.C)]
    tolerance = _ROUNDING * (1.0 + abs(float(square.values(modes[0]))))
    found = seen[:num].astype(np.int64)
    for perm in found:
        swap_ascent(*parts, square.is_symmetric, allowed, perm, tolerance)
    possible = allowed[np.arange(len(allowed)), found].all(axis=1)
    found = np.concatenate([modes, found[possible]])
    found = found[twins.firsts(found)]
    if len(found) == len(modes):
        return modes
    values = square.values(found)
    order = np.argsort(-values, kind="stable")[:_MOST_MODES]
    kept = order[values[order] >= values.max() - _MARGIN]
    return orbit(square, allowed, found[kept], twins)


def orbit(square: Quadratic, allowed: np.ndarray, modes: np.ndarray, twins: Twins) -> np.ndarray:
    r"""Return modes (m, N), the best one first, and others that symmetries make of them.

    If P and Q are equally good, :math:`Q P^{-1}` may be an automorphism of the columns. It takes
    every mode R to :math:`Q P^{-1} R`, which is kept if its value is within the margin of the best,
    unless twins make it of one that is known.
    """
    rows = np.arange(modes.shape[1])
    least = float(square.values(modes[0])) - _MARGIN
    moves = modes[1 : 1 + _MOST_GENERATORS, np.argsort(modes[0])]
    moves = np.concatenate([moves, np.argsort(moves, axis=1)])
    fresh, known = modes, set(twins.keys(modes))
    while len(fresh) and len(moves) and len(modes) < _MOST_MODES:
        found = moves[:, fresh].reshape(-1, len(rows))
        found = found[twins.firsts(found, known)]
        found = found[allowed[rows, found].all(axis=1)]
        if len(found):
            found = found[square.values(found) >= least]
        fresh = found[: _MOST_MODES - len(modes)]
        known |= set(twins.keys(fresh))
        modes = np.concatenate([modes, fresh])
    return modes
