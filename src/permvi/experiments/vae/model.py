r"""The model: networks, relaxed categorical variables, and training objectives.

The networks are those of the work that the paper built on (Jang et al. 2017), in Equinox. A family
maps the encoder's outputs to relaxed categorical variables. Zero outputs mean a uniform category,
so an untrained encoder starts at the prior. An objective estimates, image by image, a bound on
log p(x), which training maximises:

``relaxed_elbo``
    :math:`\log p(x \mid X) + \log p(X) - \log q(X \mid x)` with relaxed X and the supplement's
    mixture of Gaussians at the one-hot vectors as the prior of each variable. Where q lives on the
    simplex, its density and the prior's have different base measures; they differ by a constant.
``concrete_elbo``
    The relaxed ELBO with a uniform Concrete prior, as in Maddison et al. (2017).
``categorical_kl``
    :math:`\log p(x \mid X) - KL(\bar q \| \text{uniform})` with relaxed X and the exact divergence
    of the *discretised* q, as in the code of Jang et al. (2017) that the paper built on.
``straight_through``
    Like ``categorical_kl``, but the decoder reads the vertex nearest to X and passes its gradient
    on to X.
``reinforce``
    :math:`\log p(x \mid z) - KL` with discrete z from the discretised q. The gradient is unbiased,
    from score functions with the mean of the other draws as baseline (Kool et al. 2019).
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import ndtri

from permvi.distributions import (
    Concrete,
    OneHotPrior,
    SimplexBeta,
    SimplexKumaraswamy,
    SimplexRounding,
    SimplexStickBreaking,
)
from permvi.distributions.concrete import RelaxedCategorical
from permvi.experiments.vae.settings import Settings
from permvi.transforms import simplex

_Bounds = tuple[jax.Array, jax.Array]
_DRAWS = 4


class VAE(eqx.Module):
    """An encoder of images to categorical variables, and a decoder of these to pixel logits."""

    encoder: eqx.nn.Sequential  # maps (pixels,) to (latents * parameters,)
    decoder: eqx.nn.Sequential  # maps (latents * categories,) to (pixels,)
    latents: int = eqx.field(static=True)  # number of categorical variables

    def encode(self, images: jax.Array) -> jax.Array:
        """Map (batch, pixels) to (batch, latents, parameters)."""
        return jax.vmap(self.encoder)(images).reshape(len(images), self.latents, -1)

    def decode(self, X: jax.Array) -> jax.Array:
        """Map one-hot or relaxed values (..., latents, categories) to (..., pixels) logits."""
        flat = X.reshape(-1, X.shape[-2] * X.shape[-1])
        return jax.vmap(self.decoder)(flat).reshape(*X.shape[:-2], -1)


def new_vae(
    rng: np.random.Generator,
    *,
    pixels: int,
    latents: int,
    categories: int,
    parameters: int,
    widths: Sequence[int],
) -> VAE:
    """Return untrained networks. The decoder has the encoder's ``widths`` in reverse."""
    return VAE(
        _dense(rng, [pixels, *widths, latents * parameters]),
        _dense(rng, [latents * categories, *reversed(widths), pixels]),
        latents,
    )


def _dense(rng: np.random.Generator, sizes: Sequence[int]) -> eqx.nn.Sequential:
    """Return linear layers with ReLU between them and the weights of Glorot and Bengio (2010)."""
    layers: list[Any] = []
    dtype = jnp.result_type(float)
    for inputs, outputs in itertools.pairwise(sizes):
        if layers:
            layers.append(eqx.nn.Lambda(jax.nn.relu))
        # Drawing weights on the host saves every program from compiling a generator.
        shape = eqx.filter_eval_shape(eqx.nn.Linear, inputs, outputs, key=jax.random.key(0))
        limit = np.sqrt(6 / (inputs + outputs))
        weight = jnp.asarray(rng.uniform(-limit, limit, (outputs, inputs)), dtype)
        values = (weight, jnp.asarray(np.zeros(outputs), dtype))
        layers.append(eqx.tree_at(lambda layer: (layer.weight, layer.bias), shape, values))
    return eqx.nn.Sequential(layers)


class Family(NamedTuple):
    """A relaxation of categorical variables."""

    # Maps the number of categories to the number of parameters of a variable.
    num_parameters: Callable[[int], int]
    # Maps parameters (..., p), temperature and the bounds of the noise's standard deviation to the
    # relaxed variables.
    relaxed: Callable[[jax.Array, jax.Array, _Bounds], RelaxedCategorical]


def _concrete(parameters: jax.Array, temperature: jax.Array, bounds: _Bounds) -> Concrete:
    del bounds
    return Concrete(parameters, temperature)


def _stick_breaking(
    parameters: jax.Array, temperature: jax.Array, bounds: _Bounds
) -> SimplexStickBreaking:
    loc, raw_scale = jnp.split(parameters, 2, axis=-1)
    scale = _between(bounds, raw_scale)
    # Phi of this shift is 1/n, 1/(n-1), ..., 1/2: equal shares for all categories.
    shift = ndtri(1 / np.arange(loc.shape[-1] + 1, 1, -1)).astype(loc.dtype)
    return SimplexStickBreaking(scale * shift + loc, scale, temperature)


def _rounding(parameters: jax.Array, temperature: jax.Array, bounds: _Bounds) -> SimplexRounding:
    logits, raw_scale = jnp.split(parameters, 2, axis=-1)
    # Softmax is the Sinkhorn scaling of a single row. The supplement projects instead, which has
    # the same image but no gradient at the vertices, where the means end up.
    return SimplexRounding(jax.nn.softmax(logits), _between(bounds, raw_scale), temperature)


def _kumaraswamy(
    parameters: jax.Array, temperature: jax.Array, bounds: _Bounds
) -> SimplexKumaraswamy:
    del bounds
    return SimplexKumaraswamy(*_shapes(parameters), temperature)


def _beta(parameters: jax.Array, temperature: jax.Array, bounds: _Bounds) -> SimplexBeta:
    del bounds
    # Beta sticks approach the vertices as their temperature rises, other families as it falls.
    return SimplexBeta(*_shapes(parameters), 1 / temperature)


def _between(bounds: _Bounds, raw: jax.Array) -> jax.Array:
    low, high = bounds
    return low + (high - low) * jax.nn.sigmoid(raw)


def _shapes(parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return positive shape parameters, with equal shares where the parameters are zero."""
    raw_a, raw_b = jnp.split(parameters, 2, axis=-1)
    others = jnp.arange(raw_b.shape[-1], 0, -1, dtype=raw_b.dtype)
    return jnp.exp(raw_a), jnp.exp(raw_b) * others


def _sticks(categories: int) -> int:
    return 2 * (categories - 1)


FAMILIES = {
    "concrete": Family(lambda categories: categories, _concrete),
    "stick_breaking": Family(_sticks, _stick_breaking),
    "rounding": Family(lambda categories: 2 * categories, _rounding),
    "kumaraswamy": Family(_sticks, _kumaraswamy),
    "beta": Family(_sticks, _beta),
}


def log_likelihood(model: VAE, X: jax.Array, images: jax.Array) -> jax.Array:
    """Return Bernoulli log likelihoods; codes (..., batch, latents, n), images (batch, pixels)."""
    return -jnp.sum(optax.sigmoid_binary_cross_entropy(model.decode(X), images), axis=-1)


def kl_to_uniform(log_probs: jax.Array) -> jax.Array:
    """Return the KL divergence (...) of categorical variables (..., latents, n) from uniform."""
    entries = jnp.exp(log_probs) * log_probs
    n = log_probs.shape[-1]
    return jnp.sum(entries, axis=(-2, -1)) + log_probs.shape[-2] * math.log(n)


class Inputs(NamedTuple):
    """What an objective is computed from."""

    rng_key: jax.Array
    model: VAE  # the networks
    q: RelaxedCategorical  # (batch, latents) relaxed variables
    images: jax.Array  # (batch, pixels) in [0, 1]
    settings: Settings
    weight: jax.Array  # weight of the KL divergence


def _relaxed_elbo(given: Inputs) -> jax.Array:
    q = given.q
    prior = OneHotPrior(q.event_shape[0], given.settings.prior_width)
    X, intermediates = q.sample_with_intermediates(given.rng_key)
    kl = q.log_prob(X, intermediates) - prior.log_prob(X)
    return log_likelihood(given.model, X, given.images) - given.weight * jnp.sum(kl, axis=-1)


def _concrete_elbo(given: Inputs) -> jax.Array:
    """Relaxed ELBO with a Concrete prior, for a Concrete q."""
    q = given.q
    prior = Concrete(jnp.zeros(q.event_shape, given.images.dtype), given.settings.prior_width)
    X, intermediates = q.sample_with_intermediates(given.rng_key)
    kl = q.log_prob(X, intermediates) - prior.log_prob(X, intermediates)
    return log_likelihood(given.model, X, given.images) - given.weight * jnp.sum(kl, axis=-1)


def _categorical_kl(given: Inputs) -> jax.Array:
    likelihood = log_likelihood(given.model, given.q.rsample(given.rng_key), given.images)
    return likelihood - given.weight * kl_to_uniform(given.q.category_log_probs)


def _straight_through(given: Inputs) -> jax.Array:
    X = given.q.rsample(given.rng_key)
    hard = X + jax.lax.stop_gradient(simplex.round_to_vertex(X) - X)
    likelihood = log_likelihood(given.model, hard, given.images)
    return likelihood - given.weight * kl_to_uniform(given.q.category_log_probs)


def _reinforce(given: Inputs) -> jax.Array:
    """ELBO of the discretised model; its gradient is unbiased."""
    log_probs = given.q.category_log_probs
    z = jax.random.categorical(given.rng_key, log_probs, shape=(_DRAWS, *log_probs.shape[:-1]))
    codes = jax.nn.one_hot(z, log_probs.shape[-1], dtype=log_probs.dtype)
    likelihoods = log_likelihood(given.model, codes, given.images)
    advantages = (likelihoods - jnp.mean(likelihoods, axis=0)) * (_DRAWS / (_DRAWS - 1))
    log_q = jnp.sum(codes * log_probs, axis=(-2, -1))
    # Its value is zero, so that it adds only the gradient of the score functions.
    scores = jax.lax.stop_gradient(advantages) * (log_q - jax.lax.stop_gradient(log_q))
    return jnp.mean(likelihoods + scores, axis=0) - given.weight * kl_to_uniform(log_probs)


OBJECTIVES: dict[str, Callable[[Inputs], jax.Array]] = {
    "relaxed_elbo": _relaxed_elbo,
    "concrete_elbo": _concrete_elbo,
    "categorical_kl": _categorical_kl,
    "straight_through": _straight_through,
    "reinforce": _reinforce,
}
