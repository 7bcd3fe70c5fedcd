"""Methods "sequential" and "stick_breaking_discrete": families with exact probabilities."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.exact import count_all
from permvi._methods.refusals import refuse_latents
from permvi._methods.stacking import alike
from permvi._task import Task
from permvi.inference.discrete.correction import total_variation_error
from permvi.inference.discrete.density import as_perms
from permvi.inference.discrete.options import DiscreteOptions
from permvi.inference.discrete.run import DiscreteResult, run_discrete, run_discrete_batch
from permvi.inference.discrete.seen import Evaluate
from permvi.inference.vi import run_vi
from permvi.posterior import Posterior, diagnose
from permvi.posterior.family_law import FamilyLaw

OPTIONS = tuple(field.name for field in dataclasses.fields(DiscreteOptions))

_KINDS = {"sequential": None, "stick_breaking_discrete": "stick_breaking"}
_ADVICE = "try more components or method='mcmc'"
# Least probability of a pair in a relaxed fit that training starts from.
_LEAST = 1e-6


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem."""
    refuse_latents(task, context.method)
    options = _options(context)
    marginals, extra = None, 0
    if options.warm_start == "rounding":
        relaxed = run_vi(task.problem, context.rng_key, "rounding")
        extra = relaxed.num_evaluations
        best = relaxed.marginals[relaxed.best_restart]
        marginals = np.log(np.maximum(best, _LEAST)).reshape(-1, *task.problem.shape)
    result = run_discrete(
        task.problem,
        context.rng_key,
        _evaluate(task),
        _KINDS[context.method],
        options,
        marginals,
        _report(context),
    )
    return _posterior(task, result, extra)


def run_many(tasks: Sequence[Task], context: Context) -> list[Posterior] | None:
    """Fit linear problems of one shape in one vmapped call; None if they are not that."""
    problems = [task.problem for task in tasks]
    options = _options(context)
    linear = all(problem.scores is not None and problem.traceable for problem in problems)
    if not linear or options.warm_start == "rounding" or not alike(problems):
        return None
    evaluates = [_evaluate(task) for task in tasks]
    results = run_discrete_batch(
        problems, context.rng_key, evaluates, _KINDS[context.method], options, _report(context)
    )
    return [_posterior(task, result, 0) for task, result in zip(tasks, results, strict=True)]


def _options(context: Context) -> DiscreteOptions:
    options = DiscreteOptions(**context.options)
    if _KINDS[context.method] is not None and options.family != "auto":
        raise ValueError(
            f"family is an option of method 'sequential', got {options.family!r} with "
            f"{context.method!r}."
        )
    return options


def _evaluate(task: Task) -> Evaluate:
    problem = task.problem
    return lambda choices: log_densities(problem, np.asarray(as_perms(choices, problem)))


def _report(context: Context) -> Callable[[int, int], None]:
    return lambda step, total: context.progress(context.method, step, total)


def _posterior(task: Task, result: DiscreteResult, extra_evaluations: int) -> Posterior:
    weighted, seen = result.weighted, result.seen
    if not (weighted.log_densities > -np.inf).any():
        raise ValueError("the log density must be finite for some matching, got -inf for all seen.")
    mode = np.asarray(as_perms(seen.choices[np.argmax(seen.values)], task.problem))
    corrected = result.recipe.correction != "none"
    errors = task.in_all_rows(total_variation_error(weighted, task.problem.shape[1]))
    # Every matching was evaluated and counts in full.
    complete = not weighted.variances.any() and len(seen) >= count_all(task.problem)
    diagnostics = diagnose(
        exact=corrected and complete,
        row_labels=task.labels[0],
        advice=_ADVICE,
        ess_per_draw=weighted.ess_per_draw,
        # Without correction the draws are those of the family, whose bias no error tells.
        sampling_error_by_row=errors if corrected else None,
        missed_mass=result.missed_mass,
        elbo_trace=result.elbo_trace,
        evidence_gap=_gap(result) if corrected else None,
    )
    posterior = Posterior.from_draws(
        task.restore(weighted.perms),
        weighted.log_weights,
        shape=task.model.shape,
        mode=task.restore(mode),
        log_evidence=weighted.log_evidence if corrected else _elbo(result),
        log_evidence_kind="estimate" if corrected else "bound",
        log_evidence_se=weighted.log_evidence_se if corrected else None,
        diagnostics=diagnostics,
        num_evaluations=seen.num_evaluations + extra_evaluations,
    )
    law = FamilyLaw(
        result.family, task.reduction, task.restore(weighted.perms), weighted.log_weights
    )
    return dataclasses.replace(posterior, law=law)


def _elbo(result: DiscreteResult) -> float:
    """The exact discrete ELBO of the fitted family, estimated with its draws."""
    weighted = result.weighted
    return float(np.mean(weighted.log_densities - weighted.log_q))


def _gap(result: DiscreteResult) -> float | None:
    """How far the log evidence is above the ELBO at the end of training."""
    tail = result.elbo_trace[-max(1, len(result.elbo_trace) // 10) :]
    return None if len(tail) == 0 else float(result.weighted.log_evidence - tail.mean())
