import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from permvi import _numerics

log1mexp = jax.jit(_numerics.log1mexp)
complement_loglog = jax.jit(_numerics.complement_loglog)


def default_eps():
    return float(jnp.finfo(jnp.zeros(()).dtype).eps)


def tolerance():
    """XLA's float64 log1p is off by up to 120 eps near -0.41; float32 has no such flaw."""
    eps = default_eps()
    return 4 * eps if eps > 1e-10 else 200 * eps


def relative_error(values, exact):
    return max(abs(float(v) / float(e) - 1) for v, e in zip(values, exact, strict=True))


@pytest.mark.float32
def test_log1mexp_against_mpmath():
    x = jnp.array([-1e-30, -1e-8, -0.1, -0.693, -0.694, -1.0, -30.0, -80.0])
    with mpmath.workdps(60):
        exact = [mpmath.log(-mpmath.expm1(float(v))) for v in np.array(x)]
        slope = [-mpmath.exp(float(v)) / -mpmath.expm1(float(v)) for v in np.array(x)]
    assert relative_error(log1mexp(x), exact) < tolerance()
    assert relative_error(jax.jit(jax.vmap(jax.grad(log1mexp)))(x), slope) < tolerance()


def test_log1mexp_at_and_beyond_the_ends():
    assert log1mexp(jnp.array(0.0)) == -jnp.inf
    assert log1mexp(jnp.array(-jnp.inf)) == 0
    assert np.isnan(log1mexp(jnp.array(0.5)))
    assert jax.grad(log1mexp)(jnp.array(-1e4)) == 0


@pytest.mark.float32
def test_complement_loglog_against_mpmath():
    s = jnp.array([-80.0, -40.0, -17.0, -15.0, -5.0, -0.4, 0.3, 1.0, 2.5, 2.9, 3.5, 3.7, 4.5, 6.0])

    def exact(v):
        return mpmath.log(-mpmath.log(-mpmath.expm1(-mpmath.exp(v))))

    with mpmath.workdps(600):
        values = [exact(mpmath.mpf(float(v))) for v in np.array(s)]
        slopes = [mpmath.diff(exact, mpmath.mpf(float(v))) for v in np.array(s)]
    # Relative to what the value stands for, log(1 - p) = -exp(value), hence the absolute part.
    error = np.abs(np.array(complement_loglog(s)) - np.array(values, dtype=float))
    assert np.all(error < tolerance() * (1 + np.abs(np.array(values, dtype=float))))
    gradient = jax.jit(jax.vmap(jax.grad(complement_loglog)))(s)
    assert relative_error(gradient, slopes) < 16 * tolerance()


def test_complement_loglog_is_its_own_inverse():
    s = jnp.linspace(-30.0, 3.0, 200)
    np.testing.assert_allclose(complement_loglog(complement_loglog(s)), s, rtol=1e-12, atol=1e-12)
    ends = complement_loglog(jnp.array([-jnp.inf, jnp.inf]))
    np.testing.assert_array_equal(ends, [jnp.inf, -jnp.inf])
