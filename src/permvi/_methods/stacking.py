"""Problems of one shape as one problem with a batch axis."""

from collections.abc import Sequence

import jax
import numpy as np

from permvi.inference.problem import Problem


def alike(problems: Sequence[Problem]) -> bool:
    """Whether problems have the same structure and leaves of the same shapes."""
    leaves, structures = zip(*(jax.tree.flatten(problem) for problem in problems), strict=True)
    shapes = [[np.shape(leaf) for leaf in part] for part in leaves]
    return all(other == structures[0] for other in structures) and all(
        other == shapes[0] for other in shapes
    )


def stack(problems: Sequence[Problem]) -> Problem:
    """Problems that are `alike`, with an axis over them in front of every leaf."""
    return jax.tree.map(lambda *parts: np.stack([np.asarray(p) for p in parts]), *problems)
