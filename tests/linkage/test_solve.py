"""Probabilities of linkings against enumeration, and chains against exact sums."""

import functools

import numpy as np
import pytest

from permvi.inference import linear
from permvi.linkage import solve as solving
from permvi.linkage.solve import DEDUPE, MANY_TO_ONE, ONE_TO_MANY, ONE_TO_ONE, Task, solve
from tests.linkage.oracle import enumerate_graph, enumerate_sets, random_graph, sum_in_order


def task_of(graphs, rule, seed=0):
    """A task of graphs (tails, heads, weights, number of left vertices, number of vertices)."""
    counts = [len(g[0]) for g in graphs]
    return Task(
        0,
        rule,
        np.arange(len(graphs)),
        np.concatenate([[0], np.cumsum(counts)]),
        np.array([g[3] for g in graphs]),
        np.array([g[4] for g in graphs]),
        np.concatenate([g[0] for g in graphs]),
        np.concatenate([g[1] for g in graphs]),
        np.concatenate([g[2] for g in graphs]),
        seed,
    )


def graphs_of(rng, num, sizes, *, bipartite, scales=(1.0, 4.0, 15.0)):
    found = []
    for k in range(num):
        size = int(rng.integers(2, sizes + 1))
        tails, heads, left = random_graph(rng, size, bipartite=bipartite)
        found.append(
            (tails, heads, rng.normal(0.0, scales[k % len(scales)], len(tails)), left, size)
        )
    return found


def check_against_enumeration(graphs, rule):
    task = task_of(graphs, rule)
    found = solve(task)
    assert found.exact.all()
    for c, (tails, heads, weights, *_) in enumerate(graphs):
        part = slice(task.edge_ends[c], task.edge_ends[c + 1])
        p, log_z, variance, top = enumerate_graph(tails, heads, weights)
        np.testing.assert_allclose(found.p[part], p, atol=1e-9)
        assert found.log_evidence[c] == pytest.approx(log_z, abs=1e-9)
        # A second difference of log Z: off by about 1e-5 of its own size.
        assert found.variance[c] == pytest.approx(variance, abs=1e-4)
        best = found.best[part]
        assert weights[best].sum() == pytest.approx(top, abs=1e-9)
        ends = np.concatenate([tails[best], heads[best]])
        assert len(np.unique(ends)) == len(ends)


def test_ten_thousand_components_of_two_tables(rng):
    check_against_enumeration(graphs_of(rng, 10_000, 8, bipartite=True), ONE_TO_ONE)


def test_components_of_one_table(rng):
    check_against_enumeration(graphs_of(rng, 1500, 10, bipartite=False), DEDUPE)


def test_large_and_infinite_log_odds(rng):
    graphs = graphs_of(rng, 150, 8, bipartite=False, scales=(500.0, 2000.0))
    check_against_enumeration(graphs, DEDUPE)
    tails, heads, weights, *rest = graphs[0]
    never = np.append(weights, -np.inf)
    size = rest[1]
    with_more = np.append(tails, 0).astype(np.int32), np.append(heads, size).astype(np.int32)
    found = solve(task_of([(*with_more, never, rest[0], size + 1)], DEDUPE))
    assert found.p[-1] == 0.0
    np.testing.assert_allclose(found.p[:-1], solve(task_of([graphs[0]], DEDUPE)).p, atol=1e-12)


def test_a_pair_alone_keeps_its_own_probability():
    weights = np.array([-800.0, -3.0, 0.5, 40.0])
    one = np.zeros(1, np.int32)
    found = solve(task_of([(one, one + 1, weights[k : k + 1], 1, 2) for k in range(4)], ONE_TO_ONE))
    np.testing.assert_allclose(found.p, 1 / (1 + np.exp(-np.maximum(weights, -700))), atol=1e-15)
    assert found.best.tolist() == [False, False, True, True]


@pytest.mark.parametrize(("rule", "side"), [(ONE_TO_MANY, 1), (MANY_TO_ONE, 0)])
def test_rules_that_are_exclusive_on_one_side(rng, rule, side):
    graphs = graphs_of(rng, 60, 8, bipartite=True)
    graphs = [g for g in graphs if len(g[0]) <= 9]
    task = task_of(graphs, rule)
    found = solve(task)
    for c, graph in enumerate(graphs):
        ends, weights = graph[side], graph[2]
        part = slice(task.edge_ends[c], task.edge_ends[c + 1])

        def allowed(chosen, ends=ends):
            return len({ends[e] for e in chosen}) == len(chosen)

        p, log_z, variance, top = enumerate_sets(len(weights), weights, allowed)
        np.testing.assert_allclose(found.p[part], p, atol=1e-9)
        assert found.log_evidence[c] == pytest.approx(log_z, abs=1e-9)
        assert found.variance[c] == pytest.approx(variance, abs=1e-9)
        assert weights[found.best[part]].sum() == pytest.approx(top, abs=1e-9)


@pytest.fixture
def only_chains(monkeypatch):
    monkeypatch.setattr(solving, "_MAX_STATES", 2)


@pytest.mark.parametrize("rule", [ONE_TO_ONE, DEDUPE])
def test_chains_agree_with_exact_sums(rng, rule, monkeypatch):
    # 24 records: far too many matchings to enumerate, few enough for exact sums.
    size = 24
    every = [(a, b) for a in range(size) for b in range(a + 1, size)
             if rule == DEDUPE or a < size // 2 <= b]  # fmt: skip
    chosen = sorted(rng.choice(len(every), 48, replace=False))
    tails, heads = np.array([every[k] for k in chosen], np.int32).T
    weights = rng.normal(1.0, 4.0, len(chosen))
    task = task_of([(tails.copy(), heads.copy(), weights, size // 2, size)], rule)
    exact = solve(task)
    monkeypatch.setattr(solving, "_MAX_STATES", 2)
    sampled = solve(task)
    assert exact.exact.all()
    if rule == DEDUPE:
        assert not sampled.exact.any()
        assert sampled.error[0] > 0
    assert sampled.verdict[0] == 0
    np.testing.assert_allclose(sampled.p, exact.p, atol=0.01)
    assert weights[sampled.best].sum() == pytest.approx(weights[exact.best].sum(), abs=1e-9)
    assert sampled.variance[0] == pytest.approx(exact.variance[0], rel=0.2)


def band(rng, size, rule):
    """A component whose records have candidates of close numbers, in the order of a long street.

    Vertices are numbered along the street for `sum_in_order`; a task wants left ones first.
    """
    every = [(a, b) for a in range(size) for b in range(a + 1, min(a + 6, size))
             if rule == DEDUPE or (b - a) % 2]  # fmt: skip
    keep = [k for k, (a, b) in enumerate(every) if b == a + 1 or rng.random() < 0.6]
    tails, heads = np.array([every[k] for k in keep]).T
    weights = rng.normal(np.where(rng.random(len(keep)) < 0.3, 3.0, -1.0), 2.0)
    p, log_z = sum_in_order(size, tails, heads, weights)
    if rule == ONE_TO_ONE:
        odd = tails % 2 == 1
        tails[odd], heads[odd] = heads[odd], tails[odd]
        tails, heads = tails // 2, size // 2 + heads // 2
    ends = tails.astype(np.int32), heads.astype(np.int32)
    return task_of([(*ends, weights, size // 2, size)], rule), p, log_z


@pytest.mark.parametrize("rule", [ONE_TO_ONE, DEDUPE])
def test_sums_over_large_components(rng, rule):
    task, p, log_z = band(rng, 200, rule)
    found = solve(task)
    assert found.exact.all()
    np.testing.assert_allclose(found.p, p, atol=1e-9)
    assert found.log_evidence[0] == pytest.approx(log_z, abs=1e-9)


def test_chains_over_large_components(rng, only_chains, monkeypatch):
    no_sums = functools.partial(linear.LinearOptions, max_size=0, max_states=0)
    monkeypatch.setattr(linear, "LinearOptions", no_sums)
    task, p, _ = band(rng, 200, ONE_TO_ONE)
    found = solve(task)
    assert not found.exact.any()
    assert found.verdict[0] == 0
    np.testing.assert_allclose(found.p, p, atol=0.01)


def test_chains_do_not_depend_on_how_groups_are_packed(rng, only_chains, monkeypatch):
    monkeypatch.setattr(solving, "_CHAIN_WORK", 2e5)
    graphs = graphs_of(rng, 3, 8, bipartite=False)
    graphs = [g for g in graphs if len(g[0]) > 1]
    together = solve(task_of(graphs, DEDUPE))
    last = task_of(graphs[-1:], DEDUPE)._replace(groups=np.array([len(graphs) - 1]))
    np.testing.assert_array_equal(solve(last).p, together.p[-len(graphs[-1][0]) :])


def test_chains_that_ended_too_early_are_not_trusted(rng, only_chains, monkeypatch):
    monkeypatch.setattr(solving, "_CHAIN_WORK", 1.0)
    monkeypatch.setattr(solving, "_BATCH", 3)
    tails, heads, left = random_graph(rng, 12, bipartite=False, most=40)
    weights = rng.normal(0.0, 6.0, len(tails))
    found = solve(task_of([(tails, heads, weights, left, 12)], DEDUPE))
    assert found.verdict[0] > 0
