"""The rounding family: density and its support, sampler, constraints, entropy, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy import stats

from permvi import assignment
from permvi.distributions import ROUNDING_SCALE_BOUNDS, Rounding

LOG_M = jnp.array([[1.0, 0.2], [-0.3, 0.5]])
CIRCLE = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_density_of_two_has_mass_one(temperature):
    q = Rounding(LOG_M, 0.3, temperature)
    # Importance sampling from wider Gaussians around the middle of each of the two cells.
    sd, centres = 0.5 * temperature, np.stack([np.eye(2), np.eye(2)[::-1]])
    centres = temperature * np.asarray(q.mean) + (1 - temperature) * centres
    generator = np.random.default_rng(0)
    X = centres[generator.integers(2, size=50_000)] + sd * generator.normal(size=(50_000, 2, 2))
    components = stats.norm.pdf(X[:, None], centres, sd).prod((-2, -1))
    values = np.exp(np.asarray(q.log_prob(X))) / components.mean(1)
    error = values.std() / np.sqrt(len(values))
    assert error < 0.02
    # Four standard errors: fails once in 16000 seeds.
    assert abs(values.mean() - 1) < 4 * error


def test_density_is_zero_in_the_holes():
    q = Rounding(LOG_M, 0.3, 0.4)
    hole = jnp.full((2, 2), 0.5).at[0, 0].add(1e-3)
    assert q.log_prob(hole) == -jnp.inf
    assert np.isfinite(Rounding(LOG_M, 0.3, 1.0).log_prob(hole))


def test_sampler_follows_density():
    q = Rounding(LOG_M, 0.3, 0.4)
    X, inter = q.sample_with_intermediates(jax.random.key(0), (4000,))
    np.testing.assert_allclose(q.log_prob(X), q.log_prob(X, inter), rtol=1e-8)
    z = (np.asarray(inter[0]) - np.asarray(q.mean)) / 0.3
    assert stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    rounded = assignment.nearest_permutation(inter[0])
    np.testing.assert_allclose(X, 0.4 * inter[0] + 0.6 * rounded, rtol=1e-12)


@pytest.mark.parametrize(
    ("batch", "sample_shape"),
    [((), ()), pytest.param((2,), (), marks=pytest.mark.slow), ((3, 2), (4,))],
)
def test_shapes(batch, sample_shape):
    q = Rounding(jnp.zeros((*batch, 3, 3)), 0.3, 0.5)
    X, inter = q.sample_with_intermediates(jax.random.key(0), sample_shape)
    assert q.batch_shape == batch
    assert q.support == constraints.real_matrix
    assert q.has_rsample
    assert X.shape == q.shape(sample_shape)
    assert q.rsample(jax.random.key(0), sample_shape).shape == X.shape
    assert q.log_prob(X, inter).shape == sample_shape + batch
    assert q.log_prob(X).shape == sample_shape + batch
    assert q.monte_carlo_entropy().shape == batch


def test_masked_entries_are_zero_and_do_not_count():
    q = Rounding(jnp.zeros((3, 3)), 0.3, 0.5, mask=CIRCLE)
    X, inter = q.sample_with_intermediates(jax.random.key(0), (50,))
    assert (np.asarray(X)[:, ~CIRCLE] == 0).all()
    np.testing.assert_allclose(q.log_prob(X), q.log_prob(X, inter), rtol=1e-8)
    gaussian = 0.5 * np.log(2 * np.pi * np.e * 0.3**2)
    assert q.monte_carlo_entropy() == pytest.approx(6 * (gaussian + np.log(0.5)))
    assert q.log_prob(X[0].at[0, 2].set(0.1)) == -jnp.inf


def test_known_pairs_are_one_and_do_not_count():
    q = Rounding(jnp.zeros((3, 3)), 0.3, 0.5, known=np.array([-1, 0, -1]))
    X, inter = q.sample_with_intermediates(jax.random.key(0), (20,))
    np.testing.assert_array_equal(np.asarray(X)[:, 1], np.tile([1.0, 0.0, 0.0], (20, 1)))
    assert (np.asarray(X)[:, [0, 2], 0] == 0).all()
    np.testing.assert_allclose(q.log_prob(X), q.log_prob(X, inter), rtol=1e-8)
    gaussian = 0.5 * np.log(2 * np.pi * np.e * 0.3**2)
    assert q.monte_carlo_entropy() == pytest.approx(4 * (gaussian + np.log(0.5)))
    assert q.log_prob(X[0].at[1, 0].set(0.9)) == -jnp.inf


def test_entropy_is_the_mean_negative_log_density():
    q = Rounding(LOG_M, jnp.array([[0.1, 0.2], [0.3, 0.4]]), 0.6)
    X, inter = q.sample_with_intermediates(jax.random.key(0), (20_000,))
    values = -np.asarray(q.log_prob(X, inter))
    error = values.std() / np.sqrt(len(values))
    assert abs(float(q.monte_carlo_entropy()) - values.mean()) < 4 * error


@pytest.mark.float32
def test_gradients_are_finite_and_ignore_the_assignment():
    @jax.jit
    def objective(log_m, raw, temperature):
        q = Rounding(log_m, jnp.exp(raw), temperature)
        X, inter = q.sample_with_intermediates(jax.random.key(0), (3,))
        return jnp.sum(X[..., 0, 0]) - jnp.sum(q.log_prob(X, inter))

    for temperature in (0.5, 1.0):
        arguments = jnp.zeros((2, 3, 3)), jnp.full((2, 3, 3), -1.0), jnp.full(2, temperature)
        gradients = jax.grad(objective, argnums=(0, 1, 2))(*arguments)
        assert all(np.isfinite(g).all() for g in gradients)


def test_temperature_one_solves_no_assignment(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("an assignment was solved")

    q = Rounding(LOG_M, 0.3, 1.0)
    monkeypatch.setattr(assignment.host, "solve", refuse)
    X, inter = q.sample_with_intermediates(jax.random.key(0), (5,))
    np.testing.assert_array_equal(X, inter[0])


def test_vmap_makes_and_uses_distributions():
    log_ms = jnp.arange(27.0).reshape(3, 3, 3) / 10
    made = jax.vmap(lambda log_m: Rounding(log_m, 0.3, 0.5))(log_ms)
    keys = jax.random.split(jax.random.key(0), 3)
    X = jax.vmap(lambda q, key: q.sample(key))(made, keys)
    alone = [Rounding(m, 0.3, 0.5).sample(key) for m, key in zip(log_ms, keys, strict=True)]
    np.testing.assert_allclose(X, jnp.stack(alone), rtol=1e-12)


def test_paper_bounds():
    assert ROUNDING_SCALE_BOUNDS == (0.1, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((jnp.zeros((2, 3)),), r"log_m must have shape .* got shape \(2, 3\)"),
        ((LOG_M, -1.0), "scale must be positive, got -1.0"),
        ((LOG_M, 0.3, 1.5), r"temperature must be in \(0, 1\], got 1.5"),
        ((LOG_M, 0.3, 0.5, np.array([[True, False], [True, False]])), "mask must allow"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Rounding(*arguments)
