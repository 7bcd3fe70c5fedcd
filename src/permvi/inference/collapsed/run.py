"""Search from several starts, let the finds improve each other, and sample around the best."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TypeVar

import numpy as np
from scipy.special import softmax

from permvi import _threads
from permvi.inference.collapsed.blocks import MEAN_SIZE, rematch_blocks, take_over
from permvi.inference.collapsed.edges import Edges, estimate_edges, posterior_beliefs
from permvi.inference.collapsed.moves import Moves, differences
from permvi.inference.collapsed.options import CollapsedOptions
from permvi.inference.collapsed.problem import SharedRegression
from permvi.inference.collapsed.result import CollapsedResult, Weights
from permvi.inference.collapsed.sampling import Chain, run_chain
from permvi.inference.collapsed.scales import Scales
from permvi.inference.collapsed.search import ascend, plausible_moves, search
from permvi.inference.collapsed.state import State
from permvi.inference.map.starts import relaxed_starts

_DEFAULT = CollapsedOptions()
Report = Callable[[int, int], None]
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
    report: Report | None = None,
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
        report: Called as ``report(done, total)``.
    """
    num, temperature = options.num_restarts, options.temperature
    edges = _estimates(problem, scales)
    starts = relaxed_starts(num, problem.mask.shape, problem.mask, rng)
    total = 4 * num
    learned = {"learn_weight": learn_weight, "learn_noise": learn_noise}
    with _threads.pool(num) as pool:
        finds = pool.map(lambda start: search(problem, edges, scales, start, **learned), starts)
        searched = _told(finds, report, 0, total)
        best = max(searched, key=lambda state: state.log_evidence)
        # Evidence at different scales cannot be compared, so all get those of the best.
        states = [State(problem, state.perms, best.scales) for state in searched]
        edges = _estimates(problem, best.scales)
        num_steps = options.num_steps or _default_steps(states[0], edges, options.num_draws)
        # Still independent, so that where these end tells how sure it is that nothing was missed.
        alone = _explorations(pool, states, edges, rng, differ=_cycles(states).num > 0)
        _told(alone, report, num, total)
        found = np.stack([state.perms for state in states])
        found_values = np.array([state.log_density for state in states])
        between = _cycles(states)
        together = _explorations(pool, states, edges, rng, differ=between.num > 0, cycles=between)
        _told(together, report, 2 * num, total)
        cycles = _cycles(states)
        values = np.array([state.log_density for state in states])
        chosen = rng.choice(num, size=num, p=softmax(values / temperature))
        starting = [State(problem, states[member].perms, best.scales) for member in chosen]
        sampled = pool.map(
            lambda state, stream: _sample(state, edges, cycles, stream, num_steps, options),
            starting,
            rng.spawn(num),
        )
        chains = _told(sampled, report, 3 * num, total)
    top = max(chains, key=lambda chain: chain.best_log_density)
    climbed = State(problem, top.best, best.scales)
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


def _told(items: Iterable[Item], report: Report | None, done: int, total: int) -> list[Item]:
    """All items, with a report after each."""
    found = []
    for item in items:
        found.append(item)
        if report is not None:
            report(done + len(found), total)
    return found


def _default_steps(state: State, edges: Sequence[Edges], num_draws: int) -> int:
    """How many proposals a chain makes: the more is plausible, the more."""
    num_moves = plausible_moves(state, edges)[0].num
    return int(np.clip(_STEPS_PER_MOVE * num_moves, max(_FEWEST_STEPS, num_draws), _MOST_STEPS))


def _cycles(states: Sequence[State]) -> Moves:
    """What leads from one state to another, both ways."""
    perms = [state.perms for state in states]
    pairs = [differences(perms[:r], perms[r]) for r in range(1, len(perms))]
    return reduce(Moves.followed_by, pairs, Moves.single(np.empty((0, 3))))


def _explorations(
    pool: ThreadPoolExecutor,
    states: Sequence[State],
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

    def explore(state: State, stream: np.random.Generator) -> None:
        if cycles is not None:
            take_over(state, cycles)
        rematch_blocks(state, edges, stream, num_blocks)

    return pool.map(explore, states, rng.spawn(len(states)))


def _sample(
    state: State,
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
        beliefs = posterior_beliefs(problem, *State(problem, perms, scales).statistics, scales)
        means.append(beliefs.mean[at])
        variances.append(beliefs.variance[at])
    spread = np.mean(variances, axis=0) + np.var(means, axis=0)
    return Weights(np.mean(means, axis=0), np.sqrt(spread))
