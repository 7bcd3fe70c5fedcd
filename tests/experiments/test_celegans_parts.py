"""The parts of the worm study: its plan, its worms, what is scored and how it is summed up."""

import dataclasses
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from permvi import metrics
from permvi.experiments._worms import Worms, candidates
from permvi.experiments.celegans import STUDY, problems, scoring, summary
from permvi.experiments.celegans.problems import STAND_IN_SIZE, network
from permvi.experiments.celegans.settings import GRIDS, KNOWN, METHODS, TOLERANCES, Setting
from permvi.posterior import Latent, Posterior

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "paper_numbers.json"


def config_of(setting, repetition=0):
    return {"size": "smoke", "setting": setting.public(), "seed": 0, "repetition": repetition}


def test_the_paper_size_has_all_settings_methods_and_simulations():
    tasks = STUDY.tasks("paper", 0)
    assert len({task.key for task in tasks}) == len(tasks)
    fits = Counter(
        (task.config["method"], Setting.of(task.config["setting"]))
        for task in tasks
        if task.config["part"] == "fit"
    )
    paper_settings = [
        *(Setting(*pair) for pair in itertools.product(TOLERANCES, (1, 4, 5))),
        *(Setting(tolerance, 4, known) for tolerance in (0.05, 0.1) for known in KNOWN),
    ]
    for method, setting in itertools.product(METHODS["paper"], paper_settings):
        assert fits[method, setting] == (10 if method == "collapsed" else 5)
    for worms in (1, 5):
        assert fits["collapsed", Setting(1.0, worms)] == 10
        assert fits["collapsed", Setting(0.05, worms, T=400)] == 10
        for T in (200, 100):
            assert fits["collapsed", Setting(0.05, worms, T=T)] == 5
        for known in (10, 0):
            assert fits["collapsed", Setting(1.0, worms, known)] == 5
        for variant in ("unobserved", "wrong_edges", "nonlinear"):
            assert fits["collapsed", Setting(0.05, worms, variant=variant)] == 5
    assert {method for method, setting in fits if setting.variant or setting.T < 1000} == {
        "collapsed"
    }
    order = list(dict.fromkeys(task.config.get("method") for task in tasks))
    assert order.index("rounding") > max(map(order.index, ("collapsed", "map", "naive", "mcmc")))


def test_settings_are_told_without_an_empty_variant():
    setting = Setting(0.05, 5)
    assert setting.public() == {"tolerance": 0.05, "worms": 5, "known": 25, "T": 1000}
    other = setting._replace(variant="nonlinear")
    assert other.public()["variant"] == "nonlinear"
    assert Setting.of({**other.public(), "method": "map"}) == other
    assert str(other).endswith("nonlinear")


def test_the_papers_values_are_those_of_the_reference():
    assert summary.reported("rounding_temperature_1", Setting(0.02, 5)) == 0.70
    assert summary.reported("rounding", Setting(0.1, 4, 83)) == 0.83
    assert summary.reported("mcmc", Setting(0.02, 1)) is None
    assert summary.reported("collapsed", Setting(0.02, 1)) is None
    assert summary.reported("rounding", Setting(0.05, 1, T=400)) is None
    assert summary.reported("rounding", Setting(0.05, 1, variant="nonlinear")) is None
    if not REFERENCE.is_file():
        pytest.skip("the reference values are not here")
    printed = json.loads(REFERENCE.read_text())
    by_tolerance = printed["celegans_accuracy_vs_tolerance"]
    names = {"vi": "rounding", "map": "map", "mcmc": "mcmc", "naive_vi": "naive"}
    for key, values in by_tolerance.items():
        name = names.get(key.removesuffix("_many_worms").removesuffix("_one_worm"))
        if name is not None:
            worms = (1,) if key.endswith("_one_worm") else (4, 5)
            for count in worms:
                found = [summary.reported(name, Setting(nu, count)) for nu in TOLERANCES]
                assert found == values
    by_known = printed["celegans_accuracy_vs_known"]
    for nu in (0.05, 0.1):
        wanted = {
            "rounding": by_known[f"vi_tolerance_{nu}"],
            "map": by_known[f"map_tolerance_{nu}"],
            "mcmc": by_known["mcmc_and_naive_vi"],
            "naive": by_known["mcmc_and_naive_vi"],
        }
        for name, values in wanted.items():
            assert [summary.reported(name, Setting(nu, 4, known)) for known in KNOWN] == values


def test_the_stand_in_looks_like_a_connectome():
    graph = network("stand_in")
    assert len(graph.names) == len(set(graph.names)) == STAND_IN_SIZE
    np.testing.assert_array_equal(graph.adjacency, graph.adjacency.T)
    assert not graph.adjacency.diagonal().any()
    degrees = graph.adjacency.sum(axis=1)
    assert degrees.min() >= 1
    assert degrees.std() > np.sqrt(degrees.mean())
    np.testing.assert_array_equal(graph.positions, np.round(graph.positions, 2))
    # Most of the real somas are in the head, a good part at the very tail.
    assert (graph.positions < 0.25).mean() > 0.5


def test_worms_of_other_tolerances_are_the_same_worms():
    narrow, wide = (
        problems.draw(config_of(Setting(tolerance, 2, known=5, T=50))) for tolerance in (0.02, 0.1)
    )
    for one, other in zip(narrow.worms, wide.worms, strict=True):
        np.testing.assert_array_equal(one, other)
    assert narrow.model.mask.sum() < wide.model.mask.sum()
    again = problems.draw(config_of(Setting(0.02, 2, known=5, T=50), repetition=1))
    assert not np.array_equal(again.worms.weights, narrow.worms.weights)


def test_the_model_has_what_is_seen_and_candidates_have_the_truth():
    graph, worms, model = problems.draw(config_of(Setting(0.05, 2, known=7, T=50)))
    expected = candidates(worms.positions, graph.positions, 0.05)
    np.testing.assert_array_equal(model.mask, expected)
    assert np.take_along_axis(expected, worms.truth[..., None], axis=-1).all()
    np.testing.assert_array_equal(model.known, worms.known)
    assert ((worms.known >= 0).sum(axis=1) == 7).all()
    np.testing.assert_array_equal(model.support, graph.adjacency)
    assert problems.draw(config_of(Setting(1.0, 2, known=7, T=50))).model.mask is None
    alone = problems.draw(config_of(Setting(0.05, 1, known=7, T=50))).model
    assert alone.mask.shape == (STAND_IN_SIZE, STAND_IN_SIZE)


def test_variants_differ_from_the_models_world():
    usual = Setting(0.1, 1, known=5, T=50)
    plain, fewer, wrong, bent = (
        problems.draw(config_of(usual._replace(variant=variant)))
        for variant in ("", "unobserved", "wrong_edges", "nonlinear")
    )
    assert fewer.worms.truth.shape == (1, round(0.8 * STAND_IN_SIZE))
    assert fewer.model.shape == (32, STAND_IN_SIZE)
    on_edges = plain.worms.weights[~plain.model.support]
    assert not on_edges.any()
    missed = (wrong.worms.weights != 0) & ~wrong.model.support
    share = missed.sum() / (wrong.worms.weights != 0).sum()
    assert 0.05 <= share <= 0.15
    np.testing.assert_array_equal(bent.worms.weights, plain.worms.weights)
    assert not np.allclose(bent.worms.recordings, plain.worms.recordings)


def worms_of(truth, known):
    truth, known = np.array(truth), np.array(known)
    return Worms(np.zeros((len(truth), 2, truth.shape[1])), np.zeros(truth.shape), known, truth,
                 np.zeros((4, 4)))  # fmt: skip


def test_scores_by_hand():
    perms, weights = np.array([[0, 1, 2, 3], [0, 1, 3, 2], [1, 0, 3, 2]]), np.array([0.4, 0.3, 0.3])
    posterior = Posterior.from_draws(perms, np.log(weights), shape=(4, 4))
    worms = worms_of([[0, 2, 3, 1]], [[0, -1, -1, -1]])
    found = scoring.accuracies(posterior, worms)
    # The likeliest names are 0, 1, 3, 2 with probabilities .7, .7, .6, .6.
    assert found["accuracy"] == 0.5
    assert found["accuracy_unknown"] == pytest.approx(1 / 3)
    assert found["accuracy_mode"] == 0.25
    assert found["expected_accuracy"] == pytest.approx((0.7 + 0.6 + 0.6) / 3)
    assert scoring.confidences(posterior, worms) == [
        {"confidence": 0.6, "right": 1, "wrong": 1},
        {"confidence": 0.7, "right": 0, "wrong": 1},
    ]
    entries = (perms[:, :, None] == np.arange(4)).reshape(len(perms), -1)
    variances = weights @ entries - (weights @ entries) ** 2
    assert scoring.variance(posterior) == pytest.approx(variances.sum() / 4)


def test_the_fit_of_dynamics_is_that_of_the_time_steps():
    _, worms, model = problems.draw(config_of(Setting(0.1, 2, known=5, T=50)))
    perms = worms.truth.copy()
    perms[0, :2] = perms[0, 1::-1]
    weights = 0.9 * worms.weights
    W = weights[tuple(model.edges.T)]
    posterior = Posterior.from_draws(
        perms[None], shape=(40, 40), latents={"W": Latent(W, np.zeros_like(W))}
    )
    found = scoring.fit_of_dynamics(posterior, model, worms)
    values = []
    for perm, recording in zip(perms, worms.recordings, strict=True):
        expected = recording[:-1] @ weights[np.ix_(perm, perm)].T
        values.append(stats.norm.logpdf(recording[1:], expected, float(model.noise_scale)))
    assert found["log_likelihood"] == pytest.approx(np.mean(values), rel=1e-5)
    assert found["weight_error"] == pytest.approx(0.1)
    bare = dataclasses.replace(posterior, latents={})
    assert scoring.fit_of_dynamics(bare, model, worms)["weight_error"] is None


def test_confidence_is_pooled_over_fits_and_scored():
    rng = np.random.default_rng(3)
    usual, hard = Setting(0.05, 1), Setting(0.05, 1, T=100)
    confidence = np.round(rng.random(600), 2)
    correct = rng.random(600) < confidence**2
    rows = []
    for k, setting in enumerate((usual, usual, hard)):
        part = slice(200 * k, 200 * (k + 1))
        counts = Counter(zip(confidence[part].tolist(), correct[part].tolist(), strict=True))
        rows += [
            {"part": "confidence", "method": "map", **setting._asdict(), "confidence": level,
             "right": counts[level, True], "wrong": counts[level, False]}
            for level in sorted({level for level, _ in counts})
        ]  # fmt: skip
    found = scoring.confidence_by_setting(rows)
    assert set(found) == {("map", usual), ("map", hard)}
    own = scoring.pooled_confidence(found, [usual])["map"]
    right, wrong = (confidence[:400][correct[:400] == flag] for flag in (True, False))
    above = (right[:, None] > wrong).mean() + 0.5 * (right[:, None] == wrong).mean()
    assert own.auc == pytest.approx(above)
    assert own.error == pytest.approx(
        metrics.calibration_error(confidence[:400], correct[:400]), abs=1e-12
    )
    assert own.error > 0.1
    assert scoring.Confidence(confidence, np.ones(600, bool)).auc is None


def test_every_size_has_every_method_and_its_budget():
    for size, listed in METHODS.items():
        assert list(listed) == list(METHODS["paper"])
        assert GRIDS[size].convergence in GRIDS[size].candidates
        for method in listed.values():
            assert list(method.checkpoints) == sorted(method.checkpoints)
    assert METHODS["paper"]["rounding"].options["temperature"] < 1
    assert METHODS["paper"]["rounding_temperature_1"].options["temperature"] == 1
