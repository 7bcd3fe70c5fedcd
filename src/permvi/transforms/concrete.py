"""Gumbel-softmax samples on the simplex and their Concrete density.

Jang et al. (2017) and Maddison et al. (2017); supplement, "The Gumbel-softmax method". The simplex
is on the last axis, any batch shape before it. At low temperature the entries of X underflow while
their logarithms do not: keep log X with the sample and evaluate densities from it.
"""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike

from permvi import _checks
from permvi.transforms._arguments import common_shape, vector


def gumbel_softmax(psi: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """The point X = softmax(ψ/τ) of the simplex.

    Args:
        psi: real array of shape (..., n).
        temperature: τ > 0, scalar or broadcasting to the batch shape.

    Returns:
        X of shape (..., n): one-hot at the largest ψ as τ -> 0, uniform as τ -> infinity. The map
        loses one dimension of ψ, so the density of X is given by ``concrete_log_prob`` and not
        by a log-determinant.
    """
    return jax.nn.softmax(_scaled(psi, temperature), axis=-1)


def log_gumbel_softmax(psi: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """The logarithm of ``gumbel_softmax``, finite where X itself underflows."""
    return jax.nn.log_softmax(_scaled(psi, temperature), axis=-1)


def gumbel_softmax_sample(
    rng_key: jax.Array,
    logits: ArrayLike,
    temperature: ArrayLike,
    sample_shape: tuple[int, ...] = (),
) -> jax.Array:
    """Concrete draws: X = softmax((log θ + G)/τ) with standard Gumbel noise G.

    Args:
        rng_key: JAX random key.
        logits: log θ up to a constant, of shape (..., n).
        temperature: τ > 0, scalar or broadcasting to the shape of the result without its last
            axis.
        sample_shape: shape of the independent draws, as leading axes.

    Returns:
        X of shape ``(*sample_shape, ..., n)``, differentiable in ``logits`` and ``temperature``.
    """
    return gumbel_softmax(_perturbed(rng_key, logits, sample_shape), temperature)


def exp_concrete_sample(
    rng_key: jax.Array,
    logits: ArrayLike,
    temperature: ArrayLike,
    sample_shape: tuple[int, ...] = (),
) -> jax.Array:
    """The logarithms of the draws of ``gumbel_softmax_sample`` for the same arguments."""
    return log_gumbel_softmax(_perturbed(rng_key, logits, sample_shape), temperature)


def concrete_log_prob(X: ArrayLike, logits: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """Log density of the Concrete distribution at a point of the open simplex.

    ``log p(x) = log (n-1)! + (n-1) log τ + sum_k (log θ_k - (τ+1) log x_k)
    - n log sum_k θ_k x_k^-τ`` with respect to the Lebesgue measure of the first n-1 coordinates
    (Maddison et al. 2017, equation 10).

    Args:
        X: positive entries that sum to one, of shape (..., n); the result is NaN if one is zero.
        logits: log θ up to a constant; broadcasts against ``X``.
        temperature: τ > 0, scalar or broadcasting to the batch shape.

    Returns:
        Log densities in the common batch shape of ``X`` and ``logits``.
    """
    return concrete_log_prob_of_log(jnp.log(vector("X", X)), logits, temperature)


def concrete_log_prob_of_log(
    log_X: ArrayLike, logits: ArrayLike, temperature: ArrayLike
) -> jax.Array:
    """``concrete_log_prob`` of X, given log X; finite at any temperature."""
    log_X = vector("log_X", log_X)
    return exp_concrete_log_prob(log_X, logits, temperature) - jnp.sum(log_X, axis=-1)


def exp_concrete_log_prob(log_X: ArrayLike, logits: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """Log density of y = log X for Concrete X, better conditioned than that of X.

    ``log (n-1)! + (n-1) log τ + sum_k (log θ_k - τ y_k) - n log sum_k θ_k exp(-τ y_k)``
    (Maddison et al. 2017, appendix C) is the density of the n-1 log-ratios ``y_k - y_n`` with
    respect to their Lebesgue measure. Differences of two such densities at one point, as in a KL
    divergence, equal those of ``concrete_log_prob``.

    Args:
        log_X: log X of shape (..., n); a constant added to a vector changes nothing, so ``psi / τ``
            may stand in for it.
        logits: log θ up to a constant; broadcasts against ``log_X``.
        temperature: τ > 0, scalar or broadcasting to the batch shape.

    Returns:
        Log densities in the common batch shape of ``log_X`` and ``logits``.
    """
    log_X, logits = vector("log_X", log_X), vector("logits", logits)
    shape = common_shape(log_X=log_X, logits=logits)
    if log_X.shape[-1] != logits.shape[-1]:
        raise ValueError(
            "log_X and logits must have the same number of categories, "
            f"got {log_X.shape[-1]} and {logits.shape[-1]}."
        )
    dtype = jnp.result_type(log_X, logits)
    tau = _checks.temperature(temperature, dtype, shape[:-1])
    n = shape[-1]
    scores = logits - tau[..., None] * log_X
    # Subtracting the total weight first keeps the sum from cancelling against its n-fold.
    weights = scores - logsumexp(scores, axis=-1, keepdims=True)
    return math.lgamma(n) + (n - 1) * jnp.log(tau) + jnp.sum(weights, axis=-1)


def _scaled(psi: ArrayLike, temperature: ArrayLike) -> jax.Array:
    """ψ/τ up to a constant in each vector, with a largest entry of zero that cannot overflow."""
    psi = vector("psi", psi)
    tau = _checks.temperature(temperature, psi.dtype, psi.shape[:-1])
    return (psi - jax.lax.stop_gradient(jnp.max(psi, axis=-1, keepdims=True))) / tau[..., None]


def _perturbed(rng_key: jax.Array, logits: ArrayLike, sample_shape: tuple[int, ...]) -> jax.Array:
    logits = vector("logits", logits)
    return logits + jax.random.gumbel(rng_key, (*sample_shape, *logits.shape), logits.dtype)
