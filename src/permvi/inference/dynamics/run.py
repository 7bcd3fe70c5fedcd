"""Permutations of all subjects with the weights integrated out: searches, then chains around them.

The first searches take the wiring diagram to be right. If what they find shows wrong edges, the
searches are repeated and the chains run under the law of `permvi.inference.dynamics.wiring`.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeVar, cast

import numpy as np
from scipy.special import softmax

from permvi import _threads
from permvi._checks import whole
from permvi.inference.dynamics.chains import sample
from permvi.inference.dynamics.evidence import CollapsedState, Moves, differences
from permvi.inference.dynamics.matching import Edges, estimate_edges, posterior_beliefs
from permvi.inference.dynamics.regression import Scales, SharedRegression
from permvi.inference.dynamics.search import (
    MEAN_SIZE,
    Law,
    State,
    ascend,
    plausible_moves,
    rematch_blocks,
    search,
    state_of,
    take_over,
)
from permvi.inference.dynamics.wiring import Wiring, wrong_edges
from permvi.inference.map.polytope import relaxed_starts
from permvi.inference.method import StepProgress

Item = TypeVar("Item")

# Proposals of a chain for each plausible exchange, and the least and largest number of them.
_STEPS_PER_MOVE = 30
_FEWEST_STEPS = 3000
_MOST_STEPS = 30000
# How often a search matches each row anew, and the most blocks of rows at a time.
_COVERAGE = 5
_MOST_BLOCKS = 40
# Draws behind the moments of the weights.
_NUM_WEIGHT_DRAWS = 16


@dataclass(frozen=True)
class CollapsedOptions:
    """Settings of the search and of the chains.

    Attributes:
        num_restarts: Searches from different starts; the first starts from the barycentre.
        num_steps: Proposals of each chain; by default in proportion to the number of exchanges
            that are plausible where the searches end.
        num_draws: Draws that each chain keeps.
        temperature: Temperature of the posterior that is sampled. Values above 1 give the evidence
            less weight than the model does, because the model is not quite right: it takes weights
            to be independent, but those of the two directions of an edge seldom are.
        forgive: Whether to allow for wrong edges of the support, heavy tails and measurement noise
            where the recordings show them.
    """

    num_restarts: int = 4
    num_steps: int | None = None
    num_draws: int = 250
    temperature: float = 1.5
    forgive: bool = True

    def __post_init__(self) -> None:
        for name in ("num_restarts", "num_draws"):
            whole(name, getattr(self, name))
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be a positive number, got {self.temperature!r}.")
        if self.num_steps is not None and whole("num_steps", self.num_steps) < self.num_draws:
            raise ValueError(
                f"num_steps must be at least num_draws ({self.num_draws}), got {self.num_steps}."
            )


class Weights(NamedTuple):
    """Posterior moments of the weights on the edges, (E,) each, over permutations and weights."""

    mean: np.ndarray
    sd: np.ndarray


class CollapsedResult(NamedTuple):
    """Draws of permutations, and how the searches behind them agree.

    Attributes:
        draws: (R, num, J, m) permutations of all chains, of equal weight.
        log_densities: (R, num) exact log evidence plus log prior of the draws, untempered.
        mode: (J, m) the best permutations found.
        mode_log_density: The log density of the mode.
        log_evidence_offset: Added to a log density, it gives the log density of the recordings.
        found: (R, J, m) the optima of independent searches.
        found_log_densities: (R,) the log densities of these optima.
        scales: The variances, learned or given.
        weights: Moments of W.
        wiring: The errors of the diagram, None where the recordings show none.
        edges: (m, m) probabilities that pairs of labels are edges, given the mode.
        num_evaluations: The number of exact evidences, of their differences and of gradients.
    """

    draws: np.ndarray
    log_densities: np.ndarray
    mode: np.ndarray
    mode_log_density: float
    log_evidence_offset: float
    found: np.ndarray
    found_log_densities: np.ndarray
    scales: Scales
    wiring: Wiring | None
    edges: np.ndarray
    weights: Weights
    num_evaluations: int


_DEFAULT = CollapsedOptions()


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
    """Sample the tempered posterior of all subjects' permutations, the weights integrated out.

    Independent searches each find an optimum and improve it by matching blocks of rows anew. Next
    they adopt from each other, cycle by cycle, whatever raises the evidence, and match blocks anew
    again. Chains start from these optima, drawn by their evidence.

    Args:
        problem: Statistics and constraints.
        scales: The variances; starting values of those that are learned.
        rng: The source of randomness.
        options: Settings.
        learn_weight: Whether to learn the variance of the weights.
        learn_noise: Whether to learn the noise variance.
        on_progress: Called as ``on_progress(done, total)``.
    """
    num, temperature = options.num_restarts, options.temperature
    edges = _estimates(problem, scales)
    starts = relaxed_starts(num, problem.mask.shape, problem.mask, rng)
    total = 4 * num
    learned = {"learn_weight": learn_weight, "learn_noise": learn_noise}
    with _threads.pool(num) as pool:
        finds = pool.map(lambda start: search(problem, edges, scales, start, **learned), starts)
        first = _told(finds, on_progress, 0, total)
        best = max(first, key=lambda state: state.log_evidence)
        searched: Sequence[State] = first
        normal, law = best.scales, cast(Law, best.scales)
        edges = _estimates(problem, normal)
        wrong = wrong_edges(problem, edges, best.perms, normal) if options.forgive else None
        if wrong is not None:
            searched = _search_again(pool, problem, edges, wrong, searched, starts)
            law = max(searched, key=lambda state: state.log_evidence).scales
        # Densities are comparable at equal scales only, so all searches get those of the best.
        states = [state_of(problem, edges, state.perms, law) for state in searched]
        num_steps = options.num_steps or _default_steps(states[0], edges, options.num_draws)
        # The searches are still independent: their agreement tells whether an optimum was missed.
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
        starting = [state_of(problem, edges, states[member].perms, law) for member in chosen]
        sampled = pool.map(
            lambda state, stream: sample(
                state,
                edges,
                cycles,
                stream,
                num_steps=num_steps,
                num_draws=options.num_draws,
                temperature=temperature,
            ),
            starting,
            rng.spawn(num),
        )
        chains = _told(sampled, on_progress, 3 * num, total)
    top = max(chains, key=lambda chain: chain.best_log_density)
    climbed = state_of(problem, edges, top.best, law)
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
        scales=normal,
        wiring=law if isinstance(law, Wiring) else None,
        edges=mode.edge_probabilities,
        weights=_weights(problem, normal, draws, rng),
        num_evaluations=sum(
            state.num_evaluations for state in {*searched, *states, *starting, climbed, mode}
        ),
    )


def _search_again(
    pool: ThreadPoolExecutor,
    problem: SharedRegression,
    edges: Sequence[Edges],
    wrong: Wiring,
    ends: Sequence[State],
    starts: np.ndarray,
) -> list[State]:
    """Search with wrong edges from all starts and from where searches without them ended."""

    def better(end: State, start: np.ndarray) -> State:
        fresh = search(problem, edges, wrong, start, learn_weight=True, learn_noise=True)
        moved = state_of(problem, edges, end.perms, fresh.scales)
        ascend(moved, edges)
        best: State = max((fresh, moved), key=lambda state: state.log_density)
        best.num_evaluations = sum(each.num_evaluations for each in (end, fresh, moved))
        best.learn_scales(weight=True, noise=True)
        return best

    return list(pool.map(better, ends, starts))


def _estimates(problem: SharedRegression, scales: Scales) -> list[Edges]:
    return [estimate_edges(problem, j, scales) for j in range(problem.num_subjects)]


def _told(
    items: Iterable[Item], on_progress: StepProgress | None, done: int, total: int
) -> list[Item]:
    """Collect all items, calling ``on_progress`` after each."""
    found = []
    for item in items:
        found.append(item)
        if on_progress is not None:
            on_progress(done + len(found), total)
    return found


def _default_steps(state: State, edges: Sequence[Edges], num_draws: int) -> int:
    """Return the number of proposals of a chain, in proportion to the plausible moves."""
    num_moves = plausible_moves(state, edges)[0].num
    return int(np.clip(_STEPS_PER_MOVE * num_moves, max(_FEWEST_STEPS, num_draws), _MOST_STEPS))


def _cycles(states: Sequence[State]) -> Moves:
    """Return the cycles that lead from any state to any other."""
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
    """Improve states in place by cycles that lead to others and by matching blocks anew.

    Without ``cycles`` the states stay independent. ``differ`` tells whether they differ.
    """
    problem = states[0].problem
    num_open = int((problem.mask.sum(axis=-1) > 1).sum())
    # If all searches agree, there is little left to find.
    coverage = _COVERAGE if differ else 1
    num_blocks = min(-(-coverage * num_open // MEAN_SIZE), _MOST_BLOCKS)

    def explore(state: State, stream: np.random.Generator) -> None:
        if cycles is not None:
            take_over(state, cycles)
        rematch_blocks(state, edges, stream, num_blocks)

    return pool.map(explore, states, rng.spawn(len(states)))


def _weights(
    problem: SharedRegression, scales: Scales, draws: np.ndarray, rng: np.random.Generator
) -> Weights:
    """Return moments of the weights over some draws, by the law of total variance."""
    flat = draws.reshape(-1, *draws.shape[2:])
    at = np.nonzero(problem.support)
    means, variances = [], []
    for perms in flat[rng.choice(len(flat), min(_NUM_WEIGHT_DRAWS, len(flat)), replace=False)]:
        beliefs = posterior_beliefs(
            problem, CollapsedState(problem, perms, scales).statistics, scales
        )
        means.append(beliefs.mean[at])
        variances.append(beliefs.variance[at])
    spread = np.mean(variances, axis=0) + np.var(means, axis=0)
    return Weights(np.mean(means, axis=0), np.sqrt(spread))
