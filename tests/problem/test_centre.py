"""Constants in rows and columns change the evidence and nothing else, also in float32."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi.inference.exact.method import list_all
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import prepare

pytestmark = pytest.mark.float32

# Up to here float64 itself keeps seven decimals.
FAR = 1e8
CASES = {
    "square": {"shape": (4, 4)},
    "wide": {"shape": (3, 5)},
    "tall": {"shape": (5, 3)},
    "masked": {"shape": (4, 4), "mask": ~np.eye(4, dtype=bool)},
    "known": {"shape": (4, 4), "known": [-1, 2, -1, -1]},
    "settled": {"shape": (3, 3), "known": [1, 2, 0]},
    "partial": {"shape": (3, 4), "row_unmatched": -0.5, "col_unmatched": 0.3},
    "partial rows": {"shape": (3, 3), "row_unmatched": [-0.5, -np.inf, 1.0]},
    "partial known": {"shape": (4, 3), "col_unmatched": -0.2, "known": [2, -1, -1, -1]},
    "sites": {"shape": (2, 3, 3), "known": [[0, -1, -1], [-1, -1, -1]]},
    "prior": {"shape": (4, 4), "prior_scores": np.arange(16.0).reshape(4, 4) % 3},
}


def moved(case, rng):
    """A model, the same with constants in its log weights, and what they add to the evidence."""
    arguments = dict(CASES[case])
    scores = 1.5 * rng.normal(size=arguments.pop("shape"))
    *sites, n, m = scores.shape
    partial = {"row_unmatched", "col_unmatched"} & set(arguments)
    u, v = FAR * rng.normal(size=(*sites, n)), FAR * rng.normal(size=(*sites, m))
    # A constant in a row that need not be matched would change the posterior.
    u, v = u * (bool(partial) or n <= m), v * (bool(partial) or n >= m)
    other = dict(arguments)
    if partial:
        rows, cols = (arguments.get(name) for name in ("row_unmatched", "col_unmatched"))
        free = m > n or rows is not None
        rows = (0.0 if n > m else -np.inf) if rows is None else rows
        cols = (0.0 if free else -np.inf) if cols is None else cols
        other |= {"row_unmatched": np.asarray(rows) + u, "col_unmatched": np.asarray(cols) + v}
    model = pv.models.LinearMatching(scores, **arguments)
    far = pv.models.LinearMatching(scores + u[..., :, None] + v[..., None, :], **other)
    return model, far, math.fsum(u.ravel()) + math.fsum(v.ravel())


@pytest.mark.parametrize("case", CASES)
def test_densities_keep_their_differences(case, rng):
    model, far, added = moved(case, rng)
    near, shifted = prepare(model, centred="far"), prepare(far, centred="far")
    assert near.offset == 0
    perms = list_all(near.problem)
    want = log_densities(near.problem, perms) + near.offset
    got = log_densities(shifted.problem, perms) + (shifted.offset - added)
    finite = np.isfinite(want)
    assert (np.isfinite(got) == finite).all()
    np.testing.assert_allclose(got[finite], want[finite], rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_exact_answers_do_not_move(case, rng):
    model, far, added = moved(case, rng)
    near, shifted = pv.fit(model, "exact"), pv.fit(far, "exact")
    np.testing.assert_allclose(shifted.marginals, near.marginals, rtol=0, atol=1e-6)
    assert shifted.log_evidence - added == pytest.approx(near.log_evidence, abs=1e-6)
    assert (shifted.mode == near.mode).all()


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
@pytest.mark.parametrize("method", ["sequential", "importance", "mcmc", "map"])
def test_fits_in_float32_do_not_move(method, rng):
    model, far, added = moved("square", rng)
    near, shifted = (pv.fit(one, method) for one in (model, far))
    np.testing.assert_allclose(shifted.marginals, near.marginals, rtol=0, atol=1e-4)
    assert shifted.log_evidence - added == pytest.approx(near.log_evidence, abs=1e-4)
    assert shifted.diagnostics.verdict == near.diagnostics.verdict


def test_points_far_from_all_others_keep_their_differences(rng):
    centers = rng.normal(size=(4, 2))
    observations = np.add(centers, [3000.0, 0.0])
    model = pv.models.PointMatching(observations, centers, scale=1.0)
    found, exact = pv.fit(model, "sequential"), pv.fit(model, "exact")
    np.testing.assert_allclose(found.marginals, exact.marginals, rtol=0, atol=1e-3)
    assert found.log_evidence == pytest.approx(exact.log_evidence, rel=1e-9)


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
@pytest.mark.parametrize("method", ["map", "convex", "sinkhorn"])
def test_numbers_beyond_float32_are_answered_or_refused(method, rng):
    huge = 1e300 * rng.normal(size=(4, 4))
    one, far = (pv.fit(pv.models.LinearMatching(huge), name) for name in ("exact", method))
    np.testing.assert_allclose(far.marginals, one.marginals, rtol=0, atol=1e-6)
    # A pair that is out of the question, beside others that are not.
    mixed = 0.5 * rng.normal(size=(4, 4))
    mixed[0, 1] = -1e200
    plain = np.where(mixed < -1e100, -np.inf, mixed)
    near, cut = (pv.fit(pv.models.LinearMatching(s), method) for s in (mixed, plain))
    np.testing.assert_allclose(near.marginals, cut.marginals, rtol=0, atol=1e-4)


@pytest.mark.parametrize("weights", [{}, {"col_unmatched": 0.0}], ids=["all matched", "partial"])
def test_what_float64_rounds_away_is_zero(weights):
    # Sums of such numbers are off by 1e283 in some of these tables, which float32 does not hold.
    rng = np.random.default_rng(0)
    for _ in range(400):
        scores = 10.0 ** rng.choice([299, 300, 301]) * rng.normal(size=(4, 4))
        model = pv.models.LinearMatching(scores, **weights)
        reduced = np.asarray(prepare(model, centred="far").problem.scores)
        assert reduced.max() == 0.0
        assert np.isfinite(reduced.astype(np.float32)).all()


def test_competing_rows_beyond_float32_are_refused_in_float32():
    # Both rows want the first column, and one of them falls by 1e200.
    model = pv.models.LinearMatching([[0.0, -1e200, -1e250], [0.0, -2e200, -1e250]])
    if jnp.result_type(float) == jnp.float64:
        np.testing.assert_array_equal(pv.fit(model, "map").mode, [1, 0])
        return
    with pytest.raises(ValueError, match=r"scores must differ by less than 1e\+30 in float32"):
        pv.fit(model, "map")
    np.testing.assert_array_equal(pv.fit(model, "exact").mode, [1, 0])
