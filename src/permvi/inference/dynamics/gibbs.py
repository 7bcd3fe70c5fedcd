"""Markov chains of permutations and weights: swaps given the weights, weights given all of them."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from permvi import _threads
from permvi.inference.dynamics.evidence import Scales
from permvi.inference.dynamics.joint_state import KINDS, JointState
from permvi.inference.dynamics.regression import SharedRegression
from permvi.inference.mcmc.options import MCMCOptions
from permvi.inference.mcmc.result import MCMCResult
from permvi.inference.method import StepProgress
from permvi.problem.unmatched import random_assignments

# Permutations (C, J, m) and weights (C, E) of all chains.
Observe = Callable[[np.ndarray, np.ndarray], None]

# Sweeps of a chain, unless it is told how many.
_NUM_SWEEPS = 400


class GibbsResult(NamedTuple):
    """Draws of permutations and weights.

    Attributes:
        chains: The permutations (C, num, J, m) and, as their log densities, those with the weights
            integrated out.
        weights: (C, num, E) a draw of W for each of them.
    """

    chains: MCMCResult
    weights: np.ndarray


def run_gibbs(
    problem: SharedRegression,
    scales: Scales,
    rng: np.random.Generator,
    options: MCMCOptions,
    *,
    start: np.ndarray | None = None,
    on_progress: StepProgress | None = None,
    observe: Observe | None = None,
) -> GibbsResult:
    """Draw permutations and weights from their joint posterior (Linderman et al. 2018, 5.2).

    A step is a whole sweep: ``swaps_per_proposal`` Metropolis steps given the weights for each row
    that has a choice, and then a draw of all weights given the permutations.

    Args:
        problem: Statistics and constraints.
        scales: The variances.
        rng: The source of randomness.
        options: Settings; there is but one temperature.
        start: (J, m) where all chains start; at random matchings by default.
        on_progress: Called as ``on_progress(done, total)``, in sweeps of a chain.
        observe: Called with the chains' permutations (C, J, m) and weights (C, E) at the beginning
            and after every record, warm-up included.
    """
    if options.num_steps is None:
        options = dataclasses.replace(options, num_steps=_NUM_SWEEPS)
    plan = options.plan(sweep_length=1)
    starts = (
        random_assignments(options.num_chains, problem.mask.shape, problem.mask, rng)
        if start is None
        else np.repeat(start[None], options.num_chains, axis=0)
    )
    streams = rng.spawn(options.num_chains)
    states = [JointState(problem, perms, scales) for perms in starts]

    def record(state: JointState, stream: np.random.Generator) -> _Record:
        for _ in range(plan.thin):
            state.swap(options.swaps_per_proposal, stream)
            value = state.regress(stream)
        return _Record(state.perms, state.weights, value)

    with _threads.pool(len(states)) as pool:
        # The first weights are draws, too: means would not belong to the permutations' draws.
        list(pool.map(JointState.regress, states, streams))
        _observe(observe, states)
        records: list[list[_Record]] = []
        for index in range(plan.num_records):
            records.append(list(pool.map(record, states, streams)))
            _observe(observe, states)
            if on_progress is not None:
                on_progress((index + 1) * plan.thin, plan.num_records * plan.thin)
    return _collect(options, states, records, plan.num_warmup)


class _Record(NamedTuple):
    """A chain after some sweeps."""

    perms: np.ndarray
    weights: np.ndarray
    log_density: float


def _observe(observe: Observe | None, states: list[JointState]) -> None:
    if observe is not None:
        observe(
            np.stack([state.perms for state in states]),
            np.stack([state.weights for state in states]),
        )


def _collect(
    options: MCMCOptions,
    states: list[JointState],
    records: list[list[_Record]],
    num_warmup: int,
) -> GibbsResult:
    """The result, from the records (num, C)."""
    best = max((each for some in records for each in some), key=lambda each: each.log_density)
    by_chain = list(zip(*records[num_warmup:], strict=True))
    perms, weights, values = (
        np.stack([np.stack([getattr(each, name) for each in chain]) for chain in by_chain])
        for name in _Record._fields
    )
    taken, proposed = (sum(getattr(s, name) for s in states) for name in ("taken", "proposed"))
    rates = {kind: float(taken[k] / proposed[k]) for k, kind in enumerate(KINDS) if proposed[k] > 0}
    chains = MCMCResult(
        options=options,
        draws=perms,
        log_densities=values,
        mode=best.perms,
        mode_log_density=best.log_density,
        acceptance=rates,
        num_evaluations=sum(state.num_evaluations for state in states),
        interrupted=False,
    )
    return GibbsResult(chains, weights)
