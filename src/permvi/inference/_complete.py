"""What every posterior gets that does not depend on the method that computed it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from permvi.inference.method import Context
from permvi.models import fingerprint
from permvi.posterior import Diagnostics, Latent, Posterior
from permvi.posterior.marginals import with_known
from permvi.problem.prepare import Prepared

# Draws of permutations for the moments of latents that a model has integrated out.
_NUM_DRAWS = 4000


def complete(
    posterior: Posterior, prepared: Prepared, context: Context, requested: str, seconds: float
) -> Posterior:
    """Add everything to a posterior that does not depend on the method."""
    shift = prepared.offset + (getattr(prepared.model, "log_constant", None) or 0.0)
    evidence = None if posterior.log_evidence is None else posterior.log_evidence + shift
    diagnostics = _shifted(posterior.diagnostics, shift)
    if prepared.note is not None:
        reasons = (*diagnostics.reasons, prepared.note)
        diagnostics = dataclasses.replace(diagnostics, reasons=reasons)
    diagnostics = _doubted(diagnostics, prepared.model, posterior)
    return dataclasses.replace(
        posterior,
        marginals=with_known(posterior.marginals, getattr(prepared.model, "known", None)),
        log_evidence=evidence,
        diagnostics=diagnostics,
        latents={**posterior.latents, **_integrated(posterior, prepared, context.seed)},
        labels=prepared.labels,
        method=context.method,
        settings={"requested": requested, **_plain(context.options)},
        seed=context.seed,
        fingerprint=fingerprint(prepared.model),
        seconds=seconds,
    )


def _shifted(found: Diagnostics, shift: float) -> Diagnostics:
    """Add a constant of the log density to all that is measured on its scale."""
    if shift == 0:
        return found
    extras = {
        name: value + shift if name.startswith(("log_evidence", "log_density", "elbo")) else value
        for name, value in found.extras.items()
    }
    # Not in float32, which may hold the differences but not the constant.
    trace = None if found.elbo_trace is None else found.elbo_trace.astype(np.float64) + shift
    return dataclasses.replace(found, extras=extras, elbo_trace=trace)


def _doubted(found: Diagnostics, model: Any, posterior: Posterior) -> Diagnostics:
    """Return "check" instead of "trust" if the model itself says why not to trust the matching."""
    hook = getattr(model, "doubt", None)
    reason = None if hook is None else hook(posterior.mode, posterior.latents)
    if reason is None:
        return found
    verdict = "check" if found.verdict == "trust" else found.verdict
    return dataclasses.replace(found, verdict=verdict, reasons=(reason, *found.reasons))


def _integrated(posterior: Posterior, prepared: Prepared, seed: int) -> dict[str, Latent]:
    """Return the latents that the model has integrated out, from draws of the posterior."""
    moments = getattr(prepared.model, "integrated_latents", None)
    # Some methods know them already.
    if moments is None or posterior.latents:
        return {}
    draws = posterior.sample(_NUM_DRAWS, seed)
    return {name: Latent(np.array(m), np.array(sd)) for name, (m, sd) in moments(draws).items()}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as a posterior stores them: JSON values as they are, the rest as text."""
    plain = (str, int, float, bool, type(None), list, tuple, dict, np.ndarray, np.generic)
    return {
        name: value if isinstance(value, plain) else repr(value) for name, value in options.items()
    }
