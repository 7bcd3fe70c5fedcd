"""The verdict on approximate draws or marginals, by comparison with an independent answer.

Methods "exact", "linear" and "quadratic" know their own error, and the distance to their marginals
decides where they are quick and sure. A closed search (see `coverage`) decides only if they cannot,
since it may not know of modes that lie far apart. Tempered chains judge answers for other
functions, the longer the less time an evaluation takes; without them there is no "trust".
Otherwise the other signals decide, and weighting can only warn.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from permvi import metrics
from permvi._jax import jax
from permvi.inference.exact import method as exact
from permvi.inference.linear import method as linear
from permvi.inference.method import Context, silent
from permvi.inference.verdict.coverage import Coverage, examine
from permvi.posterior import Diagnostics, Posterior, diagnose
from permvi.posterior.diagnostics import (
    DISAGREEMENT_CHECK,
    DISAGREEMENT_DISTRUST,
    interrupted,
)
from permvi.problem.prepare import Prepared

# The answers of "linear" and "quadratic" are asked for up to this many pairs, the former to this
# mean error of a row.
_MAX_PAIRS = 100_000
_MAX_QUADRATIC_PAIRS = 10_000
_TOLERANCE = 0.01
# The latter searches for modes with populations that compute so many differences, a second's worth.
_SEARCH_BUDGET = 100_000_000
# Functions on the host may be slow; "exact" may call them this often.
_MAX_HOST_CALLS = 10_000
# Draws of matchings and other latents are moved up to this many items, so many of them, by so many
# swaps for each item.
_MAX_MOVED = 64
_NUM_MOVED = 256
_SWEEPS = 20
# Chains with a larger R-hat have not mixed, so that they confirm nothing.
_MIXED = 1.1
_UNMIXED = "modes that lie far apart may have been missed: chains that look for them mix too slowly"
_UNSEEN = (
    "modes that lie far apart may have been missed: chains that would find them take minutes for a "
    "density of this size or speed"
)


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
    known, spent = _known_bias(prepared, posterior, coverage)
    if known is not None:
        found = diagnose(row_labels=labels, advice=advice, bias_by_row=known, **signals)
    else:
        found = diagnose(row_labels=labels, advice=advice, **signals)
        by_row = _bias(prepared, posterior, coverage)
        beyond = np.maximum(by_row - noise(posterior.marginals, len(draws)), 0.0)
        found = _warned(found, "weighting the draws by their densities", beyond, labels, advice)
    judged = dataclasses.replace(posterior, diagnostics=found)
    if known is None:
        judged = _beside_chains(prepared, judged, advice)
    return dataclasses.replace(
        judged,
        mode=prepared.restore(coverage.mode),
        log_evidence=coverage.log_evidence_bound,
        log_evidence_kind="bound",
        num_evaluations=(judged.num_evaluations or 0) + len(coverage.perms) + spent,
    )


def audited_joint_draws(
    prepared: Prepared,
    posterior: Posterior,
    draws: np.ndarray,
    latents: Mapping[str, np.ndarray],
    advice: str,
    signals: Mapping[str, Any],
) -> Posterior:
    """Add diagnostics to a posterior of draws (num, ...) of matchings and other latents.

    Metropolis steps of the matchings leave the model invariant, given the latents. So they change
    the frequencies of right draws by chance alone, and what they change beyond it is wrong. They
    show nothing of what is wrong with the latents.
    """
    labels, problem = prepared.labels[0], prepared.problem
    found = diagnose(row_labels=labels, advice=advice, **signals)
    size = problem.num_sites * max(problem.shape)
    if size <= _MAX_MOVED:
        from permvi.inference.mcmc.kernels import swap_steps

        some = {name: np.asarray(values[:_NUM_MOVED]) for name, values in latents.items()}
        start = draws[:_NUM_MOVED]
        moved = jax.jit(swap_steps, static_argnums=3)(
            problem, start, jax.random.key(0), _SWEEPS * size, some
        )
        before, after = (
            Posterior.from_draws(prepared.restore(np.asarray(perms)), shape=posterior.shape)
            for perms in (start, moved)
        )
        beyond = beyond_noise(before.marginals, after.marginals, len(start))
        found = _warned(found, "moving the draws as the model would", beyond, labels, advice)
    return dataclasses.replace(posterior, diagnostics=found)


def audited_estimate(
    prepared: Prepared, posterior: Posterior, advice: str, *, beside_chains: bool = True
) -> Posterior:
    """Let a better answer decide on a posterior that knows its error.

    Chains and weighted draws of a linear or quadratic model may have missed a mode, or may be right
    though a search believes that they have. Functions have no answer that costs no evaluations, but
    many take microseconds: ``beside_chains`` lets tempered chains judge. The standard error of an
    evidence that goes with wrong marginals is left out.
    """
    answer = _answer(prepared) if _is_linear_or_quadratic(prepared) else None
    if answer is not None:
        judged = _judged(posterior, _beyond_error(posterior, answer), advice, prepared.labels[0])
    elif beside_chains and not _is_linear_or_quadratic(prepared):
        judged = _beside_chains(prepared, posterior, advice)
    else:
        return posterior
    if judged.diagnostics.verdict == "do not trust":
        return dataclasses.replace(judged, log_evidence_se=None)
    return judged


def compared(posterior: Posterior, answer: Posterior, advice: str) -> Posterior:
    """Judge a posterior by its distance to a better answer, if that can be trusted."""
    if answer.diagnostics.verdict != "trust":
        return posterior
    return _judged(posterior, _beyond_error(posterior, answer), advice)


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
    left = None if max_evaluations is None else max_evaluations - len(coverage.perms)
    by_row, spent = _known_bias(prepared, posterior, coverage, left)
    if by_row is not None:
        posterior = _judged(posterior, by_row, advice, prepared.labels[0])
    elif max_evaluations is None:
        posterior = _beside_chains(prepared, posterior, advice)
    evaluations = (posterior.num_evaluations or 0) + len(coverage.perms) + spent
    return dataclasses.replace(posterior, num_evaluations=evaluations)


def _beside_chains(prepared: Prepared, posterior: Posterior, advice: str) -> Posterior:
    """Judge a posterior by tempered chains, if nothing else is known.

    Chains that can be trusted decide, others only warn. If they mix too slowly or would take too
    long, no function gets "trust", since modes that lie far away may have been missed; for linear
    and quadratic models the search of `coverage` looks for these. Models with other latents are
    left alone.
    """
    if prepared.problem.latents or exact.affordable(prepared):
        return posterior
    from permvi.inference.mcmc import tempered

    if posterior.diagnostics.verdict != "trust" and not prepared.problem.traceable:
        # Calls of the host are too slow to find out that doubts were wrong.
        return posterior
    ladder = tempered.ladder(prepared)
    if ladder is None:
        return posterior if _is_linear_or_quadratic(prepared) else _doubted(posterior, _UNSEEN)
    try:
        chains = tempered.answer(prepared, ladder)
    except KeyboardInterrupt:
        return dataclasses.replace(posterior, diagnostics=interrupted(posterior.diagnostics))
    beyond, labels = _beyond_error(posterior, chains), prepared.labels[0]
    if chains.diagnostics.verdict == "trust":
        judged = _judged(posterior, beyond, advice, labels)
    else:
        change = "sampling by tempered chains"
        found = _warned(posterior.diagnostics, change, beyond, labels, advice)
        judged = dataclasses.replace(posterior, diagnostics=found)
        mixed = (chains.diagnostics.r_hat or 1.0) <= _MIXED
        # All chains may freeze in one mode if they have to be very hot to leave it.
        if not (mixed and ladder.may_be_trusted):
            judged = _doubted(judged, _UNMIXED)
    spent = (posterior.num_evaluations or 0) + (chains.num_evaluations or 0)
    return dataclasses.replace(judged, num_evaluations=spent)


def _doubted(posterior: Posterior, reason: str) -> Posterior:
    """Return "check" instead of "trust", for lack of an independent answer."""
    found = posterior.diagnostics
    if found.verdict == "trust":
        found = dataclasses.replace(found, verdict="check", reasons=(reason, *found.reasons))
    return dataclasses.replace(posterior, diagnostics=found)


def _is_linear_or_quadratic(prepared: Prepared) -> bool:
    quadratic = getattr(prepared.model, "quadratic", None)
    return prepared.problem.scores is not None or quadratic is not None


def _judged(
    posterior: Posterior,
    by_row: np.ndarray,
    advice: str,
    row_labels: Sequence[str] | None = None,
) -> Posterior:
    """Let the total variation (n,) or (S, n) to the right answer decide."""
    found = posterior.diagnostics
    judged = diagnose(row_labels=row_labels, advice=advice, bias_by_row=by_row)
    # Doubts about an answer that is right would only confuse.
    kept = () if (judged.verdict, found.verdict) == ("trust", "do not trust") else found.reasons
    found = dataclasses.replace(
        found, verdict=judged.verdict, reasons=(*judged.reasons, *kept), bias_by_row=by_row
    )
    return dataclasses.replace(posterior, diagnostics=found)


def _known_bias(
    prepared: Prepared,
    posterior: Posterior,
    coverage: Coverage,
    max_evaluations: int | None = None,
) -> tuple[np.ndarray | None, int]:
    """Return the total variation (n,) or (S, n) to the posterior, and the evaluations it took.

    It is None if nobody knows it.
    """
    answer = _answer(prepared, max_evaluations)
    if answer is None:
        return (_bias(prepared, posterior, coverage) if coverage.closed else None), 0
    # Quadratic and linear forms are no evaluations of the density.
    calls = answer.num_evaluations if answer.log_evidence_kind == "exact" else 0
    spent = 0 if prepared.problem.scores is not None else calls or 0
    return _beyond_error(posterior, answer), spent


def _answer(prepared: Prepared, max_evaluations: int | None = None) -> Posterior | None:
    """Return the posterior by a method that knows its own error, None if none is quick and sure."""
    problem = prepared.problem
    most = math.inf if problem.traceable else _MAX_HOST_CALLS
    most = most if max_evaluations is None else min(most, max_evaluations)
    num_pairs = int(problem.table_mask.sum())
    if problem.scores is not None:
        if num_pairs > _MAX_PAIRS:
            return None
        answer = linear.run(prepared, Context("linear", 0, {"tolerance": _TOLERANCE}, silent))
    elif exact.affordable(prepared) and exact.count_all(problem) <= most:
        answer = exact.run(prepared, Context("exact", 0, {}, silent))
    else:
        # It searches for modes with "map", whose verdict is made here.
        from permvi.inference.quadratic import method as quadratic

        if num_pairs > _MAX_QUADRATIC_PAIRS or not quadratic.suits(prepared):
            return None
        options = {"search_budget": _SEARCH_BUDGET}
        answer = quadratic.run(prepared, Context("quadratic", 0, options, silent))
    return answer if answer.diagnostics.verdict == "trust" else None


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


def _beyond_error(posterior: Posterior, answer: Posterior) -> np.ndarray:
    """Return the total variation (n,) or (S, n) to an answer beyond the answer's own error."""
    error = answer.diagnostics.sampling_error_by_row
    return np.maximum(_distance(posterior, answer) - (0.0 if error is None else error), 0.0)


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
    found: Diagnostics,
    change: str,
    by_row: np.ndarray,
    row_labels: Sequence[str] | None,
    advice: str,
) -> Diagnostics:
    """Add how much a change of the draws moves the marginals, and make the verdict no better."""
    largest = float(by_row.max())
    if largest <= DISAGREEMENT_CHECK:
        return found
    row = int(np.unravel_index(np.argmax(by_row), by_row.shape)[-1])
    place = f"row {row}" if row_labels is None else f"row {row} (label {row_labels[row]!r})"
    severe = largest > DISAGREEMENT_DISTRUST or found.verdict == "do not trust"
    reason = (
        f"{change} moves {place} by {largest:.2f}: the family does not fit the posterior; {advice}"
    )
    return dataclasses.replace(
        found, verdict="do not trust" if severe else "check", reasons=(reason, *found.reasons)
    )
