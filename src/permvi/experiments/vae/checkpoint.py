"""Checkpoints of a training in one .npz file: plain arrays, no pickles, whole or not there."""

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi._files import atomic
from permvi.experiments.vae.training import State


class Checkpoint(NamedTuple):
    """Where a training stands. Random numbers follow from seeds and step, so none are kept.

    Attributes:
        step: Number of steps taken.
        state: The state after them.
        curve: (points, runs) training objective so far.
    """

    step: int
    state: State
    curve: np.ndarray


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint in place of the last one."""
    arrays: dict[str, Any] = {"step": np.asarray(checkpoint.step), "curve": checkpoint.curve}
    for index, leaf in enumerate(jax.tree.leaves(checkpoint.state)):
        arrays[f"leaf_{index}"] = np.asarray(leaf)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic(path) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def load(path: Path, untrained: State) -> Checkpoint | None:
    """The checkpoint at ``path``, or None if there is none that fits the state ``untrained``."""
    leaves, structure = jax.tree.flatten(untrained)
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = [arrays[f"leaf_{index}"] for index in range(len(leaves))]
            step, curve = int(arrays["step"]), arrays["curve"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if any(a.shape != b.shape or a.dtype != b.dtype for a, b in zip(found, leaves, strict=True)):
        return None
    state = jax.tree.unflatten(structure, map(jnp.asarray, found))
    return Checkpoint(step, state, curve)
