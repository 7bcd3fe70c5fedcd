"""Maps to the simplex, the categorical analogues of the permutation transforms.

The supplement's section "Alternative methods of discrete variational inference": stick-breaking,
rounding, and the categorical distributions that stick-breaking reaches at zero temperature;
Gumbel-softmax is in ``concrete`` and available from here too. The simplex of n categories is on
the last axis, any batch shape before it. A temperature that is not positive raises ``ValueError``
outside ``jit`` and makes the results NaN inside it.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jax.typing import ArrayLike

from permvi import _checks
from permvi.transforms import sticks as _sticks
from permvi.transforms._arguments import common_shape, positive, same_shape, vector
from permvi.transforms._arguments import mask as _allowed
from permvi.transforms.concrete import concrete_log_prob as concrete_log_prob
from permvi.transforms.concrete import concrete_log_prob_of_log as concrete_log_prob_of_log
from permvi.transforms.concrete import exp_concrete_log_prob as exp_concrete_log_prob
from permvi.transforms.concrete import exp_concrete_sample as exp_concrete_sample
from permvi.transforms.concrete import gumbel_softmax as gumbel_softmax
from permvi.transforms.concrete import gumbel_softmax_sample as gumbel_softmax_sample
from permvi.transforms.concrete import log_gumbel_softmax as log_gumbel_softmax
from permvi.transforms.sticks import Sticks

_CELL_SLACK = 8  # roundings between a point and its preimage, in units of eps


def stick_breaking(psi: ArrayLike, temperature: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """Break a stick of length one: ``x_k = β_k (1 - sum_{m<k} x_m)``, β = σ(ψ/τ).

    Args:
        psi: real array of shape (..., n-1).
        temperature: τ > 0, scalar or broadcasting to the batch shape.

    Returns:
        X of shape (..., n) on the simplex and the log-determinant, of shape (...), of the map from
        ψ to the first n-1 entries of X.
    """
    psi = vector("psi", psi, size="n-1", min_size=0)
    tau = _checks.temperature(temperature, psi.dtype, psi.shape[:-1])
    sticks, log_slopes = _sticks.logistic(psi, tau[..., None])
    X, log_det = from_sticks(sticks)
    return X, log_det + jnp.sum(log_slopes, axis=-1)


def stick_breaking_inverse(X: ArrayLike, temperature: ArrayLike) -> tuple[jax.Array, jax.Array]:
    """The ψ that ``stick_breaking`` maps to X.

    Entries of X that are exactly zero have an infinite ψ. Where the temperature is low enough to
    produce them, keep ψ with the sample instead of inverting X.

    Args:
        X: points of the simplex, of shape (..., n).
        temperature: τ > 0, scalar or broadcasting to the batch shape.

    Returns:
        ψ of shape (..., n-1) and the log-determinant of this inverse map, of shape (...).
    """
    X = vector("X", X)
    tau = _checks.temperature(temperature, X.dtype, X.shape[:-1])
    psi = _sticks.logistic_inverse(sticks_of(X), tau[..., None])
    _, log_det = stick_breaking(psi, tau)
    return psi, -log_det


def from_sticks(sticks: Sticks) -> tuple[jax.Array, jax.Array]:
    """The point of the simplex with these stick proportions, of any distribution.

    Args:
        sticks: proportions β of shape (..., n-1), from ``sticks.logistic``, ``sticks.kumaraswamy``
            or ``sticks.beta_sample``; Beta sticks make X a generalised Dirichlet vector.

    Returns:
        X of shape (..., n) and ``log |d x_{1..n-1} / d β| = sum_k sum_{m<k} log(1 - β_m)``, of
        shape (...). The log density of X is that of the sticks minus this term.
    """
    log_X, log_det = _log_from_sticks(sticks)
    return jnp.exp(log_X), log_det


def log_from_sticks(sticks: Sticks) -> jax.Array:
    """The logarithm of X in ``from_sticks``, finite where X itself underflows."""
    return _log_from_sticks(sticks)[0]


def sticks_of(X: ArrayLike) -> Sticks:
    """The stick proportions β_k = x_k / sum_{m>=k} x_m of X: (..., n) -> (..., n-1).

    The inverse of ``from_sticks``. Where nothing of the stick remains, β is zero by convention.
    """
    X = vector("X", X)
    later = _remaining(X)[..., 1:]
    # All of the stick may be gone; log 0 - log 0 must reach neither the value nor the gradient.
    gone = (X[..., :-1] == 0) & (later == 0)
    first, rest = (jnp.where(gone, 1.0, part) for part in (X[..., :-1], later))
    logits = jnp.where(gone, -jnp.inf, jnp.log(first) - jnp.log(rest))
    return Sticks(jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits))


def rounding(
    psi: ArrayLike, temperature: ArrayLike, mask: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """Pull points towards their nearest vertex: ``X = τ ψ + (1 - τ) round(ψ)``.

    No gradient flows through ``round``, and X is near the simplex rather than on it.

    Args:
        psi: real array of shape (..., n).
        temperature: τ in (0, 1], scalar or broadcasting to the batch shape.
        mask: boolean, broadcasting to ``psi``: True where a category is allowed. Forbidden entries
            of ψ are ignored, and zero in X.

    Returns:
        X of shape (..., n) and the log-determinant ``k log τ``, of shape (...), with k the number
        of allowed entries.
    """
    psi = vector("psi", psi)
    allowed = _allowed(mask, "psi", psi.shape)
    tau = _checks.temperature(temperature, psi.dtype, psi.shape[:-1], upper=1)
    psi = jnp.where(allowed, psi, 0.0)
    X = tau[..., None] * psi + (1 - tau[..., None]) * _nearest_vertex(psi, allowed)
    return X, _log_volume(tau, allowed)


def rounding_inverse(
    X: ArrayLike, temperature: ArrayLike, mask: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """The ψ = (X - (1 - τ) round(X)) / τ that ``rounding`` maps to X.

    Only points for which ``in_rounding_support`` holds have a preimage.

    Args:
        X: real array of shape (..., n).
        temperature: τ in (0, 1], scalar or broadcasting to the batch shape.
        mask: the one given to ``rounding``.

    Returns:
        ψ of shape (..., n), zero where forbidden, and the log-determinant ``-k log τ`` of this
        inverse map, of shape (...).
    """
    X = vector("X", X)
    allowed = _allowed(mask, "X", X.shape)
    tau = _checks.temperature(temperature, X.dtype, X.shape[:-1], upper=1)
    X = jnp.where(allowed, X, 0.0)
    psi = (X - (1 - tau[..., None]) * _nearest_vertex(X, allowed)) / tau[..., None]
    return psi, -_log_volume(tau, allowed)


def in_rounding_support(
    X: ArrayLike, temperature: ArrayLike, mask: ArrayLike | None = None
) -> jax.Array:
    """Whether X is in the image of ``rounding``: its preimage rounds to the vertex X rounds to.

    This holds if the largest allowed entry of X exceeds the second largest by 1 - τ. Points within
    a few roundings of that are accepted too; otherwise some samples would be outside the support.

    Args:
        X: real array of shape (..., n).
        temperature: τ in (0, 1], scalar or broadcasting to the batch shape.
        mask: the one given to ``rounding``.

    Returns:
        Booleans of shape (...).
    """
    X = vector("X", X)
    allowed = _allowed(mask, "X", X.shape)
    tau = _checks.temperature(temperature, X.dtype, X.shape[:-1], upper=1)
    X = jnp.where(allowed, X, -jnp.inf)
    largest = jnp.max(X, axis=-1)
    second = jnp.max(jnp.where(_nearest_vertex(X, allowed) > 0, -jnp.inf, X), axis=-1)
    slack = _CELL_SLACK * jnp.finfo(X.dtype).eps * jnp.maximum(1, jnp.abs(largest))
    return largest - second >= 1 - tau - slack


def round_to_vertex(psi: ArrayLike, mask: ArrayLike | None = None) -> jax.Array:
    """The nearest vertex of the simplex: one-hot at the largest allowed entry, without gradient.

    Ties go to the smallest index. A vector with a NaN among its allowed entries rounds to NaN.
    """
    psi = vector("psi", psi)
    return _nearest_vertex(psi, _allowed(mask, "psi", psi.shape))


def project(m: ArrayLike) -> jax.Array:
    """Euclidean projection of vectors (..., n) onto the simplex, with its gradient.

    The mean of the supplement's rounding family is ``project(m)``.
    """
    m = vector("m", m)
    # The projection ignores a common shift; without this one, large entries cancel.
    shifted = m - jax.lax.stop_gradient(jnp.max(m, axis=-1, keepdims=True))
    # Loading optax takes a tenth of a second, and most fits need nothing of it.
    from optax.projections import projection_simplex

    return jnp.vectorize(projection_simplex, signature="(n)->(n)")(shifted)


def rho_to_pi(rho: ArrayLike) -> jax.Array:
    """Categorical probabilities from stick probabilities: ``π_k = ρ_k prod_{m<k} (1 - ρ_m)``.

    If β_k ~ Bernoulli(ρ_k), the broken stick is one-hot with probabilities π (supplement, "Limit
    analysis for stick-breaking").

    Args:
        rho: probabilities of shape (..., n-1), zeros and ones included.

    Returns:
        π of shape (..., n).
    """
    rho = vector("rho", rho, size="n-1", min_size=0)
    one = jnp.ones((*rho.shape[:-1], 1), rho.dtype)
    before = jnp.concatenate([one, jnp.cumprod(1 - rho, axis=-1)], axis=-1)
    return before * jnp.concatenate([rho, one], axis=-1)


def pi_to_rho(pi: ArrayLike) -> jax.Array:
    """Stick probabilities ``ρ_k = π_k / prod_{m<k} (1 - ρ_m) = π_k / sum_{m>=k} π_m``.

    The inverse of ``rho_to_pi``; the paper's product runs, by misprint, to ``n = 1`` instead of
    ``n - 1``. Where no mass remains, ρ is zero by convention.

    Args:
        pi: categorical probabilities of shape (..., n).

    Returns:
        ρ of shape (..., n-1).
    """
    pi = vector("pi", pi)
    remaining = _remaining(pi)[..., :-1]
    gone = remaining == 0
    return jnp.where(gone, 0.0, pi[..., :-1] / jnp.where(gone, 1.0, remaining))


def limit_probabilities(loc: ArrayLike, scale: ArrayLike) -> jax.Array:
    """The categorical distribution that logistic-normal stick-breaking tends to as τ -> 0.

    β = σ(ψ/τ) with ψ ~ N(loc, scale²) becomes Bernoulli(ρ), ρ = Φ(loc/scale); the paper prints the
    opposite sign.

    Args:
        loc: means of ψ, of shape (..., n-1).
        scale: positive standard deviations of ψ; broadcasts against ``loc``.

    Returns:
        π of shape (..., n).
    """
    return jnp.exp(log_limit_probabilities(loc, scale))


def log_limit_probabilities(loc: ArrayLike, scale: ArrayLike) -> jax.Array:
    """The logarithm of ``limit_probabilities``, precise for the rarest categories too."""
    loc = vector("loc", loc, size="n-1", min_size=0)
    scale = positive("scale", scale)
    shape = common_shape(loc=loc, scale=scale)
    z = jnp.broadcast_to(loc / scale, shape)
    return log_from_sticks(Sticks(log_ndtr(z), log_ndtr(-z)))


def _log_from_sticks(sticks: Sticks) -> tuple[jax.Array, jax.Array]:
    log_beta = vector("log_beta", sticks.log_beta, size="n-1", min_size=0)
    log_complement = vector("log_complement", sticks.log_complement, size="n-1", min_size=0)
    same_shape(log_beta=log_beta, log_complement=log_complement)
    none = jnp.zeros((*log_beta.shape[:-1], 1), log_beta.dtype)
    log_rest = jnp.concatenate([none, jnp.cumsum(log_complement, axis=-1)], axis=-1)
    log_X = log_rest + jnp.concatenate([log_beta, none], axis=-1)
    return log_X, jnp.sum(log_rest[..., :-1], axis=-1)


def _remaining(X: jax.Array) -> jax.Array:
    """Return ``sum_{m>=k} x_m``, summed from the end so that nothing cancels."""
    return jax.lax.cumsum(X, axis=X.ndim - 1, reverse=True)


def _nearest_vertex(psi: jax.Array, allowed: jax.Array) -> jax.Array:
    psi = jax.lax.stop_gradient(psi)
    best = jnp.max(jnp.where(allowed, psi, -jnp.inf), axis=-1, keepdims=True)
    # Comparing with the maximum, instead of argmax, respects the mask even at -inf.
    chosen = allowed & (psi == best)
    vertex = jax.nn.one_hot(jnp.argmax(chosen, axis=-1), psi.shape[-1], dtype=psi.dtype)
    return jnp.where(jnp.any(chosen, axis=-1, keepdims=True), vertex, jnp.nan)


def _log_volume(tau: jax.Array, allowed: jax.Array) -> jax.Array:
    """``k log τ`` with k the number of allowed entries, in the batch shape."""
    num_allowed = jnp.sum(allowed, axis=-1)
    return num_allowed.astype(tau.dtype) * jnp.log(tau)
