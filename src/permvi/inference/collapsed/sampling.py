"""Chains around what searches have found: swaps, relabellings, and steps from one find to another.

All proposals are drawn from a fixed list of moves with fixed probabilities that a move shares with
its reverse, so Metropolis' rule leaves the tempered posterior as it is. Exchanges are drawn by what
they seem to gain where the chain starts; cycles that lead from one search's find to another's let a
chain visit what other searches have found, block by block. Pair scores, fixed where the chain
starts, screen exchanges before their exact evidence is computed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from permvi.inference.collapsed.edges import Edges
from permvi.inference.collapsed.matching import PairScores
from permvi.inference.collapsed.moves import Moves
from permvi.inference.collapsed.search import cavity_scores, plausible_moves
from permvi.inference.collapsed.state import Screen, State

# Moves are proposed by exp(gain / breadth), an even mixture of these breadths.
_BREADTHS = (4.0, 16.0)
# The share of proposals that are cycles between finds.
_SHARE_OF_CYCLES = 0.02


class Chain(NamedTuple):
    """What a chain has seen.

    Attributes:
        draws: (num, J, m) permutations, thinned, without the warm-up.
        log_densities: (num,) untempered.
        best: (J, m) the best permutations at any of the recorded times, warm-up included.
        best_log_density: Their log density.
    """

    draws: np.ndarray
    log_densities: np.ndarray
    best: np.ndarray
    best_log_density: float


def run_chain(
    state: State,
    edges: Sequence[Edges],
    cycles: Moves,
    rng: np.random.Generator,
    *,
    num_steps: int,
    num_draws: int,
    temperatures: np.ndarray | float,
) -> Chain:
    """Metropolis' algorithm from a state, which is left where the chain ends.

    Args:
        state: Where to start.
        edges: For the proposals.
        cycles: Further moves.
        rng: The source of randomness.
        num_steps: How many proposals.
        num_draws: How many permutations to record, at nearly equal intervals.
        temperatures: Of the posterior, a number or one for each step.
    """
    scores = cavity_scores(state.problem, edges, state.scales, state.perms)
    near, scored = plausible_moves(state, edges, scores)
    moves = near.followed_by(cycles)
    if moves.num == 0:
        perms, value = state.perms, state.log_density
        same = np.repeat(perms[None], num_draws, axis=0)
        return Chain(same, np.full(num_draws, value), perms, value)
    probs = np.concatenate(
        [
            (1 - _SHARE_OF_CYCLES) * _proposal(scored),
            np.full(cycles.num, _SHARE_OF_CYCLES / max(cycles.num, 1)),
        ]
    )
    order = rng.choice(moves.num, size=num_steps, p=probs / probs.sum())
    screens, thresholds = temperatures * np.log(rng.random((2, num_steps)))
    A, B = _stacked(scores)
    draws: list[np.ndarray] = []
    values: list[float] = []
    for part in _intervals(num_steps, num_draws, rng):
        state.walk(moves, order[part], thresholds[part], Screen(A, B, screens[part]))
        draws.append(state.perms)
        values.append(state.log_density)
    state.refresh()
    best = int(np.argmax(values))
    return Chain(np.stack(draws), np.array(values), draws[best], values[best])


def _intervals(num_steps: int, num_draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """The steps before each draw; their number varies, or a chain that flips looks constant."""
    edges = np.linspace(0, num_steps, num_draws + 1)
    cuts = edges[:-1] + rng.random(num_draws) * np.diff(edges)
    return np.split(np.arange(num_steps), cuts.astype(int))[:-1]


def _stacked(scores: Sequence[PairScores]) -> tuple[np.ndarray, np.ndarray]:
    """(J, T, m, m) both parts of all subjects' pair scores; some have fewer terms than others."""
    most = max(len(each.A) for each in scores)
    A, B = np.zeros((2, len(scores), most, *scores[0].C.shape))
    for j, each in enumerate(scores):
        A[j, : len(each.A)], B[j, : len(each.B)] = each.A, each.B
    return A, B


def _proposal(scored: np.ndarray) -> np.ndarray:
    """(num,) probabilities of exchanges by what they seem to gain."""
    total = np.zeros(len(scored))
    if len(scored):
        for breadth in _BREADTHS:
            weights = np.exp((np.minimum(scored, 0.0) - min(scored.max(), 0.0)) / breadth)
            total += weights / weights.sum() / len(_BREADTHS)
    return total
