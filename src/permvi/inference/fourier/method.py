"""Linear log densities by filtering: each row of scores is an observation of that row's label."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import entr

from permvi import assignment
from permvi._checks import whole
from permvi.inference.exact.method import tabulated
from permvi.inference.fourier.filter import IdentityFilter
from permvi.inference.fourier.transform import inverse_transform
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.scaling import log_bethe, square_problem
from permvi.inference.scaling.method import restore_marginals
from permvi.inference.verdict.audit import audited
from permvi.permutations import enumerate_permutations
from permvi.posterior import Diagnostics, Marginals, Posterior, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.problem.prepare import Prepared

# Likelihoods, relative to the largest, that a projection's zeros cannot contradict.
_LEAST_LIKELIHOOD = 1e-6


class ScoresFit(NamedTuple):
    """What a filter made of scores.

    Attributes:
        state: The filter after all observations.
        log_evidence: Its estimate of ``log sum_x exp(<S, x>)``, exact without a band limit.
    """

    state: IdentityFilter
    log_evidence: float


def filter_scores(scores: np.ndarray, order: int) -> ScoresFit:
    r"""Condition a uniform distribution on each row of scores, one after the other.

    The posterior :math:`\propto \prod_i e^{S_{i \sigma(i)}}` is the uniform distribution after the
    observations of all rows i with likelihoods :math:`e^{S_{ij}}`. Scores are first reduced by the
    prices of the best matching (see `permvi.inference.scaling.square_problem`), which changes no
    probability and leaves that matching the most likely label of every row. Without a band limit
    the order of the rows does not matter; with one, those of the least entropy come first, and
    likelihoods are at least a millionth of a row's largest.

    Args:
        scores: (n, n) finite log weights, n at least 2.
        order: The band limit.
    """
    square = square_problem(scores)
    likelihoods = np.exp(square.scores)
    state = IdentityFilter(len(scores), order)
    if not state.is_exact:
        likelihoods = np.maximum(likelihoods, _LEAST_LIKELIHOOD)
    entropies = entr(likelihoods / likelihoods.sum(axis=1, keepdims=True)).sum(axis=1)
    for row in np.argsort(entropies, kind="stable"):
        state = state.observe(int(row), likelihoods[row])
    log_evidence = state.log_evidence + square.offset + math.lgamma(len(scores) + 1)
    return ScoresFit(state, float(log_evidence))


# Up to so many items the second order takes less than a second.
_SMALL = 10
# So many permutations can be listed.
_LARGEST_EXACT = 6
_ADVICE = "try a higher order, method='sequential' or 'exact'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Filter one problem; ``order`` is 2 up to 10 items and 1 beyond unless it is given.

    Raises:
        ValueError: The model is not linear, or cannot be treated for another reason.
    """
    scores = prepared.problem.host_scores
    n = len(scores)
    order = whole("order", context.options.get("order", 2 if n <= _SMALL else 1))
    if n == 1 or (order >= n - 1 and n <= _LARGEST_EXACT):
        return _exact(prepared, scores)
    if order >= n - 1:
        raise ValueError(
            f"order must be below n - 1 for more than {_LARGEST_EXACT} items, got {order} and "
            f"{n} items; method='exact' is for those."
        )
    return _band_limited(prepared, scores, filter_scores(scores, order), order)


def _exact(prepared: Prepared, scores: np.ndarray) -> Posterior:
    n = len(scores)
    perms = enumerate_permutations(n).astype(np.int64)
    values, log_evidence = np.ones(1), float(scores[0, 0])
    if n > 1:
        found = filter_scores(scores, n - 1)
        values, log_evidence = inverse_transform(found.state.coefficients), found.log_evidence
    with np.errstate(divide="ignore"):
        # Rounding errors make impossible ones a little negative.
        log_weights = np.log(np.maximum(values, 0.0)) + log_evidence + prepared.problem.constant
    return tabulated(prepared, perms, log_weights, num_evaluations=0)


def _band_limited(
    prepared: Prepared, scores: np.ndarray, found: ScoresFit, order: int
) -> Posterior:
    P = normalise_marginals(np.maximum(found.state.marginals, 0.0)).marginals
    best = np.asarray(assignment.solve(scores, backend="host"), dtype=np.int64)
    constant = float(prepared.problem.constant)
    # Both hold for every P; what the filter says of the evidence is no bound.
    bound = max(log_bethe(scores, P), float(scores[np.arange(len(best)), best].sum()))
    zeros = np.zeros(len(P))
    marginals = restore_marginals(prepared.reduction, Marginals(P, zeros, zeros))
    reason = (
        f"marginals of order {order} without those of higher orders, an error of unknown size: "
        "compare with method='exact' or 'sequential'"
    )
    posterior = Posterior(
        law=MarginalsLaw(*marginals),
        **marginals._asdict(),
        mode=prepared.restore(best),
        log_evidence=constant + bound,
        log_evidence_kind="bound",
        diagnostics=Diagnostics(
            "check",
            (reason,),
            extras={
                "order": np.array(order),
                "log_evidence_estimate": np.array(constant + found.log_evidence),
            },
        ),
        num_evaluations=0,
    )
    return audited(prepared, posterior, best, _ADVICE)


METHODS = {
    "fourier": Method(
        MethodInfo(
            name="fourier",
            needs="linear scores",
            gives="band-limited marginals and a bound on the evidence; exact up to 6 items",
            masks=False,
            partial=False,
            cost="O(n^5) at order 1, O(n^8) at order 2",
            reference="Kondor et al. 2007; Huang et al. 2009",
        ),
        options=("order",),
        run=run,
        linear=True,
        sites=False,
        square=True,
    ),
}
