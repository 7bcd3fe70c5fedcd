"""Methods "stick_breaking" and "rounding": relaxed variational inference, and how far to trust it.

The draws are those of the fitted family, rounded, without any correction. A search compares them
with the model afterwards, see `coverage`. The densities that it evaluates bound the evidence from
below; the relaxed ELBO does not, since it has another base measure.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from permvi.inference.method import Context, Method, MethodInfo, alike, option_names, stack
from permvi.inference.verdict.audit import audited_draws, audited_joint_draws, beyond_noise
from permvi.inference.vi import VIOptions, VIResult, run_vi, run_vi_batch
from permvi.posterior import Latent, Posterior
from permvi.posterior.diagnostics import interrupted
from permvi.problem.prepare import Prepared

_ADVICE = "try more steps or restarts, or method='exact' if it is affordable"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem."""
    return run_with(_options(context), prepared, context)


def run_with(options: VIOptions, prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem with these options."""
    result = run_vi(prepared.problem, context.rng_key, context.method, options, context.step)
    return _marked(prepared, result)


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if their shapes differ."""
    problems = [prepared.problem for prepared in batch]
    if not alike(problems):
        return None
    results = run_vi_batch(
        stack(problems), context.rng_key, context.method, _options(context), context.step
    )
    return [_marked(prepared, result) for prepared, result in zip(batch, results, strict=True)]


def _marked(prepared: Prepared, result: VIResult) -> Posterior:
    """Return the posterior, which says so if the fit was interrupted."""
    found = posterior_of(prepared, result)
    if result.interrupted:
        found = dataclasses.replace(found, diagnostics=interrupted(found.diagnostics))
    return found


def _options(context: Context) -> VIOptions:
    return VIOptions.calibrated(context.method).replace(**context.options)


def posterior_of(prepared: Prepared, result: Any) -> Posterior:
    """Return the posterior of the draws of a `VIResult`, or a result with the same fields."""
    signals = {
        "converged": result.converged,
        "elbo_trace": result.elbo_trace,
        "vertex_distance": getattr(result, "vertex_distance", None),
        "disagreement_by_row": _disagreement(prepared, result),
    }
    latents = getattr(result, "latents", {})
    posterior = Posterior.from_draws(
        prepared.restore(result.draws),
        shape=prepared.model.shape,
        latents={name: Latent.from_draws(drawn.draws) for name, drawn in latents.items()},
        num_evaluations=result.num_evaluations,
    )
    if prepared.problem.latents:
        values = {name: drawn.draws for name, drawn in latents.items()}
        return audited_joint_draws(prepared, posterior, result.draws, values, _ADVICE, signals)
    return audited_draws(prepared, posterior, result.draws, _ADVICE, signals)


def _disagreement(prepared: Prepared, result: Any) -> np.ndarray | None:
    """Return the total variation (n,) or (S, n) of two independent fits, beyond Monte Carlo error.

    The two fits are the two halves of the restarts: the best of all is compared with the best of
    the other half.
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
    return prepared.in_all_rows(beyond_noise(a, b, len(result.draws)))


def _method(name: str, cost: str, section: str, *, masks: bool) -> Method:
    info = MethodInfo(
        name=name,
        needs="a JAX density of relaxed matrices",
        gives="draws, a bound on the evidence",
        masks=masks,
        partial=masks,
        cost=f"{cost} per step and sample",
        reference=f"Linderman et al. 2018, section {section}",
    )
    # Values and gradients of 4 restarts with 8 samples each.
    return Method(info, option_names(VIOptions), run, run_many, latents=True, tables=64)


METHODS = {
    "stick_breaking": _method("stick_breaking", "O(n^2)", "3.1", masks=False),
    "rounding": _method("rounding", "O(n^3)", "3.2", masks=True),
}
