"""Where chains start: random feasible matchings, all different if there are enough."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from permvi import assignment
from permvi.inference.mcmc.kernels import Config, Records, Run
from permvi.inference.mcmc.loop import DeviceRun, HostRun
from permvi.inference.mcmc.moves import MatchingSpace, only_rows_swap, swaps_need_cycles
from permvi.inference.mcmc.options import MCMCOptions, Plan, Proposal
from permvi.inference.mcmc.result import MCMCResult, collect
from permvi.inference.method import StepProgress
from permvi.problem.problem import Problem


def random_matchings(space: MatchingSpace, rng_key: jax.Array, num: int) -> np.ndarray:
    """(num, S, n) matchings of largest random score, distinct where they can easily be.

    Every feasible matching is the best for some scores, so all of them can come up.

    Raises:
        ValueError: There is no feasible matching.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)))
    sites = [_site(space, s) for s in range(len(space.allowed))]
    # Twice as many as needed, so that repeats can be left out.
    drawn = np.stack([_best_of_random_scores(site, 2 * num, rng) for site in sites], axis=1)
    _, first = np.unique(drawn.reshape(2 * num, -1), axis=0, return_index=True)
    repeats = np.setdiff1d(np.arange(2 * num), first)
    return drawn[np.concatenate([np.sort(first), repeats])[:num]]


def best_matching(space: MatchingSpace, scores: np.ndarray) -> np.ndarray:
    """(S, n) the matching of largest total score (S, n, m), unmatched rows and columns included."""
    found = []
    for s, table in enumerate(scores):
        site = _site(space, s)
        rows, cols = np.zeros(len(table)), np.zeros(space.num_cols)
        if site.unmatched is not None:
            # What has to be matched is not allowed anything else, whatever its weight.
            rows, cols = (np.where(np.isinf(part), 0.0, part) for part in site.unmatched)
        found.append(_solve(site, table[None], rows[None], cols[None])[0])
    return np.stack(found)


def _site(space: MatchingSpace, index: int) -> MatchingSpace:
    """The tables of one site, in NumPy."""
    return jax.tree.map(lambda table: np.asarray(table)[index], space)


def _best_of_random_scores(site: MatchingSpace, num: int, rng: np.random.Generator) -> np.ndarray:
    n, m = site.allowed.shape[0], site.num_cols
    return _solve(site, rng.random((num, n, m)), rng.random((num, n)), rng.random((num, m)))


def _solve(
    site: MatchingSpace, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> np.ndarray:
    """(num, n) best matchings of one site by scores of pairs, unmatched rows and free columns.

    Every row gets a column of its own for staying unmatched, and every column such a row; what they
    do among themselves does not matter.
    """
    num, n, m = pairs.shape
    scores = np.zeros((num, n + m, m + n))
    allowed = np.zeros((n + m, m + n), bool)
    allowed[:n, :m] = site.allowed[:, :m]
    allowed[n:, m:] = True
    i, j = np.arange(n), np.arange(m)
    allowed[i, m + i], allowed[n + j, j] = site.allowed[:, m], site.may_be_free[:m]
    scores[:, :n, :m], scores[:, i, m + i], scores[:, n + j, j] = pairs, rows, cols
    scores = np.where(allowed, scores, 0.0)
    found = np.asarray(assignment.solve(scores, allowed, backend="host"))[:, :n]
    return np.where(found < m, found, -1).astype(np.int64)


_NUM_CHUNKS = 10
# So cold that chains only go uphill.
_UPHILL = 1e12


def run_mcmc(
    problem: Problem,
    rng_key: jax.Array,
    options: MCMCOptions | None = None,
    proposal: Proposal | None = None,
    on_progress: StepProgress | None = None,
) -> MCMCResult:
    """Draw matchings of a problem by Metropolis-Hastings chains.

    Swaps, cycles where there is a mask, and draws of ``proposal`` take turns, see `moves` and
    `Proposal`; each leaves the posterior invariant. With several temperatures, chains of the
    posterior exchange matchings with flatter ones. The same key gives the same result. Ctrl-C ends
    the run and returns what there is, if the warm-up is over by then.

    Args:
        problem: What to draw from; without other latents, see `swap_steps` for those.
        rng_key: A JAX random key.
        options: Settings.
        proposal: A law near the posterior, or None.
        on_progress: Called as ``on_progress(done, total)`` now and then, in steps of a chain.

    Raises:
        ValueError: The density is NaN or +inf somewhere, or no matching is feasible.
    """
    if problem.traceable:
        stacked, params = _stacked(problem), None if proposal is None else proposal.params
        if proposal is not None:
            proposal = proposal._replace(params=_stacked(params))
        return run_mcmc_batch(stacked, rng_key, options, proposal, on_progress)[0]
    spaces = [_space(problem)]
    return _run(HostRun, problem, spaces, rng_key, options, proposal, on_progress)[0]


def run_mcmc_batch(
    problems: Problem,
    rng_key: jax.Array,
    options: MCMCOptions | None = None,
    proposal: Proposal | None = None,
    on_progress: StepProgress | None = None,
) -> list[MCMCResult]:
    """Draw matchings of many problems of one shape at once; their densities are JAX functions.

    Args:
        problems: One problem all of whose leaves have an additional axis in front, over problems.
        rng_key: As in `run_mcmc`.
        options: As in `run_mcmc`.
        proposal: As in `run_mcmc`, its parameters with an axis over problems, too.
        on_progress: As in `run_mcmc`.

    Returns:
        One result for each problem.
    """
    tables = jax.tree.map(np.asarray, _spaces(problems))
    spaces = [jax.tree.map(lambda table, p=p: table[p], tables) for p in range(len(tables.allowed))]
    return _run(DeviceRun, problems, spaces, rng_key, options, proposal, on_progress)


def _run(
    kind: Callable[..., Run],
    problems: Problem,
    spaces: Sequence[MatchingSpace],
    rng_key: jax.Array,
    options: MCMCOptions | None,
    proposal: Proposal | None,
    on_progress: StepProgress | None,
) -> list[MCMCResult]:
    """Chains of as many problems as there are spaces, from starting points to results."""
    options = options or MCMCOptions()
    config, plan = _configure(problems, options, proposal)
    start_keys, uphill_keys, run_keys = jax.random.split(rng_key, (3, len(spaces)))
    num = options.num_chains * options.num_temperatures
    perms = np.stack(
        [random_matchings(*pair, num) for pair in zip(spaces, start_keys, strict=True)]
    )
    spent = 0
    if options.start == "map":
        start = functools.partial(kind, problems, None, rng_keys=uphill_keys)
        best, spent = _best(start, problems.scores, config, plan, spaces, perms)
        perms = np.broadcast_to(best, perms.shape).copy()
    params = None if proposal is None else proposal.params
    run = kind(problems, params, config, options.inverse_temperatures, perms, run_keys)
    records, interrupted = _in_chunks(run, plan, config.sweep_length, on_progress)
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


_space = jax.jit(MatchingSpace.of)
_spaces = jax.jit(jax.vmap(MatchingSpace.of))


def _stacked(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)


def _configure(
    problem: Problem, options: MCMCOptions, proposal: Proposal | None
) -> tuple[Config, Plan]:
    if problem.latents:
        raise ValueError(
            "problem must have no other latents, got "
            f"{', '.join(map(repr, problem.latents))}; alternate swap_steps with updates of them."
        )
    config = Config(
        num_swaps=options.swaps_per_proposal,
        cycles=swaps_need_cycles(problem),
        delta=problem.delta is not None and only_rows_swap(problem),
        sample=None if proposal is None else proposal.sample,
        log_prob=None if proposal is None else proposal.log_prob,
        thin=1,
    )
    plan = options.plan(config.sweep_length)
    return config._replace(thin=plan.thin), plan


def _best(
    start: Callable[..., Run],
    scores: Any,
    config: Config,
    plan: Plan,
    spaces: Sequence[MatchingSpace],
    perms: np.ndarray,
) -> tuple[np.ndarray, int]:
    """(P, 1, S, n) the best matchings, or good ones, and the evaluations that each took."""
    if scores is not None:
        tables = np.asarray(scores).reshape(len(perms), *perms.shape[2:], -1)
        found = [best_matching(*pair) for pair in zip(spaces, tables, strict=True)]
        return np.stack(found)[:, None], 0
    config = config._replace(sample=None, log_prob=None, delta=False)
    run = start(config=config, inverse_temperatures=np.full(1, _UPHILL), perms=perms)
    run.advance(_chunk_length(plan), 0)
    chains = run.chains
    best = np.argmax(chains.best_log_p, axis=1)
    return chains.best_perms[np.arange(len(best)), best][:, None], run.num_evaluations


def _chunk_length(plan: Plan) -> int:
    return max(1, plan.num_records // _NUM_CHUNKS)


def _in_chunks(
    run: Run, plan: Plan, sweep_length: int, on_progress: StepProgress | None
) -> tuple[Records, bool]:
    """The records of a run, and whether it was interrupted."""
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
        interrupted = True
    joined = Records(*(np.concatenate(each, axis=1) for each in zip(*parts, strict=True)))
    return joined, interrupted
