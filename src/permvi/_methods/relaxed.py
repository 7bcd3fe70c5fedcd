"""Methods "stick_breaking" and "rounding": relaxed variational inference, and how far to trust it.

The draws are those of the fitted family, rounded, without any correction. They are compared with
the model afterwards, see `coverage`; the densities that this has seen bound the evidence from
below. The relaxed ELBO does not: it belongs to another base measure.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from permvi._methods.audit import audited_draws, beyond_noise
from permvi._methods.context import Context
from permvi._methods.shared_dynamics import has_dynamics
from permvi._methods.stacking import alike, stack
from permvi._task import Task
from permvi.inference.vi import VIOptions, run_vi, run_vi_batch
from permvi.posterior import Latent, Posterior, diagnose

OPTIONS = tuple(field.name for field in dataclasses.fields(VIOptions))

_ADVICE = "try more steps or restarts, or method='exact' if it is affordable"


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem."""
    options = _options(task, context)
    result = run_vi(task.problem, context.rng_key, context.method, options, _report(context))
    return posterior_of(task, result)


def run_many(tasks: Sequence[Task], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if their shapes differ."""
    problems = [task.problem for task in tasks]
    if not alike(problems):
        return None
    results = run_vi_batch(
        stack(problems),
        context.rng_key,
        context.method,
        _options(tasks[0], context),
        _report(context),
    )
    return [posterior_of(task, result) for task, result in zip(tasks, results, strict=True)]


def _report(context: Context) -> Callable[[int, int, float], None]:
    return lambda step, total, elbo: context.progress(context.method, step, total)


def _options(task: Task, context: Context) -> VIOptions:
    if context.method == "rounding" and has_dynamics(task):
        base = VIOptions.dynamics()
    else:
        base = VIOptions.calibrated(context.method)
    return base.replace(**context.options)


def posterior_of(task: Task, result: Any) -> Posterior:
    """The posterior of the draws of a `VIResult`, or of another result with the same fields."""
    signals = {
        "converged": result.converged,
        "elbo_trace": result.elbo_trace,
        "vertex_distance": getattr(result, "vertex_distance", None),
        "disagreement_by_row": _disagreement(task, result),
    }
    latents = getattr(result, "latents", {})
    posterior = Posterior.from_draws(
        task.restore(result.draws),
        shape=task.model.shape,
        latents={name: Latent.from_draws(drawn.draws) for name, drawn in latents.items()},
        num_evaluations=result.num_evaluations,
    )
    if task.problem.latents:
        found = diagnose(row_labels=task.labels[0], advice=_ADVICE, **signals)
        return dataclasses.replace(posterior, diagnostics=found)
    return audited_draws(task, posterior, result.draws, _ADVICE, signals)


def _disagreement(task: Task, result: Any) -> np.ndarray | None:
    """(n,) or (S, n) total variation between two independent fits, beyond Monte Carlo error.

    The restarts are two fits of half as many restarts each: the best of all is compared with the
    best of the half that it is not in. What two sets of draws of one distribution would differ by
    is taken off.
    """
    num_restarts = len(result.marginals)
    if num_restarts < 2:
        return None
    half = num_restarts // 2
    final = result.elbo_trace[:, -max(1, result.elbo_trace.shape[1] // 10) :].mean(axis=1)
    final = np.where(np.isnan(final), -np.inf, final)
    others = np.arange(half, num_restarts) if result.best_restart < half else np.arange(half)
    rival = others[np.argmax(final[others])]
    a, b = result.marginals[result.best_restart], result.marginals[rival]
    return task.in_all_rows(beyond_noise(a, b, len(result.draws)))
