"""The verdict on approximate draws or marginals, by comparison with an independent answer.

If a search is closed (see `coverage`), its weighted matchings are practically the posterior, and
the distance to them decides. If it is not and the model is linear, the distance to the marginals of
method "linear" decides, where that is sure of them. Otherwise the other signals decide, and
weighting can only warn.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from permvi import metrics
from permvi.inference.linear import method as linear
from permvi.inference.method import Context, silent
from permvi.inference.verdict.coverage import Coverage, examine
from permvi.posterior import Diagnostics, Posterior, diagnose
from permvi.posterior.diagnostics import DISAGREEMENT_CHECK, DISAGREEMENT_DISTRUST
from permvi.problem.prepare import Prepared

# The answer of "linear" is asked for up to this many pairs, and to this mean error of a row.
_MAX_PAIRS = 100_000
_TOLERANCE = 0.01


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
    known = _known_bias(prepared, posterior, coverage)
    if known is not None:
        found = diagnose(row_labels=labels, advice=advice, bias_by_row=known, **signals)
    else:
        found = diagnose(row_labels=labels, advice=advice, **signals)
        by_row = _bias(prepared, posterior, coverage)
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
    """Judge a posterior whose marginals are not frequencies of draws, if the answer is known.

    It keeps its diagnostics otherwise. The search begins at ``start``, a probable matching (n',) or
    (S, n') of the reduced problem, without other latents.
    """
    if max_evaluations is not None and max_evaluations < 1:
        return posterior
    coverage = examine(prepared.problem, start[None], max_evaluations)
    found = posterior.diagnostics
    by_row = _known_bias(prepared, posterior, coverage)
    if by_row is not None:
        judged = diagnose(row_labels=prepared.labels[0], advice=advice, bias_by_row=by_row)
        found = dataclasses.replace(
            found,
            verdict=judged.verdict,
            reasons=(*judged.reasons, *found.reasons),
            bias_by_row=by_row,
        )
    evaluations = (posterior.num_evaluations or 0) + len(coverage.perms)
    return dataclasses.replace(posterior, diagnostics=found, num_evaluations=evaluations)


def _known_bias(prepared: Prepared, posterior: Posterior, coverage: Coverage) -> np.ndarray | None:
    """Return the total variation (n,) or (S, n) to the posterior, None if nobody knows that."""
    if coverage.closed:
        return _bias(prepared, posterior, coverage)
    problem = prepared.problem
    if problem.scores is None or problem.table_mask.sum() > _MAX_PAIRS:
        return None
    answer = linear.run(prepared, Context("linear", 0, {"tolerance": _TOLERANCE}, silent))
    if answer.diagnostics.verdict != "trust":
        return None
    error = answer.diagnostics.sampling_error_by_row
    return np.maximum(_distance(posterior, answer) - (0.0 if error is None else error), 0.0)


def _bias(prepared: Prepared, posterior: Posterior, coverage: Coverage) -> np.ndarray:
    """Return the total variation (n,) or (S, n) to the weighted matchings of a search."""
    weighted = Posterior.from_draws(
        prepared.restore(coverage.perms), coverage.log_densities, shape=posterior.shape
    )
    return _distance(posterior, weighted)


def _distance(posterior: Posterior, other: Posterior) -> np.ndarray:
    return metrics.total_variation_per_row(
        posterior.marginals, other.marginals, posterior.p_unmatched_rows, other.p_unmatched_rows
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
