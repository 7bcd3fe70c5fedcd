"""Method "fourier": band-limited inference on the symmetric group, for linear models.

Each row's scores are taken for an observation of that row's label, and a uniform distribution is
conditioned on all of them in turn, keeping the Fourier coefficients of first or second order only
(Kondor et al. 2007; Huang et al. 2009), see `permvi.inference.fourier`. Filters of this kind were
made for tracks that mix between observations. Here nothing mixes: the posterior grows more
concentrated with every row, and dropping coefficients costs more and more. So it is good where rows
say little and poor where they say much; choose it for comparison, or up to 6 items without a band
limit (order n - 1), where it is exact. Densities are evaluated for the verdict alone.
"""

import numpy as np

from permvi import assignment
from permvi._methods.audit import audited
from permvi._methods.context import Context
from permvi._methods.exact import tabulated
from permvi._methods.refusals import (
    linear_scores,
    refuse_latents,
    refuse_mask,
    refuse_partial,
    refuse_rectangular,
    refuse_sites,
)
from permvi._methods.scaling import restore_marginals
from permvi._task import Task
from permvi.inference.exact.problem import positive_int
from permvi.inference.fourier import ScoresFit, filter_scores, inverse_transform
from permvi.inference.scaling import log_bethe
from permvi.permutations import enumerate_permutations
from permvi.posterior import Diagnostics, Marginals, Posterior, normalise_marginals
from permvi.posterior.marginal_law import MarginalsLaw

OPTIONS = ("order",)

# Up to so many items the second order takes less than a second.
_SMALL = 10
# So many permutations can be listed.
_LARGEST_EXACT = 6
_ADVICE = "try a higher order, method='sequential' or 'exact'"


def run(task: Task, context: Context) -> Posterior:
    """Filter one problem; ``order`` is 2 up to 10 items and 1 beyond unless it is given.

    Raises:
        ValueError: The model is not linear, or cannot be treated for another reason.
    """
    for refuse in (
        refuse_mask, refuse_partial, refuse_latents, refuse_sites, refuse_rectangular
    ):  # fmt: skip
        refuse(task, context.method)
    scores = linear_scores(task, context.method)
    n = len(scores)
    order = positive_int("order", context.options.get("order", 2 if n <= _SMALL else 1))
    if n == 1 or (order >= n - 1 and n <= _LARGEST_EXACT):
        return _exact(task, scores)
    if order >= n - 1:
        raise ValueError(
            f"order must be below n - 1 for more than {_LARGEST_EXACT} items, got {order} and "
            f"{n} items; method='exact' is for those."
        )
    return _band_limited(task, scores, filter_scores(scores, order), order)


def _exact(task: Task, scores: np.ndarray) -> Posterior:
    n = len(scores)
    perms = enumerate_permutations(n).astype(np.int64)
    values, log_evidence = np.ones(1), float(scores[0, 0])
    if n > 1:
        found = filter_scores(scores, n - 1)
        values, log_evidence = inverse_transform(found.state.coefficients), found.log_evidence
    with np.errstate(divide="ignore"):
        # Rounding errors make impossible ones a little negative.
        log_weights = np.log(np.maximum(values, 0.0)) + log_evidence + task.problem.constant
    return tabulated(task, perms, log_weights, num_evaluations=0)


def _band_limited(task: Task, scores: np.ndarray, found: ScoresFit, order: int) -> Posterior:
    P = normalise_marginals(np.maximum(found.state.marginals, 0.0)).marginals
    best = np.asarray(assignment.solve(scores, backend="host"), dtype=np.int64)
    constant = float(task.problem.constant)
    # Both hold for every P; what the filter says of the evidence is no bound.
    bound = max(log_bethe(scores, P), float(scores[np.arange(len(best)), best].sum()))
    zeros = np.zeros(len(P))
    marginals = restore_marginals(task.reduction, Marginals(P, zeros, zeros))
    reason = (
        f"marginals of order {order} without those of higher orders, an error of unknown size: "
        "compare with method='exact' or 'sequential'"
    )
    posterior = Posterior(
        law=MarginalsLaw(*marginals),
        **marginals._asdict(),
        mode=task.restore(best),
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
    return audited(task, posterior, best, _ADVICE)
