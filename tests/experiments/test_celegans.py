"""The worm study at smoke size, held against wide but real ranges."""

import csv
import json

import jax
import numpy as np
import pytest
from PIL import Image

from permvi import experiments
from permvi.experiments.celegans import STUDY, problems
from permvi.experiments.celegans.plan import NUM_NEURONS, fit
from permvi.experiments.celegans.problems import network
from permvi.experiments.celegans.settings import GRIDS, METHODS, Setting

GRID = GRIDS["smoke"]
FIGURES = ("figure3", "figure4a", "figure4bc", "figure4de", "calibration", "hard")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("celegans")
    return folder, experiments.run("celegans", folder)


@pytest.fixture(scope="module")
def found(study):
    """Means by metric, method and setting."""
    return {
        (row["metric"], row["method"], Setting.of(row["setting"])): row["mean"]
        for row in study[1].summary
        if {"tolerance", "worms", "known", "T"} <= set(row["setting"])
    }


@pytest.mark.slow
def test_accuracies_are_in_their_ranges(found):
    for setting in (*GRID.candidates, *GRID.known):
        # Known neurons and those without another candidate are always right.
        assert found["accuracy", "collapsed", setting] > 0.9
        for method in METHODS["smoke"]:
            accuracy = found["accuracy", method, setting]
            assert setting.known / 40 <= accuracy <= 1
            assert found["accuracy_unknown", method, setting] <= accuracy
            assert accuracy <= found["accuracy", "collapsed", setting]


@pytest.mark.slow
def test_hard_settings_are_hard_and_never_trusted_when_wrong(found):
    for setting in (*GRID.further, *GRID.hard):
        assert found["wrongly_trusted", "collapsed", setting] == 0
    short = next(setting for setting in GRID.hard if setting.T < 100)
    usual = short._replace(T=500)
    assert found["accuracy", "collapsed", short] < found["accuracy", "collapsed", usual] - 0.1
    assert found["trusted", "collapsed", short] == 0
    assert found["trusted", "collapsed", usual._replace(worms=2)] == 1
    assert (
        found["expected_accuracy", "collapsed", short]
        < found["expected_accuracy", "collapsed", usual]
    )


@pytest.mark.slow
def test_the_summary_has_the_promised_form(study):
    _, result = study
    for row in result.summary:
        keys = ["study", "method", "setting", "metric", "mean", "sem", "n", "paper", "seconds"]
        assert list(row) == keys
        assert row["study"] == "celegans"
        if row["metric"] == "accuracy":
            assert set(row["setting"]) in (
                {"tolerance", "worms", "known", "T"},
                {"tolerance", "worms", "known", "T", "variant"},
            )
            assert row["n"] in (GRID.repetitions, GRID.more_repetitions)
    accuracy = {row["method"] for row in result.summary if row["metric"] == "accuracy"}
    assert accuracy == set(METHODS["smoke"])
    pooled = [row for row in result.summary if row["setting"].get("variant") == "pooled"]
    by_method = {row["method"]: row for row in pooled if row["metric"] == "calibration_error"}
    assert set(by_method) == set(METHODS["smoke"])
    assert by_method["collapsed"]["mean"] < 0.05
    # Two simulations with 35 neurons that are not known.
    assert by_method["collapsed"]["n"] == 70


@pytest.mark.slow
def test_convergence_has_every_method_and_its_checkpoints(study):
    _, result = study
    traces = {}
    for row in result.summary:
        if row["metric"].startswith("convergence_"):
            metric = row["metric"].removeprefix("convergence_")
            traces.setdefault((row["method"], metric), []).append(row["mean"])
            assert row["seconds"] > 0
    for name, method in METHODS["smoke"].items():
        for metric in ("log_likelihood", "weight_error", "accuracy", "variance"):
            assert len(traces[name, metric]) == len(method.checkpoints)
        assert traces[name, "accuracy"][-1] > 0.1
    # The truth explains activity best, with noise of unit variance.
    entropy = -0.5 * np.log(2 * np.pi * np.e)
    assert traces["collapsed", "log_likelihood"][-1] == pytest.approx(entropy, abs=0.05)
    assert traces["collapsed", "weight_error"][-1] < 0.5
    assert traces["map", "variance"] == [0.0] * len(traces["map", "variance"])


@pytest.mark.slow
def test_samples_are_parts_of_permutations(study):
    folder, _ = study
    images = {}
    with (folder / "rows.csv").open() as file:
        for row in csv.DictReader(file):
            if row["part"] == "samples":
                for name in ("psi_0", "psi_1", "rounded_0", "rounded_1", "mean"):
                    image = images.setdefault(name, np.zeros((NUM_NEURONS, NUM_NEURONS)))
                    image[int(row["row"]), int(row["column"])] = float(row[name])
    for name in ("rounded_0", "rounded_1"):
        assert set(np.unique(images[name])) == {0.0, 1.0}
        assert images[name].sum(axis=0).max() == images[name].sum(axis=1).max() == 1
    assert images["mean"].sum(axis=1).max() <= 1 + NUM_NEURONS * 5e-4
    assert ((images["mean"] > 0) & (images["mean"] < 1)).any()
    # The noisy matrices are not rounded.
    fractions = images["psi_0"][(images["psi_0"] != 0) & (images["psi_0"] != 1)]
    assert len(fractions) > NUM_NEURONS
    assert not np.array_equal(images["psi_0"], images["psi_1"])


@pytest.mark.slow
def test_files_figures_and_tables(study):
    folder, result = study
    wanted = ["rows.csv", "summary.json", "tables.md"]
    wanted += [f"{name}.{form}" for name in FIGURES for form in ("png", "pdf")]
    assert sorted(path.name for path in result.files) == sorted(wanted)
    for name in FIGURES:
        with Image.open(folder / f"{name}.png") as image:
            assert min(image.size) > 800
            assert np.mean(np.asarray(image.convert("L")) < 250) > 0.01
    assert json.loads((folder / "summary.json").read_text()) == result.summary
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert len(result.tables) == 4


def two_truths(method):
    """The task of a method, and its model for the same worms with another truth behind them."""
    setting = GRID.convergence
    config = {
        "size": "smoke",
        "method": method,
        "setting": setting.public(),
        "seed": 0,
        "repetition": 0,
    }
    graph, worms, model = problems.draw(config)
    rng = np.random.default_rng(5)
    other = worms._replace(
        truth=np.stack([rng.permutation(row) for row in worms.truth]),
        weights=rng.permuted(worms.weights, axis=1),
    )
    return config, model, problems.model_of(other, graph, setting)


def test_the_truth_behind_the_scorer_is_not_in_the_model():
    """All that inference is given is the same, bit for bit."""
    _, model, other = two_truths("collapsed")
    leaves, structure = jax.tree.flatten(model)
    others, other_structure = jax.tree.flatten(other)
    assert structure == other_structure
    for leaf, one in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, one)


# Those that compile for long can see no more of the truth than the others.
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[] if name in ("map", "mcmc", "collapsed") else pytest.mark.slow)
        for name in METHODS["smoke"]
    ],
)
def test_the_truth_behind_the_scorer_changes_no_posterior(method):
    """Worms with another truth: everything that inference returns is the same bit for bit."""
    config, model, other = two_truths(method)
    one, two = fit(model, config), fit(other, config)
    np.testing.assert_array_equal(one.marginals, two.marginals)
    np.testing.assert_array_equal(one.mode, two.mode)
    np.testing.assert_array_equal(one.latents["W"].mean, two.latents["W"].mean)
    np.testing.assert_array_equal(one.sample(20, seed=1), two.sample(20, seed=1))
    assert one.diagnostics.reasons == two.diagnostics.reasons


@pytest.mark.slow
def test_tasks_repeat_exactly_and_other_seeds_differ(study, tmp_path):
    folder, _ = study
    saved = {}
    for path in (folder / "tasks").iterdir():
        record = json.loads(path.read_text())
        saved[record["name"]] = record["rows"]
    by_seed = [{task.name: task for task in STUDY.tasks("smoke", seed)} for seed in (0, 1)]
    for method in ("collapsed", "map"):
        name = f"{method}, {GRID.hard[0] if method == 'collapsed' else GRID.known[0]}, simulation 1"
        assert (
            json.loads(json.dumps(STUDY.run_task(by_seed[0][name].config, tmp_path)))
            == (saved[name])
        )
        assert STUDY.run_task(by_seed[1][name].config, tmp_path) != saved[name]


def test_the_smoke_size_needs_no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("PERMVI_DATA", str(tmp_path))
    network.cache_clear()
    assert len(network("stand_in").names) == 40
