"""Gamma variates against their law, and their gradients against those of moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from permvi.inference.naive.rows import log_gamma

NUM = 100_000


def draw(a, key=1):
    """Draws, and their derivatives in the concentration."""
    one = jnp.ones(())
    found = jax.jvp(lambda x: log_gamma(jax.random.key(key), x, (NUM,)), (a * one,), (one,))
    return (np.asarray(part, np.float64) for part in found)


def within(values, expected):
    assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(len(values))


@pytest.mark.float32
@pytest.mark.parametrize("a", [0.01, 0.1, 1.0, 25.0])
def test_draws_and_gradients(a):
    values, slopes = draw(a)
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
    # Tails as far as float32 has digits for them.
    assert stats.kstest(values, stats.loggamma(a).cdf).pvalue > 1e-4
    within(values, special.digamma(a))
    within(slopes, special.polygamma(1, a))


@pytest.mark.parametrize("a", [0.5, 4.0])
def test_gradients_of_other_moments(a):
    values, slopes = draw(a, key=2)
    # E x = a and E x^2 = a (a + 1).
    within(np.exp(values) * slopes, 1.0)
    within(2 * np.exp(2 * values) * slopes, 2 * a + 1)


def test_batches_differ_and_repeat():
    a = jnp.array([[0.2, 3.0]])
    values = log_gamma(jax.random.key(0), a, (50, 1, 2))
    assert len(np.unique(np.asarray(values))) == values.size
    np.testing.assert_array_equal(values, log_gamma(jax.random.key(0), a, (50, 1, 2)))
    under_jit = jax.jit(log_gamma, static_argnames="shape")(jax.random.key(0), a, (50, 1, 2))
    np.testing.assert_allclose(under_jit, values, rtol=1e-6)
