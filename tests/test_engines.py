"""The benchmark of engines: its committed results keep their limits, and a small run works."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import engines

SUMMARY = Path(__file__).parents[1] / "results" / "engines" / "summary.json"
HELLINGER = {0.1: 0.002, 0.25: 0.01, 0.5: 0.02, 0.75: 0.025}


def limit_of(row):
    """The largest mean that a row may have."""
    setting = row["setting"]
    if row["metric"] == "hellinger":
        return 0.03 if setting.get("black_box") else HELLINGER[setting["sigma"]]
    if row["metric"] == "evaluations_worst":
        if row["method"] == "mcmc" or setting.get("black_box"):
            return 20_000
        return 40_000 if "noise" in setting else 10_000
    if row["metric"] == "log_evidence_error":
        return 0.05 if "noise" in setting else 0.03
    if row["metric"] == "tv_worst":
        return 0.08
    if row["method"] == "mcmc" or setting.get("black_box"):
        return 0.02
    return 0.03 if "noise" in setting else {0.25: 0.003, 0.5: 0.025}[setting["sigma"]]


def test_the_committed_results_keep_their_limits():
    rows = json.loads(SUMMARY.read_text())
    accuracy = [row for row in rows if row["method"] != "all"]
    assert len(accuracy) >= 40
    for row in accuracy:
        assert row["mean"] <= limit_of(row), row
    verdicts = {row["metric"]: row for row in rows if row["method"] == "all"}
    assert verdicts["trusted_are_right"]["mean"] >= 0.95
    assert verdicts["right_are_trusted"]["mean"] >= 0.8
    assert verdicts["trusted_are_right"]["setting"]["fits"] >= 100


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_small_run_of_the_multimodal_section():
    found = list(engines.multimodal(quick=True))
    assert {m.metric for m in found} == {
        "tv_per_row", "log_evidence_error", "evaluations_worst", "tv_worst"
    }  # fmt: skip
    for measured in found:
        assert np.mean(measured.values) <= measured.limit


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_small_run_of_the_verdicts():
    found = {m.metric: m.values for m in engines.verdicts(quick=True)}
    assert found["trusted_are_right"] == [1.0] * len(found["trusted_are_right"])
    assert found["right_are_trusted"] == [1.0] * len(found["right_are_trusted"])
