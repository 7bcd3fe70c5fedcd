"""The demonstration: its problem, its files, its table."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import permvi as pv
from permvi import cli
from permvi.experiments import demo


@pytest.fixture
def only_exact(monkeypatch):
    """Other methods compile for many seconds; the contract of methods runs them."""
    monkeypatch.setattr(demo, "METHODS", ("exact",))


def invoke(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def test_the_problem_is_worth_looking_at():
    model, truth = demo.problem()
    posterior = pv.fit(model)
    np.testing.assert_array_equal(posterior.mode, truth)
    assert posterior.marginals.max(axis=1).min() < 0.8


def test_it_writes_figures_and_the_posterior(only_exact, tmp_path):
    result = invoke("demo", "--out", tmp_path / "new")
    assert result.exit_code == 0, result.output
    for name in ("marginals.png", "points.png", "top_matchings.png", "fit.nc", "report.html"):
        assert (tmp_path / "new" / name).stat().st_size > 0
        assert name in result.output
    for word in ("#1", "truth", "exact", "trust"):
        assert word in result.output
    loaded = pv.load(tmp_path / "new" / "fit.nc")
    np.testing.assert_array_equal(loaded.mode, demo.problem()[1])


def test_json_and_quiet(only_exact, tmp_path):
    row = json.loads(invoke("demo", "--out", tmp_path, "--json").output)[0]
    assert row["method"] == "exact"
    assert row["total_variation"] == 0
    assert invoke("demo", "--out", tmp_path, "--quiet").output == ""


def test_out_has_to_be_a_folder(only_exact, tmp_path):
    (tmp_path / "file").write_text("")
    result = invoke("demo", "--out", tmp_path / "file")
    assert result.exit_code == 2


@pytest.mark.slow
def test_all_its_methods_are_compared(tmp_path):
    found = demo.run(tmp_path, seed=0, progress=lambda what, done, total: None)
    assert [row.method for row in found.comparisons] == list(demo.METHODS)
    errors = {row.method: row.total_variation for row in found.comparisons}
    for name in ("stick_breaking", "rounding", "sequential", "mcmc"):
        assert errors[name] < 0.3
    for row in found.comparisons:
        assert row.posterior.diagnostics.verdict != "trust" or row.total_variation < 0.05
    assert (tmp_path / "elbo_rounding.png").exists()
