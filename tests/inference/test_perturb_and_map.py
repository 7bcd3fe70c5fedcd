"""Perturb-and-MAP: its draws against its own law, and the calibration of its noise."""

import itertools
import warnings

import jax
import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

import permvi as pv
from permvi.inference.perturb_and_map import calibrate_scale, draw_perturbed, total_scores
from permvi.problem.prepare import prepare

NUM = 20_000
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 1], [1, 0, 1, 1], [0, 1, 1, 1]], bool)


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "perturb_and_map", **options)


def all_matchings(n, m):
    """(num, n) by brute force, -1 for the rows of a surplus."""
    if n <= m:
        return np.array(list(itertools.permutations(range(m), n)))
    found = []
    for rows in itertools.permutations(range(n), m):
        perm = np.full(n, -1)
        perm[list(rows)] = np.arange(m)
        found.append(perm)
    return np.array(found)


def totals(tables, perms):
    """(K, n, m) tables and (num, n) matchings -> (K, num) sums of what is matched."""
    padded = np.concatenate([tables, np.zeros((*tables.shape[:-1], 1))], axis=-1)
    return padded[:, np.arange(tables.shape[1]), perms].sum(axis=-1)


def counts_of(draws, perms):
    codes = (perms + 1) @ 10 ** np.arange(perms.shape[1])
    drawn = (draws + 1) @ 10 ** np.arange(perms.shape[1])
    return np.array([(drawn == code).sum() for code in codes])


@pytest.mark.parametrize("gap", [0.0, 0.8, -2.5])
@pytest.mark.parametrize("scale", [0.6, 1.0])
@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_two_items_have_a_law_in_closed_form(noise, scale, gap):
    """A swap changes four pairs: two logistic differences, or a normal one of sd two."""
    x = gap / scale
    if noise == "gaussian":
        expected = stats.norm.cdf(x / 2)
    else:
        # The distribution function of a sum of two standard logistic variables.
        expected = 0.5 if x == 0 else np.exp(x) * (np.expm1(x) - x) / np.expm1(x) ** 2
    scores = np.array([[gap, 0.0], [0.0, 0.0]])
    draws = draw_perturbed(scores, None, NUM, np.random.default_rng(3), noise, scale)
    count = (draws[:, 0] == 0).sum()
    assert abs(count - NUM * expected) < 4 * np.sqrt(NUM * expected * (1 - expected))


def test_one_row_with_gumbel_noise_is_drawn_exactly():
    scores = np.array([[0.5, -1.0, 1.2, 0.0]])
    draws = draw_perturbed(scores, None, NUM, np.random.default_rng(4))
    expected = NUM * softmax(scores[0])
    assert stats.chisquare(np.bincount(draws[:, 0], minlength=4), expected).pvalue > 1e-4


@pytest.mark.parametrize(
    ("shape", "mask", "noise"),
    [
        ((4, 4), None, "gaussian"),
        ((4, 4), MASK, "gumbel"),
        ((5, 5), None, "gumbel"),
        ((2, 4), None, "gumbel"),
        ((4, 2), None, "gaussian"),
    ],
)
def test_draws_are_the_best_of_all_matchings_under_noise(shape, mask, noise):
    """Against the argmax over a list of all matchings, under noise of its own."""
    scores = np.random.default_rng(5).normal(size=shape)
    perms = all_matchings(*shape)
    if mask is not None:
        perms = perms[mask[np.arange(shape[0]), perms].all(axis=1)]
    found = counts_of(draw_perturbed(scores, mask, NUM, np.random.default_rng(6), noise), perms)
    assert found.sum() == NUM
    other = np.random.default_rng(7)
    noisy = other.gumbel if noise == "gumbel" else other.standard_normal
    best = totals(scores + noisy(size=(NUM, *shape)), perms).argmax(axis=1)
    expected = np.bincount(best, minlength=len(perms))
    # Matchings too rare for a normal approximation count as one.
    rare = expected + found < 10
    table = np.array([[*part[~rare], part[rare].sum()] for part in (found, expected)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue > 1e-4


def test_the_mean_score_falls_as_the_scale_grows():
    scores = np.random.default_rng(8).normal(size=(5, 5))
    found = [
        total_scores(scores, draw_perturbed(scores, None, 200, np.random.default_rng(9), scale=s))
        for s in (0.0, 0.1, 0.5, 1.0, 3.0)
    ]
    # For every single noise, not only on average.
    assert (np.diff(found, axis=0) <= 1e-9).all()
    assert (found[0] == totals(scores[None], all_matchings(5, 5)).max()).all()


@pytest.mark.float32
@pytest.mark.parametrize("noise", ["gumbel", "gaussian"])
def test_the_calibrated_scale_matches_the_mean_score_of_the_posterior(noise):
    scores = 2.0 * np.random.default_rng(10).normal(size=(4, 4))
    problem = prepare(pv.models.LinearMatching(scores)).problem
    found = calibrate_scale(problem, jax.random.key(0), np.random.default_rng(11), noise)
    perms = all_matchings(4, 4)
    f = totals(scores[None], perms)[0]
    p = softmax(f)
    sd = np.sqrt(p @ f**2 - (p @ f) ** 2)
    assert abs(found.target_score - p @ f) < 4 * sd / np.sqrt(8192 / 4)
    draws = draw_perturbed(scores, None, NUM, np.random.default_rng(12), noise, found.scale)
    # 1000 draws made the scale, and matchings of equal score make steps.
    assert abs(total_scores(scores, draws).mean() - p @ f) < 4 * sd / np.sqrt(1000)
    q = counts_of(draws, perms) / NUM
    plain = draw_perturbed(scores, None, NUM, np.random.default_rng(12), noise, 2 * found.scale)
    overlap, without = (np.sqrt(p * x).sum() for x in (q, counts_of(plain, perms) / NUM))
    assert overlap > max(without, 0.99)


def test_a_fit_has_the_scale_and_no_evaluations_but_the_search():
    scores = np.random.default_rng(13).normal(size=(2, 4, 4))
    posterior = fit(pv.models.LinearMatching(scores), scale=0.7, num_draws=300)
    assert posterior.law.draws.shape == (300, 2, 4)
    assert posterior.diagnostics.extras["scale"] == 0.7
    np.testing.assert_allclose(posterior.marginals.sum(axis=-2), 1)
    calibrated = fit(pv.models.LinearMatching(scores[0]), num_draws=300)
    assert 0.3 < calibrated.diagnostics.extras["scale"] < 1.2
    assert calibrated.num_evaluations == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "cauchy"}, "noise must be 'gumbel' or 'gaussian', got 'cauchy'"),
        ({"scale": 0.0}, "scale must be positive or 'calibrated', got 0.0"),
        ({"scale": "auto"}, "scale must be positive or 'calibrated', got 'auto'"),
        ({"num_draws": 0}, "num_draws must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        fit(pv.models.LinearMatching(np.zeros((3, 3))), **options)


def test_a_model_that_is_not_linear_is_refused():
    with pytest.raises(ValueError, match=r"must be linear .* 'perturb_and_map', got a Callable"):
        fit(pv.models.CallableModel(lambda X: X[0, 0] * X[1, 1], 3, "matrix"))
