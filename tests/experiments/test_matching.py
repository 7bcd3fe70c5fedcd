"""The matching study at smoke size, held against wide but real ranges, and its parts."""

import itertools
import json
import math

import numpy as np
import pytest
from PIL import Image

from permvi import experiments, metrics
from permvi.experiments.matching import STUDY, methods, plan, problems, summary

LIMITS = {
    # method: (lowest, highest) mean Hellinger distance at each sigma, of four problems.
    "rounding": [(0, 0.2), (0.02, 0.45), (0.1, 0.55), (0.15, 0.6)],
    "stick_breaking": [(0, 0.2), (0.01, 0.4), (0.1, 0.55), (0.15, 0.6)],
    "mallows_0.1": [(0.9, 1), (0.85, 1), (0.8, 1), (0.7, 1)],
    "mallows_1": [(0.4, 0.7), (0.4, 0.7), (0.45, 0.75), (0.5, 0.85)],
    "mallows_10": [(0, 0.3), (0.05, 0.5), (0.3, 0.75), (0.5, 0.9)],
    "sequential": [(0, 0.004), (0, 0.02), (0, 0.04), (0, 0.05)],
    "corrected": [(0, 1e-3)] * 4,
    "swor": [(0, 0.002), (0, 0.002), (0, 0.01), (0, 0.1)],
    "sinkhorn": [(0, 0.2), (0.02, 0.5), (0.1, 0.7), (0.2, 0.9)],
    "naive": [(0, 0.3), (0, 0.5), (0.05, 0.8), (0.05, 0.8)],
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matching")
    return folder, experiments.run("matching", folder)


@pytest.mark.slow
def test_the_numbers_are_in_their_ranges(study):
    _, result = study
    found = {
        (row["method"], row["setting"]["sigma"]): row
        for row in result.summary
        if row["metric"] == "hellinger" and "orders" not in row["setting"]
    }
    for method, limits in LIMITS.items():
        for sigma, (lowest, highest) in zip(problems.SIGMAS, limits, strict=True):
            row = found[method, sigma]
            assert row["n"] == 4
            assert row["setting"]["n"] == 6
            assert lowest <= row["mean"] <= highest, (method, sigma, row["mean"])
    for method in ("rounding_paper", "stick_breaking_paper", "bethe", "map"):
        assert all(0 <= found[method, sigma]["mean"] <= 1 for sigma in problems.SIGMAS)
    # A fifth of what the relaxations miss, and less.
    for sigma in problems.SIGMAS[1:]:
        assert found["sequential", sigma]["mean"] < found["rounding", sigma]["mean"] / 5
    assert found["rounding", 0.5]["paper"] == 0.32
    assert found["mallows_5_exact", 0.75]["paper"] == 0.72
    assert found["sequential", 0.5]["paper"] is None


@pytest.mark.slow
def test_mallows_rows_are_those_of_an_independent_enumeration(study):
    folder, _ = study
    rows = _rows(folder)
    for sigma, repetition in itertools.product(problems.SIGMAS, range(4)):
        problem = problems.draw(6, sigma, 0, repetition)
        y, c = np.asarray(problem.model.observations), np.asarray(problem.model.centers)
        log_p, perms = [], list(itertools.permutations(range(6)))
        for perm in perms:
            log_p.append(-sum(((y[i] - c[j]) ** 2).sum() for i, j in enumerate(perm)))
        p = np.exp((np.array(log_p, np.float64) - max(log_p)) / (2 * sigma**2))
        p /= p.sum()
        best = perms[int(np.argmax(p))]
        for theta in methods.THETAS:
            q = np.array(
                [
                    math.exp(-theta * sum(abs(a - b) for a, b in zip(perm, best, strict=True)))
                    for perm in perms
                ]
            )
            q /= q.sum()
            expected = math.sqrt(max(0.0, 1 - np.sqrt(p * q).sum()))
            value = rows[f"mallows_{theta:g}_exact", sigma, repetition, "hellinger"]
            assert value == pytest.approx(expected, abs=1e-6)
            # Counts of 2000 draws lie a little off.
            chain = rows[f"mallows_{theta:g}", sigma, repetition, "hellinger"]
            assert chain == pytest.approx(expected, abs=0.12)


@pytest.mark.slow
def test_the_masses_of_figure_2_are_probabilities(study):
    folder, _ = study
    rows = _rows(folder)
    names = [*range(1, plan.NUM_SHOWN + 1), "rest"]
    for sigma in problems.SIGMAS:
        true = [rows["sequential", sigma, 0, f"true_mass_{name}"] for name in names]
        assert sum(true) == pytest.approx(1)
        assert true[:-1] == sorted(true[:-1], reverse=True)
        for method in ("rounding", "mallows_1", "sequential"):
            found = [rows[method, sigma, 0, f"mass_{name}"] for name in names]
            assert sum(found) == pytest.approx(1)
        close = [rows["sequential", sigma, 0, f"mass_{name}"] for name in names]
        assert 0.5 * np.abs(np.subtract(true, close)).sum() < 0.05


@pytest.mark.slow
def test_files_figures_and_tables(study):
    folder, result = study
    wanted = ["rows.csv", "summary.json", "tables.md"]
    wanted += [f"{name}.{form}" for name in ("figure2", "error_cost", "ordering")
               for form in ("png", "pdf")]  # fmt: skip
    assert sorted(path.name for path in result.files) == sorted(wanted)
    assert all(path.stat().st_size > 0 for path in result.files)
    for name in ("figure2", "error_cost", "ordering"):
        with Image.open(folder / f"{name}.png") as image:
            assert min(image.size) > 800
            assert np.mean(np.asarray(image.convert("L")) < 250) > 0.01
    assert json.loads((folder / "summary.json").read_text()) == result.summary
    titles = [table.title for table in result.tables]
    assert titles[0].startswith("Table 1")
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    beyond = {row["method"] for row in result.summary if row["setting"]["n"] == 10}
    assert beyond == {"sinkhorn", "bethe", "naive", "map"}


def test_the_paper_size_has_all_methods_and_repetitions():
    listed = [task.config for task in STUDY.tasks("paper", 0)]
    table = [config for config in listed if config["part"] == "table"]
    assert {config["method"] for config in table} == set(methods.RUNNERS)
    for name in methods.RUNNERS:
        for sigma in problems.SIGMAS:
            spans = [
                range(*config["repetitions"])
                for config in table
                if (config["method"], config["sigma"]) == (name, sigma)
            ]
            assert sorted(k for span in spans for k in span) == list(range(200))


@pytest.mark.slow
def test_tasks_repeat_exactly_and_other_seeds_differ(study, tmp_path):
    folder, _ = study
    saved = {json.loads(p.read_text())["name"]: json.loads(p.read_text())["rows"]
             for p in (folder / "tasks").iterdir()}  # fmt: skip
    names = ("swor sigma 0.5", "map sigma 0.5", "rounding sigma 0.5", "mallows sigma 0.5")
    chosen = [task for task in STUDY.tasks("smoke", 0) if task.name.startswith(names)]
    assert len(chosen) == 4
    for task in chosen:
        assert STUDY.run_task(task.config, tmp_path) == saved[task.name]
    other = next(t for t in STUDY.tasks("smoke", 1) if t.name.startswith("map sigma 0.5"))
    assert STUDY.run_task(other.config, tmp_path) != saved[other.name]


def test_pilot_problems_are_others():
    evaluated = problems.draw(6, 0.5, 0, 0).model
    pilot = problems.draw(6, 0.5, 0, 0, "pilot").model
    assert not np.allclose(np.asarray(evaluated.centers), np.asarray(pilot.centers))


def test_problems_are_drawn_as_described():
    drawn = [problems.draw(6, 0.25, 7, k) for k in range(400)]
    centers = np.array([np.asarray(problem.model.centers) for problem in drawn])
    noise = np.array(
        [np.asarray(p.model.observations) - np.asarray(p.model.centers)[p.truth] for p in drawn]
    )
    count = centers.size
    assert abs(centers.mean()) < 4 / math.sqrt(count)
    assert abs(centers.var() - 1) < 4 * math.sqrt(2 / count)
    assert abs(noise.std() / 0.25 - 1) < 4 / math.sqrt(2 * count)
    assert len({tuple(problem.truth) for problem in drawn}) > 200


def test_the_exact_posterior_by_another_way():
    problem = problems.draw(6, 0.5, 3, 1)
    exact = problems.Exact(problem)
    posterior = pytest.importorskip("permvi").fit(problem.model, "exact")
    perms = np.asarray(exact.perms)
    np.testing.assert_allclose(np.exp(posterior.log_prob(perms)), exact.probabilities, atol=1e-6)
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-6)


def test_other_orders_are_the_same_problem():
    problem = problems.draw(6, 0.5, 0, 2)
    again = plan._reordered(problem, 0, 2, 3)
    own, other = problems.Exact(problem).probabilities, problems.Exact(again).probabilities
    np.testing.assert_allclose(np.sort(own), np.sort(other), atol=1e-9)
    scores, shuffled = problems.scores(problem.model), problems.scores(again.model)
    true = scores[np.arange(6), problem.truth].sum()
    assert shuffled[np.arange(6), again.truth].sum() == pytest.approx(true, rel=1e-5)
    assert plan._reordered(problem, 0, 2, 0) is problem


def test_the_papers_bounds_are_the_papers():
    _, options = methods.OPTIONS["rounding_paper"]
    assert options["scale_bounds"] == (0.1, 0.5)
    assert options["learning_rate"] == 0.1
    assert options["temperature"] < 1
    assert methods.OPTIONS["rounding"][1]["temperature"] <= 1
    assert summary.reported("stick_breaking_paper", 0.75) == 0.55
    assert summary.reported("mcmc", 0.75) is None


@pytest.mark.slow
def test_hellinger_distances_are_those_of_the_rows(study):
    folder, _ = study
    problem = problems.draw(6, 0.5, 0, 1)
    best = np.zeros(720)
    exact = problems.Exact(problem)
    best[np.argmax(exact.probabilities)] = 1
    value = _rows(folder)["map", 0.5, 1, "hellinger"]
    assert value == pytest.approx(float(metrics.hellinger(exact.probabilities, best)), abs=1e-9)


def _rows(folder):
    found = {}
    for path in (folder / "tasks").iterdir():
        for row in json.loads(path.read_text())["rows"]:
            if row["part"] == "table":
                key = (row["method"], row["sigma"], row["repetition"], row["metric"])
                found[key] = row["value"]
    return found
