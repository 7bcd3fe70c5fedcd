"""Training: every step is a function of seed and step number, so that runs can be resumed.

Several runs that differ in their seeds and settings are trained side by side in one program.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from permvi.experiments.vae import network
from permvi.experiments.vae.families import FAMILIES
from permvi.experiments.vae.objectives import OBJECTIVES
from permvi.experiments.vae.schedules import Settings

_ADAM = optax.scale_by_adam()


class Design(NamedTuple):
    """What runs that are trained side by side have in common, and what a program is compiled for.

    Attributes:
        family: Name of the relaxation.
        objective: Name of the training objective.
        latents: Number of categorical variables.
        categories: Number of values of each.
        widths: Of the encoder's hidden layers.
        batch: Images in a step.
        steps: Steps of the whole training.
    """

    family: str
    objective: str
    latents: int
    categories: int
    widths: tuple[int, ...]
    batch: int
    steps: int


class State(NamedTuple):
    """Where training stands; arrays have a leading axis over runs.

    Attributes:
        params: The networks.
        optimiser: The state of Adam.
    """

    params: Any
    optimiser: Any


def start(design: Design, pixels: int, seeds: Sequence[int]) -> State:
    """Untrained runs, one for each seed."""
    each = [
        eqx.filter(_new(design, pixels, np.random.default_rng(seed)), eqx.is_inexact_array)
        for seed in seeds
    ]
    params = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)
    return State(params, jax.jit(jax.vmap(_ADAM.init))(params))


def model_of(design: Design, pixels: int, params: Any) -> network.VAE:
    """The networks with these parameters, of a single run."""
    skeleton = eqx.filter_eval_shape(_new, design, pixels, np.random.default_rng(0))
    return eqx.combine(params, eqx.filter(skeleton, _is_shape, inverse=True))


@functools.partial(jax.jit, static_argnames=("design", "count"), donate_argnames="state")
def advance(
    design: Design,
    state: State,
    seeds: jax.Array,
    settings: Settings,
    images: jax.Array,
    first: jax.Array,
    count: int,
) -> tuple[State, jax.Array]:
    """Take ``count`` steps.

    Args:
        design: What the runs have in common.
        state: Where they stand after ``first`` steps.
        seeds: (runs,) integers.
        settings: With arrays of shape (runs,).
        images: (images, pixels) bytes.
        first: Number of steps that were taken before.
        count: Number of steps to take; accelerators run a loop of known length faster.

    Returns:
        The state after them, and (runs,) means of the training objective.
    """
    body = functools.partial(_step, design, images=images)

    def one(state: State, seed: jax.Array, settings: Settings) -> tuple[State, jax.Array]:
        def loop(state: State, step: jax.Array) -> tuple[State, jax.Array]:
            return body(state, seed, settings, step)

        state, values = jax.lax.scan(loop, state, first + jnp.arange(count))
        return state, jnp.mean(values)

    return jax.vmap(one)(state, seeds, settings)


def _step(
    design: Design,
    state: State,
    seed: jax.Array,
    settings: Settings,
    step: jax.Array,
    *,
    images: jax.Array,
) -> tuple[State, jax.Array]:
    rng_key = jax.random.fold_in(jax.random.key(seed), step)
    data_key, noise_key = jax.random.split(rng_key)
    # One draw for both the choice of images and their pixels: generators compile slowly.
    uniform = jax.random.uniform(data_key, (design.batch, 1 + images.shape[-1]))
    chosen = (uniform[:, 0] * len(images)).astype(int)
    grey = grey_levels(images[chosen])
    drawn = (uniform[:, 1:] < grey).astype(grey.dtype)
    batch = jnp.where(settings.binary == 1, drawn, grey)
    progress = step / design.steps
    temperature = settings.temperature(progress)
    weight = settings.kl_weight(progress)

    def loss(params: Any) -> jax.Array:
        model = model_of(design, images.shape[-1], params)
        q = FAMILIES[design.family].relaxed(model.encode(batch), temperature, settings.scale_bounds)
        values = OBJECTIVES[design.objective](noise_key, model, q, batch, settings, weight)
        return -jnp.mean(values)

    value, gradient = jax.value_and_grad(loss)(state.params)
    directions, optimiser = _ADAM.update(gradient, state.optimiser)
    rate = settings.rate(step)
    updates = jax.tree.map(lambda direction: -rate * direction, directions)
    return State(optax.apply_updates(state.params, updates), optimiser), -value


def grey_levels(images: jax.Array) -> jax.Array:
    """Grey levels in [0, 1] from bytes."""
    return images.astype(jnp.result_type(float)) / 255


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _new(design: Design, pixels: int, rng: np.random.Generator) -> network.VAE:
    return network.new(
        rng,
        pixels=pixels,
        latents=design.latents,
        categories=design.categories,
        parameters=FAMILIES[design.family].num_parameters(design.categories),
        widths=design.widths,
    )
