"""Tests of models against data: their p-values, their verdicts and where they are shown."""

import itertools
import json
import math
import re
from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2, kstest
from typer.testing import CliRunner

import permvi as pv
from benchmarks import model_check
from permvi import cli
from permvi.models import _dynamics_arguments, _predictive
from permvi.models.graphs import _disagreement
from permvi.posterior import Latent, ModelCheck, load
from permvi.posterior.predictive import LEVEL, combined

pytestmark = pytest.mark.filterwarnings("ignore::permvi.FitWarning")


def test_residuals_of_a_right_model_have_uniform_p_values(rng):
    found = [
        _predictive.residual_tests(
            rng.standard_normal((1, 2, 6, 3)), known_scale=True, what="residuals", features="abc"
        ).tests
        for _ in range(150)
    ]
    for tests in zip(*found, strict=True):
        p_values = np.array([test.p_value for test in tests])
        # The mean test takes the worst of three features, which is a little conservative.
        assert kstest(p_values, "uniform", alternative="greater").pvalue > 1e-3
        assert (p_values < 0.1).mean() <= 0.1 + 3 * math.sqrt(0.09 / 150)


def test_averaging_over_draws_is_undone():
    # Statistic a + b with b resampled from its law: the average keeps a, half the variance.
    rng = np.random.default_rng(3)
    p_values = []
    for _ in range(400):
        draws = 20 + rng.standard_normal() + rng.standard_normal(200)
        value = _predictive.averaged(draws, 20, 2.0)
        p_values.append(chi2.sf((value - 20) ** 2 / 2.0, 1))
    assert kstest(p_values, "uniform").pvalue > 1e-3


def test_p_values_are_combined(rng):
    assert combined([0.02]) == pytest.approx(0.02)
    assert combined([1e-9, 0.5, 0.9]) == pytest.approx(3e-9, rel=0.01)
    together = [combined(list(p)) for p in rng.random((20_000, 4))]
    assert np.mean(np.array(together) < 0.025) == pytest.approx(0.025, abs=0.005)


def test_shared_edges_against_all_graphs():
    # Six pairs of nodes, three edges in each graph: weights exp(w * shared) over all choices.
    w, b = 1.3, np.array([1, 1, 1, 0, 0, 0])
    graphs = [a for a in itertools.product((0, 1), repeat=6) if sum(a) == 3]
    weights = np.exp([w * np.dot(a, b) for a in graphs])
    counts = np.array([np.dot(a, b) for a in graphs])
    law = np.array([weights[counts == k].sum() for k in range(4)]) / weights.sum()
    for k in range(4):
        a = np.array(next(a for a in graphs if np.dot(a, b) == k))
        test = _disagreement(a[None], b[None], np.ones((1, 6), bool), w, flips=False).tests[0]
        assert test.p_value == pytest.approx(law[law <= law[k] * (1 + 1e-9)].sum(), rel=1e-9)


def test_flipped_edges_against_all_graphs():
    f, b = 0.2, np.array([1, 1, 0, 0, 0])
    graphs = np.array(list(itertools.product((0, 1), repeat=5)))
    counts = (graphs != b).sum(axis=1)
    weights = f**counts * (1 - f) ** (5 - counts)
    law = np.bincount(counts, weights)
    w = 2 * math.log((1 - f) / f)
    for a, k in zip(graphs, counts, strict=True):
        test = _disagreement(a[None], b[None], np.ones((1, 5), bool), w, flips=True).tests[0]
        assert test.p_value == pytest.approx(law[law <= law[k] * (1 + 1e-9)].sum(), rel=1e-9)
    # Never below a level more often than the level says.
    tests = [_disagreement(a[None], b[None], np.ones((1, 5), bool), w, flips=True) for a in graphs]
    p = np.array([found.tests[0].p_value for found in tests])
    for level in (0.01, 0.05, 0.2):
        assert weights[p <= level].sum() <= level


def points(rng, n=20, fault=None):
    centers = rng.normal(size=(n, 2))
    noise = rng.normal(size=(n, 2))
    observed = centers[rng.permutation(n)] + 0.1 * noise
    if fault == "shift":
        observed += [0.15, 0]
    if fault == "outlier":
        observed[3] += 0.8
    scale = {"small": 0.05, "large": 0.2}.get(fault, 0.1)
    names = [f"p{k}" for k in range(n)]
    return pv.models.PointMatching(observed, centers, scale, labels=(names, None))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("small", "residuals are 2(.\\d)? times as large"),
        ("large", "residuals are 0.[4-6]\\d? times as large"),
        (
            "shift",
            "residuals are shifted by \\+1(.\\d)? standard deviations of the noise in feature 0",
        ),
        ("outlier", "item 'p3' is .* standard deviations away"),
    ],
)
def test_wrong_points_are_found_and_said(rng, fault, words):
    model = points(rng, fault=fault)
    found = pv.fit(model, "linear").check(model)
    assert found.verdict == "does not fit"
    assert any(re.search(words, reason) for reason in found.reasons), found.reasons


def test_right_points_fit(rng):
    wrong = 0
    for _ in range(25):
        model = points(rng, n=7)
        wrong += pv.fit(model).check(model).verdict != "fits"
    # At most 3 % each, so four in 25 have a probability of .6 %.
    assert wrong <= 3


def test_heavy_tails_and_an_unknown_scale(rng):
    centers = rng.normal(size=(8, 2))
    perm = rng.permutation(8)
    for noise, verdict in (
        (rng.normal(size=(8, 2)), "fits"),
        (4 * np.eye(8)[:, :2], "does not fit"),
    ):
        model = pv.models.PointMatching(centers[perm] + 0.02 * noise, centers, 0.02, "student_t")
        checked = pv.fit(model).check(model)
        assert len(checked.p_values) == 4
        assert (checked.verdict == "fits") or verdict != "fits"
    model = pv.models.PointMatching(centers[perm] + 0.1 * rng.normal(size=(8, 2)), centers, None)
    found = pv.fit(model).check(model)
    assert "size of the residuals" not in found.p_values
    assert found.verdict == "fits"


def test_graphs_with_gaussian_noise_or_of_zeros_and_ones(rng):
    n, order = 8, rng.permutation(8)
    W = rng.normal(size=(n, n))
    observed = W[np.ix_(order, order)] + 0.3 * rng.normal(size=(n, n))
    for scale, verdict in ((0.3, "fits"), (0.15, "does not fit"), (0.6, "does not fit")):
        model = pv.models.GraphMatching.gaussian(observed, W, scale)
        assert pv.fit(model, "exact").check(model).verdict == verdict
    weighted = pv.models.GraphMatching(observed, W)
    assert "weighted edges" in pv.fit(weighted, "exact").check(weighted).reasons[0]
    upper = np.triu(rng.random((30, 30)) < 0.4, 1)
    B = (upper | upper.T).astype(float)
    flipped = np.triu(rng.random((30, 30)) < 0.02, 1)
    A = np.abs(B - (flipped | flipped.T))
    known = np.where(np.arange(30) < 24, np.arange(30), -1)
    right = math.log(0.98 / 0.02)
    for factor, verdict in ((1.0, "fits"), (0.5, "does not fit"), (2.0, "does not fit")):
        model = pv.models.GraphMatching(A, B, factor * right, known=known)
        assert pv.fit(model, "exact").check(model).verdict == verdict
    for probability, verdict in ((0.02, "fits"), (0.002, "does not fit"), (0.1, "does not fit")):
        model = pv.models.GraphMatching.flips(A, B, probability, known=known)
        assert pv.fit(model, "exact").check(model).verdict == verdict
    # Edges that were lost only: a graph observed in part, which fits the plain model.
    A = B * np.triu(rng.random((30, 30)) > 0.2, 1)
    A = A + A.T
    plain = pv.models.GraphMatching(A, B, 3.0, known=known)
    assert pv.fit(plain, "exact").check(plain).verdict == "fits"
    model = pv.models.GraphMatching.flips(A, B, 1 / (1 + math.exp(3.0)), known=known)
    found = pv.fit(model, "exact").check(model)
    assert found.verdict == "does not fit"
    assert "more than the 20.6 that the probability of a flip predicts" in found.reasons[0]


def mallows(rng, n, judges, thetas):
    orders = []
    for theta in np.resize(thetas, judges):
        left, order = list(range(n)), []
        while left:
            weights = np.exp(-theta * np.arange(len(left)))
            order.append(left.pop(rng.choice(len(left), p=weights / weights.sum())))
        orders.append(order)
    return pv.models.Rankings(np.array(orders))


def test_judges_who_guess_are_found(rng):
    model = mallows(rng, 7, 40, [1.0])
    assert pv.fit(model).check(model).verdict == "fits"
    model = mallows(rng, 7, 40, [2.0, 2.0, 2.0, 0.0])
    found = pv.fit(model).check(model)
    assert found.verdict == "does not fit"
    assert "vary more than one dispersion allows" in found.reasons[0]


def test_choices_have_the_probabilities_of_the_model(rng):
    true, thetas, num = np.array([2, 0, 1, 3]), np.array([1.2, 0.3, 0.0, 0.7]), 40_000
    drawn = _predictive.draw_choices(np.tile(true, (num, 1)), thetas, rng)
    found = Counter(map(tuple, drawn.tolist()))
    for ranks in itertools.permutations(range(4)):
        p, left = 1.0, list(np.argsort(true))
        for place, item in enumerate(np.argsort(ranks)):
            weights = np.exp(-thetas[place] * np.arange(len(left)))
            p *= weights[left.index(item)] / weights.sum()
            left.remove(item)
        assert found[ranks] / num == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / num))


def saved_by_listing(levels):
    """The share of contradicted pairs that a second order saves, over all orders and splits."""
    distances = []
    for place in itertools.permutations(range(levels.shape[1])):
        pairs = itertools.combinations(range(levels.shape[1]), 2)
        wrong = [
            (levels[:, a] >= 0) & (levels[:, b] >= 0)
            & ((levels[:, a] - levels[:, b]) * (place[a] - place[b]) < 0)
            for a, b in pairs
        ]  # fmt: skip
        distances.append(np.sum(wrong, axis=0))
    distances = np.array(distances)
    one = distances.sum(axis=1).min()
    two = min(np.minimum(d, distances).sum(axis=1).min() for d in distances)
    return (one - two) / max(one, 1)


def test_what_a_second_order_saves_against_all_orders(rng):
    sets = np.stack([rng.permuted(np.tile(np.arange(4), (9, 1)), axis=1) for _ in range(30)])
    sets[:, 5:] //= 2
    sets[:, 3:5, 1] = -1
    found = _predictive.saved_by_two(sets)
    best = np.array([saved_by_listing(each) for each in sets])
    assert (found <= best + 1e-6).all()
    # Groups of random judges are hard to find; those of judges who agree are not.
    assert (found > 0.75 * best).all()
    sets[:, ::2] = sets[:, :1]
    sets[:, 1::2] = sets[:, 1:2]
    np.testing.assert_allclose(
        _predictive.saved_by_two(sets), [saved_by_listing(each) for each in sets], atol=1e-6
    )


@pytest.mark.parametrize("form", ["complete", "best", "some", "ties"])
def test_groups_of_judges_are_found(rng, form):
    true = np.tile(np.arange(8), (60, 1))
    ranks = _predictive.draw_choices(true, np.ones(1), rng).astype(float)
    hidden = rng.permuted(true, axis=1) > 4
    for given, verdict in ((ranks, "fits"), (ranks.copy(), "does not fit")):
        if verdict != "fits":
            given[:20] = given[:20][:, [3, 6, 0, 7, 2, 5, 1, 4]]
        if form == "best":
            given = np.minimum(given, 4)
        elif form == "ties":
            given = given // 2
        elif form == "some":
            given[hidden] = np.nan
        model = pv.models.Rankings.from_ranks(given)
        found = pv.fit(model).check(model)
        assert found.verdict == verdict
        again = pv.rank(model).posterior.model_check
        assert again.verdict == verdict
    words = "judges seem to form groups: two orders contradict"
    assert any(
        words in reason and "permvi.rank(..., groups=2)" in reason for reason in found.reasons
    )
    assert any(
        words in reason and "(groups=2 looks for them)" in reason for reason in again.reasons
    )


def test_comparisons_do_not_tell_groups(rng):
    games = [("A", "B", 30), ("B", "A", 30), ("B", "C", 20), ("C", "B", 9)]
    model = pv.models.Rankings.from_comparisons(games)
    assert "groups of judges" not in pv.fit(model).check(model).p_values
    # Two judges who disagree say nothing of groups.
    model = pv.models.Rankings([["A", "B", "C"], ["C", "B", "A"]])
    assert pv.fit(model).check(model).verdict == "fits"


def test_innovations(rng):
    n, support = 5, np.ones((5, 5), bool)
    W = 0.3 * rng.normal(size=(n, n))

    def recording(noise, W=W):
        y = np.zeros((301, n))
        for t in range(300):
            y[t + 1] = W @ y[t] + noise[t]
        return y

    white = rng.normal(size=(300, n))
    coloured = white + 0.6 * np.roll(white, 1, axis=0)
    heavy = rng.standard_t(3, size=(300, n))
    # Unit noise of both kinds and weights of .9 on the diagonal have a steady gain of .597.
    noisy = recording(white, 0.9 * np.eye(n)) + rng.normal(size=(301, n))
    known = np.array([0, 1, 2, -1, -1])
    degrees, gain = Latent(np.array(3.0), np.zeros(())), Latent(np.array(0.6), np.zeros(()))
    nowhere = np.zeros((n, n))
    for activity, scale, latents, words in (
        (recording(white), 1.0, {}, ""),
        (recording(white), 2.0, {}, "innovations are 0.5"),
        (recording(coloured), None, {}, "not white"),
        (recording(heavy), None, {}, "heavier tails"),
        (recording(heavy), None, {"innovation_degrees": degrees}, ""),
        (noisy, None, {"filter_gain": gain}, ""),
        (noisy, None, {}, "not white"),
        (recording(white), 1.0, {"edges": Latent(support, nowhere)}, ""),
        (recording(white), 1.0, {"edges": Latent(nowhere, nowhere)}, "innovations are"),
    ):
        model = pv.models.SharedDynamics(
            activity, support, weight_scale=0.3, noise_scale=scale, known=known
        )
        tests = model.predictive_tests(np.tile(np.arange(n), (20, 1)), latents).tests
        worst = min(tests, key=lambda test: test.p_value)
        assert (combined([test.p_value for test in tests]) > LEVEL) == (not words)
        assert words in worst.words
    sums = pv.models.SharedDynamics.from_statistics(
        model.C0, model.C1, model.squares, model.num_steps, support, known=known
    )
    assert "without recordings" in sums.predictive_tests(known[None], {})


def test_weights_are_drawn_from_their_posterior(rng):
    support = np.triu(np.ones((3, 3), bool))
    y = rng.normal(size=(20, 3))
    model = pv.models.SharedDynamics(y, support, weight_scale=0.5, noise_scale=0.8)
    draws = np.array(
        [_dynamics_arguments.draw_weights(model, np.arange(3)[None], rng) for _ in range(4000)]
    )
    X = y[:-1, 1:]  # neuron 1 hears neurons 1 and 2
    precision = X.T @ X / 0.64 + np.eye(2) / 0.25
    mean = np.linalg.solve(precision, X.T @ y[1:, 1] / 0.64)
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(
        draws[:, 1, 1:].mean(0), mean, atol=4 * math.sqrt(covariance.max() / 4000)
    )
    np.testing.assert_allclose(np.cov(draws[:, 1, 1:].T), covariance, rtol=0.15, atol=2e-3)
    assert not draws[:, ~support].any()


def test_what_cannot_be_checked_says_so(rng):
    table = pv.models.LinearMatching(rng.normal(size=(4, 4)))
    found = pv.fit(table).check(table)
    assert found.verdict == "no check"
    assert str(found) == "no check for a plain table of scores"
    model = points(rng, n=6)
    assert "best matching" in pv.fit(model, "map").check(model).reasons[0]
    with pytest.raises(ValueError, match="model must be the one that was fitted"):
        pv.fit(model).check(points(rng, n=6))


def test_the_check_is_saved_and_shown(rng, tmp_path):
    model = points(rng, fault="small")
    posterior = pv.fit(model, "linear")
    assert posterior.model_check is None
    found = posterior.check(model)
    posterior.save(tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    assert again.model_check == found
    assert isinstance(again.model_check, ModelCheck)
    assert "does not fit" in repr(posterior)
    page = again.report(tmp_path / "fit.html").read_text()
    assert "Model does not fit" in page
    assert page.index('id="verdict"') < page.index('id="model"')
    for name, array in (("seen", model.observations), ("atlas", model.centers)):
        lines = [f"q{k},{x},{y}" for k, (x, y) in enumerate(array)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,x,y", *lines]) + "\n")
    files = [str(tmp_path / "seen.csv"), str(tmp_path / "atlas.csv"), "--scale", "0.05"]
    shown = CliRunner().invoke(cli.app, ["match", *files]).output.splitlines()
    assert any(line.startswith("model: does not fit (residuals are 2") for line in shown)
    as_json = json.loads(CliRunner().invoke(cli.app, ["match", *files, "--json"]).output)
    assert as_json["verdict"] == "trust"
    assert as_json["model"]["verdict"] == "does not fit"


@pytest.mark.parametrize("kind", model_check.KINDS)
def test_the_benchmark_of_the_check_runs(kind):
    size = {
        "points": (5, 2, 0.1), "ambiguous": (5, 2, 0.5), "graphs": (5, 0.1),
        "whole_graphs": (5, 0.1), "flips": (5, 0.1), "whole_flips": (5, 0.1), "rankings": (4, 5),
        "judges": (4, 5, "ties"), "partial_judges": (4, 5, "some items"),
        "dynamics": (4, 50),
    }[kind]  # fmt: skip
    for fault in model_check.KINDS[kind][2]:
        row = model_check.measure(kind, size, fault, 1)
        assert 0 <= row["does_not_fit"] + row["no_check"] <= 1
        assert row["wrong"] == (fault or "nothing")


def test_a_list_of_pairs_is_not_made_a_table_for_the_check(monkeypatch):
    def refuse(self):
        raise MemoryError("a table of all pairs")

    model = pv.models.SparseMatching([0, 1], [0, 1], [1.0, 2.0], (2, 2))
    posterior = pv.fit(model)
    monkeypatch.setattr(pv.models.SparseMatching, "scores", property(refuse))
    assert str(posterior.check(model)) == "no check for a plain table of scores"
