"""The log density of a problem at the choices of a family, inside JAX."""

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.problem import Problem


def as_perms(choices: jax.Array | np.ndarray, problem: Problem) -> jax.Array | np.ndarray:
    """Choices (..., S, n), m for unmatched, as matchings (..., n) or (..., S, n), -1 likewise."""
    xp = np if isinstance(choices, np.ndarray) else jnp
    perms = xp.where(choices == problem.shape[1], -1, choices)
    return perms[..., 0, :] if problem.num_sites == 1 else perms


def log_density(problem: Problem, choices: jax.Array) -> jax.Array:
    """(..., S, n) choices -> (...), with what unmatched rows and columns weigh; NaN is -inf."""
    m = problem.shape[1]
    value = problem.log_density_of(problem.data, as_perms(choices, problem))
    if problem.row_unmatched is not None:
        weights = jnp.broadcast_to(problem.row_unmatched, choices.shape[-2:])
        value = value + jnp.sum(jnp.where(choices == m, weights, 0.0), axis=(-2, -1))
    if problem.col_unmatched is not None:
        used = (choices[..., None] == jnp.arange(m)).any(axis=-2)
        weights = jnp.broadcast_to(problem.col_unmatched, used.shape[-2:])
        value = value + jnp.sum(jnp.where(used, 0.0, weights), axis=(-2, -1))
    return jnp.where(jnp.isnan(value), -jnp.inf, value)
