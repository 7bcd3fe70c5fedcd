"""Markov chain Monte Carlo from a problem to draws: starting points, chains and results."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from permvi._programmes import light_jit
from permvi.inference.interruptible import summing_up
from permvi.inference.mcmc.loop import Config, DeviceRun, HostRun, Records
from permvi.inference.mcmc.moves import MatchingSpace, only_rows_swap, swaps_need_cycles
from permvi.inference.mcmc.options import MCMCOptions, Plan, Proposal
from permvi.inference.mcmc.result import MCMCResult, collect
from permvi.inference.method import StepProgress, split_batch, stack
from permvi.problem.problem import Problem
from permvi.problem.unmatched import best_matchings, random_feasible

Run = DeviceRun | HostRun

_NUM_CHUNKS = 10
# An inverse temperature at which chains only go uphill.
_UPHILL = 1e12


def run_mcmc(
    problem: Problem,
    rng_key: jax.Array,
    options: MCMCOptions | None = None,
    proposal: Proposal | None = None,
    on_progress: StepProgress | None = None,
) -> MCMCResult:
    """Draw matchings of a problem by Metropolis-Hastings chains.

    Swaps, cycles if there is a mask, and draws of ``proposal`` take turns, see `moves` and
    `Proposal`; each leaves the posterior invariant. With several temperatures, chains of the
    posterior exchange matchings with chains of flatter densities. The same key gives the same
    result. Ctrl-C ends the run and returns the draws so far, unless it is still warming up.

    Args:
        problem: The problem, without other latents; see `swap_steps` for those.
        rng_key: A JAX random key.
        options: Settings.
        proposal: A law near the posterior, or None.
        on_progress: Called as ``on_progress(done, total)`` now and then, in steps of a chain.

    Raises:
        ValueError: The density is NaN or +inf somewhere, or no matching is feasible.
    """
    if not problem.traceable:
        spaces = [_space(problem)]
        return _run(HostRun, problem, spaces, rng_key, options, proposal, on_progress)[0]
    if proposal is not None:
        proposal = proposal._replace(params=stack([proposal.params]))
    return run_mcmc_batch(stack([problem]), rng_key, options, proposal, on_progress)[0]


def run_mcmc_batch(
    problems: Problem,
    rng_key: jax.Array,
    options: MCMCOptions | None = None,
    proposal: Proposal | None = None,
    on_progress: StepProgress | None = None,
) -> list[MCMCResult]:
    """Draw matchings of many problems of one shape at once, and return a result for each.

    ``problems`` is one problem with an axis over problems in front of every leaf, as are the
    parameters of ``proposal``. Densities must be JAX functions. All else is as in `run_mcmc`.
    """
    tables = jax.tree.map(np.asarray, _spaces(problems))
    spaces = [jax.tree.map(lambda table, p=p: table[p], tables) for p in range(len(tables.allowed))]
    return _run(DeviceRun, problems, spaces, rng_key, options, proposal, on_progress)


_space = light_jit(MatchingSpace.of)
_spaces = light_jit(jax.vmap(MatchingSpace.of))


def _run(
    kind: Callable[..., Run],
    problems: Problem,
    spaces: Sequence[MatchingSpace],
    rng_key: jax.Array,
    options: MCMCOptions | None,
    proposal: Proposal | None,
    on_progress: StepProgress | None,
) -> list[MCMCResult]:
    """Run the chains of as many problems as there are spaces, from starting points to results."""
    options = options or MCMCOptions()
    if problems.latents:
        raise ValueError(
            "problem must have no other latents, got "
            f"{', '.join(map(repr, problems.latents))}; alternate swap_steps with updates of them."
        )
    config = Config(
        num_swaps=options.swaps_per_proposal,
        cycles=swaps_need_cycles(problems),
        delta=problems.delta is not None and only_rows_swap(problems),
        proposal=None if proposal is None else proposal._replace(params=None),
        thin=1,
    )
    plan = options.plan(sum(config.counts))
    config = config._replace(thin=plan.thin)
    start_keys, uphill_keys, run_keys = split_batch(rng_key, 3, len(spaces))
    seeds = np.asarray(jax.random.key_data(start_keys))
    num = options.num_chains * options.num_temperatures
    starts = [_starting_points(*pair, num) for pair in zip(spaces, seeds, strict=True)]
    perms, spent = np.stack(starts), 0
    if options.start != "random":
        if problems.scores is not None:
            scores = np.asarray(problems.scores).reshape(len(perms), *perms.shape[2:], -1)
            best = np.stack([_best_matching(*pair) for pair in zip(spaces, scores, strict=True)])
        else:
            only_moves = config._replace(proposal=None, delta=False)
            uphill = kind(problems, None, only_moves, np.full(1, _UPHILL), perms, uphill_keys)
            uphill.advance(_chunk_length(plan), 0)
            chains, spent = uphill.chains, uphill.num_evaluations
            place = np.argmax(chains.best_log_p, axis=1)
            best = chains.best_perms[np.arange(len(place)), place]
        random = num // 2 if options.start == "both" else 0
        perms[:, random:] = best[:, None]
    params = None if proposal is None else proposal.params
    run = kind(problems, params, config, options.inverse_temperatures, perms, run_keys)
    records, interrupted = _in_chunks(run, plan, sum(config.counts), on_progress)
    chains, spent = run.chains, spent + run.num_evaluations
    return [
        collect(
            options,
            config,
            plan,
            *(jax.tree.map(lambda leaf, p=p: leaf[p], part) for part in (chains, records)),
            num_evaluations=spent,
            interrupted=interrupted,
        )
        for p in range(len(spaces))
    ]


def _chunk_length(plan: Plan) -> int:
    return max(1, plan.num_records // _NUM_CHUNKS)


def _in_chunks(
    run: Run, plan: Plan, sweep_length: int, on_progress: StepProgress | None
) -> tuple[Records, bool]:
    """Return the records of a run, and whether it was interrupted."""
    length = _chunk_length(plan)
    count = plan.num_records // length
    steps = length * plan.thin * sweep_length
    parts: list[Records] = []
    interrupted = False
    try:
        for index in range(count):
            parts.append(run.advance(length, index * length))
            if on_progress is not None:
                on_progress((index + 1) * steps, count * steps)
    except KeyboardInterrupt:
        if not plan.is_enough(len(parts) * length):
            raise
        summing_up()
        interrupted = True
    joined = Records(*(np.concatenate(each, axis=1) for each in zip(*parts, strict=True)))
    return joined, interrupted


def _starting_points(space: MatchingSpace, seed: np.ndarray, num: int) -> np.ndarray:
    """Return (num, S, n) random feasible matchings, distinct where they can easily be."""
    rng = np.random.default_rng(seed)
    # Draw twice as many as needed, so that repeats can be left out.
    drawn = random_feasible(2 * num, _allowed(space), rng)
    _, first = np.unique(drawn.reshape(2 * num, -1), axis=0, return_index=True)
    repeats = np.setdiff1d(np.arange(2 * num), first)
    return drawn[np.concatenate([np.sort(first), repeats])[:num]]


def _best_matching(space: MatchingSpace, scores: np.ndarray) -> np.ndarray:
    """Return (S, n) the matching of largest weight under scores (S, n, m)."""
    S, n, m = scores.shape
    tables: Any = np.zeros((S, n + 1, m + 1))
    tables[:, :n, :m] = scores
    if space.unmatched is not None:
        tables[:, :n, m], tables[:, n, :m] = space.unmatched
    return best_matchings(np.where(_allowed(space), tables, -np.inf))


def _allowed(space: MatchingSpace) -> np.ndarray:
    """Return (S, n+1, m+1) which entries of grounded tables are allowed."""
    return np.concatenate([space.allowed, np.asarray(space.may_be_free)[:, None]], axis=1)
