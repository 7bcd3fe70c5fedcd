r"""How parameters move: by Adam, or by mirror ascent.

Adam gives every entry of a parameter a step size of its own, so that entries with little evidence
move as fast as those with much. Where weak evidence misleads, as it does while other latents are
not known yet, *mirror ascent* is better. The logarithm of M follows the gradient of the ELBO in the
mean matrix, :math:`\log M \leftarrow \log M + \eta\, \partial L / \partial \bar X`, which is the
natural gradient of an entropic mirror map (Beck and Teboulle 2003), and all entries of a matrix, or
of a latent, share one step size: that of Adam with the mean of its second moments.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import tree_utils

OPTIMISERS = ("adam", "mirror")
"""The names that `VIOptions` takes."""

# Adam's own defaults.
_DECAYS = (0.9, 0.999)


class _Moments(NamedTuple):
    num: jax.Array
    first: Any
    second: Any


def shared_adam(learning_rate: Any, num_axes: int | None) -> Any:
    """Adam with one step size for all entries along the last axes of a parameter.

    Entries without any gradient, such as those that a mask forbids, do not count.

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
