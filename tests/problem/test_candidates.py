"""Lists of candidate pairs in place of tables: the same answers, and bounds on what is left out."""

import tracemalloc

import numpy as np
import pytest
from scipy.sparse import issparse

import permvi as pv
from permvi.inference import auto
from permvi.inference.exact import solve_exact
from permvi.models import neighbours, protocol
from permvi.posterior import marginals
from permvi.problem import prepare as preparing
from permvi.problem.prepare import prepare
from permvi.problem.unmatched import unmatched_weights


@pytest.fixture
def small_limits(monkeypatch):
    """Make lists and sparse marginals of everything."""
    monkeypatch.setattr(preparing, "MAX_TABLE", 0)
    monkeypatch.setattr(marginals, "MAX_CELLS", 0)


def spread(rng, n, m, width=12.0, d=2):
    """Points of which most have few candidates."""
    centers = width * rng.random((m, d))
    places = np.concatenate([rng.permutation(m)] * 2)[:n]
    return centers[places] + rng.normal(size=(n, d)), centers


def clustered(rng):
    """Two far clusters with unequal numbers of points, and an outlier."""
    left, right = rng.normal(size=(5, 2)), rng.normal(size=(4, 2)) + 30.0
    centers = np.concatenate([left, right])
    observed = np.concatenate([left[:4], right, [[400.0, 0.0]]]) + rng.normal(size=(9, 2))
    return observed, centers


CASES = {
    "square": lambda rng: (*spread(rng, 8, 8), {}),
    "wide": lambda rng: (*spread(rng, 6, 9), {}),
    "tall": lambda rng: (*spread(rng, 9, 7), {}),
    "clusters": lambda rng: (*clustered(rng), {}),
    "partial": lambda rng: (*spread(rng, 9, 8), {"row_unmatched": -6.0}),
    "weights": lambda rng: (
        *spread(rng, 8, 8),
        {"row_unmatched": -rng.random(8) * 9, "col_unmatched": -rng.random(8) * 3},
    ),
    "some_must": lambda rng: (
        *spread(rng, 8, 8),
        {
            "row_unmatched": np.where(np.arange(8) < 4, -4.0, -np.inf),
            "col_unmatched": np.where(np.arange(8) < 5, -1.0, -np.inf),
        },
    ),
    "known": lambda rng: (*spread(rng, 8, 8), {"known": {0: 3, 5: 1}}),
    "known_partial": lambda rng: (
        *spread(rng, 8, 7),
        {"known": {1: 3}, "row_unmatched": -5.0, "col_unmatched": -1.0},
    ),
    "prior": lambda rng: (*spread(rng, 7, 7), {"prior_scores": 3 * rng.normal(size=(7, 7))}),
    "masked": lambda rng: (
        *spread(rng, 8, 8),
        {"mask": rng.random((8, 8)) < 0.8, "row_unmatched": -9.0},
    ),
    "student": lambda rng: (*spread(rng, 7, 7), {"noise": "student_t", "row_unmatched": -9.0}),
    "scales": lambda rng: (*spread(rng, 8, 8), {"scale": [0.5, 3.0]}),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def model_of(case, rng, **more):
    observed, centers, settings = case(rng)
    return pv.models.PointMatching(observed, centers, **{"scale": 1.0, **settings, **more})


@each_case
def test_lists_of_points_give_the_answers_of_tables(case, rng, small_limits, monkeypatch):
    for _ in range(3):
        model = model_of(case, rng)
        lists = pv.fit(model, "linear", max_size=12)
        assert issparse(lists.marginals)
        assert prepare(model).listed is not None
        with monkeypatch.context() as undone:
            undone.setattr(preparing, "MAX_TABLE", 10**9)
            undone.setattr(marginals, "MAX_CELLS", 10**9)
            table = pv.fit(model, "exact")
        np.testing.assert_allclose(lists.marginals.toarray(), table.marginals, atol=1e-5)
        np.testing.assert_allclose(lists.p_unmatched_rows, table.p_unmatched_rows, atol=1e-5)
        np.testing.assert_allclose(lists.p_unmatched_cols, table.p_unmatched_cols, atol=1e-5)
        assert lists.log_evidence == pytest.approx(table.log_evidence, abs=1e-5)
        assert lists.fingerprint == table.fingerprint


@pytest.mark.parametrize("lost", [1e-6, 1e-2, 0.3])
@pytest.mark.parametrize("name", ["partial", "weights", "known_partial", "masked", "student"])
def test_lost_pairs_are_as_improbable_as_stated(name, lost, rng, monkeypatch):
    monkeypatch.setattr(neighbours, "LOST", lost)
    left_out = 0
    for _ in range(10):
        model = model_of(CASES[name], rng)
        alone = unmatched_weights(model.row_unmatched, model.col_unmatched, model.shape)
        found = model.candidate_pairs(*alone)
        assert found.lost == lost
        assert f"is at most {lost:.1g}" in found.note
        exact = pv.fit(model, "exact").marginals.copy()
        exact[found.rows, found.cols] = 0.0
        assert exact.sum() <= lost
        left_out += np.count_nonzero(exact)
    if name != "student":
        assert left_out


def largest_log_weight(result):
    return result.log_evidence + result.mode_log_prob


@pytest.mark.parametrize("lost", [1e-6, 1e-1, 10.0])
@pytest.mark.parametrize("name", ["square", "wide", "tall", "clusters", "some_must", "prior"])
def test_lost_pairs_make_matchings_as_improbable_as_stated(name, lost, rng, monkeypatch):
    monkeypatch.setattr(neighbours, "LOST", lost)
    for _ in range(5):
        model = model_of(CASES[name], rng)
        n, m = model.shape
        given = model.row_unmatched, model.col_unmatched
        found = model.candidate_pairs(*unmatched_weights(*given, model.shape))
        total = np.asarray(model.scores) + (0 if model.prior_scores is None else model.prior_scores)
        np.testing.assert_allclose(found.scores, total[found.rows, found.cols])
        best = solve_exact(total, row_unmatched=given[0], col_unmatched=given[1])
        listed = np.zeros((n, m), bool)
        listed[found.rows, found.cols] = True
        for i, j in np.argwhere(~listed)[:: max(1, (~listed).sum() // 10)]:
            mask = np.ones((n, m), bool)
            mask[i] = mask[:, j] = False
            mask[i, j] = True
            weights = [None if w is None else w.copy() for w in given]
            for w, k in zip(weights, (i, j), strict=True):
                if w is not None:
                    w[k] = -np.inf
            try:
                with_pair = solve_exact(
                    total, mask, row_unmatched=weights[0], col_unmatched=weights[1]
                )
            except ValueError:
                continue
            gap = largest_log_weight(best) - largest_log_weight(with_pair)
            assert gap >= np.log(n * m / lost) - 1e-6


@each_case
def test_lists_respect_known_pairs(case, rng):
    model = model_of(case, rng)
    alone = unmatched_weights(model.row_unmatched, model.col_unmatched, model.shape)
    found = model.candidate_pairs(*alone)
    keys = found.rows * model.shape[1] + found.cols
    assert (np.diff(keys) > 0).all()
    if model.known is not None:
        rows = np.flatnonzero(model.known >= 0)
        assert np.isin(rows * model.shape[1] + model.known[rows], keys).all()


def test_points_without_a_feasible_matching_are_refused(rng, small_limits):
    mask = np.ones((4, 4), bool)
    mask[:2, 1:] = False
    model = pv.models.PointMatching(*spread(rng, 4, 4), scale=1.0, mask=mask)
    with pytest.raises(ValueError, match="must leave a feasible matching"):
        pv.fit(model)


def test_too_many_pairs_are_refused(rng, small_limits, monkeypatch):
    monkeypatch.setattr(protocol, "MAX_PAIRS", 10)
    model = pv.models.PointMatching(*spread(rng, 8, 8), scale=5.0)
    with pytest.raises(ValueError, match="points must have at most 10 pairs"):
        pv.fit(model)


def test_unknown_scales_and_several_sites_have_no_lists(rng):
    points, centers = spread(rng, 4, 4)
    alone = np.zeros(4), np.zeros(4)
    assert pv.models.PointMatching(points, centers, scale=None).candidate_pairs(*alone) is None
    several = pv.models.PointMatching(np.stack([points, points]), centers)
    assert several.candidate_pairs(*alone) is None


@pytest.mark.parametrize("known", [None, {0: 1}, {0: 1, 1: 0}, {0: 1, 1: 0, 2: 2}])
@pytest.mark.parametrize("weight", [None, -1.0])
def test_sparse_models_give_the_answers_of_tables(known, weight, small_limits, monkeypatch):
    rows, cols = np.nonzero(np.ones((3, 4)))
    given = {"known": known, "row_unmatched": weight}
    model = pv.models.SparseMatching(rows, cols, np.sin(rows + 2.0 * cols), (3, 4), **given)
    lists = pv.fit(model)
    assert issparse(lists.marginals)
    with monkeypatch.context() as undone:
        undone.setattr(preparing, "MAX_TABLE", 10**9)
        undone.setattr(marginals, "MAX_CELLS", 10**9)
        table = pv.fit(model, "exact")
    np.testing.assert_allclose(lists.marginals.toarray(), table.marginals, atol=1e-12)
    np.testing.assert_array_equal(lists.mode, table.mode)
    assert lists.log_evidence == pytest.approx(table.log_evidence)


def test_only_linear_takes_lists(rng, small_limits, monkeypatch):
    model = pv.models.PointMatching(*spread(rng, 5, 5), scale=1.0)
    assert auto.choose(prepare(model)).name == "linear"
    with pytest.raises(
        ValueError, match="pairs for method 'sinkhorn', got 5 by 5; method 'linear'"
    ):
        pv.fit(model, "sinkhorn")
    # Below the limit of dense marginals, other methods get their tables.
    monkeypatch.setattr(marginals, "MAX_CELLS", 25)
    assert pv.fit(model, "exact").method == "exact"
    assert [p.method for p in pv.fit_many([model, model], "exact")] == ["exact", "exact"]


def test_large_models_never_make_a_table(rng):
    n = 30_000
    rows = np.repeat(np.arange(n), 2)
    cols = (rows + np.tile([0, 1], n)) % n
    model = pv.models.SparseMatching(
        rows, cols, rng.normal(size=2 * n), (n, n), known={0: 0}, row_unmatched=-1.0
    )
    points = np.arange(n)[:, None] * 100.0
    line = pv.models.PointMatching(points + 1.0, points, scale=1.0, row_unmatched=-9.0)
    prepare(pv.models.PointMatching(points[:2500], points[:2500], 1.0))
    tracemalloc.start()
    sparse, near = prepare(model), prepare(line)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A table of booleans would take 900 MB.
    assert peak < 60e6
    assert len(sparse.candidates.rows) == 2 * n - 3
    np.testing.assert_array_equal(near.candidates.rows, near.candidates.cols)
