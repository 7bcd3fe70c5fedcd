r"""What is maximised in training: estimates, image by image, of bounds on log p(x).

``relaxed_elbo``
    :math:`\log p(x \mid X) + \log p(X) - \log q(X \mid x)` with relaxed X and the supplement's
    mixture of Gaussians at the one-hot vectors as the prior of each variable. Where q lives on the
    simplex, its density and the prior's have different base measures; they differ by a constant.
``concrete_elbo``
    The same with a uniform Concrete prior, as in Maddison et al. (2017).
``categorical_kl``
    :math:`\log p(x \mid X) - KL(\bar q \| \text{uniform})` with relaxed X and the exact divergence
    of the *discretised* q, as in the code of Jang et al. (2017) that the paper built on.
``straight_through``
    The same, but the decoder reads the vertex nearest to X and passes its gradient on to X.
``reinforce``
    :math:`\log p(x \mid z) - KL` with discrete z from the discretised q; the gradient is unbiased,
    by score functions with the other draws' mean as baseline (Kool et al. 2019).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from permvi.distributions import Concrete, OneHotPrior
from permvi.distributions._relaxed_categorical import RelaxedCategorical
from permvi.experiments.vae.network import VAE
from permvi.experiments.vae.schedules import Settings
from permvi.transforms import simplex

Objective = Callable[
    [jax.Array, VAE, RelaxedCategorical, jax.Array, Settings, jax.Array], jax.Array
]
_DRAWS = 4


def log_likelihood(model: VAE, X: jax.Array, images: jax.Array) -> jax.Array:
    """Bernoulli cross-entropy: codes (..., batch, latents, n), images (batch, pixels)."""
    return -jnp.sum(optax.sigmoid_binary_cross_entropy(model.decode(X), images), axis=-1)


def kl_to_uniform(log_probs: jax.Array) -> jax.Array:
    """KL divergence of categorical variables (..., latents, n) from uniform ones: (...)."""
    entries = jnp.exp(log_probs) * log_probs
    n = log_probs.shape[-1]
    return jnp.sum(entries, axis=(-2, -1)) + log_probs.shape[-2] * math.log(n)


def relaxed_elbo(
    rng_key: jax.Array,
    model: VAE,
    q: RelaxedCategorical,
    images: jax.Array,
    settings: Settings,
    weight: jax.Array,
) -> jax.Array:
    """Relaxed ELBO with the vertex prior."""
    prior = OneHotPrior(q.event_shape[0], settings.prior_width)
    X, intermediates = q.sample_with_intermediates(rng_key)
    kl = jnp.sum(q.log_prob(X, intermediates) - prior.log_prob(X), axis=-1)
    return log_likelihood(model, X, images) - weight * kl


def concrete_elbo(
    rng_key: jax.Array,
    model: VAE,
    q: RelaxedCategorical,
    images: jax.Array,
    settings: Settings,
    weight: jax.Array,
) -> jax.Array:
    """Relaxed ELBO with a Concrete prior; q has to be Concrete too."""
    prior = Concrete(jnp.zeros(q.event_shape, images.dtype), settings.prior_width)
    X, intermediates = q.sample_with_intermediates(rng_key)
    kl = q.log_prob(X, intermediates) - prior.log_prob(X, intermediates)
    return log_likelihood(model, X, images) - weight * jnp.sum(kl, axis=-1)


def categorical_kl(
    rng_key: jax.Array,
    model: VAE,
    q: RelaxedCategorical,
    images: jax.Array,
    settings: Settings,
    weight: jax.Array,
) -> jax.Array:
    """Relaxed reconstruction, exact divergence of the discretised q."""
    del settings
    likelihood = log_likelihood(model, q.rsample(rng_key), images)
    return likelihood - weight * kl_to_uniform(q.category_log_probs)


def straight_through(
    rng_key: jax.Array,
    model: VAE,
    q: RelaxedCategorical,
    images: jax.Array,
    settings: Settings,
    weight: jax.Array,
) -> jax.Array:
    """Reconstruction from vertices, with the gradient of the relaxed variable."""
    del settings
    X = q.rsample(rng_key)
    hard = X + jax.lax.stop_gradient(simplex.round_to_vertex(X) - X)
    return log_likelihood(model, hard, images) - weight * kl_to_uniform(q.category_log_probs)


def reinforce(
    rng_key: jax.Array,
    model: VAE,
    q: RelaxedCategorical,
    images: jax.Array,
    settings: Settings,
    weight: jax.Array,
) -> jax.Array:
    """Discrete reconstruction; its value is the ELBO's and its gradient unbiased for it."""
    del settings
    log_probs = q.category_log_probs
    z = jax.random.categorical(rng_key, log_probs, shape=(_DRAWS, *log_probs.shape[:-1]))
    codes = jax.nn.one_hot(z, log_probs.shape[-1], dtype=log_probs.dtype)
    likelihoods = log_likelihood(model, codes, images)
    advantages = (likelihoods - jnp.mean(likelihoods, axis=0)) * (_DRAWS / (_DRAWS - 1))
    log_q = jnp.sum(codes * log_probs, axis=(-2, -1))
    # Its value is zero, so that only the gradient of the score functions is added.
    scores = jax.lax.stop_gradient(advantages) * (log_q - jax.lax.stop_gradient(log_q))
    return jnp.mean(likelihoods + scores, axis=0) - weight * kl_to_uniform(log_probs)


OBJECTIVES: dict[str, Any] = {
    "relaxed_elbo": relaxed_elbo,
    "concrete_elbo": concrete_elbo,
    "categorical_kl": categorical_kl,
    "straight_through": straight_through,
    "reinforce": reinforce,
}
