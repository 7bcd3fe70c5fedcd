"""Metropolis chains over the permutations of all subjects.

Chains draw their proposals from a fixed list of moves. A move and its reverse have the same
probability, so the Metropolis rule leaves the tempered posterior invariant. Exchanges are drawn in
proportion to what they seem to gain where the chain starts. Cycles that lead from the optimum of
one search to that of another let a chain move between optima, block by block. Pair scores, fixed
where the chain starts, screen exchanges before their exact evidence is computed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from permvi.inference.dynamics.evidence import Moves, Screen
from permvi.inference.dynamics.matching import Edges, PairScores
from permvi.inference.dynamics.search import State, cavity_scores, plausible_moves

# Moves are proposed by exp(gain / breadth), an even mixture of these breadths.
_BREADTHS = (4.0, 16.0)
# The share of proposals that are cycles between optima.
_SHARE_OF_CYCLES = 0.02
# The share of a chain that is warm-up.
_WARM_UP = 0.2


class Chain(NamedTuple):
    """The record of a chain.

    Attributes:
        draws: (num, J, m) permutations, thinned, without the warm-up.
        log_densities: (num,) untempered.
        best: (J, m) the best permutations recorded.
        best_log_density: The log density of ``best``.
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
    """Run the Metropolis algorithm from a state, which is moved to the end of the chain.

    Args:
        state: The start.
        edges: Estimates of all subjects, which the proposals depend on.
        cycles: Further moves.
        rng: The source of randomness.
        num_steps: Number of proposals.
        num_draws: Number of permutations to record, at nearly equal intervals.
        temperatures: Temperature of the posterior, a number or one for each step.
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
    """Return the steps before each draw; equal numbers would hide a chain that flips."""
    edges = np.linspace(0, num_steps, num_draws + 1)
    cuts = edges[:-1] + rng.random(num_draws) * np.diff(edges)
    return np.split(np.arange(num_steps), cuts.astype(int))[:-1]


def _stacked(scores: Sequence[PairScores]) -> tuple[np.ndarray, np.ndarray]:
    """Return both factors (J, T, m, m) of all pair scores, with zeros for missing terms."""
    most = max(len(each.A) for each in scores)
    A, B = np.zeros((2, len(scores), most, *scores[0].C.shape))
    for j, each in enumerate(scores):
        A[j, : len(each.A)], B[j, : len(each.B)] = each.A, each.B
    return A, B


def _proposal(scored: np.ndarray) -> np.ndarray:
    """Return (num,) probabilities of exchanges from what they seem to gain."""
    total = np.zeros(len(scored))
    if len(scored):
        for breadth in _BREADTHS:
            weights = np.exp((np.minimum(scored, 0.0) - min(scored.max(), 0.0)) / breadth)
            total += weights / weights.sum() / len(_BREADTHS)
    return total


def sample(
    state: State,
    edges: Sequence[Edges],
    cycles: Moves,
    rng: np.random.Generator,
    *,
    num_steps: int,
    num_draws: int,
    temperature: float,
) -> Chain:
    """Run a chain as `run_chain` does and drop its warm-up."""
    warm_up = max(1, int(_WARM_UP * num_steps))
    for steps, draws in ((warm_up, 1), (num_steps, num_draws)):
        chain = run_chain(
            state, edges, cycles, rng,
            num_steps=steps, num_draws=draws, temperatures=temperature,
        )  # fmt: skip
    return chain
