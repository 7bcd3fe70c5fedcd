"""The constraint of NumPyro sites whose values are doubly-stochastic matrices."""

import jax
import jax.numpy as jnp
from numpyro.distributions import constraints


class _Birkhoff(constraints.ParameterFreeConstraint):
    r"""Non-negative square matrices whose rows and columns sum to one.

    Sums may be off by :math:`64 N \epsilon` of the dtype: a fixed tolerance would reject our own
    float32 samples at large N.
    """

    event_dim = 2

    def __call__(self, x: jax.Array) -> jax.Array:
        tolerance = 64 * x.shape[-1] * float(jnp.finfo(jnp.result_type(x)).eps)
        rows = jnp.all(jnp.abs(x.sum(-1) - 1) <= tolerance, axis=-1)
        columns = jnp.all(jnp.abs(x.sum(-2) - 1) <= tolerance, axis=-1)
        return jnp.all(x >= 0, axis=(-2, -1)) & rows & columns

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        return jnp.full_like(prototype, 1 / prototype.shape[-1])


birkhoff = _Birkhoff()
"""Doubly-stochastic matrices; ``event_dim`` is 2."""
