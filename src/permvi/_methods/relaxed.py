"""Methods "stick_breaking" and "rounding": relaxed variational inference, and how far to trust it.

The draws are those of the fitted family, rounded, without any correction. They are compared with
the model afterwards, see `coverage`; the densities that this has seen bound the evidence from
below. The relaxed ELBO does not: it belongs to another base measure.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from permvi import metrics
from permvi._methods.context import Context
from permvi._methods.coverage import Coverage, examine
from permvi._methods.stacking import alike, stack
from permvi._task import Task
from permvi.inference.vi import VIOptions, VIResult, run_vi, run_vi_batch
from permvi.posterior import Diagnostics, Latent, Posterior, diagnose
from permvi.posterior.diagnostics import DISAGREEMENT_CHECK, DISAGREEMENT_DISTRUST

OPTIONS = tuple(field.name for field in dataclasses.fields(VIOptions))

_ADVICE = "try more steps or restarts, or method='exact' if it is affordable"


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem."""
    options = _options(context)
    result = run_vi(task.problem, context.rng_key, context.method, options, _report(context))
    return _posterior(task, result)


def run_many(tasks: Sequence[Task], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if their shapes differ."""
    problems = [task.problem for task in tasks]
    if not alike(problems):
        return None
    results = run_vi_batch(
        stack(problems), context.rng_key, context.method, _options(context), _report(context)
    )
    return [_posterior(task, result) for task, result in zip(tasks, results, strict=True)]


def _report(context: Context) -> Callable[[int, int, float], None]:
    return lambda step, total, elbo: context.progress(context.method, step, total)


def _options(context: Context) -> VIOptions:
    return VIOptions.calibrated(context.method).replace(**context.options)


def _posterior(task: Task, result: VIResult) -> Posterior:
    coverage = None if task.problem.latents else examine(task.problem, result.draws)
    diagnostics = diagnose(
        row_labels=task.labels[0],
        advice=_ADVICE,
        ess_per_draw=None if coverage is None else coverage.ess_per_draw,
        converged=result.converged,
        elbo_trace=result.elbo_trace,
        vertex_distance=result.vertex_distance,
        disagreement_by_row=_disagreement(task, result),
        evidence_gap=None if coverage is None else coverage.evidence_gap,
    )
    posterior = Posterior.from_draws(
        task.restore(result.draws),
        shape=task.model.shape,
        latents={name: Latent.from_draws(drawn.draws) for name, drawn in result.latents.items()},
        diagnostics=diagnostics,
        num_evaluations=result.num_evaluations,
    )
    # Draws that are all impossible have nothing to be weighted by.
    if coverage is None or coverage.log_evidence_bound == -np.inf:
        return posterior
    return _compared(task, posterior, coverage, len(result.draws))


def _compared(task: Task, posterior: Posterior, coverage: Coverage, num_draws: int) -> Posterior:
    """The posterior with what was learnt by comparing its draws with the density of the model."""
    weighted = Posterior.from_draws(
        task.restore(coverage.perms), coverage.log_densities, shape=posterior.shape
    )
    by_row = _beyond_noise(posterior.marginals, weighted.marginals, num_draws, num_sets=1)
    return dataclasses.replace(
        posterior,
        mode=task.restore(coverage.mode),
        log_evidence=coverage.log_evidence_bound,
        log_evidence_kind="bound",
        diagnostics=_with_bias(posterior.diagnostics, by_row, task.labels[0]),
        num_evaluations=(posterior.num_evaluations or 0) + len(coverage.perms),
    )


def _with_bias(
    found: Diagnostics, by_row: np.ndarray, row_labels: Sequence[str] | None
) -> Diagnostics:
    """The diagnostics with what weighting the draws would change, and a verdict no better."""
    extras = {**found.extras, "bias_by_row": by_row}
    largest = float(by_row.max())
    if largest <= DISAGREEMENT_CHECK:
        return dataclasses.replace(found, extras=extras)
    row = int(np.unravel_index(np.argmax(by_row), by_row.shape)[-1])
    place = f"row {row}" if row_labels is None else f"row {row} (label {row_labels[row]!r})"
    severe = largest > DISAGREEMENT_DISTRUST or found.verdict == "do not trust"
    reason = (
        f"weighting the draws by their densities moves {place} by {largest:.2f}: the "
        f"family does not fit the posterior; {_ADVICE}"
    )
    return dataclasses.replace(
        found,
        verdict="do not trust" if severe else "check",
        reasons=(reason, *found.reasons),
        extras=extras,
    )


def _disagreement(task: Task, result: VIResult) -> np.ndarray | None:
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
    return task.in_all_rows(_beyond_noise(a, b, len(result.draws), num_sets=2))


def _beyond_noise(a: np.ndarray, b: np.ndarray, num_draws: int, *, num_sets: int) -> np.ndarray:
    r"""(..., n) total variation between marginals (..., n, m), less what sampling explains.

    One or both of them (``num_sets``) are frequencies in so many draws; frequencies of one and the
    same p differ by :math:`\sum_j \sqrt{k p_j (1 - p_j) / (2 \pi N)}` on average, k of them.
    """
    unmatched = [np.clip(1.0 - part.sum(axis=-1), 0.0, 1.0) for part in (a, b)]
    distance = metrics.total_variation_per_row(a, b, *unmatched)
    p = (a + b) / 2
    noise = np.sqrt(num_sets * p * (1 - p) / (2 * np.pi * num_draws)).sum(axis=-1)
    return np.maximum(distance - noise, 0.0)
