"""The signals behind a verdict, explained in words."""

from typing import Literal, NamedTuple, TypeGuard

import numpy as np

from permvi.posterior import diagnostics as rule
from permvi.posterior.diagnostics import Diagnostics, Verdict
from permvi.posterior.predictive import Fit
from permvi.report.words import number, percent

Grade = Literal["good", "check", "bad", "info"]

VERDICTS: dict[Verdict, tuple[str, str]] = {
    "trust": ("Trust", "These probabilities are computed reliably."),
    "check": ("Check", "Read the reasons before you rely on these probabilities."),
    "do not trust": ("Do not trust", "Do not rely on these probabilities."),
}
# The class of the badge, its word and the meaning of each verdict on the model.
MODEL_VERDICTS: dict[Fit, tuple[str, str, str]] = {
    "fits": ("trust", "Model fits", "The data look as the model expects them to."),
    "does not fit": (
        "do-not-trust",
        "Model does not fit",
        "The data do not look as the model expects, so its probabilities may be wrong however well "
        "they were computed.",
    ),
    "no check": ("check", "Model not checked", "Nothing says whether the model suits the data."),
}


class Signal(NamedTuple):
    """A diagnostic of a fit."""

    name: str
    value: str
    meaning: str  # the meaning of the value, in a sentence or two
    grade: Grade  # its effect on the verdict; "info" if it has none


def signals(found: Diagnostics) -> list[Signal]:
    """Return all known signals, graded as by :func:`permvi.posterior.diagnostics.judge`."""
    shown = [
        _bias(found),
        _sampling(found),
        _ess(found),
        _disagreement(found),
        _missed(found),
        _converged(found),
        _r_hat(found),
        _evidence_gap(found),
        _k_hat(found),
        _vertex_distance(found),
    ]
    known = [signal for signal in shown if signal is not None]
    if found.bias_by_row is None:
        return known
    # If the distance to the posterior is known, the verdict depends on it alone.
    return known[:1] + [signal._replace(grade="info") for signal in known[1:]]


def _known(value: float | None) -> TypeGuard[float]:
    """Whether a value is known; NaN counts as missing, as it does for the verdict."""
    return value is not None and not np.isnan(value)


def _grade(value: float, check: float, bad: float = np.inf) -> Grade:
    if not value <= bad:
        return "bad"
    return "good" if value <= check else "check"


def _bias(found: Diagnostics) -> Signal | None:
    if found.bias_by_row is None:
        return None
    by_row = np.nan_to_num(found.bias_by_row, nan=1.0)
    mean, largest = float(by_row.mean()), float(by_row.max())
    grade = _grade(mean, rule.BIAS_CHECK, rule.BIAS_DISTRUST)
    if grade == "good":
        grade = _grade(largest, rule.BIAS_CHECK_ROW)
    return Signal(
        "Distance to the posterior",
        f"{number(mean)} on average, {number(largest)} at most",
        "An independent answer is known that is nearly exact. Compared with it, this share of an "
        "item's probability is on the wrong label: 0 is none, 1 is all of it.",
        grade,
    )


def _sampling(found: Diagnostics) -> Signal | None:
    if found.sampling_error_by_row is None:
        return None
    error = float(np.nan_to_num(found.sampling_error_by_row, nan=1.0).mean())
    return Signal(
        "Expected sampling error",
        f"{number(error)} per item",
        "The probabilities come from finitely many draws. For that reason this share of an item's "
        "probability is expected to be on the wrong label.",
        _grade(error, rule.SAMPLING_CHECK, rule.SAMPLING_DISTRUST),
    )


def _ess(found: Diagnostics) -> Signal | None:
    value = found.ess_per_draw
    if not _known(value):
        return None
    if found.sampling_error_by_row is None:
        grade = _grade(-value, -rule.ESS_CHECK, -rule.ESS_DISTRUST)
    else:
        grade = _grade(-value, -rule.ESS_CHECK_WITH_ERROR)
    return Signal(
        "Effective sample size per draw",
        number(value),
        "Each draw is worth this many independent draws from the posterior. Near 0, a few draws "
        "carry all the weight.",
        grade,
    )


def _disagreement(found: Diagnostics) -> Signal | None:
    if found.disagreement is None:
        return None
    return Signal(
        "Disagreement of independent fits",
        f"{number(found.disagreement)} at most",
        "Fits from different starting points were compared. This is the largest share of an "
        "item's probability on which they differ.",
        _grade(found.disagreement, rule.DISAGREEMENT_CHECK, rule.DISAGREEMENT_DISTRUST),
    )


def _missed(found: Diagnostics) -> Signal | None:
    if not _known(found.missed_mass):
        return None
    return Signal(
        "Missed probability",
        percent(found.missed_mass),
        "An independent search looked for probable matchings. This share of the posterior is on "
        "matchings to which the fit gives hardly any probability.",
        _grade(found.missed_mass, rule.MISSED_CHECK, rule.MISSED_DISTRUST),
    )


def _converged(found: Diagnostics) -> Signal | None:
    if found.converged is None:
        return None
    meaning = (
        "The fit settled."
        if found.converged
        else "The fit was still changing when it stopped: allow more steps."
    )
    return Signal(
        "Converged", "yes" if found.converged else "no", meaning, _grade(not found.converged, 0)
    )


def _r_hat(found: Diagnostics) -> Signal | None:
    if not _known(found.r_hat):
        return None
    return Signal(
        "R-hat of the chains",
        number(found.r_hat, 4),
        f"Near 1, the chains agree on one distribution; above {rule.R_HAT_CHECK} they do not.",
        _grade(found.r_hat, rule.R_HAT_CHECK),
    )


def _evidence_gap(found: Diagnostics) -> Signal | None:
    if not _known(found.evidence_gap):
        return None
    return Signal(
        "Evidence gap",
        f"{number(found.evidence_gap)} nats",
        "The estimated log evidence minus its bound: the distance of the fitted family from the "
        "posterior before its draws are weighted.",
        "info",
    )


def _k_hat(found: Diagnostics) -> Signal | None:
    if not _known(found.k_hat):
        return None
    return Signal(
        "Pareto k-hat of the weights",
        number(found.k_hat),
        "Values above 0.7 mean heavy-tailed weights. Tied weights give such values too, so this "
        "does not affect the verdict.",
        "info",
    )


def _vertex_distance(found: Diagnostics) -> Signal | None:
    if not _known(found.vertex_distance):
        return None
    return Signal(
        "Distance to a permutation",
        number(found.vertex_distance),
        "The average distance of relaxed draws from the nearest permutation.",
        "info",
    )
