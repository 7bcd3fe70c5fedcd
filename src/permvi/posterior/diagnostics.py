"""Diagnostics of a fit, and the rule that turns them into one verdict.

Two signals tell how well draws follow the density where they are: the expected sampling error and
the effective sample size per draw. Two others tell what they miss: the agreement between
independent fits and a search for modes that does not use the fit. Pareto's k-hat is reported but
does not decide, because it misled both ways: tied weights raise it, and missed modes do not.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import one_of

Verdict = Literal["trust", "check", "do not trust"]

# Limits beyond which the verdict is "check" or "do not trust".
# Effective samples per draw, from below; from below this alone where the sampling error is known.
ESS_CHECK = 0.1
ESS_DISTRUST = 0.01
ESS_CHECK_WITH_ERROR = 0.005
# Total variation between two fits' marginals of an item.
DISAGREEMENT_CHECK = 0.03
DISAGREEMENT_DISTRUST = 0.1
# Smaller disagreements are not worth a number.
_NOTICED = 5e-4
# Total variation to all that a search has found: mean over items, and worst item.
BIAS_CHECK = 0.03
BIAS_CHECK_ROW = 0.05
BIAS_DISTRUST = 0.1
# Share of the posterior that a search found where the fit has no probability.
MISSED_CHECK = 0.05
MISSED_DISTRUST = 0.2
# Shares below this are not worth a number.
_TINY_SHARE = 1e-6
# Expected total variation of an item's marginals due to sampling, mean over items.
SAMPLING_CHECK = 0.03
SAMPLING_DISTRUST = 0.1
# R-hat of chains that have found the same distribution.
R_HAT_CHECK = 1.05
# Beyond these limits the reasons mention it, and the verdict stays as it is.
K_HAT_NOTE = 0.7
EVIDENCE_GAP_NOTE = 1.0

_ADVICE = "try method='mcmc' or more restarts"

SCALARS = (
    "ess_per_draw", "disagreement", "missed_mass", "vertex_distance", "evidence_gap", "k_hat",
    "r_hat",
)  # fmt: skip
ARRAYS = ("bias_by_row", "disagreement_by_row", "sampling_error_by_row", "elbo_trace")


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """Diagnostics of a fit: a verdict, its reasons and the signals behind it.

    Attributes:
        verdict: "trust", "check" or "do not trust".
        reasons: The reasons for the verdict, in plain sentences.
        ess_per_draw: Effective sample size of the draws' weights (or of a thinned chain) per draw.
        disagreement: The largest of ``disagreement_by_row``.
        disagreement_by_row: (n,) or (sites, n) total variation between independent fits.
        missed_mass: The share of the posterior that an independent search for modes found where the
            fit has hardly any probability.
        bias_by_row: (n,) or (sites, n) total variation to the result of a search that has found
            nearly all of the posterior.
        sampling_error_by_row: (n,) or (sites, n) expected total variation between the marginals and
            those of infinitely many draws.
        converged: Whether the optimiser or the sampler converged.
        elbo_trace: (steps,) or (restarts, steps) evidence lower bounds, which rise.
        vertex_distance: Mean distance of relaxed samples to the nearest permutation.
        evidence_gap: Estimate of the log evidence minus its bound, in nats.
        k_hat: Pareto shape of the importance weights, advisory only.
        r_hat: The largest R-hat over the quantities that are not constant.
        extras: Further arrays by name.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    ess_per_draw: float | None = None
    disagreement: float | None = None
    disagreement_by_row: np.ndarray | None = field(default=None, repr=False)
    missed_mass: float | None = None
    bias_by_row: np.ndarray | None = field(default=None, repr=False)
    sampling_error_by_row: np.ndarray | None = field(default=None, repr=False)
    converged: bool | None = None
    elbo_trace: np.ndarray | None = field(default=None, repr=False)
    vertex_distance: float | None = None
    evidence_gap: float | None = None
    k_hat: float | None = None
    r_hat: float | None = None
    extras: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        one_of("verdict", self.verdict, get_args(Verdict))
        set_field = object.__setattr__
        set_field(self, "reasons", tuple(str(reason) for reason in self.reasons))
        set_field(self, "extras", {name: _array(value) for name, value in self.extras.items()})
        for name in ARRAYS:
            set_field(self, name, _array(getattr(self, name)))
        set_field(self, "converged", None if self.converged is None else bool(self.converged))
        for name in SCALARS:
            value = getattr(self, name)
            set_field(self, name, None if value is None else float(value))


class Judgement(NamedTuple):
    """A verdict and its reasons."""

    verdict: Verdict
    reasons: tuple[str, ...]


def judge(
    *,
    exact: bool = False,
    bias_by_row: ArrayLike | None = None,
    ess_per_draw: float | None = None,
    sampling_error_by_row: ArrayLike | None = None,
    disagreement_by_row: ArrayLike | None = None,
    missed_mass: float | None = None,
    converged: bool | None = None,
    evidence_gap: float | None = None,
    k_hat: float | None = None,
    r_hat: float | None = None,
    row_labels: Sequence[str] | None = None,
    advice: str = _ADVICE,
) -> Judgement:
    """Give a verdict on a fit, with a reason for each signal against it.

    An exact posterior is trusted. Where a search has found nearly all of the posterior, the
    distance to it (``bias_by_row``) decides alone: "trust" up to 0.03 on average and 0.05 in the
    worst row, "do not trust" above 0.1. Otherwise the worst of the signals below decides. "trust"
    needs at least one of the first two and one of the next two, because independent fits of a
    biased family agree with each other, and weights do not show the modes that a fit has missed.

    ==================================  =======================  ============
    signal                              check                    do not trust
    ==================================  =======================  ============
    mean of ``sampling_error_by_row``   above 0.03               above 0.1
    ``ess_per_draw``                    below 0.1 [1]_           below 0.01
    largest of ``disagreement_by_row``  above 0.03               above 0.1
    ``missed_mass``                     above 0.05               above 0.2
    ``converged``                       False
    ``r_hat``                           above 1.05
    ==================================  =======================  ============

    .. [1] Where the sampling error is known, below 0.005, and then "check" at worst.

    ``k_hat`` above 0.7 and ``evidence_gap`` above 1 nat add a remark and decide nothing. A NaN
    counts as missing, or as the worst value in an array by row.

    Args:
        exact: Whether the posterior was computed exactly.
        bias_by_row: See :class:`Diagnostics`, and likewise for the next eight.
        ess_per_draw: Effective samples per draw.
        sampling_error_by_row: (n,) or (sites, n).
        disagreement_by_row: (n,) or (sites, n).
        missed_mass: A share of the posterior.
        converged: Whether the method converged.
        evidence_gap: In nats.
        k_hat: Advisory only.
        r_hat: The largest R-hat of the chains.
        row_labels: (n,) names of the items.
        advice: What to try if the fit is biased or misses modes.

    Returns:
        The verdict and its reasons, the worst first.
    """
    if exact:
        return Judgement("trust", ("computed exactly",))
    if bias_by_row is not None:
        return _judge_bias(bias_by_row, row_labels, advice)
    found = []
    if missed_mass is not None:
        found.append(_judge_missed(missed_mass, advice))
    if disagreement_by_row is not None:
        found.append(_judge_agreement(disagreement_by_row, row_labels, advice))
    elif missed_mass is None:
        found.append(_check("no independent fit was compared, so missed modes would go unnoticed"))
    if sampling_error_by_row is None:
        found.append(_judge_ess(ess_per_draw))
    else:
        found.append(_judge_sampling(sampling_error_by_row, ess_per_draw))
    if converged is False:
        found.append(_check("the fit had not converged when it stopped: allow more steps"))
    if r_hat is not None and r_hat > R_HAT_CHECK:
        found.append(_check(f"the chains have not mixed (R-hat {r_hat:.2f}): run them longer"))
    verdict, reasons = worst_first(found)
    notes = []
    if k_hat is not None and k_hat > K_HAT_NOTE:
        notes.append(f"k-hat is {k_hat:.2f}, which is advisory: tied weights also raise it")
    if evidence_gap is not None and evidence_gap > EVIDENCE_GAP_NOTE:
        notes.append(
            f"the evidence estimate is {evidence_gap:.1f} nats above its bound: the fitted family "
            "is far from the posterior before correction"
        )
    return Judgement(verdict, (*reasons, *notes))


def worst_first(judgements: Sequence[Judgement]) -> Judgement:
    """Combine judgements into the worst verdict and all reasons, those of the worst first."""
    severity = get_args(Verdict)
    ordered = sorted(judgements, key=lambda one: -severity.index(one.verdict))
    return Judgement(ordered[0].verdict, tuple(reason for one in ordered for reason in one.reasons))


def diagnose(
    *,
    exact: bool = False,
    row_labels: Sequence[str] | None = None,
    advice: str = _ADVICE,
    **signals: Any,
) -> Diagnostics:
    """Return diagnostics with the verdict of :func:`judge`.

    The signals are fields of :class:`Diagnostics` but ``verdict``, ``reasons`` and
    ``disagreement``.
    """
    judged = inspect.signature(judge).parameters
    known = {name: value for name, value in signals.items() if name in judged}
    judgement = judge(exact=exact, row_labels=row_labels, advice=advice, **known)
    by_row = signals.get("disagreement_by_row")
    largest = None if by_row is None else float(np.max(by_row))
    return Diagnostics(*judgement, disagreement=largest, **signals)


def interrupted(found: Diagnostics) -> Diagnostics:
    """Return the diagnostics of a fit that the user stopped, with the verdict "do not trust"."""
    reason = "interrupted: this is what was known by then"
    return replace(found, verdict="do not trust", reasons=(reason, *found.reasons))


def _check(reason: str) -> Judgement:
    return Judgement("check", (reason,))


def _against(value: float, distrust: float, reason: str) -> Judgement:
    """Return "do not trust" if a value is above its limit, else "check"."""
    return Judgement("do not trust" if value > distrust else "check", (reason,))


def _values(by_row: ArrayLike) -> np.ndarray:
    return np.nan_to_num(np.asarray(by_row, dtype=np.float64), nan=1.0)


def _percent(share: float, about: str = "") -> str:
    """Write a share with two digits, after the word ``about``, or say that it is tiny."""
    if 0.0 < share < _TINY_SHARE:
        return f"less than {100 * _TINY_SHARE:g} %"
    # 100 rather than 1e+02.
    return f"{about}{float(f'{100 * share:.2g}'):g} %"


def _worst_item(by_row: np.ndarray, row_labels: Sequence[str] | None) -> str:
    """Name the item with the largest value."""
    worst = np.unravel_index(np.argmax(by_row), by_row.shape)
    row = int(worst[-1])
    place = f"row {row}" + (f" of site {worst[0]}" if by_row.ndim > 1 else "")
    return place if row_labels is None else f"item {row_labels[row]!r} ({place})"


def _judge_agreement(by_row: ArrayLike, row_labels: Sequence[str] | None, advice: str) -> Judgement:
    values = _values(by_row)
    largest, item = float(values.max()), _worst_item(values, row_labels)
    if largest <= DISAGREEMENT_CHECK:
        closely = f" to within {largest:.2g}" if largest >= _NOTICED else ""
        return Judgement("trust", (f"independent fits agree{closely} on every item",))
    reason = f"two fits disagree by {largest:.2f} on {item}: its marginals may be wrong; {advice}"
    return _against(largest, DISAGREEMENT_DISTRUST, reason)


def _judge_bias(by_row: ArrayLike, row_labels: Sequence[str] | None, advice: str) -> Judgement:
    values = _values(by_row)
    mean, largest, item = float(values.mean()), float(values.max()), _worst_item(values, row_labels)
    answer = "an independent answer that is nearly exact"
    if mean <= BIAS_CHECK and largest <= BIAS_CHECK_ROW:
        return Judgement("trust", (f"the marginals agree with {answer} to within {largest:.2g}",))
    reason = f"the marginals differ from {answer} by {largest:.2f} on {item}; {advice}"
    return _against(mean, BIAS_DISTRUST, reason)


def _judge_missed(share: float, advice: str) -> Judgement:
    found = f"{_percent(share)} of the posterior where the fit has no probability"
    if share <= MISSED_CHECK:
        return Judgement("trust", (f"a search for missed modes found {found}",))
    return _against(
        share, MISSED_DISTRUST, f"the fit misses modes: a search found {found}; {advice}"
    )


def _judge_sampling(by_row: ArrayLike, ess_per_draw: float | None) -> Judgement:
    error = float(np.mean(_values(by_row)))
    expected = f"{_percent(error, 'about ')} of an item's probability is on the wrong label"
    if error > SAMPLING_CHECK:
        reason = f"expected sampling error: {expected}; take more draws or a richer family"
        return _against(error, SAMPLING_DISTRUST, reason)
    if ess_per_draw is not None and ess_per_draw < ESS_CHECK_WITH_ERROR:
        return _check(
            f"each draw is worth only {ess_per_draw:.2g} independent draws, so the expected "
            f"sampling error ({_percent(error)}) is itself uncertain; use a richer family"
        )
    return Judgement("trust", (f"expected sampling error: {expected}",))


def _judge_ess(ess_per_draw: float | None) -> Judgement:
    if ess_per_draw is None or np.isnan(ess_per_draw):
        return _check("no weights compare the draws with the model, so a bias would go unnoticed")
    if ess_per_draw >= ESS_CHECK:
        return Judgement("trust", (f"each draw is worth {ess_per_draw:.2g} independent draws",))
    reason = (
        f"each draw is worth only {ess_per_draw:.2g} independent draws, so they cover the "
        "posterior poorly; take more draws or a richer family"
    )
    return _against(-ess_per_draw, -ESS_DISTRUST, reason)


def _array(value: ArrayLike | None) -> np.ndarray | None:
    if value is None:
        return None
    array = np.array(value)
    array.flags.writeable = False
    return array
