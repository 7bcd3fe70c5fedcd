"""Search from several starts, let the finds improve each other, and sample around the best."""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import TypeVar

import numpy as np
from scipy.special import softmax

from permvi.inference.collapsed.edges import Edges, estimate_edges, posterior_beliefs
from permvi.inference.collapsed.moves import Moves, differences
from permvi.inference.collapsed.options import CollapsedOptions
from permvi.inference.collapsed.problem import SharedRegression
from permvi.inference.collapsed.result import CollapsedResult, Weights
from permvi.inference.collapsed.sampling import Chain, run_chain
from permvi.inference.collapsed.search import ascend, plausible_moves, search
from permvi.inference.collapsed.state import Scales, State
from permvi.inference.map.starts import relaxed_starts

_DEFAULT = CollapsedOptions()
Report = Callable[[int, int], None]
Item = TypeVar("Item")

# Proposals of a chain for each plausible exchange, and their least and largest number.
_STEPS_PER_MOVE = 40
_FEWEST_STEPS = 4000
_MOST_STEPS = 60000
# The share of a chain that looks for better optima, cooling down from a multiple of the
# temperature, and the share of the rest that is not kept.
_EXPLORED = 0.25
_HEAT = 2.0
_WARM_UP = 0.2
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

    Searches are independent of each other. What they end in is then improved by chains that cool
    down and that may take over, block by block, what other searches have found; and the chains that
    are kept start from these optima, drawn by their evidence.

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
    edges = [estimate_edges(problem, j, scales) for j in range(problem.num_subjects)]
    starts = relaxed_starts(num, problem.mask.shape, problem.mask, rng)
    learned = {"learn_weight": learn_weight, "learn_noise": learn_noise}
    with ThreadPoolExecutor(min(num, os.cpu_count() or 1)) as pool:
        finds = pool.map(lambda start: search(problem, edges, scales, start, **learned), starts)
        searched = _told(finds, report, 0, 3 * num)
        best = max(searched, key=lambda state: state.log_evidence)
        # Evidence at different scales cannot be compared, so all get those of the best.
        states = [State(problem, state.perms, best.scales) for state in searched]
        found = np.stack([state.perms for state in states])
        found_values = np.array([state.log_density for state in states])
        num_steps = options.num_steps or _default_steps(states[0], edges, options.num_draws)
        between = _cycles(states)
        improved = pool.map(
            lambda state, stream: _explore(state, edges, between, stream, num_steps, temperature),
            states,
            rng.spawn(num),
        )
        _told(improved, report, num, 3 * num)
        cycles = _cycles(states)
        values = np.array([state.log_density for state in states])
        chosen = rng.choice(num, size=num, p=softmax(values / temperature))
        starting = [State(problem, states[member].perms, best.scales) for member in chosen]
        sampled = pool.map(
            lambda state, stream: _sample(state, edges, cycles, stream, num_steps, options),
            starting,
            rng.spawn(num),
        )
        chains = _told(sampled, report, 2 * num, 3 * num)
    top = max(chains, key=lambda chain: chain.best_log_density)
    mode = State(problem, top.best, best.scales)
    _recombine(mode, edges, cycles)
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
            state.num_evaluations for state in (*searched, *states, *starting, mode)
        ),
    )


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


def _recombine(state: State, edges: Sequence[Edges], cycles: Moves) -> None:
    """Climb, with what other searches have found as further moves."""
    if cycles.num:
        state.walk(cycles, np.arange(cycles.num), np.zeros(cycles.num))
        state.refresh()
    ascend(state, edges)


def _explore(
    state: State,
    edges: Sequence[Edges],
    cycles: Moves,
    rng: np.random.Generator,
    num_steps: int,
    temperature: float,
) -> None:
    """Move a state, in place, to the best optimum that it and a cooling chain lead to."""
    _recombine(state, edges, cycles)
    before, value = state.perms, state.log_density
    count = max(1, int(_EXPLORED * num_steps))
    cooling = temperature * np.geomspace(_HEAT, 1.0, count)
    run_chain(state, edges, cycles, rng, num_steps=count, num_draws=1, temperatures=cooling)
    _recombine(state, edges, cycles)
    if state.log_density < value:
        state.move_to(before)


def _sample(
    state: State,
    edges: Sequence[Edges],
    cycles: Moves,
    rng: np.random.Generator,
    num_steps: int,
    options: CollapsedOptions,
) -> Chain:
    """A chain at the options' temperature, without its warm-up."""
    left = max(num_steps - int(_EXPLORED * num_steps), options.num_draws)
    warm_up = max(1, int(_WARM_UP * left))
    for count, num_draws in ((warm_up, 1), (left, options.num_draws)):
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
