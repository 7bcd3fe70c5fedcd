"""Gumbel-Sinkhorn: its divergence, its draws, and fits."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import permvi as pv
from permvi import permutations
from permvi.inference import pathwise
from permvi.inference.gumbel_sinkhorn import GumbelSinkhornOptions, draw_matchings, noise_divergence

QUICK = {"num_steps": 200, "num_samples": 4, "num_restarts": 2, "num_draws": 500}


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "gumbel_sinkhorn", **{**QUICK, **options})


def points(rng, n=4, sigma=0.3, **constraints):
    centers = rng.normal(size=(n, 2))
    return pv.models.PointMatching(
        centers[::-1] + sigma * rng.normal(size=(n, 2)), centers, sigma, **constraints
    )


@pytest.mark.parametrize(
    ("log_alpha", "tau", "prior"), [(0.0, 1.0, 1.0), (1.3, 0.5, 1.2), (-0.7, 2.0, 0.3)]
)
def test_the_divergence_of_the_noise_by_quadrature(log_alpha, tau, prior):
    q = stats.gumbel_r(log_alpha / tau, 1 / tau)
    p = stats.gumbel_r(0, 1 / prior)
    expected, _ = integrate.quad(
        lambda x: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), *q.interval(1 - 1e-12)
    )
    found = noise_divergence(jnp.asarray(log_alpha), tau, prior)
    assert found == pytest.approx(expected, abs=1e-7)


@pytest.mark.float32
def test_two_items_follow_the_difference_of_logistics():
    num = 20_000
    for log_alpha in (
        [[0.0, 0.0], [0.0, 0.0]],
        [[1.0, -0.5], [0.3, 0.2]],
        [[-2.0, 0.0], [0.0, 0.5]],
    ):
        table = np.array(log_alpha)
        gain = np.trace(table) - np.trace(table[:, ::-1])
        # Two Gumbels less two others are two logistics: P(L + L' > -gain).
        p, _ = integrate.quad(
            lambda x, g=gain: stats.logistic.sf(-g - x) * stats.logistic.pdf(x), -40, 40
        )
        draws = draw_matchings(table[None], jax.random.key(1), num, None, (2, 2))
        share = (draws[:, 0, 0] == 0).mean()
        assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / num)


@pytest.mark.parametrize("n", [3, 4])
def test_draws_follow_the_law_of_perturbed_assignments(n, rng):
    log_alpha = rng.normal(size=(n, n))
    num = 20_000
    draws = draw_matchings(log_alpha[None], jax.random.key(5), num, None, (n, n))[:, 0]
    # The same law by brute force, from other random numbers.
    perms = permutations.enumerate_permutations(n)
    perturbed = log_alpha + rng.gumbel(size=(num, n, n))
    best = perturbed[:, np.arange(n), perms].sum(axis=-1).argmax(axis=1)
    powers = 10 ** np.arange(n)
    counts = [(draws @ powers == code).sum() for code in perms @ powers]
    table = np.stack([counts, np.bincount(best, minlength=len(perms))])
    table = table[:, table.sum(axis=0) >= 10]
    assert stats.chi2_contingency(table).pvalue > 1e-4


@pytest.mark.parametrize("shape", [(2, 3), (3, 2)])
def test_rectangles_and_masks(shape, rng):
    mask = np.array([[True, False, True], [True, True, True], [True, True, True]])
    draws = draw_matchings(rng.normal(size=(1, 3, 3)), jax.random.key(0), 200, mask, shape)[:, 0]
    assert draws.shape == (200, shape[0])
    assert ((draws >= 0).sum(axis=1) == 2).all()
    assert (draws < shape[1]).all()
    assert not (draws[:, 0] == 1).any()


def test_fits_are_near_the_posterior(rng):
    models = [points(rng, 4, 0.25) for _ in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        found = pv.fit_many(models, "gumbel_sinkhorn", **{**QUICK, "num_steps": 500})
    exact = [pv.fit(model, "exact") for model in models]
    error = np.mean([np.abs(a.marginals - b.marginals) for a, b in zip(found, exact, strict=True)])
    uniform = np.mean([np.abs(0.25 - b.marginals) for b in exact])
    assert error < 0.2 * uniform
    for a, b in zip(found, exact, strict=True):
        assert a.log_evidence <= b.log_evidence + 1e-6
        assert a.log_evidence_kind == "bound"
        np.testing.assert_array_equal(a.mode, b.mode)


def test_the_method(rng):
    model = points(rng)
    posterior = fit(model)
    assert posterior.diagnostics.elbo_trace.shape == (2, 200)
    first, last = (
        posterior.diagnostics.elbo_trace[:, :10],
        posterior.diagnostics.elbo_trace[:, -50:],
    )
    assert (last.mean(axis=1) > first.mean(axis=1)).all()
    # Two restarts of 200 steps with 4 samples, then the distinct matchings looked at.
    assert 1600 < posterior.num_evaluations <= 1600 + 24
    again = fit(model)
    np.testing.assert_array_equal(again.sample(20), posterior.sample(20))
    before = pathwise._advance._cache_size()
    fit(points(rng))
    assert pathwise._advance._cache_size() == before


def test_a_masked_rectangle(rng):
    mask = np.ones((3, 4), bool)
    mask[0, :2] = False
    posterior = fit(pv.models.LinearMatching(rng.normal(size=(3, 4)), mask=mask), num_steps=50)
    assert not posterior.marginals[~mask].any()


@pytest.mark.slow
def test_sites_and_known_pairs(rng):
    known = np.array([[-1, 2, -1], [0, -1, -1]])
    sites = pv.models.LinearMatching(rng.normal(size=(2, 3, 3)), known=known)
    posterior = fit(sites, num_steps=50)
    assert posterior.marginals[0, 1, 2] == posterior.marginals[1, 0, 0] == 1


@pytest.mark.float32
def test_sharp_densities_stay_finite():
    scores = 1000 * np.eye(4)[[2, 0, 3, 1]]
    posterior = fit(pv.models.LinearMatching(scores))
    np.testing.assert_array_equal(posterior.mode, [2, 0, 3, 1])
    assert np.isfinite(posterior.diagnostics.elbo_trace).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "temperature must be a positive number, got 0.0"),
        ({"num_draws": 0}, "num_draws must be an integer of at least 1, got 0"),
        ({"start_spread": -1.0}, "start_spread must be at least 0, got -1.0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        GumbelSinkhornOptions(**options)


def test_refusals():
    with pytest.raises(ValueError, match="that JAX can differentiate"):
        pv.fit(lambda perm: 0.0, "gumbel_sinkhorn", n=3, input="perm", jax=False)


@pytest.mark.slow
def test_densities_that_are_never_finite_are_refused():
    with pytest.raises(ValueError, match="finite on relaxed matrices"):
        fit(pv.models.CallableModel(lambda X: jnp.nan * X.sum(), 3), num_steps=10)
