"""Schedules of temperatures and learning rates, and Adam with shared step sizes.

A schedule is a function of the fraction of the way, in [0, 1], and of its two ends. All arguments
may be traced, so that other numbers compile nothing.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import tree_utils

Number = jax.Array | float
Schedule = Callable[[Number, Number, Number], jax.Array]


def constant(fraction: Number, start: Number, end: Number) -> jax.Array:
    """Return the end value throughout."""
    return jnp.broadcast_to(jnp.asarray(end), jnp.shape(fraction))


def exponential(fraction: Number, start: Number, end: Number) -> jax.Array:
    """Return ``start^(1-f) end^f``: a straight line on a logarithmic scale."""
    return jnp.exp((1 - fraction) * jnp.log(start) + fraction * jnp.log(end))


def cosine(fraction: Number, start: Number, end: Number) -> jax.Array:
    """Return half a cosine: slow at both ends, fastest in the middle."""
    return optax.cosine_decay_schedule(start, 1, alpha=end / start)(fraction)


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {"constant": constant, "exponential": exponential, "cosine": cosine}
)
"""Schedules by the names that `VIOptions` takes."""


OPTIMISERS = ("adam", "mirror")
"""The names of optimisers that `VIOptions` takes."""

# Adam's defaults.
_DECAYS = (0.9, 0.999)


class _Moments(NamedTuple):
    num: jax.Array
    first: Any
    second: Any


def shared_adam(learning_rate: Any, num_axes: int | None) -> Any:
    """Adam with one step size for all entries along the last axes of a parameter.

    Entries that never have a gradient, such as masked ones, are left out of its size.

    Args:
        learning_rate: A schedule of optax.
        num_axes: How many axes share a step size; None for all.
    """

    def init(params: Any) -> _Moments:
        zeros = optax.tree.zeros_like(params)
        return _Moments(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(slopes: Any, moments: _Moments, params: Any = None) -> tuple[Any, _Moments]:
        del params
        num = moments.num + 1
        first = tree_utils.tree_update_moment(slopes, moments.first, _DECAYS[0], 1)
        second = tree_utils.tree_update_moment_per_elem_norm(slopes, moments.second, _DECAYS[1], 2)

        def scaled(mean: jax.Array, square: jax.Array) -> jax.Array:
            axes = tuple(range(mean.ndim if num_axes is None else num_axes))
            axes = tuple(-1 - axis for axis in axes)
            size = jnp.maximum(jnp.sum(square > 0, axis=axes, keepdims=True), 1)
            root = jnp.sqrt(jnp.sum(square, axis=axes, keepdims=True) / size)
            return mean / jnp.maximum(root, jnp.finfo(root.dtype).tiny)

        corrected = (
            tree_utils.tree_bias_correction(moment, decay, num)
            for moment, decay in zip((first, second), _DECAYS, strict=True)
        )
        return jax.tree.map(scaled, *corrected), _Moments(num, first, second)

    return optax.chain(
        optax.GradientTransformation(init, update), optax.scale_by_learning_rate(learning_rate)
    )
