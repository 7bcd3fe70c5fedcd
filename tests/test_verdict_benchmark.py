"""The benchmark of verdicts counts what it should."""

import numpy as np
import pytest

import permvi as pv
from benchmarks import verdicts


def row(error, verdict, method="m"):
    return {"kind": "k", "method": method, "error": error, "verdict": verdict}


def test_wrong_answers_that_are_trusted_and_good_ones_that_are_not_are_counted():
    rows = [
        row(0.2, "trust"),
        row(0.03, "check"),
        row(0.001, "do not trust"),
        row(0.001, "trust", "other"),
    ]
    table = verdicts.summary(rows, "method")
    assert [line[0] for line in table.rows] == ["m", "other", "all"]
    assert table.rows[0][1:] == ["3", "1", "1", "0.200", "1", "100.0%"]
    assert table.rows[2][1:] == ["4", "2", "1", "0.200", "2", "50.0%"]


@pytest.mark.parametrize("kind", verdicts.KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_problem_is_as_large_as_it_says(kind):
    n = verdicts.KINDS[kind][0]
    model = kind(1.0, n, np.random.default_rng(0))
    assert model.shape == (n, n)


def test_a_run_is_resumed(tmp_path, capsys):
    options = ["--out", str(tmp_path), "--repeats", "1", "--kinds", "table 8"]
    verdicts.main([*options, "--methods", "exact"])
    before = (tmp_path / "rows.csv").read_text()
    assert before.count("exact,0.0,trust") == len(verdicts._SCALES)
    verdicts.main([*options, "--methods", "exact", "bethe"])
    after = (tmp_path / "rows.csv").read_text()
    assert after.startswith(before)
    assert "| all | 10 |" in capsys.readouterr().out


def test_the_truth_of_a_mixture_is_that_of_enumeration():
    model = verdicts.mixture(0.5, 6, np.random.default_rng(3))
    found = pv.fit(model, "exact")
    np.testing.assert_allclose(found.marginals, verdicts.truth_of(model), atol=1e-5)
