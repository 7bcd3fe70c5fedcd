"""Posteriors with sparse marginals say what those with tables say."""

import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse

import permvi as pv
from permvi import metrics, plots, report
from permvi.posterior import Marginals, Posterior, marginals
from permvi.report import content
from tests.posterior import cases

ONE_SITE = {name: make for name, make in cases.PROBLEMS.items() if "sites" not in name}
each_problem = pytest.mark.parametrize("problem", ONE_SITE.values(), ids=ONE_SITE)


def both(problem, rng, labels=None):
    """The same posterior with a table and with a sparse array."""
    table = cases.make("draws", problem(rng), rng)
    if labels:
        names = tuple(
            [f"{side}{k}" for k in range(n)] for side, n in zip("ab", table.shape, strict=True)
        )
        table = dataclasses.replace(table, labels=names)
    return table, dataclasses.replace(table, marginals=csr_array(table.marginals))


@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("level", [0.5, 0.95, 1.0])
@each_problem
def test_summaries_are_those_of_the_table(problem, level, labels, rng):
    table, lists = both(problem, rng, labels)
    assert issparse(lists.marginals)
    assert lists.shape == table.shape
    assert lists.credible_sets(level) == table.credible_sets(level)
    np.testing.assert_allclose(lists.entropy, table.entropy, atol=1e-14)
    for a, b in zip(lists.item_summaries(level), table.item_summaries(level), strict=True):
        assert dataclasses.replace(a, entropy=0.0) == dataclasses.replace(b, entropy=0.0)
    a, b = lists.to_frame(level), table.to_frame(level)
    assert a.drop(columns="entropy").equals(b.drop(columns="entropy"))
    assert [item.row for item in lists.most_uncertain(2)] == [
        item.row for item in table.most_uncertain(2)
    ]


@each_problem
def test_decisions_are_those_of_the_table(problem, rng):
    table, lists = both(problem, rng)
    assert lists.expected_loss().expected_loss == pytest.approx(
        table.expected_loss().expected_loss, abs=1e-9
    )
    with pytest.raises(ValueError, match="loss must be 'hamming' for a posterior of"):
        lists.expected_loss("footrule")
    assert repr(lists).splitlines()[0] == repr(table).splitlines()[0]
    assert "items right on average" in lists._repr_html_()


@each_problem
def test_reports_hold_the_same_numbers(problem, rng):
    table, lists = both(problem, rng)
    choice = table.expected_loss().perm
    assert content.tables(lists, choice, 0.9) == content.tables(table, choice, 0.9)
    assert "<html" in report.render(lists)


@each_problem
def test_saving_keeps_lists(problem, rng, tmp_path):
    table, lists = both(problem, rng, labels=True)
    lists.save(tmp_path / "lists.nc")
    again = pv.load(tmp_path / "lists.nc")
    assert issparse(again.marginals)
    np.testing.assert_array_equal(again.marginals.toarray(), table.marginals)
    np.testing.assert_array_equal(again.p_unmatched_rows, table.p_unmatched_rows)
    assert again.labels == table.labels
    assert not again.marginals.data.flags.writeable


def test_metrics_and_plots_take_them(rng):
    table, lists = both(cases.partial, rng)
    other, sparse = both(cases.partial, rng)
    alone = table.p_unmatched_rows, other.p_unmatched_rows
    expected = metrics.total_variation_per_row(table.marginals, other.marginals, *alone)
    for pair in ((lists, sparse), (lists, other), (table, sparse)):
        found = metrics.total_variation_per_row(*(p.marginals for p in pair), *alone)
        np.testing.assert_allclose(found, expected, atol=1e-15)
    truth = table.mode
    assert metrics.log_score(lists.marginals, truth, alone[0]) == pytest.approx(
        metrics.log_score(table.marginals, truth, alone[0])
    )
    image = plots.marginals(lists).images[0].get_array()
    np.testing.assert_allclose(image, table.marginals)
    points = rng.normal(size=(4, 2)), rng.normal(size=(3, 2))
    assert plots.point_matching(lists, *points).collections


def test_the_picture_of_many_pairs_shows_the_largest(monkeypatch, rng):
    monkeypatch.setattr(plots, "_MAX_PIXELS", 2)
    _, lists = both(cases.square, rng)
    parts = lists.marginals.toarray().reshape(2, 2, 2, 2)
    image = plots.marginals(lists).images[0].get_array()
    np.testing.assert_allclose(image, parts.max(axis=(1, 3)))


def test_the_number_of_cells_decides(monkeypatch):
    given = np.array([0, 1]), np.array([1, 0]), np.ones(2), np.zeros(2), np.zeros(2)
    assert isinstance(Marginals.of_pairs(*given).marginals, np.ndarray)
    monkeypatch.setattr(marginals, "MAX_CELLS", 3)
    found = Marginals.of_pairs(*given)
    assert found.is_sparse
    np.testing.assert_array_equal(found.marginals.toarray(), [[0, 1], [1, 0]])


def test_frequencies_of_draws_become_lists(monkeypatch, rng):
    draws = np.stack([rng.permutation(7)[:5] for _ in range(100)])
    draws[::3, 1] = -1
    weights = rng.normal(size=100)
    table = Posterior.from_draws(draws, weights, shape=(5, 7))
    monkeypatch.setattr(marginals, "MAX_CELLS", 3)
    lists = Posterior.from_draws(draws, weights, shape=(5, 7))
    np.testing.assert_allclose(lists.marginals.toarray(), table.marginals, atol=1e-12)
    np.testing.assert_allclose(lists.p_unmatched_rows, table.p_unmatched_rows, atol=1e-12)
    np.testing.assert_allclose(lists.p_unmatched_cols, table.p_unmatched_cols, atol=1e-12)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([[0.5, 0.6], [0.5, 0.4]], "marginals must sum to one in each row"),
        ([[0.5, 0.5], [0.6, 0.4]], "marginals must sum to one in each column"),
        ([[2.0, -1.0], [-1.0, 2.0]], "marginals must be probabilities, got"),
    ],
)
def test_bad_lists_get_the_sentences_of_tables(table, message):
    with pytest.raises(ValueError, match=message):
        marginals.check_marginals(csr_array(np.array(table)), None, None)
