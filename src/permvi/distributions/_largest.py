"""Probabilities that independent normal variables are the largest, by 1-D quadrature."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import erfc, logsumexp
from jax.scipy.stats import norm

# The grid extends this many standard deviations beyond the means: Phi(-6.5) is 4e-11.
_REACH = 6.5
# Spacing of 0.2 sd when the sds are equal, and of one sd of the smaller when they are 1:5.
_POINTS = 66


def log_probability_of_largest(loc: jax.Array, scale: jax.Array) -> jax.Array:
    r"""Log probabilities that each of n independent normal variables is the largest.

    .. math:: \pi_k = P(\psi_k > \psi_j, j \ne k)
              = \int \frac{f_k(t)}{F_k(t)} \prod_j F_j(t) \, dt

    with the densities f and distribution functions F of the variables. One equally spaced grid
    serves all n integrals. The integrands are smooth and vanish at both ends, so it converges
    faster than any power of the spacing. Standard deviations within one vector should differ by at
    most a factor of five.

    Args:
        loc: (..., n) means.
        scale: (..., n) standard deviations.

    Returns:
        (..., n) logarithms of probabilities, which sum to one.
    """
    low = jnp.max(loc - _REACH * scale, axis=-1, keepdims=True)
    high = jnp.max(loc + _REACH * scale, axis=-1, keepdims=True)
    # The rule is accurate for any such grid, so its ends need no gradient.
    low, high = jax.lax.stop_gradient((low, high))
    places = low + (high - low) * jnp.linspace(0, 1, _POINTS, dtype=loc.dtype)
    z = (places[..., None, :] - loc[..., None]) / scale[..., None]
    # On this grid z is above -6.5, where erfc is far from underflow and cheaper than log_ndtr.
    log_below = jnp.log(erfc(-z / math.sqrt(2)) / 2)
    log_rates = norm.logpdf(z) - jnp.log(scale[..., None]) - log_below
    masses = logsumexp(log_rates + jnp.sum(log_below, axis=-2, keepdims=True), axis=-1)
    return jax.nn.log_softmax(masses, axis=-1)
