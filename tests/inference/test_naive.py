"""Independent rows: closed form, Dirichlet rows, and their rounding."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import permvi as pv
from permvi import permutations
from permvi.inference.naive.rows import (
    NaiveOptions,
    _dirichlet,
    dirichlet_divergence,
    draw_categorical_rows,
    nearest_matchings,
)

QUICK = {"num_steps": 200, "num_samples": 4, "num_restarts": 2, "num_draws": 500}


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "naive", **{**QUICK, **options})


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_categorical_rows_follow_their_law(n, rng):
    scores = rng.normal(size=(n, n))
    num = 20_000
    draws, probs = draw_categorical_rows(scores, None, num, rng)
    np.testing.assert_allclose(probs, softmax(scores))
    # All choices of the rows, each with its nearest permutation; the likelier one of several.
    perms = permutations.enumerate_permutations(n)
    law = np.zeros(len(perms))
    for columns in itertools.product(range(n), repeat=n):
        right = (perms == np.array(columns)).sum(axis=1)
        likely = probs[np.arange(n), perms].sum(axis=1)
        best = np.lexsort((likely, right))[-1]
        law[best] += np.prod(probs[np.arange(n), columns])
    powers = 10 ** np.arange(n)
    counts = np.array([(draws @ powers == code).sum() for code in perms @ powers])
    assert not counts[law == 0].any()
    kept = law > 0
    assert stats.chisquare(counts[kept], num * law[kept] / law.sum()).pvalue > 1e-4


def test_rows_left_over_and_masks(rng):
    mask = np.array([[True, False], [True, True], [False, True]])
    scores = rng.normal(size=(3, 2))
    draws, probs = draw_categorical_rows(scores, mask, 500, rng)
    weights = np.where(mask, np.exp(scores), 0)
    np.testing.assert_allclose(probs, weights / (1 + weights.sum(axis=1, keepdims=True)))
    assert ((draws >= 0).sum(axis=1) == 2).all()
    assert not (draws[:, 0] == 1).any()
    assert not (draws[:, 2] == 0).any()


@pytest.mark.float32
def test_two_dirichlet_rows_follow_their_law():
    a = np.array([[0.8, 1.7], [2.0, 0.6]])
    num = 20_000
    allowed = np.ones((2, 2), bool)
    X = np.asarray(_dirichlet(jax.random.key(2), jnp.asarray(a), allowed, num))
    np.testing.assert_allclose(X.sum(axis=-1), 1, atol=1e-5)
    for row in range(2):
        assert stats.kstest(X[:, row, 0], stats.beta(*a[row]).cdf).pvalue > 1e-4
    # The identity is nearest if x > y for the first entries of the rows.
    p, _ = integrate.quad(lambda x: stats.beta(*a[0]).pdf(x) * stats.beta(*a[1]).cdf(x), 0, 1)
    share = (nearest_matchings(X, allowed, 2)[:, 0] == 0).mean()
    assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / num)


def test_the_divergence_is_that_of_numpyro(rng):
    a = jnp.asarray(rng.uniform(0.2, 3, size=(3, 4)))
    prior = 0.3
    allowed = jnp.ones((3, 4), bool)
    expected = dist.kl_divergence(dist.Dirichlet(a), dist.Dirichlet(jnp.full((3, 4), prior)))
    np.testing.assert_allclose(dirichlet_divergence(a, prior, allowed), expected, rtol=1e-10)
    some = allowed.at[1, 2].set(False)
    kept = jnp.delete(a[1], 2)
    expected = dist.kl_divergence(dist.Dirichlet(kept), dist.Dirichlet(jnp.full(3, prior)))
    np.testing.assert_allclose(dirichlet_divergence(a, prior, some)[1], expected, rtol=1e-10)


def test_gradients_flow_through_the_gamma_variates():
    # d/da of the mean a / (a + b) is b / (a + b)^2.
    a, num = jnp.array([[1.5, 0.7]]), 20_000

    def first_entries(a):
        return _dirichlet(jax.random.key(0), a, jnp.ones((1, 2), bool), num)[:, 0, 0]

    slopes = np.asarray(jax.jvp(first_entries, (a,), (jnp.array([[1.0, 0.0]]),))[1])
    expected = 0.7 / 2.2**2
    assert abs(slopes.mean() - expected) < 4 * slopes.std() / np.sqrt(num)


def test_linear_models_in_closed_form(rng):
    scores = 2 * rng.normal(size=(4, 4))
    model = pv.models.LinearMatching(scores)
    posterior, exact = fit(model), pv.fit(model, "exact")
    np.testing.assert_allclose(posterior.diagnostics.extras["row_marginals"], softmax(scores))
    np.testing.assert_array_equal(posterior.mode, exact.mode)
    assert posterior.log_evidence <= exact.log_evidence + 1e-6
    assert posterior.num_evaluations <= 24
    assert posterior.diagnostics.verdict != "trust"
    assert "rows are independent" in posterior.diagnostics.reasons[-1]


class SharedPoints:
    """A density of several sites that is not linear."""

    shape = (3, 3)
    num_sites = 2

    def __init__(self, rng):
        self.y, self.c = rng.normal(size=(2, 2, 3, 2))

    def log_density(self, X):
        return -2 * jnp.sum((self.y - X @ self.c) ** 2, axis=(-3, -2, -1))


def test_general_densities_of_several_sites(rng, tmp_path):
    posterior = fit(SharedPoints(rng))
    rows = posterior.diagnostics.extras["row_marginals"]
    assert rows.shape == posterior.marginals.shape == (2, 3, 3)
    np.testing.assert_allclose(rows.sum(axis=-1), 1, atol=1e-5)
    trace = posterior.diagnostics.elbo_trace
    assert (trace[:, -50:].mean(axis=1) > trace[:, :10].mean(axis=1)).all()
    posterior.save(tmp_path / "fit.nc")
    np.testing.assert_array_equal(pv.load(tmp_path / "fit.nc").marginals, posterior.marginals)


def test_sharp_general_densities_find_the_truth(rng):
    truth = np.array([2, 0, 3, 1])
    c = rng.normal(size=(4, 2))

    def density(X):
        return -50 * jnp.sum((c[truth] - X @ c) ** 2, axis=(-2, -1))

    posterior = fit(pv.models.CallableModel(density, 4))
    np.testing.assert_array_equal(posterior.mode, truth)
    np.testing.assert_array_equal(
        posterior.diagnostics.extras["row_marginals"].argmax(axis=1), truth
    )


@pytest.mark.slow
def test_many_general_problems_at_once():
    model = pv.models.CallableModel(lambda X: jnp.sum(X**2 * jnp.arange(9.0).reshape(3, 3)), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        together = pv.fit_many([model, model], "naive", **{**QUICK, "num_steps": 20})
    assert together[0].seconds == together[1].seconds


@pytest.mark.parametrize("name", ["prior_concentration", "learning_rate"])
def test_bad_options(name):
    with pytest.raises(ValueError, match=f"{name} must be a positive number, got 0"):
        NaiveOptions(**{name: 0.0})
