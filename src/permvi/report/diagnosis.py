"""The signals behind a verdict, in plain words."""

from typing import Literal, NamedTuple, TypeGuard

import numpy as np

from permvi.posterior import diagnostics as rule
from permvi.posterior.diagnostics import Diagnostics, Verdict
from permvi.report.words import number, percent

Grade = Literal["good", "check", "bad", "info"]

VERDICTS: dict[Verdict, tuple[str, str]] = {
    "trust": ("Trust", "These probabilities can be used as they are."),
    "check": ("Check", "Read the reasons before you rely on these probabilities."),
    "do not trust": ("Do not trust", "Do not rely on these probabilities."),
}


class Signal(NamedTuple):
    """One thing that is known of how a fit went.

    Attributes:
        name: What it is.
        value: Its value.
        meaning: What that says, in a sentence or two.
        grade: What it says of the probabilities; "info" where it decides nothing.
    """

    name: str
    value: str
    meaning: str
    grade: Grade


def signals(found: Diagnostics) -> list[Signal]:
    """Everything that is known, graded as :func:`permvi.posterior.diagnostics.judge` does."""
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
    # The distance to all that there is decides alone.
    return known[:1] + [signal._replace(grade="info") for signal in known[1:]]


def _known(value: float | None) -> TypeGuard[float]:
    """NaN counts as missing, as it does for the verdict."""
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
        "A search has found practically all of the posterior. This is how much probability would "
        "have to move within an item to get there: 0 is none, 1 is all of it.",
        grade,
    )


def _sampling(found: Diagnostics) -> Signal | None:
    if found.sampling_error_by_row is None:
        return None
    error = float(np.nan_to_num(found.sampling_error_by_row, nan=1.0).mean())
    return Signal(
        "Expected sampling error",
        f"{number(error)} per item",
        "The probabilities come from finitely many draws. So much probability of an item is "
        "expected to be in the wrong place for that reason.",
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
        "Worth of a draw",
        number(value),
        "How many independent draws of the posterior each draw is worth; near 0, few of them "
        "carry all the weight.",
        grade,
    )


def _disagreement(found: Diagnostics) -> Signal | None:
    if found.disagreement is None:
        return None
    return Signal(
        "Disagreement of independent fits",
        f"{number(found.disagreement)} at most",
        "Fits that started differently were compared. This is the largest share of an item's "
        "probability on which they differ.",
        _grade(found.disagreement, rule.DISAGREEMENT_CHECK, rule.DISAGREEMENT_DISTRUST),
    )


def _missed(found: Diagnostics) -> Signal | None:
    if not _known(found.missed_mass):
        return None
    return Signal(
        "Missed by the fit",
        percent(found.missed_mass),
        "An independent search looked for probable matchings. This share of the posterior lies "
        "where the fit has hardly any probability.",
        _grade(found.missed_mass, rule.MISSED_CHECK, rule.MISSED_DISTRUST),
    )


def _converged(found: Diagnostics) -> Signal | None:
    if found.converged is None:
        return None
    meaning = (
        "It settled." if found.converged else "It still moved when it stopped: allow more steps."
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
        f"Near 1, chains have found the same distribution; above {rule.R_HAT_CHECK} they have not.",
        _grade(found.r_hat, rule.R_HAT_CHECK),
    )


def _evidence_gap(found: Diagnostics) -> Signal | None:
    if not _known(found.evidence_gap):
        return None
    return Signal(
        "Gap of the evidence",
        f"{number(found.evidence_gap)} nats",
        "The estimate of the log evidence minus its bound: how far the fitted family is from the "
        "posterior before its draws are weighted.",
        "info",
    )


def _k_hat(found: Diagnostics) -> Signal | None:
    if not _known(found.k_hat):
        return None
    return Signal(
        "Pareto k-hat of the weights",
        number(found.k_hat),
        "Heavy tails of the weights show as values above 0.7. Tied weights do so too, which is why "
        "it decides nothing.",
        "info",
    )


def _vertex_distance(found: Diagnostics) -> Signal | None:
    if not _known(found.vertex_distance):
        return None
    return Signal(
        "Distance to a permutation",
        number(found.vertex_distance),
        "How far relaxed draws were from the nearest permutation on average.",
        "info",
    )
