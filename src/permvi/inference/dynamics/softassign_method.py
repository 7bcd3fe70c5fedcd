"""Method "collapsed" with ``search="softassign"``: a mean field for many models at a time.

Its marginals have no error bars, so that it is never trusted by itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from permvi import _threads, assignment
from permvi.inference.dynamics import (
    Scales,
    SharedRegression,
    SoftassignOptions,
    SoftassignResult,
    run_softassign,
)
from permvi.inference.dynamics.evidence import CollapsedState
from permvi.inference.dynamics.shared import LATENT, unknown_rows
from permvi.posterior import Diagnostics, Latent, Marginals, Posterior, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.problem.prepare import Prepared

# Expected share of right identities, among those that are not known, of what may be looked at.
_RIGHT_DISTRUST = 0.7
# Probabilities underflow, but as long as none is zero some matching has all pairs positive.
_LEAST = 1e-9
# Entries change by no more than this in the last step once it has converged.
_CONVERGED = 0.05
_REASON = "marginals of a mean field without error bars: compare with search='moves', which samples"


def posteriors(
    batch: Sequence[Prepared],
    problems: Sequence[SharedRegression],
    scales: Sequence[Scales],
    options: Mapping[str, Any],
) -> list[Posterior]:
    """Posteriors of models of one shape.

    Args:
        batch: The models.
        problems: Their statistics.
        scales: Their variances.
        options: Fields of `SoftassignOptions`.
    """
    results = run_softassign(problems, scales, SoftassignOptions(**options))
    with _threads.pool(len(batch)) as pool:
        return list(pool.map(_posterior, batch, problems, scales, results))


def _posterior(
    prepared: Prepared, problem: SharedRegression, scales: Scales, result: SoftassignResult
) -> Posterior:
    n = prepared.model.shape[0]
    floored = np.where(problem.mask, np.maximum(result.matrices, _LEAST), 0.0)
    square = np.stack([normalise_marginals(table).marginals for table in floored])
    perms = np.asarray(assignment.solve(square, problem.mask, backend="host"), np.int64)
    table, mode = square[:, :n], perms[:, :n]
    left_over = square[:, n:].sum(axis=1)
    if prepared.model.num_sites == 1:
        table, mode, left_over = table[0], mode[0], left_over[0]
    marginals = Marginals(table, np.zeros(table.shape[:-1]), left_over)
    at = np.nonzero(problem.support)
    return Posterior(
        law=MarginalsLaw(*marginals),
        **marginals._asdict(),
        mode=mode,
        latents={LATENT: Latent(result.mean[at], np.sqrt(result.variance[at]))},
        log_evidence=CollapsedState(problem, perms, scales).log_evidence,
        log_evidence_kind="bound",
        diagnostics=_diagnose(table, unknown_rows(prepared, problem), scales, result),
        num_evaluations=result.num_evaluations + 1,
    )


def _diagnose(
    table: np.ndarray, unknown: np.ndarray, scales: Scales, result: SoftassignResult
) -> Diagnostics:
    confidence = table.max(axis=-1)[unknown]
    right = float(confidence.mean()) if len(confidence) else 1.0
    converged = result.change <= _CONVERGED
    reasons = [_REASON]
    if not converged:
        reasons.insert(
            0, "the mean field had not settled when it stopped: allow more steps (num_steps)"
        )
    if right < _RIGHT_DISTRUST:
        reasons.insert(
            0,
            f"the data do not suffice: {right:.1%} of the rows that are not known are expected to "
            "be right; longer recordings, more subjects or more known ones would help",
        )
    return Diagnostics(
        verdict="do not trust" if right < _RIGHT_DISTRUST else "check",
        reasons=tuple(reasons),
        converged=converged,
        extras={
            "expected_accuracy": np.array(right),
            "weight_scale": np.sqrt(scales.weight),
            "noise_scale": np.sqrt(scales.noise),
        },
    )
