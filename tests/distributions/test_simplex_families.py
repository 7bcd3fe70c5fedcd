"""Relaxed categorical variables: densities, samplers, and the categories they stand for."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from permvi.distributions import (
    Concrete,
    SimplexBeta,
    SimplexKumaraswamy,
    SimplexRounding,
    SimplexStickBreaking,
)
from permvi.transforms import simplex

# Two categories: one free coordinate, whose density can be integrated.
PAIRS = {
    "concrete": Concrete(jnp.array([0.3, -0.5]), 0.7),
    "stick_breaking": SimplexStickBreaking(jnp.array([0.4]), 1.3, 0.8),
    "kumaraswamy": SimplexKumaraswamy(jnp.array([1.7]), jnp.array([2.4]), 0.9),
    "beta": SimplexBeta(jnp.array([1.5]), jnp.array([2.2]), 0.8),
}
FIVE = {
    "concrete": Concrete(jnp.array([0.3, -0.5, 1.0, 0.0, -2.0]), 0.6),
    "stick_breaking": SimplexStickBreaking(jnp.array([-0.8, 0.2, -0.3, 0.5]), 0.9, 0.4),
    "rounding": SimplexRounding(jnp.array([0.1, 0.5, 0.0, 0.3, 0.1]), 0.3, 0.4),
    "kumaraswamy": SimplexKumaraswamy(jnp.array([0.6, 1.2, 0.8, 2.0]), jnp.full(4, 1.5), 0.8),
    "beta": SimplexBeta(jnp.array([0.6, 1.2, 0.8, 2.0]), jnp.full(4, 1.5), 1.4),
}

log_prob = jax.jit(lambda q, X: q.log_prob(X))
category_log_probs = jax.jit(lambda q: q.category_log_probs)


@functools.partial(jax.jit, static_argnums=2)
def sample(q, seed, count):
    return q.sample(jax.random.key(seed), (count,))


def largest_by_quadrature(loc, scale):
    """P(each normal variable is the largest), Simpson's rule with 0.005 standard deviations."""
    t = np.linspace((loc - 9 * scale).min(), (loc + 9 * scale).max(), 20_001)[:, None]
    below = special.ndtr((t - loc) / scale)
    densities = np.exp(-0.5 * ((t - loc) / scale) ** 2) / (scale * np.sqrt(2 * np.pi))
    others = [np.delete(below, k, axis=1).prod(axis=1) for k in range(len(loc))]
    return integrate.simpson(densities * np.stack(others, axis=1), x=t[:, 0], axis=0)


def p_value(draws, log_probs):
    """Of the categories of largest entries under the stated probabilities."""
    counts = np.bincount(np.argmax(draws, axis=-1), minlength=draws.shape[-1])
    return stats.chisquare(counts, len(draws) * np.exp(log_probs)).pvalue


@pytest.mark.parametrize("name", PAIRS)
def test_two_categories_the_density_is_that_of_the_draws(name):
    q = PAIRS[name]

    def density(x):
        return np.exp(log_prob(q, np.stack([x, 1 - x], axis=-1)))

    # Substituting x = sigmoid(u) opens up both ends, where densities may be infinite.
    u = np.linspace(-40, 40, 5001)
    x = special.expit(u)
    inside = (x > 1e-14) & (x < 1 - 1e-14)
    heights = np.where(inside, density(np.where(inside, x, 0.5)) * x * (1 - x), 0)
    cdf = integrate.cumulative_trapezoid(heights, u, initial=0)
    assert cdf[-1] == pytest.approx(1, abs=1e-5)
    draws = np.asarray(sample(q, 1, 2000))
    np.testing.assert_allclose(draws.sum(-1), 1, rtol=1e-9)
    levels = np.interp(special.logit(draws[:, 0].clip(1e-16, 1 - 1e-16)), u, cdf)
    assert stats.kstest(levels, "uniform").pvalue > 1e-3


def test_rounding_has_the_density_of_its_draws():
    q = SimplexRounding(jnp.array([0.8, 0.2]), jnp.array([0.3, 0.5]), 0.5)
    # The support ends where entries differ by 0.5: half way between points of these grids.
    grid = 0.01 * np.arange(-300, 400)
    X = np.stack(np.meshgrid(grid, grid + 0.005, indexing="ij"), axis=-1)
    heights = np.exp(log_prob(q, X))
    assert heights.sum() * 1e-4 == pytest.approx(1, abs=1e-4)
    first = heights[X[..., 0] > X[..., 1]].sum() * 1e-4
    assert first == pytest.approx(float(np.exp(category_log_probs(q)[0])), abs=1e-4)
    draws = np.asarray(sample(q, 0, 10_000))
    for k in range(2):
        cdf = heights.sum(axis=1 - k).cumsum() * 1e-4
        levels = np.interp(draws[:, k], grid + 0.005 * (k + 1), cdf)
        assert stats.kstest(levels, "uniform").pvalue > 1e-3
    assert q.log_prob(jnp.array([0.5, 0.4])) == -np.inf


@pytest.mark.float32
@pytest.mark.parametrize("name", ["concrete", "stick_breaking", "rounding", "kumaraswamy"])
def test_densities_need_no_inversion(name):
    q = FIVE[name]

    @jax.jit
    def both(q):
        X, intermediates = q.sample_with_intermediates(jax.random.key(0), (6,))
        return X, q.log_prob(X), q.log_prob(X, intermediates)

    X, inverted, direct = both(q)
    assert X.shape == (6, 5)
    rtol = 1e-9 if X.dtype == jnp.float64 else 2e-3
    np.testing.assert_allclose(inverted, direct, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["concrete", "rounding"])
def test_the_category_is_that_of_the_largest_entry(name):
    draws = np.asarray(sample(FIVE[name], 2, 100_000))
    assert p_value(draws, category_log_probs(FIVE[name])) > 1e-3


@pytest.mark.parametrize("name", ["kumaraswamy", "beta"])
def test_the_category_is_drawn_from_the_point(name):
    draws = np.asarray(sample(FIVE[name], 3, 10_000))
    errors = draws.mean(0) - np.exp(category_log_probs(FIVE[name]))
    # Five categories: beyond 4 standard errors once in 3000 tests.
    assert (np.abs(errors) < 4 * draws.std(0) / np.sqrt(len(draws))).all()


def test_stick_breaking_at_zero_temperature_realises_any_categorical():
    pi = np.array([0.05, 0.4, 0.15, 0.3, 0.1])
    loc = special.ndtri(np.asarray(simplex.pi_to_rho(jnp.asarray(pi))))
    q = SimplexStickBreaking(jnp.asarray(loc), 1.0, 1e-4)
    np.testing.assert_allclose(np.exp(category_log_probs(q)), pi, rtol=1e-6)
    draws = np.asarray(sample(q, 4, 100_000))
    assert p_value(draws, np.log(pi)) > 1e-3
    # At most four proportions each are within 10 temperatures of the threshold.
    assert (draws.max(-1) < 0.99).mean() < 4 * 20e-4 * stats.norm.pdf(0)


@pytest.mark.float32
def test_the_probability_of_being_largest_against_simpsons_rule(rng):
    loc = rng.dirichlet(np.ones(6) / 2, size=8)
    scale = rng.uniform(0.1, 0.5, size=(8, 6))
    scale[0], scale[1] = 0.1, 0.5
    expected = np.array([largest_by_quadrature(*pair) for pair in zip(loc, scale, strict=True)])
    found = category_log_probs(SimplexRounding(jnp.asarray(loc), jnp.asarray(scale)))
    atol = 1e-8 if found.dtype == jnp.float64 else 2e-6
    np.testing.assert_allclose(np.exp(found), expected, atol=atol)


def test_gradients_of_the_probability_of_being_largest(rng):
    loc, scale = jnp.asarray(rng.uniform(size=4)), jnp.asarray(rng.uniform(0.2, 0.5, size=4))

    def first(loc):
        return jnp.exp(SimplexRounding(loc, scale).category_log_probs[0])

    steps = 1e-5 * np.eye(4)
    slopes = [
        (largest_by_quadrature(loc + step, scale)[0] - largest_by_quadrature(loc - step, scale)[0])
        / 2e-5
        for step in steps
    ]
    np.testing.assert_allclose(jax.jit(jax.grad(first))(loc), slopes, atol=1e-5)


@pytest.mark.float32
@pytest.mark.parametrize(
    "of",
    [
        lambda x: Concrete(50 * x, 0.05),
        lambda x: SimplexStickBreaking(20 * x[:-1], 1.0, 0.05),
        lambda x: SimplexRounding(jax.nn.softmax(20 * x), 0.1, 0.05),
    ],
    ids=["concrete", "stick_breaking", "rounding"],
)
def test_values_and_gradients_are_finite_near_the_vertices(of):
    def value(x):
        q = of(x)
        X, intermediates = q.sample_with_intermediates(jax.random.key(0))
        return q.log_prob(X, intermediates) + jnp.sum(jnp.exp(q.category_log_probs) * X)

    slope = jax.jit(jax.value_and_grad(value))
    for x in (jnp.array([1.0, -1.0, 0.5, 0.0]), jnp.zeros(4)):
        found, gradient = slope(x)
        assert np.isfinite(found)
        assert np.isfinite(gradient).all()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        Concrete(jnp.zeros(3), 0.0)
    with pytest.raises(ValueError, match="scale must be positive"):
        SimplexStickBreaking(jnp.zeros(2), -1.0)
    with pytest.raises(ValueError, match=r"temperature must be in \(0, 1\], got 2"):
        SimplexRounding(jnp.zeros(3), 0.3, 2.0)
    with pytest.raises(ValueError, match="a must be positive"):
        SimplexBeta(jnp.zeros(2), jnp.ones(2))
