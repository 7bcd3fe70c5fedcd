"""The vertex priors of relaxed matrices and categorical variables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from permvi.distributions import DEFAULT_WIDTH, OneHotPrior, PermutationPrior, VertexPrior


@pytest.mark.parametrize("width", [0.2, DEFAULT_WIDTH])
def test_log_prob_is_the_papers_product_of_mixtures(rng, width):
    X = rng.normal(size=(4, 3, 3))
    entries = 0.5 * (stats.norm.pdf(X, 0, width) + stats.norm.pdf(X, 1, width))
    expected = np.log(entries).sum((-2, -1))
    np.testing.assert_allclose(VertexPrior(3, width).log_prob(X), expected, rtol=1e-10)


def test_default_width_is_the_widest_without_a_peak_in_the_middle():
    def middle_minus_beside(width):
        prior = VertexPrior(1, width)
        return prior.log_prob(jnp.array([[0.5]])) - prior.log_prob(jnp.array([[0.4]]))

    assert middle_minus_beside(DEFAULT_WIDTH - 0.01) < 0
    assert middle_minus_beside(DEFAULT_WIDTH + 0.01) > 0


def test_single_entry_integrates_to_one():
    prior = VertexPrior(1, 0.3)
    mass = integrate.quad(lambda x: float(jnp.exp(prior.log_prob(jnp.array([[x]])))), -3, 4)[0]
    assert mass == pytest.approx(1, abs=1e-7)


def test_masked_entries_do_not_count():
    mask = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool)
    prior = VertexPrior(3, 0.4, mask)
    X = prior.sample(jax.random.key(0), (5,))
    assert (np.asarray(X)[:, ~mask] == 0).all()
    expected = VertexPrior(1, 0.4).log_prob(np.asarray(X)[:, mask].reshape(-1, 1, 1))
    np.testing.assert_allclose(prior.log_prob(X), expected.reshape(5, 5).sum(1), rtol=1e-10)


def test_samples_follow_the_mixture():
    x = np.asarray(VertexPrior(40, 0.3).sample(jax.random.key(0))).ravel()
    cdf = 0.5 * (stats.norm.cdf(x, 0, 0.3) + stats.norm.cdf(x, 1, 0.3))
    assert stats.kstest(cdf, "uniform").pvalue > 1e-3


def test_one_hot_log_prob_is_the_papers_mixture(rng):
    x = rng.normal(size=(5, 4))
    components = [np.prod(stats.norm.pdf(x, np.eye(4)[k], 0.3), axis=-1) for k in range(4)]
    expected = np.log(np.mean(components, axis=0))
    np.testing.assert_allclose(OneHotPrior(4, 0.3).log_prob(x), expected, rtol=1e-10)


@pytest.mark.float32
@pytest.mark.parametrize("prior", [VertexPrior(3, 1e-3), OneHotPrior(3, 1e-3)])
def test_far_from_the_vertices_values_and_gradients_are_finite(prior):
    x = jnp.full(prior.event_shape, 5.0)
    assert np.isfinite(prior.log_prob(x))
    assert np.isfinite(jax.grad(prior.log_prob)(x)).all()


@pytest.mark.parametrize("kind", [VertexPrior, OneHotPrior])
def test_shapes(kind):
    prior = kind(3, jnp.array([0.2, 0.4]))
    x = prior.sample(jax.random.key(0), (5,))
    assert x.shape == prior.shape((5,))
    assert prior.log_prob(x).shape == (5, 2)
    made = jax.vmap(lambda width: kind(3, width))(jnp.array([0.2, 0.4]))
    np.testing.assert_allclose(
        jax.vmap(lambda p, v: p.log_prob(v))(made, x[0]), prior.log_prob(x[0])
    )


def test_permutation_prior_is_its_public_name():
    assert PermutationPrior is VertexPrior


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "n must be an integer of at least 1, got 0"),
        ((3, 0.0), "width must be positive, got 0.0"),
        ((3, 0.5, np.ones((2, 2), bool)), "mask must broadcast to the shape"),
        ((2, 0.5, np.array([[True, False], [True, False]])), "mask must allow"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        VertexPrior(*arguments)
