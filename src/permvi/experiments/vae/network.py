"""The autoencoder of the work that the paper built on (Jang et al. 2017), in Equinox."""

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class VAE(eqx.Module):
    """Images to parameters of categorical variables, and their values to pixel logits.

    Attributes:
        encoder: (pixels,) to (latents * parameters,).
        decoder: (latents * categories,) to (pixels,).
        latents: How many categorical variables.
    """

    encoder: eqx.nn.Sequential
    decoder: eqx.nn.Sequential
    latents: int = eqx.field(static=True)

    def encode(self, images: jax.Array) -> jax.Array:
        """(batch, pixels) -> (batch, latents, parameters)."""
        return jax.vmap(self.encoder)(images).reshape(len(images), self.latents, -1)

    def decode(self, X: jax.Array) -> jax.Array:
        """(..., latents, categories) values, one-hot or relaxed, -> (..., pixels) logits."""
        flat = X.reshape(-1, X.shape[-2] * X.shape[-1])
        return jax.vmap(self.decoder)(flat).reshape(*X.shape[:-2], -1)


def new(
    rng: np.random.Generator,
    *,
    pixels: int,
    latents: int,
    categories: int,
    parameters: int,
    widths: Sequence[int],
) -> VAE:
    """Untrained networks; ``widths`` are the encoder's, the decoder has them in reverse."""
    return VAE(
        _dense(rng, [pixels, *widths, latents * parameters]),
        _dense(rng, [latents * categories, *reversed(widths), pixels]),
        latents,
    )


def _dense(rng: np.random.Generator, sizes: Sequence[int]) -> eqx.nn.Sequential:
    """Linear layers with ReLU between them, and the initial weights of Glorot and Bengio (2010)."""
    layers: list[Any] = []
    dtype = jnp.result_type(float)
    for inputs, outputs in itertools.pairwise(sizes):
        if layers:
            layers.append(eqx.nn.Lambda(jax.nn.relu))
        # Weights drawn on the host spare every program the compilation of its own generator.
        shape = eqx.filter_eval_shape(eqx.nn.Linear, inputs, outputs, key=jax.random.key(0))
        limit = np.sqrt(6 / (inputs + outputs))
        weight = jnp.asarray(rng.uniform(-limit, limit, (outputs, inputs)), dtype)
        values = (weight, jnp.asarray(np.zeros(outputs), dtype))
        layers.append(eqx.tree_at(lambda layer: (layer.weight, layer.bias), shape, values))
    return eqx.nn.Sequential(layers)
