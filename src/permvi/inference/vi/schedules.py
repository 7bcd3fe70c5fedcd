"""Schedules: how a temperature or a learning rate moves from its start to its end.

Each is a plain function of the fraction of the way, in [0, 1], and of the two ends. All arguments
may be traced, so that other numbers compile nothing.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp

Number = jax.Array | float
Schedule = Callable[[Number, Number, Number], jax.Array]


def constant(fraction: Number, start: Number, end: Number) -> jax.Array:
    """The end value throughout."""
    return jnp.broadcast_to(jnp.asarray(end), jnp.shape(fraction))


def exponential(fraction: Number, start: Number, end: Number) -> jax.Array:
    """``start^(1-f) end^f``: a straight line on a logarithmic scale."""
    return jnp.exp((1 - fraction) * jnp.log(start) + fraction * jnp.log(end))


def cosine(fraction: Number, start: Number, end: Number) -> jax.Array:
    """Half a cosine: slow at both ends, fastest in the middle."""
    return end + (start - end) * (0.5 + 0.5 * jnp.cos(jnp.pi * fraction))


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {"constant": constant, "exponential": exponential, "cosine": cosine}
)
"""By the names that `VIOptions` takes."""
