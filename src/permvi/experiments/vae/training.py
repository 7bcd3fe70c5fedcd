"""Training, with checkpoints. A step depends only on seed and step number, so runs can be resumed.

Several runs that differ in their seeds and settings are trained side by side in one program. A
checkpoint is one .npz file of plain arrays, without pickles, and is complete or absent.
"""

import functools
import io
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from permvi._files import write_bytes
from permvi.experiments.vae.model import FAMILIES, OBJECTIVES, VAE, Inputs, new_vae
from permvi.experiments.vae.settings import Settings

_ADAM = optax.scale_by_adam()


class Design(NamedTuple):
    """What runs that are trained side by side share. A program is compiled for each design."""

    family: str  # name of the relaxation
    objective: str  # name of the training objective
    latents: int  # number of categorical variables
    categories: int  # number of values of each
    widths: tuple[int, ...]  # widths of the encoder's hidden layers
    batch: int  # number of images in a step
    steps: int  # number of steps of the whole training


class State(NamedTuple):
    """Parameters and optimiser of all runs; arrays have a leading axis over runs."""

    params: Any  # the networks
    optimiser: Any  # the state of Adam


def start(design: Design, pixels: int, seeds: Sequence[int]) -> State:
    """Return untrained runs, one for each seed."""
    each = [
        eqx.filter(_new(design, pixels, np.random.default_rng(seed)), eqx.is_inexact_array)
        for seed in seeds
    ]
    params = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *each)
    return State(params, jax.jit(jax.vmap(_ADAM.init))(params))


def model_of(design: Design, pixels: int, params: Any) -> VAE:
    """Return the networks of a single run with these parameters."""
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
    """Take ``count`` steps after the ``first``; return the state and (runs,) mean objectives.

    Seeds and settings are arrays of shape (runs,), images are (images, pixels) bytes. ``count`` is
    static, since accelerators run a loop of known length faster.
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
    # One draw for the choice of images and their pixels, since generators compile slowly.
    uniform = jax.random.uniform(data_key, (design.batch, 1 + images.shape[-1]))
    chosen = (uniform[:, 0] * len(images)).astype(int)
    grey = grey_levels(images[chosen])
    drawn = (uniform[:, 1:] < grey).astype(grey.dtype)
    batch = jnp.where(settings.binary == 1, drawn, grey)
    fraction = step / design.steps
    temperature = settings.temperature(fraction)
    weight = settings.kl_weight(fraction)

    def loss(params: Any) -> jax.Array:
        model = model_of(design, images.shape[-1], params)
        q = FAMILIES[design.family].relaxed(model.encode(batch), temperature, settings.scale_bounds)
        given = Inputs(noise_key, model, q, batch, settings, weight)
        return -jnp.mean(OBJECTIVES[design.objective](given))

    value, gradient = jax.value_and_grad(loss)(state.params)
    directions, optimiser = _ADAM.update(gradient, state.optimiser)
    rate = settings.rate(step)
    updates = jax.tree.map(lambda direction: -rate * direction, directions)
    return State(optax.apply_updates(state.params, updates), optimiser), -value


def grey_levels(images: jax.Array) -> jax.Array:
    """Convert bytes to grey levels in [0, 1]."""
    return images.astype(jnp.result_type(float)) / 255


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)


def _new(design: Design, pixels: int, rng: np.random.Generator) -> VAE:
    return new_vae(
        rng,
        pixels=pixels,
        latents=design.latents,
        categories=design.categories,
        parameters=FAMILIES[design.family].num_parameters(design.categories),
        widths=design.widths,
    )


class Checkpoint(NamedTuple):
    """A saved training. Random numbers follow from seeds and step, so none are saved."""

    step: int  # number of steps taken
    state: State  # the state after these steps
    curve: np.ndarray  # (points, runs) training objective so far


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace the last checkpoint."""
    arrays: dict[str, Any] = {"step": np.asarray(checkpoint.step), "curve": checkpoint.curve}
    for index, leaf in enumerate(jax.tree.leaves(checkpoint.state)):
        arrays[f"leaf_{index}"] = np.asarray(leaf)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    np.savez(file, **arrays)
    write_bytes(path, file.getvalue())


def load_checkpoint(path: Path, untrained: State) -> Checkpoint | None:
    """Return the checkpoint at ``path``, or None if none fits the state ``untrained``."""
    leaves, structure = jax.tree.flatten(untrained)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = [arrays[f"leaf_{index}"] for index in range(len(leaves))]
            step, curve = int(arrays["step"]), arrays["curve"]
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error):
        return None
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(found, leaves, strict=True)):
        return None
    state = jax.tree.unflatten(structure, map(jnp.asarray, found))
    return Checkpoint(step, state, curve)


def train(
    design: Design,
    seeds: Sequence[int],
    settings: Settings,
    images: np.ndarray,
    path: Path,
    every: int,
) -> Checkpoint:
    """Train all runs, with a checkpoint at ``path`` every ``every`` steps, or resume from it."""
    untrained = start(design, images.shape[-1], seeds)
    now = load_checkpoint(path, untrained)
    if now is None:
        now = Checkpoint(0, untrained, np.zeros((0, len(seeds))))
    keys, on_device = jnp.asarray(seeds), jnp.asarray(images)
    while now.step < design.steps:
        last = min(now.step + every, design.steps)
        state, values = advance(
            design, now.state, keys, settings, on_device, now.step, last - now.step
        )
        curve = np.concatenate([now.curve, np.asarray(values, float)[None]])
        now = Checkpoint(last, state, curve)
        save_checkpoint(path, now)
    return now
