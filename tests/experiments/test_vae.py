"""The study: resumed after kills, its files, its table, its settings."""

import json
import random
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from permvi import cli
from permvi.experiments.runner import Study, Task, run_study
from permvi.experiments.vae import images, settings, study, task, training

RESULTS = Path(__file__).parents[2] / "results" / "vae" / "summary.json"
RUNS = [
    {"method": method, "schedule": "tuned", "pixels": pixels, "seed": seed}
    for method, pixels in (("gumbel_softmax", "grey"), ("concrete", "binary"))
    for seed in (0, 1)
]
# Small enough to train in a moment, in one program for all tests of this file.
CONFIG = {
    "family": "concrete",
    "objective": "categorical_kl",
    "images": "generated",
    "latents": 3,
    "categories": 4,
    "widths": [8],
    "batch": 10,
    "steps": 240,
    "every": 20,
    "samples": 50,
    "runs": RUNS,
}


class KilledError(Exception):
    pass


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return task.run(CONFIG, tmp_path_factory.mktemp("uninterrupted"))


def kill_at(monkeypatch, where, call):
    """Let the given call of a function be the last thing that happens."""
    original, calls = getattr(*where), []

    def deadly(*args, **kwargs):
        calls.append(None)
        if len(calls) == call:
            raise KilledError
        return original(*args, **kwargs)

    monkeypatch.setattr(*where, deadly)


def test_five_kills_change_nothing(tmp_path, uninterrupted):
    rng = random.Random(7)
    places = [(training, "advance"), (training, "save_checkpoint"), (np, "savez")]
    for _ in range(5):
        with pytest.MonkeyPatch.context() as patched:
            # Before a stretch of steps, after one that was not saved, or while it is written.
            kill_at(patched, rng.choice(places), rng.randint(1, 3))
            with pytest.raises(KilledError):
                task.run(CONFIG, tmp_path)
    assert (tmp_path / "checkpoint.npz").exists()
    assert task.run(CONFIG, tmp_path) == uninterrupted


def test_a_finished_training_is_not_repeated(tmp_path, uninterrupted, monkeypatch):
    assert task.run(CONFIG, tmp_path) == uninterrupted
    kill_at(monkeypatch, (training, "advance"), 1)
    assert task.run(CONFIG, tmp_path) == uninterrupted


def test_checkpoints_hold_plain_arrays_and_misfits_are_passed_over(tmp_path):
    design = training.Design("concrete", "categorical_kl", 2, 3, (4,), 5, 10)
    state = training.start(design, 6, [0])
    path = tmp_path / "new" / "checkpoint.npz"
    assert training.load_checkpoint(path, state) is None
    training.save_checkpoint(path, training.Checkpoint(7, state, np.array([[1.5]])))
    with np.load(path, allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
    found = training.load_checkpoint(path, state)
    assert (found.step, found.curve.tolist()) == (7, [[1.5]])
    np.testing.assert_array_equal(
        found.state.params.encoder.layers[0].weight, state.params.encoder.layers[0].weight
    )
    assert training.load_checkpoint(path, training.start(design, 6, [0, 1])) is None
    path.write_bytes(path.read_bytes()[:200])
    assert training.load_checkpoint(path, state) is None


def test_runs_learn_and_differ_by_seed(uninterrupted):
    scores = [row for row in uninterrupted if row["kind"] == "score"]
    assert len({row["negative_elbo"] for row in scores}) == len(RUNS)
    assert all(row["iw_nll"] < row["negative_elbo"] for row in scores)
    curve = [row["value"] for row in uninterrupted if row["kind"] == "curve"]
    for index in range(len(RUNS)):
        own = curve[index :: len(RUNS)]
        assert len(own) == 12
        # From untrained to the mean image, at least; a point is the mean of 200 images.
        assert own[-1] > own[0] + 10


def test_files_and_summary(tmp_path):
    def tasks(size, seed):
        return [Task("tiny", CONFIG)]

    tiny = Study("vae", tasks, study.run_task, study.finish)
    result = run_study(tiny, tmp_path, size="smoke", seed=0, progress=lambda *args: None)
    names = {path.name for path in result.files}
    assert {"rows.csv", "summary.json", "figure5.png", "training_curves.png"} <= names
    assert "prior_samples.png" in names
    assert all(path.stat().st_size > 0 for path in result.files)
    summary = json.loads((tmp_path / "summary.json").read_text())
    first = summary[0]
    assert (first["method"], first["setting"]) == ("gumbel_softmax", {"pixels": "grey"})
    assert first["n"] == 2
    assert {row["metric"] for row in summary} == {"negative_elbo", "iw_nll"}
    # Made-up images have nothing to do with the paper's.
    assert all(row["paper"] is None for row in summary)
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == 1 + len(RUNS)


@pytest.mark.slow
def test_smoke_size_from_the_command_line(tmp_path):
    done = CliRunner().invoke(cli.app, ["reproduce", "vae", "--out", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.output)
    assert {row["method"] for row in summary} == set(settings.METHODS)


def test_the_reference_schedule_is_that_of_jang_et_al():
    reference = settings.settings_of("gumbel_softmax", "categorical_kl", "reference", "grey")
    rates = [float(reference.rate(jnp.asarray(step))) for step in (0, 999, 1000, 2500)]
    np.testing.assert_allclose(rates, [1e-3, 1e-3, 9e-4, 8.1e-4], rtol=1e-6)
    for step in (0, 10_000, 20_000, 40_000):
        expected = max(0.5, np.exp(-3e-5 * step))
        found = float(reference.temperature(jnp.asarray(step / 50_000)))
        assert found == pytest.approx(expected, rel=5e-3)
    assert float(reference.kl_weight(jnp.asarray(0.0))) == 1


def test_every_comparison_has_its_tasks():
    tasks = study.tasks("paper", 0)
    runs = [(run, task.config) for task in tasks for run in task.config["runs"]]
    main = {(run["method"], config["objective"], run["schedule"]) for run, config in runs}
    for method in settings.METHODS:
        for objective in ("relaxed_elbo", "categorical_kl"):
            assert (method, objective, "reference") in main
            assert (method, objective, "tuned") in main
        assert (method, settings.BEST[method], "tuned") in main
    assert len({task.key for task in tasks}) == len(tasks)


def test_without_equinox_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs Equinox.*pip install 'permvi\[vae\]'"):
        study.tasks("smoke", 0)


def test_generated_digits_are_all_different_digits():
    made = images.load("generated")
    assert made.train.dtype == np.uint8
    assert set(made.test_labels) == set(range(10))
    assert len(np.unique(made.train, axis=0)) == len(made.train)


@pytest.mark.parametrize(
    ("method", "metric", "most"),
    [
        ("gumbel_softmax", "iw_nll", 106.7),
        ("concrete", "iw_nll", 111.5),
        ("rounding", "iw_nll", 121.1),
        ("stick_breaking", "iw_nll", 119.8),
        ("gumbel_softmax", "negative_elbo", 104),
        ("stick_breaking", "negative_elbo", 107),
        ("concrete", "negative_elbo", 111.5),
        ("rounding", "negative_elbo", 121.1),
    ],
)
def test_the_committed_results_are_as_good_as_the_paper(method, metric, most):
    (row,) = (
        row
        for row in json.loads(RESULTS.read_text())
        if (row["method"], row["metric"], row["setting"]) == (method, metric, {"pixels": "grey"})
    )
    assert (row["n"], row["paper"]) == (3, settings.PAPER[method])
    assert row["mean"] <= most
