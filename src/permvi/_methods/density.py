"""Log densities of many matchings, on the host, with one compilation for all chunks."""

import functools
from typing import Any

import jax
import numpy as np

from permvi._task import unmatched_weights
from permvi.inference.problem import Problem

_CHUNK = 8192


def log_densities(problem: Problem, perms: np.ndarray, **latents: Any) -> np.ndarray:
    """(num, n) or (num, S, n) matchings of a problem -> (num,) log densities in float64.

    They include what unmatched rows and columns weigh.

    Raises:
        ValueError: The density is NaN or +inf somewhere, or not one number per matching.
    """
    if problem.traceable:
        # Powers of two, so that few sizes are ever compiled.
        size = min(_CHUNK, 1 << (len(perms) - 1).bit_length())
        parts = []
        for start in range(0, len(perms), size):
            chunk = perms[start : start + size]
            padded = np.concatenate([chunk, np.repeat(chunk[:1], size - len(chunk), axis=0)])
            found = _evaluate(problem.log_density_of, problem.data, padded, latents)
            parts.append(_one_each(found, size)[: len(chunk)])
        values = np.concatenate(parts)
    else:
        found = problem.log_density_of(problem.data, perms, **latents)
        values = _one_each(found, len(perms))
    bad = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if len(bad):
        raise ValueError(
            f"the log density must be finite or -inf, got {values[bad[0]]} at "
            f"{perms[bad[0]].tolist()}."
        )
    return values + unmatched_weights(problem, perms)


def _one_each(found: Any, num: int) -> np.ndarray:
    values = np.asarray(found, dtype=np.float64)
    if values.shape != (num,):
        raise ValueError(
            f"log_density must return one number for each of {num} matchings, got shape "
            f"{values.shape}."
        )
    return values


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(log_density_of: Any, data: Any, perms: jax.Array, latents: Any) -> jax.Array:
    return log_density_of(data, perms, **latents)
