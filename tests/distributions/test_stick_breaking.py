"""The stick-breaking family: density, sampler, shapes, entropy, and its answers to bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Normal
from scipy import integrate, stats

from permvi import transforms
from permvi.distributions import STICK_BREAKING_SCALE_BOUNDS, StickBreaking, birkhoff


def test_density_of_two_integrates_to_one():
    q = StickBreaking(jnp.array([[0.4]]), 0.8, 0.7)

    def density(x):
        return float(jnp.exp(q.log_prob(jnp.array([[x, 1 - x], [1 - x, x]]))))

    assert integrate.quad(density, 1e-9, 1 - 1e-9)[0] == pytest.approx(1, abs=1e-6)


def test_density_of_three_has_mass_one():
    q = StickBreaking(jnp.array([[0.3, -0.5], [0.2, 0.6]]), 0.9, 0.8, centered=True)
    proposal = StickBreaking(jnp.zeros((2, 2)), 2.0, 1.0, centered=True)
    X, inter = proposal.sample_with_intermediates(jax.random.key(0), (20_000,))
    weights = np.exp(np.asarray(q.log_prob(X) - proposal.log_prob(X, inter)))
    error = weights.std() / np.sqrt(len(weights))
    assert error < 0.02
    # Four standard errors: fails once in 16000 seeds.
    assert abs(weights.mean() - 1) < 4 * error


def test_sampler_follows_density():
    q = StickBreaking(jnp.array([[0.4]]), 0.8, 0.7)
    x = np.asarray(q.sample(jax.random.key(1), (4000,)))[:, 0, 0]
    # P(X_00 < x) = P(psi < tau logit x).
    cdf = stats.norm.cdf((0.7 * np.log(x / (1 - x)) - 0.4) / 0.8)
    assert stats.kstest(cdf, "uniform").pvalue > 1e-3


@pytest.mark.float32
def test_intermediates_spare_the_inversion():
    q = StickBreaking(jnp.full((3, 3), 40.0), 1.0, 0.5)
    X, inter = q.sample_with_intermediates(jax.random.key(0), (5,))
    psi = inter[0][0]
    log_det = transforms.stick_breaking(psi, 0.5)[1]
    expected = Normal(40.0, 1.0).log_prob(psi).sum((-2, -1)) - log_det
    log_prob = q.log_prob(X, inter)
    assert np.isfinite(log_prob).all()
    np.testing.assert_allclose(log_prob, expected, rtol=1e-5)


@pytest.mark.parametrize(("batch", "sample_shape"), [((), (2, 3)), ((3, 2), ())])
def test_shapes(batch, sample_shape):
    q = StickBreaking(jnp.zeros((*batch, 3, 3)), 0.5)
    X, inter = q.sample_with_intermediates(jax.random.key(0), sample_shape)
    assert q.batch_shape == batch
    assert q.event_shape == (4, 4)
    assert q.support is birkhoff
    assert q.has_rsample
    assert X.shape == q.shape(sample_shape)
    assert q.log_prob(X, inter).shape == sample_shape + batch
    np.testing.assert_allclose(q.log_prob(X), q.log_prob(X, inter), rtol=1e-8)


def test_batch_of_temperatures_alone_makes_a_batch():
    q = StickBreaking(jnp.zeros((2, 2)), 1.0, jnp.array([0.5, 1.0]))
    assert q.batch_shape == (2,)
    assert q.sample(jax.random.key(0), (5,)).shape == (5, 2, 3, 3)


def test_orders_move_rows_and_columns():
    loc = jnp.array([[1.0, -1.0], [0.5, 2.0]])
    rows, cols = jnp.array([2, 0, 1]), jnp.array([1, 2, 0])
    plain = StickBreaking(loc, 0.3).sample(jax.random.key(0))
    ordered = StickBreaking(loc, 0.3, row_order=rows, col_order=cols)
    np.testing.assert_allclose(ordered.sample(jax.random.key(0))[rows][:, cols], plain)
    X, inter = ordered.sample_with_intermediates(jax.random.key(0))
    np.testing.assert_allclose(ordered.log_prob(X), ordered.log_prob(X, inter), rtol=1e-8)


def test_monte_carlo_entropy_is_the_mean_negative_log_density():
    q = StickBreaking(jnp.array([[0.3, -0.5], [0.2, 0.6]]), 0.9, 0.8)
    X, inter = q.sample_with_intermediates(jax.random.key(0), (20_000,))
    values = -np.asarray(q.log_prob(X, inter))
    error = values.std() / np.sqrt(len(values))
    entropy = float(q.monte_carlo_entropy(jax.random.key(1), 20_000))
    # Both are estimates; the entropy's own error is the smaller one.
    assert abs(entropy - values.mean()) < 6 * error


@pytest.mark.float32
def test_gradients_are_finite_under_jit_and_vmap():
    @jax.jit
    def objective(loc, raw, temperature):
        q = StickBreaking(loc, jnp.exp(raw), temperature)
        X, inter = q.sample_with_intermediates(jax.random.key(0), (3,))
        return jnp.sum(X[..., 0, 0]) - jnp.sum(q.log_prob(X, inter))

    arguments = jnp.linspace(-3, 3, 18).reshape(2, 3, 3), jnp.zeros((2, 3, 3)), jnp.ones(2) / 2
    gradients = jax.grad(objective, argnums=(0, 1, 2))(*arguments)
    assert all(np.isfinite(g).all() for g in gradients)


def test_vmap_makes_and_uses_distributions():
    locs = jnp.arange(12.0).reshape(3, 2, 2) / 10
    made = jax.vmap(lambda loc: StickBreaking(loc, 0.5, 0.7))(locs)
    keys = jax.random.split(jax.random.key(0), 3)
    X = jax.vmap(lambda q, key: q.sample(key))(made, keys)
    alone = [StickBreaking(loc, 0.5, 0.7).sample(key) for loc, key in zip(locs, keys, strict=True)]
    np.testing.assert_allclose(X, jnp.stack(alone), rtol=1e-12)


def test_paper_bounds():
    assert STICK_BREAKING_SCALE_BOUNDS == (1e-8**0.5, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((jnp.zeros((2, 3)),), r"loc must have shape .* got shape \(2, 3\)"),
        ((jnp.zeros((2, 2)), 0.0), "scale must be positive, got 0.0"),
        ((jnp.zeros((2, 2)), 1.0, -1.0), "temperature must be positive, got -1.0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        StickBreaking(*arguments)


def test_bad_number_of_samples():
    with pytest.raises(ValueError, match="num_samples must be an integer of at least 1, got 0"):
        StickBreaking(jnp.zeros((2, 2))).monte_carlo_entropy(jax.random.key(0), 0)
