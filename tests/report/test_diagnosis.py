"""Signals in words: their grades never contradict the verdict."""

import numpy as np
import pytest

from permvi.posterior.diagnostics import Diagnostics, diagnose
from permvi.report import diagnosis, sections

GRADES = {"trust": "good", "check": "check", "do not trust": "bad"}
SEVERITY = ["info", "good", "check", "bad"]


def random_signals(rng):
    """Some signals, at values on both sides of every threshold."""
    offered = {
        "bias_by_row": lambda: rng.uniform(0, rng.choice([0.04, 0.08, 0.4]), 3),
        "sampling_error_by_row": lambda: np.full(3, rng.choice([0.01, 0.05, 0.2])),
        "ess_per_draw": lambda: rng.choice([0.5, 0.05, 0.007, 0.001]),
        "disagreement_by_row": lambda: np.full(3, rng.choice([0.01, 0.05, 0.3])),
        "missed_mass": lambda: rng.choice([0.01, 0.1, 0.5]),
        "converged": lambda: bool(rng.choice([True, False])),
        "r_hat": lambda: rng.choice([1.0, 1.2]),
        "k_hat": lambda: 2.0,
        "evidence_gap": lambda: 5.0,
    }
    return {name: make() for name, make in offered.items() if rng.random() < 0.6}


def test_the_worst_grade_is_the_verdict(rng):
    seen = set()
    for _ in range(500):
        given = random_signals(rng)
        found = diagnose(**given)
        worst = max(
            (signal.grade for signal in diagnosis.signals(found)),
            key=SEVERITY.index,
            default="info",
        )
        missing = found.bias_by_row is None and (
            (found.disagreement is None and found.missed_mass is None)
            or (found.ess_per_draw is None and found.sampling_error_by_row is None)
        )
        # A signal that is missing makes a verdict "check" by itself.
        expected = max(worst, "check", key=SEVERITY.index) if missing else worst
        assert GRADES[found.verdict] == expected, given
        seen.add(found.verdict)
    assert seen == set(GRADES)


def test_each_signal_is_told_once_and_nothing_else_is(rng):
    assert diagnosis.signals(diagnose(exact=True)) == []
    found = diagnose(ess_per_draw=0.5, r_hat=1.01, vertex_distance=0.25)
    assert [signal.value for signal in diagnosis.signals(found)] == ["0.5", "1.01", "0.25"]


def test_nan_is_missing_but_no_good_sign_by_row():
    scalars = dict.fromkeys(("ess_per_draw", "missed_mass", "r_hat", "k_hat"), np.nan)
    assert diagnosis.signals(Diagnostics("check", ("odd",), **scalars)) == []
    for name in ("bias_by_row", "sampling_error_by_row", "disagreement_by_row"):
        (signal,) = diagnosis.signals(diagnose(**{name: np.array([0.0, np.nan])}))
        assert signal.grade == "bad"


@pytest.mark.parametrize("elbo", [None, [1.0], [np.nan, np.nan], [[], []]])
def test_no_picture_of_nothing(elbo):
    assert sections.trace_figure(None if elbo is None else np.array(elbo)) == ""


def test_a_line_for_each_restart():
    elbo = -np.exp(-np.arange(1000) / np.array([[50.0], [100.0]]))
    elbo[0, 3] = np.nan
    text = sections.trace_figure(elbo)
    assert text.count("<polyline") == 2
    assert "1,000 steps" in text
    assert "nan" not in text
