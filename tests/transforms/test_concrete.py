import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax.test_util import check_grads

from permvi.transforms import simplex

KEY = jax.random.key(11)

gumbel_softmax = jax.jit(simplex.gumbel_softmax)
log_gumbel_softmax = jax.jit(simplex.log_gumbel_softmax)
gumbel_softmax_sample = jax.jit(simplex.gumbel_softmax_sample, static_argnums=3)
exp_concrete_sample = jax.jit(simplex.exp_concrete_sample, static_argnums=3)
concrete_log_prob = jax.jit(simplex.concrete_log_prob)
concrete_log_prob_of_log = jax.jit(simplex.concrete_log_prob_of_log)
exp_concrete_log_prob = jax.jit(simplex.exp_concrete_log_prob)


def eps_of(array):
    return float(jnp.finfo(array.dtype).eps)


def mp_concrete_log_prob(log_x, logits, temperature):
    """Equation 10 of Maddison et al. (2017) as printed, with alpha = exp(logits)."""
    n, tau = len(log_x), mpmath.mpf(temperature)
    x = [mpmath.exp(mpmath.mpf(v)) for v in log_x]
    alpha = [mpmath.exp(mpmath.mpf(v)) for v in logits]
    total = mpmath.fsum(a * v**-tau for a, v in zip(alpha, x, strict=True))
    product = mpmath.fprod(a * v ** (-tau - 1) / total for a, v in zip(alpha, x, strict=True))
    return mpmath.log(mpmath.factorial(n - 1) * tau ** (n - 1) * product)


@pytest.mark.float32
@pytest.mark.parametrize("n", [1, 2, 10, 1000])
def test_gumbel_softmax_is_on_the_simplex(rng, n):
    psi = jnp.asarray(rng.normal(size=(2, 3, n)))
    for temperature in (1e-3, 1.0, 1e3):
        X = gumbel_softmax(psi, temperature)
        assert X.shape == psi.shape
        assert X.dtype == psi.dtype
        assert np.min(X) >= 0
        assert np.all(np.abs(np.sum(X, axis=-1) - 1) <= 8 * n * eps_of(X))
    expected = scipy.special.softmax(np.array(psi, float) / 0.7, axis=-1)
    tolerance = 64 * eps_of(psi)
    np.testing.assert_allclose(gumbel_softmax(psi, 0.7), expected, rtol=tolerance)
    np.testing.assert_allclose(
        log_gumbel_softmax(psi, 0.7), np.log(expected), rtol=tolerance, atol=tolerance
    )


@pytest.mark.float32
def test_the_limits_of_the_temperature():
    psi = jnp.array([[50.0, -500.0, 49.0], [1e30, 3e30, -3e30], [0.0, 0.0, 1.0]])
    for temperature in (1e-3, 1e-30):
        one_hot = gumbel_softmax(psi, temperature)
        np.testing.assert_array_equal(one_hot, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(gumbel_softmax(psi[0], 1e10), 1 / 3, rtol=1e-5)


@pytest.mark.float32
def test_one_temperature_per_batch_member(rng):
    psi = jnp.asarray(rng.normal(size=(2, 3, 4)))
    tau = jnp.asarray(rng.uniform(0.5, 2, size=(3,)))
    X = gumbel_softmax(psi, tau)
    density = concrete_log_prob(X, psi, tau)
    assert density.shape == (2, 3)
    rows = jax.jit(jax.vmap(jax.vmap(simplex.gumbel_softmax), (0, None)))(psi, tau)
    np.testing.assert_allclose(X, rows, rtol=8 * eps_of(psi))
    each = jax.jit(jax.vmap(jax.vmap(simplex.concrete_log_prob), (0, 0, None)))(X, psi, tau)
    np.testing.assert_allclose(density, each, rtol=64 * eps_of(psi), atol=64 * eps_of(psi))


@pytest.mark.float32
@pytest.mark.parametrize("temperature", [1e-3, 0.5, 3.0])
def test_density_against_the_printed_formula(rng, temperature):
    logits = jnp.asarray(rng.normal(size=(3, 4)))
    log_x = exp_concrete_sample(KEY, logits, temperature)
    tau = float(jnp.asarray(temperature, log_x.dtype))
    density = concrete_log_prob_of_log(log_x, logits, temperature)
    with mpmath.workdps(60):
        exact = [
            float(mp_concrete_log_prob(np.array(y, float), np.array(row, float), tau))
            for y, row in zip(log_x, logits, strict=True)
        ]
    # The printed formula wants log x normalised exactly; ours differs by its rounding.
    tolerance = 16 * eps_of(log_x) * (1 + np.abs(np.array(log_x)).sum(-1))
    assert np.all(np.abs(density - np.array(exact)) <= tolerance)
    if temperature >= 0.5:
        direct = concrete_log_prob(jnp.exp(log_x), logits, temperature)
        np.testing.assert_allclose(direct, density, rtol=1e3 * eps_of(log_x))


def test_two_categories_make_a_logistic_log_ratio():
    logits, tau = jnp.array([0.3, -0.9]), 0.6
    law = scipy.stats.logistic(loc=1.2 / tau, scale=1 / tau)
    log_x = exp_concrete_sample(KEY, logits, tau, (20_000,))
    ratio = log_x[:, 0] - log_x[:, 1]
    assert scipy.stats.kstest(ratio, law.cdf).pvalue > 1e-4
    density = exp_concrete_log_prob(log_x[:50], logits, tau)
    np.testing.assert_allclose(density, law.logpdf(ratio[:50]), rtol=1e-9, atol=1e-9)


def test_densities_of_three_categories_integrate_to_one():
    logits, tau = jnp.array([0.4, -0.3, 0.1]), 1.5
    # The density of the log-ratios is smooth and decays exponentially: the trapezoidal rule
    # converges geometrically.
    step = 0.25
    axis = jnp.arange(-30.0, 30.0, step)
    first, second = jnp.meshgrid(axis, axis)
    ratios = jnp.stack([first, second, jnp.zeros_like(first)], axis=-1)
    total = jnp.exp(exp_concrete_log_prob(ratios, logits, tau)).sum() * step**2
    assert abs(total - 1) < 1e-9

    nodes, weights = np.polynomial.legendre.leggauss(100)
    nodes, weights = (nodes + 1) / 2, weights / 2
    x, v = np.meshgrid(nodes, nodes, indexing="ij")
    X = np.stack([x, (1 - x) * v, (1 - x) * (1 - v)], axis=-1)
    values = np.exp(concrete_log_prob(jnp.asarray(X), logits, tau)) * (1 - x)
    assert abs(weights @ values @ weights - 1) < 1e-5


def test_frequencies_of_the_largest_entry_are_the_categorical_probabilities(rng):
    # The Gumbel-max property holds at every temperature; four standard errors, fixed seed.
    logits, num_draws = jnp.asarray(rng.normal(size=6)), 100_000
    X = gumbel_softmax_sample(KEY, logits, 1e-3, (num_draws,))
    frequencies = np.bincount(X.argmax(-1), minlength=6) / num_draws
    pi = scipy.special.softmax(logits)
    assert np.all(np.abs(frequencies - pi) < 4 * np.sqrt(pi * (1 - pi) / num_draws))


def test_samples_agree_in_logarithms(rng):
    logits = jnp.asarray(rng.normal(size=(3, 4)), jnp.float32)
    X = gumbel_softmax_sample(KEY, logits, jnp.array([0.5, 1.0, 2.0]), (2,))
    log_X = exp_concrete_sample(KEY, logits, jnp.array([0.5, 1.0, 2.0]), (2,))
    assert X.shape == (2, 3, 4)
    assert X.dtype == log_X.dtype == jnp.float32
    np.testing.assert_allclose(jnp.exp(log_X), X, rtol=1e-5)


def test_gradients_against_central_differences(rng):
    psi, logits = jnp.asarray(rng.normal(size=(2, 4)))
    tau = jnp.array(0.7)

    @jax.jit
    def both(psi, logits, tau):
        X = gumbel_softmax(psi, tau)
        return X, concrete_log_prob(X, logits, tau + 0.3)

    check_grads(both, (psi, logits, tau), 1, modes=("rev",), rtol=1e-5, atol=1e-5)


@pytest.mark.float32
def test_extremes_are_finite():
    psi = jnp.array([[50.0, -50.0, 0.0], [-500.0, 500.0, 499.0]])

    def total(psi, logits, tau):
        log_X = log_gumbel_softmax(psi, tau)
        density = concrete_log_prob_of_log(log_X, logits, tau)
        values = (gumbel_softmax(psi, tau), log_X, density)
        return sum(value.sum() for value in values), values

    gradients, values = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(
        psi, -psi, jnp.asarray(1e-3)
    )
    for array in (*gradients, *values):
        assert np.all(np.isfinite(array))


def test_one_trace_for_all_temperatures_and_data():
    traces = []

    @jax.jit
    def density(psi, logits, tau):
        traces.append(None)
        return concrete_log_prob(gumbel_softmax(psi, tau), logits, tau)

    for tau in (0.5, 2.0):
        density(jnp.full(3, tau), jnp.full(3, -tau), tau)
    assert len(traces) == 1
    assert np.isnan(density(jnp.ones(3), jnp.ones(3), 0.0))


def test_one_category_is_certain():
    assert gumbel_softmax(jnp.array([3.0]), 0.5) == 1
    assert concrete_log_prob(jnp.array([1.0]), jnp.array([2.0]), 0.5) == math.log(1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: simplex.gumbel_softmax(jnp.array(1.0), 1.0),
            ValueError,
            r"psi must have shape \(..., n\) with n >= 1, got shape \(\)",
        ),
        (lambda: simplex.gumbel_softmax(jnp.ones((2, 0)), 1.0), ValueError, "psi must have shape"),
        (lambda: simplex.gumbel_softmax(jnp.arange(3), 1.0), TypeError, "psi must be a floating"),
        (lambda: simplex.gumbel_softmax(jnp.ones(3), 0.0), ValueError, "temperature must be pos"),
        (lambda: simplex.gumbel_softmax(jnp.ones(3), jnp.ones(3)), ValueError, "temperature must"),
        (
            lambda: simplex.exp_concrete_log_prob(jnp.ones(3), jnp.ones(4), 1.0),
            ValueError,
            "log_X, logits must broadcast together",
        ),
        (
            lambda: simplex.exp_concrete_log_prob(jnp.ones(3), jnp.ones(1), 1.0),
            ValueError,
            "log_X and logits must have the same number of categories, got 3 and 1",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
