"""Chains around what searches have found: swaps, relabellings, and steps from one find to another.

All proposals are drawn from a fixed list of moves with fixed probabilities that a move shares with
its reverse, so Metropolis' rule leaves the tempered posterior as it is. Exchanges are drawn by what
they seem to gain where the chain starts; cycles that lead from one search's find to another's let a
chain visit what other searches have found, block by block. Pair scores, fixed where the chain
starts, screen exchanges before their exact evidence is computed.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np
from scipy.special import softmax

from permvi import _threads
from permvi.inference.dynamics.edges import Edges, estimate_edges, posterior_beliefs
from permvi.inference.dynamics.evidence import CollapsedState, Screen
from permvi.inference.dynamics.matching import PairScores
from permvi.inference.dynamics.moves import Moves, differences
from permvi.inference.dynamics.regression import (
    CollapsedOptions,
    CollapsedResult,
    Scales,
    SharedRegression,
    Weights,
)
from permvi.inference.dynamics.search import (
    MEAN_SIZE,
    ascend,
    cavity_scores,
    plausible_moves,
    rematch_blocks,
    search,
    take_over,
)
from permvi.inference.map.polytope import relaxed_starts
from permvi.inference.method import StepProgress

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
    state: CollapsedState,
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


_DEFAULT = CollapsedOptions()
Item = TypeVar("Item")

# Proposals of a chain for each plausible exchange, and their least and largest number.
_STEPS_PER_MOVE = 30
_FEWEST_STEPS = 3000
_MOST_STEPS = 30000
# The share of a chain that is not kept.
_WARM_UP = 0.2
# How often a search tries to match each row anew, and the most blocks of rows at a time; first by
# itself, then with what others have found.
_COVERAGE = 5
_MOST_BLOCKS = 40
# Draws that the weights' moments are taken over.
_NUM_WEIGHT_DRAWS = 16


def run_collapsed(
    problem: SharedRegression,
    scales: Scales,
    rng: np.random.Generator,
    options: CollapsedOptions = _DEFAULT,
    *,
    learn_weight: bool = True,
    learn_noise: bool = True,
    on_progress: StepProgress | None = None,
) -> CollapsedResult:
    """The tempered posterior of all subjects' permutations, the weights integrated out.

    Searches are independent of each other, and so is what matching blocks of rows anew makes of
    them. Then they take over, cycle by cycle, what others have found, and match blocks anew again;
    and chains start from these optima, drawn by their evidence.

    Args:
        problem: Statistics and constraints.
        scales: The variances, or where to start with those that are learned.
        rng: The source of randomness.
        options: Settings.
        learn_weight: Whether the weights' variance is learned.
        learn_noise: Whether the noise variance is.
        on_progress: Called as ``on_progress(done, total)``.
    """
    num, temperature = options.num_restarts, options.temperature
    edges = _estimates(problem, scales)
    starts = relaxed_starts(num, problem.mask.shape, problem.mask, rng)
    total = 4 * num
    learned = {"learn_weight": learn_weight, "learn_noise": learn_noise}
    with _threads.pool(num) as pool:
        finds = pool.map(lambda start: search(problem, edges, scales, start, **learned), starts)
        searched = _told(finds, on_progress, 0, total)
        best = max(searched, key=lambda state: state.log_evidence)
        # Evidence at different scales cannot be compared, so all get those of the best.
        states = [CollapsedState(problem, state.perms, best.scales) for state in searched]
        edges = _estimates(problem, best.scales)
        num_steps = options.num_steps or _default_steps(states[0], edges, options.num_draws)
        # Still independent, so that where these end tells how sure it is that nothing was missed.
        alone = _explorations(pool, states, edges, rng, differ=_cycles(states).num > 0)
        _told(alone, on_progress, num, total)
        found = np.stack([state.perms for state in states])
        found_values = np.array([state.log_density for state in states])
        between = _cycles(states)
        together = _explorations(pool, states, edges, rng, differ=between.num > 0, cycles=between)
        _told(together, on_progress, 2 * num, total)
        cycles = _cycles(states)
        values = np.array([state.log_density for state in states])
        chosen = rng.choice(num, size=num, p=softmax(values / temperature))
        starting = [CollapsedState(problem, states[member].perms, best.scales) for member in chosen]
        sampled = pool.map(
            lambda state, stream: _sample(state, edges, cycles, stream, num_steps, options),
            starting,
            rng.spawn(num),
        )
        chains = _told(sampled, on_progress, 3 * num, total)
    top = max(chains, key=lambda chain: chain.best_log_density)
    climbed = CollapsedState(problem, top.best, best.scales)
    ascend(climbed, edges)
    mode = max((climbed, *states), key=lambda state: state.log_density)
    take_over(mode, cycles)
    ascend(mode, edges)
    draws = np.stack([chain.draws for chain in chains])
    return CollapsedResult(
        draws=draws,
        log_densities=np.stack([chain.log_densities for chain in chains]),
        mode=mode.perms,
        mode_log_density=mode.log_density,
        log_evidence_offset=mode.log_evidence - mode.log_density,
        found=found,
        found_log_densities=found_values,
        scales=best.scales,
        weights=_weights(problem, best.scales, draws, rng),
        num_evaluations=sum(
            state.num_evaluations for state in {*searched, *states, *starting, climbed, mode}
        ),
    )


def _estimates(problem: SharedRegression, scales: Scales) -> list[Edges]:
    return [estimate_edges(problem, j, scales) for j in range(problem.num_subjects)]


def _told(
    items: Iterable[Item], on_progress: StepProgress | None, done: int, total: int
) -> list[Item]:
    """All items, calling ``on_progress`` after each."""
    found = []
    for item in items:
        found.append(item)
        if on_progress is not None:
            on_progress(done + len(found), total)
    return found


def _default_steps(state: CollapsedState, edges: Sequence[Edges], num_draws: int) -> int:
    """How many proposals a chain makes: the more is plausible, the more."""
    num_moves = plausible_moves(state, edges)[0].num
    return int(np.clip(_STEPS_PER_MOVE * num_moves, max(_FEWEST_STEPS, num_draws), _MOST_STEPS))


def _cycles(states: Sequence[CollapsedState]) -> Moves:
    """What leads from one state to another, both ways."""
    perms = [state.perms for state in states]
    pairs = [differences(perms[:r], perms[r]) for r in range(1, len(perms))]
    return reduce(Moves.followed_by, pairs, Moves.single(np.empty((0, 3))))


def _explorations(
    pool: ThreadPoolExecutor,
    states: Sequence[CollapsedState],
    edges: Sequence[Edges],
    rng: np.random.Generator,
    *,
    differ: bool,
    cycles: Moves | None = None,
) -> Iterable[None]:
    """Improve states, in place, by cycles that lead to others and by new matches of blocks.

    Args:
        pool: Who does it.
        states: What to improve.
        edges: Estimates of all subjects.
        rng: The source of randomness.
        differ: Whether there is more than one state among them.
        cycles: What leads from one to another, if they may look at each other.
    """
    problem = states[0].problem
    num_open = int((problem.mask.sum(axis=-1) > 1).sum())
    # Where all searches agree there is little left to be found.
    coverage = _COVERAGE if differ else 1
    num_blocks = min(-(-coverage * num_open // MEAN_SIZE), _MOST_BLOCKS)

    def explore(state: CollapsedState, stream: np.random.Generator) -> None:
        if cycles is not None:
            take_over(state, cycles)
        rematch_blocks(state, edges, stream, num_blocks)

    return pool.map(explore, states, rng.spawn(len(states)))


def _sample(
    state: CollapsedState,
    edges: Sequence[Edges],
    cycles: Moves,
    rng: np.random.Generator,
    num_steps: int,
    options: CollapsedOptions,
) -> Chain:
    """A chain at the options' temperature, without its warm-up."""
    warm_up = max(1, int(_WARM_UP * num_steps))
    for count, num_draws in ((warm_up, 1), (num_steps, options.num_draws)):
        chain = run_chain(
            state,
            edges,
            cycles,
            rng,
            num_steps=count,
            num_draws=num_draws,
            temperatures=options.temperature,
        )
    return chain


def _weights(
    problem: SharedRegression, scales: Scales, draws: np.ndarray, rng: np.random.Generator
) -> Weights:
    """Moments of the weights over some of the draws, by the law of total variance."""
    flat = draws.reshape(-1, *draws.shape[2:])
    at = np.nonzero(problem.support)
    means, variances = [], []
    for perms in flat[rng.choice(len(flat), min(_NUM_WEIGHT_DRAWS, len(flat)), replace=False)]:
        beliefs = posterior_beliefs(
            problem, *CollapsedState(problem, perms, scales).statistics, scales
        )
        means.append(beliefs.mean[at])
        variances.append(beliefs.variance[at])
    spread = np.mean(variances, axis=0) + np.var(means, axis=0)
    return Weights(np.mean(means, axis=0), np.sqrt(spread))
