"""The answers that `benchmarks.graph_traps` compares with, against enumeration by permvi."""

import csv

import numpy as np
import pytest

import permvi as pv
from benchmarks import graph_traps, graphs


def exact(model):
    return pv.fit(model, "exact").marginals


def test_five_nodes_are_enumerated(rng):
    A, B = rng.normal(size=(5, 5)), rng.normal(size=(7, 7))
    model = pv.models.GraphMatching(A, B, 0.7, rng.normal(size=(5, 7)))
    np.testing.assert_allclose(graph_traps.enumerated(model), exact(model), atol=1e-6)


def test_scores_weigh_arrangements(rng):
    graph = np.kron(np.eye(2), graph_traps.weighted(4, rng, directed=True))
    group = np.stack([np.arange(8), np.roll(np.arange(8), 4)])
    trap = graph_traps.tilted("two", graph, group, 30.0, 0.5, rng)
    np.testing.assert_allclose(trap.marginals, exact(trap.model), atol=1e-3)
    assert 0.02 < trap.marginals.max(axis=1).min() < 0.98


@pytest.mark.parametrize(("name", "graph"), list(graph_traps.alike()))
def test_all_nodes_are_alike(name, graph):
    degrees = np.linalg.matrix_power(graph, 4).diagonal(), graph.sum(axis=0), graph.sum(axis=1)
    assert all(np.ptp(numbers) == 0 for numbers in degrees), name


def test_rows_are_written_and_kept(tmp_path):
    wanted = ["--out", str(tmp_path), "--seed", "1", "--only", "2 copies of 5, scores 0.1"]
    for _ in range(2):
        graph_traps.main(wanted)
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["verdict"] == "trust"
    assert float(row["error"]) < 0.03


def test_chains_that_tell_the_truth_count_loops(rng):
    A, B = rng.normal(size=(2, 6, 6))
    model = pv.models.GraphMatching(A + A.T, B + B.T, 0.2)
    found, apart = graphs.reference(model, 2_000_000)
    assert apart < 0.02
    assert np.abs(found - exact(model)).sum(axis=1).mean() / 2 < 0.01
    # The loops matter.
    hollow = [X - np.diag(X.diagonal()) for X in (A + A.T, B + B.T)]
    other = exact(pv.models.GraphMatching(*hollow, 0.2))
    assert np.abs(found - other).sum(axis=1).mean() / 2 > 0.05
