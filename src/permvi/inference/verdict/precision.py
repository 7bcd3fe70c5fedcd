"""Does rounding matter? Log densities of large size lose their differences in float32."""

import dataclasses

import numpy as np

from permvi._jax import jnp
from permvi.posterior import Posterior
from permvi.posterior.diagnostics import Judgement, worst_first
from permvi.problem.evaluation import log_densities, rounding_error
from permvi.problem.prepare import Prepared

# Errors of log densities, in nats, beyond which the verdict is "check" or "do not trust".
ROUNDING_CHECK = 0.02
_DISTRUST = 0.2
# Log densities below this size cannot be off by as much.
_SMALL = ROUNDING_CHECK / float(np.finfo(np.float32).eps)


def judged_rounding(
    prepared: Prepared, posterior: Posterior, *, evaluates_latents: bool = False
) -> Posterior:
    """Lower the verdict of a posterior if rounding may have moved its probabilities.

    Of models with other latents, it judges methods that say they evaluate the density at them.
    """
    problem, evidence = prepared.problem, posterior.log_evidence
    if prepared.listed is not None or problem.scores is not None:
        return posterior
    # Methods for models with engines of their own may not evaluate the density at all.
    if problem.latents and not evaluates_latents:
        return posterior
    # Differences of swaps do not cancel as those of whole densities do.
    if problem.delta is not None or (evidence is not None and abs(evidence) < _SMALL):
        return posterior
    mode = posterior.mode[None]
    if prepared.reduction is not None:
        mode = np.asarray(prepared.reduction.reduce(jnp.asarray(mode))[0])
    at = {name: np.asarray(posterior.latents[name].mean) for name in problem.latents}
    return lowered(posterior, rounding_error(problem, log_densities(problem, mode, **at)))


def lowered(posterior: Posterior, error: float) -> Posterior:
    """Lower the verdict of a posterior whose log densities are off by about ``error`` nats."""
    if error <= ROUNDING_CHECK:
        return posterior
    reason = (
        f"float32 rounds log densities of this size by about {error:.1g}: subtract a constant from "
        "the function, or enable JAX's float64"
    )
    found = posterior.diagnostics
    verdict, reasons = worst_first(
        [
            Judgement("do not trust" if error > _DISTRUST else "check", (reason,)),
            Judgement(found.verdict, found.reasons),
        ]
    )
    judged = dataclasses.replace(found, verdict=verdict, reasons=reasons)
    lower = dataclasses.replace(posterior, diagnostics=judged)
    if posterior.log_evidence is None:
        return lower
    # A standard error or an exact evidence would be of the rounded density.
    return dataclasses.replace(lower, log_evidence_kind="estimate", log_evidence_se=None)
