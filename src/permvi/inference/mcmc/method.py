"""Method "mcmc": Metropolis-Hastings chains of swaps, with proposals from a fitted family."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from permvi._checks import one_of
from permvi.inference.discrete.family import Family, draw_beside
from permvi.inference.discrete.options import DiscreteOptions
from permvi.inference.discrete.run import fit_family
from permvi.inference.mcmc.options import BUDGET, HOTTEST_TRUSTED, MCMCOptions, Proposal
from permvi.inference.mcmc.result import MCMCResult, summarise_chains
from permvi.inference.mcmc.run import run_mcmc, run_mcmc_batch
from permvi.inference.method import Context, Method, MethodInfo, alike, option_names, stack
from permvi.inference.rao_blackwell import conditional, with_marginals
from permvi.inference.verdict.audit import audited_estimate
from permvi.posterior import Diagnostics, Posterior, diagnose
from permvi.posterior.diagnostics import R_HAT_CHECK, interrupted
from permvi.problem.evaluation import evaluator
from permvi.problem.prepare import Prepared

_PROPOSALS = ("auto", "sequential", "none")
_ADVICE = "try more steps, num_temperatures=5, or method='exact' if it is affordable"
# The cost of a proposal from a family grows with the cube of the number of rows.
_MAX_AUTOMATIC = 64
# Evaluations for the fit of the family of proposals if the density is not linear.
_MAX_FIT_EVALUATIONS = 10_000
# Training steps of the family if the density is linear and items may stay unmatched.
_PARTIAL_TRAINING = 100


def run(prepared: Prepared, context: Context) -> Posterior:
    """Run the chains of one problem.

    Options are those of `MCMCOptions` and ``proposal``. "auto" proposes whole matchings from a
    row-by-row family if the model is linear with up to 64 items, which needs no fit. "sequential"
    first fits such a family to any model. "none" proposes swaps only.
    """
    proposal, spent = _proposal(prepared, context)
    options = _options(context, spent)
    result = run_mcmc(prepared.problem, context.rng_key, options, proposal, context.step)
    return _judged(prepared, result, spent, options)


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Run the chains of problems of one shape in one vmapped call; None if shapes differ."""
    problems = [prepared.problem for prepared in batch]
    if not all(problem.traceable for problem in problems) or not alike(problems):
        return None
    found = [_proposal(prepared, context) for prepared in batch]
    options = _options(context, max(spent for _, spent in found))
    families = [proposal.params for proposal, _ in found if proposal is not None]
    if families and not (len(families) == len(batch) and alike(families)):
        return None
    first = found[0][0]
    proposal = None if first is None else first._replace(params=stack(families))
    results = run_mcmc_batch(stack(problems), context.rng_key, options, proposal, context.step)
    return [
        _judged(prepared, result, spent, options)
        for prepared, result, (_, spent) in zip(batch, results, found, strict=True)
    ]


def _judged(prepared: Prepared, result: MCMCResult, spent: int, options: MCMCOptions) -> Posterior:
    """Return the posterior with its verdict."""
    own = posterior_of(prepared, result, spent, options)
    found = audited_estimate(prepared, own, _ADVICE, beside_chains=False)
    if result.interrupted:
        found = dataclasses.replace(found, diagnostics=interrupted(found.diagnostics))
    return found


def _options(context: Context, spent: int) -> MCMCOptions:
    """Return the options; by default the steps use the evaluations not ``spent`` on proposals."""
    given = {name: value for name, value in context.options.items() if name != "proposal"}
    options = MCMCOptions(**given)
    if options.num_steps is not None:
        return options
    left = max(BUDGET - spent, BUDGET // 2)
    num_steps = max(1, left // (options.num_chains * options.num_temperatures))
    return dataclasses.replace(options, num_steps=num_steps)


def _proposal(prepared: Prepared, context: Context) -> tuple[Proposal | None, int]:
    """Return the law that whole matchings are proposed from, if any, and its cost in evaluations.

    For a linear model, a row-by-row family with look-ahead at the Sinkhorn marginals is close to
    the posterior without training, so it always pays; training on the ELBO would remove the tails
    that an independence proposal needs. If items may stay unmatched, the family is less close (at
    12 by 15, a third of its proposals are accepted, nine in ten after training), and a little
    training pays.
    """
    wanted = context.options.get("proposal", "auto")
    if not isinstance(wanted, str):
        raise TypeError(f"proposal must be a name, got {wanted!r:.60}.")
    one_of("proposal", wanted, _PROPOSALS)
    problem = prepared.problem
    linear = problem.scores is not None
    small = problem.num_sites * max(problem.shape) <= _MAX_AUTOMATIC
    if wanted == "none" or (wanted == "auto" and not (linear and small)):
        return None, 0
    options = DiscreteOptions(
        num_steps=(_PARTIAL_TRAINING if problem.is_partial else 0) if linear else None,
        max_evaluations=None if linear else _MAX_FIT_EVALUATIONS,
    )
    family, seen = fit_family(problem, context.rng_key, evaluator(problem), options)
    return Proposal(family, _draw_beside), seen.num_evaluations


def _draw_beside(
    family: Family, rng_key: jax.Array, perm: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    n, m = family.structure.shape
    choices = jnp.where(perm < 0, m, perm).reshape(family.structure.num_sites, n)
    drawn, log_q, log_q_old = draw_beside(family, rng_key, choices)
    return jnp.where(drawn < m, drawn, -1).reshape(perm.shape), log_q, log_q_old


def posterior_of(
    prepared: Prepared, result: MCMCResult, spent: int, options: MCMCOptions, advice: str = _ADVICE
) -> Posterior:
    """Return the posterior of the draws of a run."""
    full = prepared.restore(result.draws)
    summary = summarise_chains(full, prepared.model.shape[1])
    possible = result.log_densities > -np.inf
    diagnostics = diagnose(
        row_labels=prepared.labels[0],
        advice=advice,
        r_hat=summary.r_hat,
        ess_per_draw=summary.ess_per_draw,
        # Chains from the same start agree even if all of them miss a mode.
        disagreement_by_row=None if options.start == "map" else summary.disagreement_by_row,
        sampling_error_by_row=summary.sampling_error_by_row,
        converged=bool(possible.all()) and summary.r_hat <= R_HAT_CHECK,
        extras={f"acceptance_{kind}": np.array(rate) for kind, rate in result.acceptance.items()},
    )
    if options.num_temperatures > 1 and options.max_temperature > HOTTEST_TRUSTED:
        diagnostics = _no_better_than_check(
            diagnostics,
            f"chains at temperatures up to {options.max_temperature:,.0f} seldom exchange far "
            "modes, so that their weights may be wrong",
        )
    if not possible.any():
        raise ValueError(
            "chains must reach a matching of positive density after the warm-up, got none; try "
            "more steps or proposal='sequential'."
        )
    draws = full[possible]
    posterior = Posterior.from_draws(
        draws,
        shape=prepared.model.shape,
        mode=prepared.restore(result.mode),
        log_evidence=_evidence_bound(result),
        log_evidence_kind="bound",
        diagnostics=diagnostics,
        num_evaluations=result.num_evaluations + spent,
    )
    distinct, counts = np.unique(draws, axis=0, return_counts=True)
    return with_marginals(posterior, conditional(prepared, distinct, counts / len(draws)))


def _no_better_than_check(found: Diagnostics, reason: str) -> Diagnostics:
    verdict = "check" if found.verdict == "trust" else found.verdict
    return dataclasses.replace(found, verdict=verdict, reasons=(reason, *found.reasons))


def _evidence_bound(result: MCMCResult) -> float:
    """Return the log of the summed densities of all distinct draws and of the mode."""
    events = result.mode.shape
    perms = np.concatenate([result.draws.reshape(-1, *events), result.mode[None]])
    values = np.append(result.log_densities.ravel(), result.mode_log_density)
    _, first = np.unique(perms.reshape(len(perms), -1), axis=0, return_index=True)
    return float(np.logaddexp.reduce(values[first]))


METHODS = {
    "mcmc": Method(
        MethodInfo(
            name="mcmc",
            needs="any density on permutations",
            gives="draws, a bound on the evidence",
            masks=True,
            partial=True,
            cost="one evaluation, or one difference, per step",
            reference="Diaconis 2009; Geyer 1991",
        ),
        options=(*option_names(MCMCOptions), "proposal"),
        run=run,
        run_many=run_many,
    ),
}
