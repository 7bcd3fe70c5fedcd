r"""Scores of the *discretised* model: categorical q, uniform prior, and a decoder of vertices.

With draws :math:`z_s` from q and :math:`w_s = p(x \mid z_s)\, p(z_s) / q(z_s \mid x)`,

* the negative ELBO is :math:`KL(q \| p) - \frac1S \sum_s \log p(x \mid z_s)`, and
* the importance-weighted estimate of :math:`-\log p(x)` (Burda et al. 2016) is
  :math:`-\log \frac1S \sum_s w_s`, which lies between the two on average.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

from permvi.experiments.vae import training
from permvi.experiments.vae.model import FAMILIES, VAE, kl_to_uniform, log_likelihood
from permvi.experiments.vae.settings import Settings


class Scores(NamedTuple):
    """Scores of each image, in nats."""

    negative_elbo: jax.Array  # negative ELBO of the discretised model
    iw_nll: jax.Array  # importance-weighted estimate of -log p(x)
    kl: jax.Array  # exact KL divergence of q from the prior


def category_log_probs(
    design: training.Design, model: VAE, images: jax.Array, settings: Settings
) -> jax.Array:
    """Return (batch, latents, categories) log probabilities of the discretised q."""
    family = FAMILIES[design.family]
    # At the final temperature, on which only Kumaraswamy's categories depend.
    temperature = jnp.asarray(settings.temperature_end)
    return family.relaxed(
        model.encode(images), temperature, settings.scale_bounds
    ).category_log_probs


def scores(
    rng_key: jax.Array,
    model: VAE,
    log_probs: jax.Array,
    images: jax.Array,
    *,
    num_samples: int,
    at_once: int,
) -> Scores:
    """Score images (batch, pixels) in [0, 1], given the log probabilities of the discretised q.

    ``log_probs`` is (batch, latents, n). Samples are decoded ``at_once`` at a time, which must
    divide their number S.
    """
    latents, n = log_probs.shape[-2:]

    def some(rng_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        z = jax.random.categorical(rng_key, log_probs, shape=(at_once, *log_probs.shape[:-1]))
        codes = jax.nn.one_hot(z, n, dtype=log_probs.dtype)
        likelihoods = log_likelihood(model, codes, images)
        log_q = jnp.sum(jnp.take_along_axis(log_probs[None], z[..., None], axis=-1), axis=(-2, -1))
        return likelihoods, likelihoods - latents * math.log(n) - log_q

    keys = jax.random.split(rng_key, num_samples // at_once)
    likelihoods, log_weights = jax.lax.map(some, keys)
    kl = kl_to_uniform(log_probs)
    evidence = logsumexp(log_weights, axis=(0, 1)) - math.log(num_samples)
    return Scores(kl - jnp.mean(likelihoods, axis=(0, 1)), -evidence, kl)


@functools.partial(jax.jit, static_argnames=("design", "num_samples", "at_once"))
def evaluate(
    design: training.Design,
    params: Any,
    seeds: jax.Array,
    settings: Settings,
    images: jax.Array,
    *,
    num_samples: int,
    at_once: int = 50,
) -> Scores:
    """Return scores (runs, blocks, batch) of test images under trained runs.

    ``params``, ``seeds`` and ``settings`` have a leading axis over runs. The images are
    (2, blocks, batch, pixels) bytes: grey images, and binarised ones.
    """

    def one(params: Any, seed: jax.Array, settings: Settings) -> Scores:
        model = training.model_of(design, images.shape[-1], params)

        def block(number: jax.Array, images: jax.Array) -> Scores:
            pixels = training.grey_levels(images)
            log_probs = category_log_probs(design, model, pixels, settings)
            # Negative, since training folds in the numbers of its steps.
            rng_key = jax.random.fold_in(jax.random.key(seed), -1 - number)
            return scores(
                rng_key, model, log_probs, pixels, num_samples=num_samples, at_once=at_once
            )

        chosen = images[jnp.asarray(settings.binary, int)]
        return jax.lax.map(lambda given: block(*given), (jnp.arange(len(chosen)), chosen))

    # Scores are reported to a tenth of a nat, for which TensorFloat-32 is too coarse.
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(lambda given: one(*given), (params, seeds, settings))


@functools.partial(jax.jit, static_argnames="design")
def probabilities(
    design: training.Design, params: Any, settings: Settings, images: jax.Array
) -> jax.Array:
    """Return (batch, latents, categories) probabilities of the discretised q of images as bytes."""
    model = training.model_of(design, images.shape[-1], params)
    return jnp.exp(category_log_probs(design, model, training.grey_levels(images), settings))


@functools.partial(jax.jit, static_argnames=("design", "pixels"))
def decoded(design: training.Design, params: Any, codes: jax.Array, pixels: int) -> jax.Array:
    """Decode categories (batch, latents) to grey levels (batch, pixels) from 0 to 255."""
    model = training.model_of(design, pixels, params)
    one_hot = jax.nn.one_hot(codes, design.categories, dtype=jnp.result_type(float))
    return 255 * jax.nn.sigmoid(model.decode(one_hot))
