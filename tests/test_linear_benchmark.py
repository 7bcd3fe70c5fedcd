"""The benchmark of linear tables: its truths agree with the subset programme, a small run works."""

import csv
import json
import shutil
import time

import numpy as np
import pytest

import permvi as pv
from benchmarks import linear, linear_child, linear_truth, linear_truth_device
from benchmarks.linear_problems import FAMILIES, problem_of
from permvi._cli.csv_tables import read_table
from permvi._cli.match_inputs import Files, Unpaired, model_of_pairs
from permvi.inference.exact import solve_exact


def error_of(true, exact):
    rows = pv.metrics.total_variation_per_row(
        true.marginals, exact.marginals, true.unmatched, exact.p_unmatched_rows
    )
    return rows.mean()


def banded_ring(family, n):
    """A problem of a ring in which only the pairs of its modes are allowed."""
    problem = FAMILIES[family](n, 3)
    back = np.ix_(problem.row_order, problem.col_order)
    i, j = np.indices((n, n))
    mask = np.zeros((n, n), bool)
    mask[back] = np.isin((j - i) % n, {"exchange": [0, 1, 2, 3, n - 1, n - 2]}.get(family, [0, 1, 2]))  # fmt: skip  # noqa: E501
    return problem._replace(mask=mask)


@pytest.mark.parametrize(
    "problem",
    [
        FAMILIES["banded-3"](14, 1),
        FAMILIES["banded-5"](13, 2),
        banded_ring("exchange", 14),
        banded_ring("three", 13),
    ],
)
def test_the_frontier_programme_is_exact(problem):
    true, exact = linear_truth.frontier(problem), solve_exact(**problem.arguments())
    np.testing.assert_allclose(true.marginals, exact.marginals, atol=1e-12)
    assert true.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)


@pytest.mark.parametrize(("ratio", "n"), [(1, 14), (5, 15), (20, 5)])
def test_the_ring_programme_is_exact_but_for_its_background(ratio, n):
    problem = FAMILIES[f"cycle-{ratio}"](n, 4)
    # The lower the peaks, the more background there is.
    problem = problem._replace(scores=problem.scores / 3)
    true, exact = linear_truth.ring(problem), solve_exact(**problem.arguments())
    assert true.log_evidence == pytest.approx(exact.log_evidence, abs=1e-10)
    assert error_of(true, exact) <= true.uncertainty
    back = np.ix_(problem.row_order, problem.col_order)
    on_cycle = (np.eye(n) + np.roll(np.eye(n), 1, 1)).astype(bool)
    apart = (true.marginals - exact.marginals)[back]
    assert np.abs(apart[on_cycle]).max() <= 2 * true.uncertainty / n


@pytest.mark.parametrize("family", ["plane-0.5", "gaussian-2", "cauchy", "partial"])
def test_swap_chains_agree_with_the_exact_answer(family):
    problem = FAMILIES[family](9, 5)
    true, exact = linear_truth.chains(problem, 400_000, 1), solve_exact(**problem.arguments())
    # Halves of the chains differ by twice the error of their mean, about.
    assert error_of(true, exact) <= 2 * true.uncertainty
    assert true.uncertainty <= 0.01


@pytest.fixture(scope="module")
def loops():
    """Compiled loops of the chains that move a hole."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    return linear_truth_device.compiled("c++")


@pytest.mark.parametrize("family", ["plane-0.5", "gaussian-5", "cauchy", "banded-3", "partial-0.4"])
@pytest.mark.parametrize("rows", [9, 7])
def test_moving_holes_agree_with_the_exact_answer(loops, family, rows):
    problem = FAMILIES[family](9, 5)
    if rows < 9:
        alone = problem.row_unmatched
        mask = None if problem.mask is None else problem.mask[:rows]
        problem = problem._replace(
            scores=problem.scores[:rows],
            mask=mask,
            row_unmatched=None if alone is None else alone[:rows],
        )
    # Of the processor, which other work leaves less of.
    found = linear_truth_device.visits(problem, loops, 0.2, 64, time.process_time)
    exact = solve_exact(**problem.arguments())
    wanted = np.column_stack([exact.marginals, exact.p_unmatched_rows])
    assert 0.5 * np.abs(found.marginals() - wanted).sum(1).mean() <= 2 * found.gap()
    assert found.gap() <= 0.01


def test_truths_of_an_accelerator_are_kept(loops, tmp_path, monkeypatch):
    monkeypatch.setattr(linear_truth, "CACHE", tmp_path)
    monkeypatch.setattr(linear_truth_device, "compiled", lambda _: loops)
    quick = linear_truth_device.Machine((), 64, {60: 0.2})
    monkeypatch.setattr(linear_truth_device, "_MACHINES", {"c++": quick})
    linear_truth_device.run(tmp_path, 60, {"few": (("partial", 7, 8),)}, "c++")
    (told,) = linear_truth_device.keep([tmp_path / "few.npz"])
    assert told.startswith("partial:7:8")
    assert told.endswith("usable")
    problem = problem_of("partial", 7, 8)
    true = linear_truth.truth(problem)
    assert true.source == "worms"
    assert error_of(true, solve_exact(**problem.arguments())) <= 0.005


def test_all_truths_wanted_of_an_accelerator_have_a_problem():
    tasks = [task for group in linear_truth_device.GROUPS.values() for task in group]
    assert {family for family, _, _ in tasks} <= set(FAMILIES)


def test_halves_without_a_visit_do_not_agree():
    assert linear_truth_device.Visits(np.zeros((2, 3, 4), int), 0.0).gap() == 1.0


@pytest.mark.parametrize("family", ["partial", "banded-3", "space-0.3"])
def test_the_csv_file_holds_the_whole_problem(family, tmp_path):
    problem = FAMILIES[family](9, 6)
    path, *options = problem.write(tmp_path / "table.csv")
    unpaired = Unpaired(*(["none", "none"] if options else [None, None]))
    table = read_table(tmp_path / "table.csv")
    assert path == str(table.path)
    found = model_of_pairs(table, Files(), unpaired, kind="scores", temperature=1.0)
    wanted = problem.model()
    assert pv.fit(found, "exact").log_evidence == pytest.approx(
        pv.fit(wanted, "exact").log_evidence, abs=1e-9
    )


def test_a_truth_is_kept_on_disk(tmp_path, monkeypatch):
    problem = FAMILIES["banded-3"](8, 7)
    first = linear_truth.truth(problem, tmp_path)
    monkeypatch.setattr(linear_truth, "_compute", None)
    again = linear_truth.truth(problem, tmp_path)
    np.testing.assert_array_equal(first.marginals, again.marginals)
    assert first[2:] == again[2:]


def test_a_process_is_killed_and_measured(monkeypatch):
    usage = linear.run_apart(["fit", "cauchy", "5", "0", "exact", "0"], None, 0.05, 8)
    assert usage.failure == "over 0.05 s"


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
@pytest.mark.slow
def test_parts_are_written_together(tmp_path, monkeypatch):
    monkeypatch.setattr(linear_truth, "CACHE", tmp_path)
    out = ["--out", str(tmp_path)]
    linear.main([*out, "--modes", "--families", "cycle-1", "--sizes", "6", "--seeds", "0", "1"])
    fit = ["--families", "banded-3", "--sizes", "6", "--methods", "exact", "bethe", "--warm"]
    linear.main([*out, *fit])
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["part"] for row in rows] == ["modes"] * 2 + ["accuracy"] * 2
    assert float(rows[2]["error"]) == pytest.approx(0, abs=1e-9)
    metrics = {row["metric"] for row in json.loads((tmp_path / "summary.json").read_text())}
    assert {"tv_per_row", "cpu_seconds", "trusted_and_wrong", "right"} <= metrics
    assert "| banded-3 | 6 | bethe |" in (tmp_path / "tables.md").read_text()
    assert (tmp_path / "README.md").read_text().count("$ python") == 2


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_the_child_returns_the_posterior_of_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [])
    files = FAMILIES["cauchy"](5, 8).write(tmp_path / "table.csv")
    posterior = linear_child.match(files)
    assert posterior.method == "exact"
    assert "verdict: trust" in capsys.readouterr().out
