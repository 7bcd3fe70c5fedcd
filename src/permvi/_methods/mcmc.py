"""Method "mcmc": Metropolis-Hastings chains of swaps, with proposals from a fitted family."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from permvi._choices import one_of
from permvi._methods import shared_dynamics
from permvi._methods.conditional import conditional, with_marginals
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.refusals import refuse_latents
from permvi._methods.stacking import alike, stack
from permvi._task import Task
from permvi.inference.discrete.density import as_perms
from permvi.inference.discrete.family import Family, draw, log_prob
from permvi.inference.discrete.options import DiscreteOptions
from permvi.inference.discrete.run import run_discrete
from permvi.inference.mcmc import (
    MCMCOptions,
    MCMCResult,
    Proposal,
    run_mcmc,
    run_mcmc_batch,
    summarise_chains,
)
from permvi.inference.mcmc.options import BUDGET
from permvi.inference.partial import is_partial
from permvi.posterior import Latent, Posterior, diagnose
from permvi.posterior.diagnostics import R_HAT_CHECK

OPTIONS = (
    *(field.name for field in dataclasses.fields(MCMCOptions)),
    "proposal",
    shared_dynamics.OBSERVE,
)

_PROPOSALS = ("auto", "sequential", "none")
_ADVICE = "try more steps, num_temperatures=5, or method='exact' if it is affordable"
_ADVICE_ON_DYNAMICS = "try more steps, or method='collapsed'"
# Of models with shared dynamics, where a step is a sweep over all rows and all weights.
_ON_DYNAMICS = {"num_chains": 4, "swaps_per_proposal": 10, "num_draws": 1000}
# The cost of a proposal from a family grows with the cube of the number of rows.
_MAX_AUTOMATIC = 64
# Of the family that proposals come from, where the density is not linear.
_MAX_FIT_EVALUATIONS = 10_000
# Training steps of the family where the density is linear and items may stay unmatched.
_PARTIAL_TRAINING = 100


def run(task: Task, context: Context) -> Posterior:
    """Chains of one problem.

    Options are those of `MCMCOptions`, and ``proposal``: "auto" proposes whole matchings from a
    row-by-row family that fits the model if that is linear (up to 64 items), at no cost;
    "sequential" fits such a family to any model first; "none" leaves it at swaps.

    Models with shared dynamics are sampled together with their weights, see `run_gibbs`: a step is
    a sweep over all rows, with 10 swaps for each, and all weights. By default there are 4 chains of
    400 steps and at most 1000 draws. Their option ``observe`` is a function that is called with the
    permutations, (C, n) or (C, J, n), and the weights, (C, E), of all chains after every record.
    """
    if shared_dynamics.has_dynamics(task):
        return _with_weights(task, context)
    shared_dynamics.refuse_observer(context.options)
    refuse_latents(task, context.method)
    proposal, spent = _proposal(task, context)
    options, report = _options(context, spent), _report(context)
    result = run_mcmc(task.problem, context.rng_key, options, proposal, report)
    return _posterior(task, result, spent, options)


def run_many(tasks: Sequence[Task], context: Context) -> list[Posterior] | None:
    """Chains of problems of one shape in one vmapped call; None if their shapes differ."""
    if any(shared_dynamics.has_dynamics(task) for task in tasks):
        return None
    shared_dynamics.refuse_observer(context.options)
    for task in tasks:
        refuse_latents(task, context.method)
    problems = [task.problem for task in tasks]
    if not all(problem.traceable for problem in problems) or not alike(problems):
        return None
    found = [_proposal(task, context) for task in tasks]
    options = _options(context, max(spent for _, spent in found))
    families = [proposal.params for proposal, _ in found if proposal is not None]
    if families and not (len(families) == len(tasks) and alike(families)):
        return None
    first = found[0][0]
    proposal = None if first is None else first._replace(params=stack(families))
    results = run_mcmc_batch(stack(problems), context.rng_key, options, proposal, _report(context))
    return [
        _posterior(task, result, spent, options)
        for task, result, (_, spent) in zip(tasks, results, found, strict=True)
    ]


def _options(context: Context, spent: int) -> MCMCOptions:
    """The options, with as many steps as what was spent on proposals leaves, unless they say so."""
    given = {name: value for name, value in context.options.items() if name != "proposal"}
    options = MCMCOptions(**given)
    if options.num_steps is not None:
        return options
    left = max(BUDGET - spent, BUDGET // 2)
    num_steps = max(1, left // (options.num_chains * options.num_temperatures))
    return dataclasses.replace(options, num_steps=num_steps)


def _with_weights(task: Task, context: Context) -> Posterior:
    """Chains of permutations and of the weights that they share."""
    from permvi.inference.dynamics import alternate, run_gibbs
    from permvi.inference.map import MapOptions

    dynamics = shared_dynamics.dynamics_of(task)
    given = {**_ON_DYNAMICS, **context.options}
    observe = shared_dynamics.observer(task, given.pop(shared_dynamics.OBSERVE, None))
    proposal = given.pop("proposal", "none")
    if proposal not in ("auto", "none"):
        raise ValueError(f"proposal must be 'none' for shared dynamics, got {proposal!r:.60}.")
    options = MCMCOptions(**given)
    if options.num_temperatures > 1:
        raise ValueError(
            f"num_temperatures must be 1 for shared dynamics, got {options.num_temperatures}."
        )
    rng, start, spent = np.random.default_rng(context.seed), None, 0
    if options.start == "map":
        found = alternate(*dynamics, rng, MapOptions(num_restarts=1)).found
        start, spent = found.perm, found.num_evaluations
    result = run_gibbs(
        *dynamics, rng, options, start=start, report=_report(context), observe=observe
    )
    chains = dataclasses.replace(
        result.chains,
        draws=shared_dynamics.outer(task, result.chains.draws),
        mode=shared_dynamics.outer(task, result.chains.mode),
    )
    # Known neurons are among the draws, so there is nothing to be put back.
    whole = dataclasses.replace(task, reduction=None)
    posterior = _posterior(whole, chains, spent, options, _ADVICE_ON_DYNAMICS)
    weights = Latent.from_draws(np.concatenate(result.weights))
    return dataclasses.replace(posterior, latents={shared_dynamics.LATENT: weights})


def _report(context: Context) -> Callable[[int, int], None]:
    return lambda done, total: context.progress(context.method, done, total)


def _proposal(task: Task, context: Context) -> tuple[Proposal | None, int]:
    """Where whole matchings are proposed from, if anywhere, and what that cost in evaluations.

    Sinkhorn marginals of a linear model make a row-by-row family with look-ahead that is close to
    the posterior without training, so it is always worth having; training on the ELBO would take
    the tails away that an independence proposal needs. Where items may stay unmatched, the family
    is less close (a third of its proposals are accepted at 12 by 15, nine in ten after training),
    and a little training pays.
    """
    wanted = context.options.get("proposal", "auto")
    if not isinstance(wanted, str):
        raise TypeError(f"proposal must be a name, got {wanted!r:.60}.")
    one_of("proposal", wanted, _PROPOSALS)
    problem = task.problem
    linear = problem.scores is not None
    small = problem.num_sites * max(problem.shape) <= _MAX_AUTOMATIC
    if wanted == "none" or (wanted == "auto" and not (linear and small)):
        return None, 0
    options = DiscreteOptions(
        num_steps=(_PARTIAL_TRAINING if is_partial(problem) else 0) if linear else None,
        correction="none",
        num_draws=1,
        search_evaluations=0,
        max_evaluations=None if linear else _MAX_FIT_EVALUATIONS,
    )

    def evaluate(choices: np.ndarray) -> np.ndarray:
        perms = np.asarray(as_perms(choices, problem))
        return log_densities(problem, perms)

    fitted = run_discrete(problem, context.rng_key, evaluate, options=options)
    return Proposal(fitted.family, _draw, _log_prob), fitted.seen.num_evaluations


def _draw(family: Family, rng_key: jax.Array) -> jax.Array:
    choices = draw(family, rng_key)
    perm = jnp.where(choices < family.structure.shape[1], choices, -1)
    return perm[0] if family.structure.num_sites == 1 else perm


def _log_prob(family: Family, perm: jax.Array) -> jax.Array:
    n, m = family.structure.shape
    choices = jnp.where(perm < 0, m, perm).reshape(family.structure.num_sites, n)
    return log_prob(family, choices)


def _posterior(
    task: Task, result: MCMCResult, spent: int, options: MCMCOptions, advice: str = _ADVICE
) -> Posterior:
    """The posterior of the draws, and of the densities that they have."""
    full = task.restore(result.draws)
    summary = summarise_chains(full, task.model.shape[1])
    possible = result.log_densities > -np.inf
    diagnostics = diagnose(
        row_labels=task.labels[0],
        advice=advice,
        r_hat=summary.r_hat,
        ess_per_draw=summary.ess_per_draw,
        # Chains from one place agree on the modes that all of them miss.
        disagreement_by_row=summary.disagreement_by_row if options.start == "random" else None,
        sampling_error_by_row=summary.sampling_error_by_row,
        converged=bool(possible.all()) and summary.r_hat <= R_HAT_CHECK,
        extras={f"acceptance_{kind}": np.array(rate) for kind, rate in result.acceptance.items()},
    )
    if not possible.any():
        raise ValueError(
            "chains must reach a matching of positive density after the warm-up, got none; try "
            "more steps, or proposal='sequential'."
        )
    draws = full[possible]
    posterior = Posterior.from_draws(
        draws,
        shape=task.model.shape,
        mode=task.restore(result.mode),
        log_evidence=_evidence_bound(result),
        log_evidence_kind="bound",
        diagnostics=diagnostics,
        num_evaluations=result.num_evaluations + spent,
    )
    distinct, counts = np.unique(draws, axis=0, return_counts=True)
    return with_marginals(posterior, conditional(task, distinct, counts / len(draws)))


def _evidence_bound(result: MCMCResult) -> float:
    """Log of the sum of the densities of all distinct matchings that were kept, and of the mode."""
    events = result.mode.shape
    perms = np.concatenate([result.draws.reshape(-1, *events), result.mode[None]])
    values = np.append(result.log_densities.ravel(), result.mode_log_density)
    _, first = np.unique(perms.reshape(len(perms), -1), axis=0, return_index=True)
    return float(np.logaddexp.reduce(values[first]))
