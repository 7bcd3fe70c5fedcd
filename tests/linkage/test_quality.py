"""Calibration, expected precision and recall, and glue, against truth drawn from the model."""

import numpy as np
import pytest

import permvi as pv
from permvi.linkage.summary import expected_quality, interval
from tests.linkage.oracle import matchings

pytest.importorskip("pyarrow")

TEMPERATURE, OFFSET = 1.6, 0.7


def drawn(rng, num):
    """Candidate pairs of small components with log odds, and a true linking for each.

    Truth is drawn from the model with log odds w / TEMPERATURE + OFFSET.
    """
    left, right, weights, truth = [], [], [], []
    for c in range(num):
        n, m = rng.integers(1, 4, 2)
        edges = [(i, j) for i in range(n) for j in range(m) if rng.random() < 0.7]
        if not edges:
            continue
        w = rng.normal(-0.5, 4.0, len(edges))
        found = list(matchings(list(enumerate((i, n + j) for i, j in edges))))
        logs = np.array([(w[x] / TEMPERATURE + OFFSET).sum() for x in found])
        p = np.exp(logs - logs.max())
        true = found[rng.choice(len(found), p=p / p.sum())]
        left += [f"a{c}-{i}" for i, _ in edges]
        right += [f"b{c}-{j}" for _, j in edges]
        weights += w.tolist()
        truth += [k in true for k in range(len(edges))]
    columns = {"unique_id_l": left, "unique_id_r": right, "log_odds": weights}
    return columns, np.array(truth)


@pytest.fixture(scope="module")
def example():
    return drawn(np.random.default_rng(5), 2500)


@pytest.fixture(scope="module")
def calibrated(example):
    columns, truth = example
    known = np.random.default_rng(6).random(len(truth)) < 0.4
    pairs = {name: np.array(columns[name])[known] for name in ("unique_id_l", "unique_id_r")}
    return pv.match_pairs(columns, calibrate=pairs | {"is_match": truth[known]}), known


def test_temperature_and_offset_are_found(calibrated):
    fit = calibrated[0].calibration
    # 3.5 standard errors: fails by chance once in 2,000 times.
    assert fit.temperature == pytest.approx(TEMPERATURE, abs=3.5 * fit.temperature_se)
    assert fit.offset == pytest.approx(OFFSET, abs=3.5 * fit.offset_se)
    assert 0.01 < fit.temperature_se < 0.15
    assert 0.01 < fit.offset_se < 0.15
    summary = calibrated[0].summary["calibration"]
    gap = abs(summary["matches_expected"] - summary["matches_observed"])
    assert gap < 3.5 * summary["matches_expected_sd"]


def test_expected_precision_and_recall_are_right(example, calibrated):
    truth, (found, _) = example[1], calibrated
    p = found.table()["p_link"].to_numpy()
    low, high = found.summary["expected_matches_interval"]
    # 1.8 times the half width of the 95 % interval: 3.5 standard deviations.
    assert abs(truth.sum() - (low + high) / 2) < 1.8 * (high - low) / 2
    assert 0.0 < found.calibration.relative_sd < 0.05
    rows = np.genfromtxt(found.folder / "thresholds.csv", delimiter=",", names=True)
    for row in rows:
        chosen = p >= row["threshold"]
        if chosen.sum() < 300:
            continue
        right = (chosen & truth).sum()
        error = 3.5 * 0.5 / np.sqrt(chosen.sum())
        assert row["precision"] == pytest.approx(right / chosen.sum(), abs=error)
        assert row["recall"] == pytest.approx(right / truth.sum(), abs=0.04)
    assert found.table()["p_pair"].to_numpy() == pytest.approx(
        1 / (1 + np.exp(-np.array(example[0]["log_odds"])))
    )


def test_expected_quality_against_plain_sums(rng):
    p = np.round(rng.random(300) ** 2, 2)
    table, best = expected_quality(p)
    for k in (0, 1, 37, 80, 90):
        chosen = p[p >= table.threshold[k]]
        assert table.num_links[k] == len(chosen)
        assert table.precision[k] == pytest.approx(chosen.mean())
        assert table.recall[k] == pytest.approx(chosen.sum() / p.sum())
        assert table.f1[k] == pytest.approx(2 * chosen.sum() / (len(chosen) + p.sum()))
    every = [2 * p[p >= t].sum() / ((p >= t).sum() + p.sum()) for t in np.unique(p)]
    assert best["f1"] == pytest.approx(max(every))
    assert 2 * p[p >= best["threshold"]].sum() / ((p >= best["threshold"]).sum() + p.sum()) == (
        pytest.approx(max(every))
    )
    assert interval(0.9, 0.09, 1) == [0, 1]
    assert interval(100.0, 25.0, 500) == [90, 110]


def test_known_pairs_that_cannot_be_used(example):
    columns, _ = example
    few = {name: columns[name][:2] for name in ("unique_id_l", "unique_id_r")}
    for known, message in (
        (few | {"is_match": [1, 1]}, "known pairs of both kinds"),
        (few | {"is_match": [1, 2]}, "row 2: expected 1 or 0"),
        (few | {"one": [1, 1], "two": [1, 0]}, "a column such as 'is_match'"),
        ({"is_match": [1]}, "expected the columns 'unique_id_l'"),
    ):
        with pytest.raises(ValueError, match=message):
            pv.match_pairs(columns, calibrate=known)


def test_huge_components_are_named_with_what_glues_them(rng):
    # Two chains of 600 records each, and one weak pair between them.
    chains = [(f"a{c}-{k}", f"b{c}-{k + s}") for c in (0, 1) for k in range(300) for s in (0, 1)]
    pairs = [*chains, ("a0-7", "b1-9")]
    weights = [*rng.normal(3.0, 1.0, len(chains)), -4.0]
    left, right = zip(*pairs, strict=True)
    found = pv.match_pairs({"id_l": left, "id_r": right, "log_odds": weights})
    (huge,) = found.summary["huge_components"]
    assert huge["records"] == 1202
    glue = huge["glue"][0]
    assert (glue["left"], glue["right"], sorted(glue["joins"])) == ("a0-7", "b1-9", [601, 601])
    assert found.summary["verdict"] == "trust"
