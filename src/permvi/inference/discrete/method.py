"""Methods "sequential" and "stick_breaking_discrete": families with exact probabilities."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from permvi import metrics
from permvi.inference.discrete.correction import total_variation_error
from permvi.inference.discrete.law import FamilyLaw
from permvi.inference.discrete.options import DiscreteOptions
from permvi.inference.discrete.run import DiscreteResult, run_discrete, run_discrete_batch
from permvi.inference.exact.method import count_all
from permvi.inference.method import Context, Method, MethodInfo, alike, option_names, split_key
from permvi.inference.rao_blackwell import conditional, with_marginals
from permvi.inference.verdict.audit import audited_estimate
from permvi.inference.vi import run_vi
from permvi.posterior import Posterior, diagnose
from permvi.posterior.diagnostics import MISSED_CHECK
from permvi.problem.evaluation import as_perms, evaluator
from permvi.problem.prepare import Prepared

_KINDS = {"sequential": None, "stick_breaking_discrete": "stick_breaking"}
_SIGNALS = (
    "ess_per_draw", "sampling_error_by_row", "missed_mass", "elbo_trace", "evidence_gap",
)  # fmt: skip
_ADVICE = "try more components or method='mcmc'"
# The least probability of a pair in the relaxed fit at which training starts.
_LEAST = 1e-6


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem."""
    options = _options(context)
    marginals, extra = None, 0
    if options.warm_start == "rounding":
        relaxed = run_vi(prepared.problem, context.rng_key, "rounding")
        extra = relaxed.num_evaluations
        best = relaxed.marginals[relaxed.best_restart]
        marginals = np.log(np.maximum(best, _LEAST)).reshape(-1, *prepared.problem.shape)
    results = [
        run_discrete(
            prepared.problem,
            key,
            evaluator(prepared.problem),
            _KINDS[context.method],
            options,
            marginals,
            context.step,
        )
        for key in split_key(context.rng_key, options.num_fits)
    ]
    extra += sum(result.seen.num_evaluations for result in results)
    return _best(prepared, results, extra, limited=options.max_evaluations is not None)


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Fit linear problems of one shape in one vmapped call; None if they are something else."""
    problems = [prepared.problem for prepared in batch]
    options = _options(context)
    linear = all(problem.scores is not None and problem.traceable for problem in problems)
    single = options.warm_start != "rounding" and options.num_fits == 1
    if not linear or not single or not alike(problems):
        return None
    evaluates = [evaluator(problem) for problem in problems]
    results = run_discrete_batch(
        problems, context.rng_key, evaluates, _KINDS[context.method], options, context.step
    )
    return [
        _audited(prepared, result, _posterior(prepared, result), limited=False)
        for prepared, result in zip(batch, results, strict=True)
    ]


def _options(context: Context) -> DiscreteOptions:
    options = DiscreteOptions(**context.options)
    if _KINDS[context.method] is not None and options.family != "auto":
        raise ValueError(
            f"family is an option of method 'sequential', got {options.family!r} with "
            f"{context.method!r}."
        )
    return options


def _best(
    prepared: Prepared, results: Sequence[DiscreteResult], num_evaluations: int, *, limited: bool
) -> Posterior:
    """Return the fit of smallest stated error, and how far others differ beyond their errors.

    The verdict evaluates no more densities if they are ``limited``.
    """
    fits = [_posterior(prepared, result) for result in results]
    errors = [_stated_error(fit) for fit in fits]
    best = int(np.argmin([error.mean() for error in errors]))
    chosen = dataclasses.replace(fits[best], num_evaluations=num_evaluations)
    others = [k for k in range(len(fits)) if k != best]
    if not others:
        return _audited(prepared, results[best], chosen, limited=limited)
    by_row = np.max(
        [
            metrics.total_variation_per_row(
                fits[k].marginals,
                chosen.marginals,
                fits[k].p_unmatched_rows,
                chosen.p_unmatched_rows,
            )
            - np.hypot(errors[k], errors[best])
            for k in others
        ],
        axis=0,
    )
    found = chosen.diagnostics
    judged = diagnose(
        exact=_is_exact(prepared, results[best]),
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        disagreement_by_row=np.maximum(by_row, 0.0),
        **{name: getattr(found, name) for name in _SIGNALS},
    )
    compared = dataclasses.replace(chosen, diagnostics=judged)
    return _audited(prepared, results[best], compared, limited=limited)


def _stated_error(fit: Posterior) -> np.ndarray:
    """Return the sampling error (n,) or (S, n) of a fit, zero if it states none."""
    stated = fit.diagnostics.sampling_error_by_row
    return np.zeros(fit.mode.shape) if stated is None else stated


def _is_exact(prepared: Prepared, result: DiscreteResult) -> bool:
    """Whether every matching was evaluated and counts in full."""
    all_seen = len(result.seen) >= count_all(prepared.problem)
    corrected = result.recipe.correction != "none"
    return corrected and all_seen and not result.weighted.variances.any()


def _posterior(prepared: Prepared, result: DiscreteResult) -> Posterior:
    weighted, seen = result.weighted, result.seen
    if not (weighted.log_densities > -np.inf).any():
        raise ValueError("the log density must be finite for some matching, got -inf for all seen.")
    mode = np.asarray(as_perms(seen.best, prepared.problem))
    corrected = result.recipe.correction != "none"
    exact = _is_exact(prepared, result)
    draws, finer = prepared.restore(weighted.perms), None
    if corrected and not exact:
        shares = np.exp(weighted.log_weights - np.logaddexp.reduce(weighted.log_weights))
        finer = conditional(prepared, draws, shares, weighted.variances)
    if finer is None:
        errors = prepared.in_all_rows(total_variation_error(weighted, prepared.problem.shape[1]))
    else:
        errors = finer.sampling_error_by_row
    diagnostics = diagnose(
        exact=exact,
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        ess_per_draw=weighted.ess_per_draw,
        # Uncorrected draws are those of the family, and sampling errors do not show its bias.
        sampling_error_by_row=errors if corrected else None,
        missed_mass=result.missed_mass,
        elbo_trace=result.elbo_trace,
        evidence_gap=_gap(result) if corrected else None,
    )
    missed = (result.missed_mass or 0.0) > MISSED_CHECK
    posterior = Posterior.from_draws(
        draws,
        weighted.log_weights,
        shape=prepared.model.shape,
        mode=prepared.restore(mode),
        log_evidence=weighted.log_evidence if corrected else _elbo(result),
        log_evidence_kind="estimate" if corrected else "bound",
        # A standard error knows nothing of what the draws miss.
        log_evidence_se=weighted.log_evidence_se if corrected and not missed else None,
        diagnostics=diagnostics,
        num_evaluations=seen.num_evaluations,
    )
    law = FamilyLaw(result.family, prepared.reduction, draws, weighted.log_weights)
    return with_marginals(dataclasses.replace(posterior, law=law), finer)


def _audited(
    prepared: Prepared, result: DiscreteResult, posterior: Posterior, *, limited: bool
) -> Posterior:
    """Let a better answer decide on a posterior that is not exact."""
    if _is_exact(prepared, result):
        return posterior
    return audited_estimate(prepared, posterior, _ADVICE, beside_chains=not limited)


def _elbo(result: DiscreteResult) -> float:
    """Estimate the exact discrete ELBO of the fitted family with its draws."""
    weighted = result.weighted
    return float(np.mean(weighted.log_densities - weighted.log_q))


def _gap(result: DiscreteResult) -> float | None:
    """Return how far the log evidence is above the ELBO at the end of training."""
    tail = result.elbo_trace[-max(1, len(result.elbo_trace) // 10) :]
    return None if len(tail) == 0 else float(result.weighted.log_evidence - tail.mean())


def _method(name: str, cost: str, reference: str) -> Method:
    info = MethodInfo(
        name=name,
        needs="any density on permutations",
        gives="everything, with exact probabilities of its own and an evidence estimate",
        masks=True,
        partial=True,
        cost=f"{cost} per draw; 10,000 evaluations, or 40,000 if not linear",
        reference=reference,
    )
    # Values and gradients of 16 samples.
    return Method(info, option_names(DiscreteOptions), run, run_many, tables=32)


METHODS = {
    "sequential": _method("sequential", "O(n^3)", "Williams 1992; Kool et al. 2019, 2020"),
    "stick_breaking_discrete": _method(
        "stick_breaking_discrete", "O(n^2)", "Linderman et al. 2018, at temperature zero"
    ),
}
