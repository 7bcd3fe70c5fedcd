"""Pytrees of one shape as one with a batch axis."""

from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import numpy as np

Tree = TypeVar("Tree")


def alike(trees: Sequence[Any]) -> bool:
    """Whether pytrees have the same structure and leaves of the same shapes."""
    leaves, structures = zip(*(jax.tree.flatten(tree) for tree in trees), strict=True)
    shapes = [[np.shape(leaf) for leaf in part] for part in leaves]
    return all(other == structures[0] for other in structures) and all(
        other == shapes[0] for other in shapes
    )


def stack(trees: Sequence[Tree]) -> Tree:
    """Pytrees that are `alike` as one, with an axis over them in front of every leaf."""
    return jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *trees)
