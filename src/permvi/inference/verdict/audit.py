"""The verdict on approximate draws or marginals, by comparison with an independent search.

If the search is closed (see `coverage`), its weighted matchings are practically the posterior, and
the distance to them decides. Otherwise the other signals decide, and weighting can only warn.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from permvi import metrics
from permvi.inference.verdict.coverage import Coverage, examine
from permvi.posterior import Diagnostics, Posterior, diagnose
from permvi.posterior.diagnostics import DISAGREEMENT_CHECK, DISAGREEMENT_DISTRUST
from permvi.problem.prepare import Prepared


def audited_draws(
    prepared: Prepared,
    posterior: Posterior,
    draws: np.ndarray,
    advice: str,
    signals: Mapping[str, Any],
) -> Posterior:
    """Add diagnostics, the mode found and a bound on the evidence to a posterior of draws.

    The draws (num, n') or (num, S, n') are those of the reduced problem, without other latents. The
    ``advice`` says what to try if the fit is wrong; `diagnose` explains the other ``signals``.
    """
    coverage = examine(prepared.problem, draws)
    signals = {
        **signals,
        "ess_per_draw": coverage.ess_per_draw,
        "evidence_gap": coverage.evidence_gap,
    }
    labels = prepared.labels[0]
    # Draws that are all impossible have no weights.
    if coverage.log_evidence_bound == -np.inf:
        found = diagnose(row_labels=labels, advice=advice, **signals)
        return dataclasses.replace(posterior, diagnostics=found)
    by_row = _bias(prepared, posterior, coverage)
    if coverage.closed:
        found = diagnose(row_labels=labels, advice=advice, bias_by_row=by_row, **signals)
    else:
        found = diagnose(row_labels=labels, advice=advice, **signals)
        beyond = np.maximum(by_row - noise(posterior.marginals, len(draws)), 0.0)
        found = _warned(found, beyond, labels, advice)
    return dataclasses.replace(
        posterior,
        mode=prepared.restore(coverage.mode),
        log_evidence=coverage.log_evidence_bound,
        log_evidence_kind="bound",
        diagnostics=found,
        num_evaluations=(posterior.num_evaluations or 0) + len(coverage.perms),
    )


def audited(
    prepared: Prepared,
    posterior: Posterior,
    start: np.ndarray,
    advice: str,
    max_evaluations: int | None = None,
) -> Posterior:
    """Judge a posterior whose marginals are not frequencies of draws, if the search is closed.

    It keeps its diagnostics otherwise. The search begins at ``start``, a probable matching (n',) or
    (S, n') of the reduced problem, without other latents.
    """
    if max_evaluations is not None and max_evaluations < 1:
        return posterior
    coverage = examine(prepared.problem, start[None], max_evaluations)
    found = posterior.diagnostics
    if coverage.closed:
        by_row = _bias(prepared, posterior, coverage)
        judged = diagnose(row_labels=prepared.labels[0], advice=advice, bias_by_row=by_row)
        found = dataclasses.replace(
            found,
            verdict=judged.verdict,
            reasons=(*judged.reasons, *found.reasons),
            bias_by_row=by_row,
        )
    evaluations = (posterior.num_evaluations or 0) + len(coverage.perms)
    return dataclasses.replace(posterior, diagnostics=found, num_evaluations=evaluations)


def _bias(prepared: Prepared, posterior: Posterior, coverage: Coverage) -> np.ndarray:
    """Return the total variation (n,) or (S, n) to the weighted matchings of a search."""
    weighted = Posterior.from_draws(
        prepared.restore(coverage.perms), coverage.log_densities, shape=posterior.shape
    )
    return metrics.total_variation_per_row(
        posterior.marginals,
        weighted.marginals,
        posterior.p_unmatched_rows,
        weighted.p_unmatched_rows,
    )


def noise(p: np.ndarray, num_draws: int) -> np.ndarray:
    r"""Return the mean total variation (..., n) between p and the frequencies of its draws.

    :math:`\sum_j \sqrt{p_j (1 - p_j) / (2 \pi N)}`.
    """
    return np.sqrt(p * (1 - p) / (2 * np.pi * num_draws)).sum(axis=-1)


def beyond_noise(a: np.ndarray, b: np.ndarray, num_draws: int) -> np.ndarray:
    """Return the total variation (..., n) of frequencies of two sets of draws beyond chance."""
    unmatched = [np.clip(1.0 - part.sum(axis=-1), 0.0, 1.0) for part in (a, b)]
    distance = metrics.total_variation_per_row(a, b, *unmatched)
    return np.maximum(distance - np.sqrt(2) * noise((a + b) / 2, num_draws), 0.0)


def _warned(
    found: Diagnostics, by_row: np.ndarray, row_labels: Sequence[str] | None, advice: str
) -> Diagnostics:
    """Add how much weighting the draws changes the marginals, and make the verdict no better."""
    largest = float(by_row.max())
    if largest <= DISAGREEMENT_CHECK:
        return found
    row = int(np.unravel_index(np.argmax(by_row), by_row.shape)[-1])
    place = f"row {row}" if row_labels is None else f"row {row} (label {row_labels[row]!r})"
    severe = largest > DISAGREEMENT_DISTRUST or found.verdict == "do not trust"
    reason = (
        f"weighting the draws by their densities moves {place} by {largest:.2f}: the "
        f"family does not fit the posterior; {advice}"
    )
    return dataclasses.replace(
        found, verdict="do not trust" if severe else "check", reasons=(reason, *found.reasons)
    )
