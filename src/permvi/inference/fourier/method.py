"""Method "fourier": band-limited inference on the symmetric group, for linear models.

Each row of scores is treated as an observation of that row's label. A uniform distribution is
conditioned on one after the other, keeping only Fourier coefficients of first or second order.
Such filters are made for tracks that mix between observations. Here nothing mixes: the posterior
becomes more concentrated with every row, and dropping coefficients costs more and more. So the
method is good if rows are uninformative and poor otherwise. Use it for comparison, or without a
band limit (order n - 1) for up to 6 items, where it is exact. Densities are evaluated only for the
verdict.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import entr

from permvi import assignment
from permvi._checks import whole
from permvi.inference.exact.method import tabulated
from permvi.inference.fourier.filter import IdentityFilter
from permvi.inference.fourier.transform import inverse_transform
from permvi.inference.method import Context, Method, MethodInfo, restore_marginals
from permvi.inference.scaling import log_bethe, square_problem
from permvi.inference.verdict.audit import audited
from permvi.permutations import enumerate_permutations
from permvi.posterior import Diagnostics, Marginals, Posterior, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.problem.prepare import Prepared

# The smallest likelihood relative to the largest, so that zeros of a projection contradict none.
_LEAST_LIKELIHOOD = 1e-6


class ScoresFit(NamedTuple):
    """The filter after all rows, and its estimate of ``log sum_x exp(<S, x>)``.

    The estimate is exact without a band limit.
    """

    state: IdentityFilter
    log_evidence: float


def filter_scores(scores: np.ndarray, order: int) -> ScoresFit:
    r"""Condition a uniform distribution on each row of finite scores (n, n), n at least 2.

    The posterior :math:`\propto \prod_i e^{S_{i \sigma(i)}}` is the uniform distribution given
    observations of all rows i with likelihoods :math:`e^{S_{ij}}`. Scores are first reduced by the
    prices of the best matching (see `permvi.inference.scaling.square_problem`), which changes no
    probability and makes that matching the most likely label of every row. With a band limit
    ``order`` below n - 1, rows of the least entropy come first, and likelihoods are at least a
    millionth of the largest in their row; without one the order of the rows does not matter.
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


# Up to this many items the second order takes less than a second.
_SMALL = 10
# Up to this many items all permutations are listed.
_LARGEST_EXACT = 6
_ADVICE = "try a higher order, method='linear' or 'sequential'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Filter one problem; ``order`` is by default 2 for up to 10 items and 1 beyond."""
    scores = prepared.problem.host_scores
    n = len(scores)
    order = whole("order", context.options.get("order", 2 if n <= _SMALL else 1))
    if n == 1 or (order >= n - 1 and n <= _LARGEST_EXACT):
        return _exact(prepared, scores)
    if order >= n - 1:
        raise ValueError(
            f"order must be below n - 1 for more than {_LARGEST_EXACT} items, got {order} and "
            f"{n} items; use method='exact'."
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
        # Rounding makes probabilities of zero slightly negative.
        log_weights = np.log(np.maximum(values, 0.0)) + log_evidence + prepared.problem.constant
    return tabulated(prepared, perms, log_weights, num_evaluations=0)


def _band_limited(
    prepared: Prepared, scores: np.ndarray, found: ScoresFit, order: int
) -> Posterior:
    P = normalise_marginals(np.maximum(found.state.marginals, 0.0)).marginals
    best = np.asarray(assignment.solve(scores, backend="host"), dtype=np.int64)
    constant = float(prepared.problem.constant)
    # Both bounds hold for every P. The filter's own estimate is not a bound.
    bound = max(log_bethe(scores, P), float(scores[np.arange(len(best)), best].sum()))
    zeros = np.zeros(len(P))
    marginals = restore_marginals(prepared.reduction, Marginals(P, zeros, zeros))
    reason = (
        f"marginals of order {order} ignore higher orders, an error of unknown size: "
        "compare with method='exact' or 'sequential'"
    )
    estimate = np.array(constant + found.log_evidence)
    extras = {"order": np.array(order), "log_evidence_estimate": estimate}
    posterior = Posterior(
        law=MarginalsLaw(*marginals),
        **marginals._asdict(),
        mode=prepared.restore(best),
        log_evidence=constant + bound,
        log_evidence_kind="bound",
        diagnostics=Diagnostics("check", (reason,), extras=extras),
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
