"""Can this posterior be trusted? The signals, and the rule that turns them into one verdict.

Reliable signals for permutations were found to be, of how well draws follow the density where they
are, the expected sampling error and the effective sample size per draw; of what they miss, the
agreement between independent fits and a search for modes that knows nothing of the fit. Pareto's
k-hat misled both ways (it alarms on tied weights and sees nothing of missed modes), so it is
reported and never decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import one_of

Verdict = Literal["trust", "check", "do not trust"]

# Effective samples per draw below which a posterior needs a look, and is not to be believed.
ESS_CHECK = 0.1
ESS_DISTRUST = 0.01
# Total variation between two fits' labels of a row, above which likewise.
DISAGREEMENT_CHECK = 0.03
DISAGREEMENT_DISTRUST = 0.1
# Total variation to all that a search has found, on average and in the worst row, likewise.
BIAS_CHECK = 0.03
BIAS_CHECK_ROW = 0.05
BIAS_DISTRUST = 0.1
# Share of the posterior that a search found where the fit has nothing, above which likewise.
MISSED_CHECK = 0.05
MISSED_DISTRUST = 0.2
# Expected total variation of a row due to sampling, on average over rows, above which likewise.
SAMPLING_CHECK = 0.03
SAMPLING_DISTRUST = 0.1
# Where that error is known, effective samples per draw matter only if there are hardly any.
ESS_CHECK_WITH_ERROR = 0.005
# Chains that have found the same distribution stay below this.
R_HAT_CHECK = 1.05
# Above these the reasons mention it, and the verdict stays as it is.
K_HAT_NOTE = 0.7
EVIDENCE_GAP_NOTE = 1.0

_ADVICE = "try method='mcmc' or more restarts"

SCALARS = (
    "ess_per_draw",
    "disagreement",
    "missed_mass",
    "vertex_distance",
    "evidence_gap",
    "k_hat",
    "r_hat",
)
ARRAYS = ("bias_by_row", "disagreement_by_row", "sampling_error_by_row", "elbo_trace")
# What `judge` looks at.
_JUDGED = (
    "bias_by_row",
    "ess_per_draw",
    "sampling_error_by_row",
    "disagreement_by_row",
    "missed_mass",
    "converged",
    "evidence_gap",
    "k_hat",
    "r_hat",
)


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """How a fit went.

    Attributes:
        verdict: "trust", "check" or "do not trust".
        reasons: Why, in plain sentences.
        ess_per_draw: Effective sample size of the draws' weights (or of a thinned chain) per draw.
        disagreement: The largest of ``disagreement_by_row``.
        disagreement_by_row: (n,) or (sites, n) total variation between independent fits.
        missed_mass: The share of the posterior that an independent search for modes has found where
            the fit has hardly any probability.
        bias_by_row: (n,) or (sites, n) total variation to what a search holds that has found
            practically all of the posterior.
        sampling_error_by_row: (n,) or (sites, n) expected total variation of the marginals from
            what infinitely many draws would give.
        converged: Whether the optimiser or the sampler settled.
        elbo_trace: (steps,) or (restarts, steps) evidence lower bounds, which rise.
        vertex_distance: Mean distance of relaxed samples to the nearest permutation.
        evidence_gap: Estimate of the log evidence minus its bound, in nats.
        k_hat: Pareto shape of the importance weights, advisory only.
        r_hat: The largest R-hat over what is not constant.
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
    """One verdict from what is known of a fit, with a specific reason for each thing against it.

    What is computed exactly is trusted. Where a search has found practically all of the posterior,
    the distance to it (``bias_by_row``) decides alone: "trust" up to 0.03 on average and 0.05 in
    the worst row, "do not trust" above 0.1. Otherwise the worst of these decides, and "trust" takes
    at least one of the first two and one of the second two: independent fits of a biased family
    agree with each other, and weights do not see the modes that a single fit has missed.

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

    ``k_hat`` above 0.7 and ``evidence_gap`` above 1 nat add a remark and decide nothing. NaN counts
    as missing, except for the disagreement, where it is as bad as can be.

    Args:
        exact: Whether the posterior was computed exactly.
        bias_by_row: As in :class:`Diagnostics`, and so on for the next eight.
        ess_per_draw: Per draw.
        sampling_error_by_row: (n,) or (sites, n).
        disagreement_by_row: (n,) or (sites, n).
        missed_mass: A share.
        converged: Whether the method settled.
        evidence_gap: In nats.
        k_hat: Advisory only.
        r_hat: Of chains.
        row_labels: (n,) names of the rows.
        advice: What to try where independent fits disagree.

    Returns:
        The verdict and its reasons, those against first.
    """
    if exact:
        return Judgement("trust", ("computed exactly",))
    if bias_by_row is not None:
        verdict, reason = _judge_bias(bias_by_row, row_labels, advice)
        return Judgement(verdict, (reason,))
    found = []
    if missed_mass is not None:
        found.append(_judge_missed(missed_mass, advice))
    if disagreement_by_row is not None:
        found.append(_judge_agreement(disagreement_by_row, row_labels, advice))
    elif missed_mass is None:
        found.append(("check", "no independent fit was compared: missed modes would go unnoticed"))
    if sampling_error_by_row is None:
        found.append(_judge_ess(ess_per_draw))
    else:
        found.append(_judge_sampling(sampling_error_by_row, ess_per_draw))
    if converged is False:
        found.append(("check", "the fit had not converged when it stopped: allow more steps"))
    if r_hat is not None and r_hat > R_HAT_CHECK:
        found.append(("check", f"chains differ (R-hat {r_hat:.2f}): run them longer"))
    severity = get_args(Verdict)
    found.sort(key=lambda pair: -severity.index(pair[0]))
    reasons = [reason for _, reason in found]
    if k_hat is not None and k_hat > K_HAT_NOTE:
        reasons.append(f"k-hat is {k_hat:.2f}, which is advisory: tied weights also cause it")
    if evidence_gap is not None and evidence_gap > EVIDENCE_GAP_NOTE:
        reasons.append(
            f"the evidence estimate is {evidence_gap:.1f} nats above its bound: the fitted family "
            "is far from the posterior before correction"
        )
    return Judgement(found[0][0], tuple(reasons))


def diagnose(
    *,
    exact: bool = False,
    row_labels: Sequence[str] | None = None,
    advice: str = _ADVICE,
    **signals: Any,
) -> Diagnostics:
    """Diagnostics with the verdict of :func:`judge`.

    Args:
        exact: As for :func:`judge`.
        row_labels: Likewise.
        advice: Likewise.
        **signals: Fields of :class:`Diagnostics` but ``verdict``, ``reasons`` and ``disagreement``.
    """
    known = {name: signals[name] for name in _JUDGED if name in signals}
    judgement = judge(exact=exact, row_labels=row_labels, advice=advice, **known)
    by_row = signals.get("disagreement_by_row")
    largest = None if by_row is None else float(np.max(by_row))
    return Diagnostics(*judgement, disagreement=largest, **signals)


def _judge_agreement(
    by_row: ArrayLike, row_labels: Sequence[str] | None, advice: str
) -> tuple[Verdict, str]:
    values = np.nan_to_num(np.asarray(by_row, dtype=np.float64), nan=1.0)
    largest, place = float(values.max()), _place(values, row_labels)
    if largest <= DISAGREEMENT_CHECK:
        return "trust", f"independent fits agree to within {largest:.2g} in every row"
    verdict: Verdict = "do not trust" if largest > DISAGREEMENT_DISTRUST else "check"
    return verdict, (
        f"two fits disagree by {largest:.2f} in {place}: its marginals may be off; {advice}"
    )


def _place(by_row: np.ndarray, row_labels: Sequence[str] | None) -> str:
    """The row with the largest value, in words."""
    worst = np.unravel_index(np.argmax(by_row), by_row.shape)
    row = int(worst[-1])
    place = f"row {row}" + (f" of site {worst[0]}" if by_row.ndim > 1 else "")
    return place if row_labels is None else f"{place} (label {row_labels[row]!r})"


def _judge_bias(
    by_row: ArrayLike, row_labels: Sequence[str] | None, advice: str
) -> tuple[Verdict, str]:
    values = np.nan_to_num(np.asarray(by_row, dtype=np.float64), nan=1.0)
    mean, largest, place = float(values.mean()), float(values.max()), _place(values, row_labels)
    if mean <= BIAS_CHECK and largest <= BIAS_CHECK_ROW:
        return "trust", (
            f"the marginals are within {largest:.2g} of all that a search has found of the "
            "posterior"
        )
    verdict: Verdict = "do not trust" if mean > BIAS_DISTRUST else "check"
    return verdict, (
        f"the marginals differ by {largest:.2f} in {place} from what a search has found of the "
        f"posterior; {advice}"
    )


def _judge_missed(share: float, advice: str) -> tuple[Verdict, str]:
    if share <= MISSED_CHECK:
        return "trust", f"a search for missed modes found {share:.2g} of the posterior"
    verdict: Verdict = "do not trust" if share > MISSED_DISTRUST else "check"
    return verdict, (
        f"a search found {share:.2f} of the posterior where the fit has nothing: it misses modes; "
        f"{advice}"
    )


def _judge_sampling(by_row: ArrayLike, ess_per_draw: float | None) -> tuple[Verdict, str]:
    error = float(np.mean(np.nan_to_num(np.asarray(by_row, dtype=np.float64), nan=1.0)))
    if error > SAMPLING_CHECK:
        verdict: Verdict = "do not trust" if error > SAMPLING_DISTRUST else "check"
        return verdict, (
            f"the marginals are expected to be off by {error:.2g} in a row: take more draws or a "
            "richer family"
        )
    if ess_per_draw is not None and ess_per_draw < ESS_CHECK_WITH_ERROR:
        return "check", (
            f"each draw is worth only {ess_per_draw:.2g} independent ones, so that the expected "
            f"error of {error:.2g} in a row is itself uncertain: take a richer family"
        )
    return "trust", f"the marginals are expected to be right to within {error:.2g} in a row"


def _judge_ess(ess_per_draw: float | None) -> tuple[Verdict, str]:
    if ess_per_draw is None or np.isnan(ess_per_draw):
        return "check", "no weights compare the draws with the model: a bias would go unnoticed"
    if ess_per_draw >= ESS_CHECK:
        return "trust", f"each draw is worth {ess_per_draw:.2g} independent ones"
    verdict: Verdict = "do not trust" if ess_per_draw < ESS_DISTRUST else "check"
    return verdict, (
        f"each draw is worth only {ess_per_draw:.2g} independent ones: the draws cover the "
        "posterior poorly; take more of them or a richer family"
    )


def _array(value: ArrayLike | None) -> np.ndarray | None:
    if value is None:
        return None
    array = np.array(value)
    array.flags.writeable = False
    return array
