"""Problems as the relaxed families need them: square, with a pruned mask, all leaves arrays."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi import assignment
from permvi.inference.problem import Problem
from permvi.inference.vi.families import FAMILIES


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class RelaxedProblem:
    """The part of a `Problem` that a relaxed ELBO uses.

    ``mask`` belongs to a square matrix of size max(n, m). Rows or columns beyond (n, m) match
    anything at no cost and are not shown to the density: every matching of the corner extends to
    equally many permutations, so the posterior is the same.
    """

    data: Any
    mask: jax.Array | None
    latents: dict[str, Any]
    log_density: Callable[..., jax.Array] = dataclasses.field(metadata={"static": True})
    shape: tuple[int, int] = dataclasses.field(metadata={"static": True})
    num_sites: int = dataclasses.field(metadata={"static": True})


def prepare(problem: Problem, family: str) -> RelaxedProblem:
    """Check the problem and make it square; its leaves may have a batch axis in front.

    Raises:
        ValueError: The family, or any relaxation, cannot treat this problem.
    """
    if problem.log_density is None or not problem.traceable:
        raise ValueError(
            f"problem must have a log density that JAX can differentiate in X for {family}, got "
            "one that is only known on permutations or is no JAX function; try method='mcmc'."
        )
    if problem.row_unmatched is not None or problem.col_unmatched is not None:
        raise ValueError(
            f"problem must match every item for {family}, got a partial matching problem; "
            "try method='exact' or 'mcmc'."
        )
    if problem.mask is not None and not FAMILIES[family].masks:
        raise ValueError(
            f"problem must have no mask for {family}, got one; method='rounding' honours masks."
        )
    prepared = RelaxedProblem(
        problem.data,
        None if problem.mask is None else _square_mask(np.asarray(problem.mask), problem.shape),
        dict(problem.latents),
        problem.log_density,
        problem.shape,
        problem.num_sites,
    )
    # NumPy first: it gives Python numbers a dtype of their own, and so one compilation.
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), prepared)


def _square_mask(mask: np.ndarray, shape: tuple[int, int]) -> Any:
    size = max(shape)
    padding = [(0, 0)] * (mask.ndim - 2) + [(0, size - length) for length in shape]
    return assignment.prune_mask(np.pad(mask, padding, constant_values=True))
