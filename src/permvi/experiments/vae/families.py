"""From the encoder's outputs to relaxed categorical variables, one function for each family.

Zero outputs mean a uniform category, so that an untrained encoder starts at the prior.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from permvi.distributions import (
    Concrete,
    SimplexBeta,
    SimplexKumaraswamy,
    SimplexRounding,
    SimplexStickBreaking,
)
from permvi.distributions._relaxed_categorical import RelaxedCategorical

Bounds = tuple[jax.Array, jax.Array]


class Family(NamedTuple):
    """A relaxation of categorical variables.

    Attributes:
        num_parameters: From the number of categories to that of parameters of one variable.
        relaxed: From parameters (..., p), temperature and the bounds of the noise's standard
            deviation to the relaxed variables.
    """

    num_parameters: Callable[[int], int]
    relaxed: Callable[[jax.Array, jax.Array, Bounds], RelaxedCategorical]


def _concrete(parameters: jax.Array, temperature: jax.Array, bounds: Bounds) -> Concrete:
    del bounds
    return Concrete(parameters, temperature)


def _stick_breaking(
    parameters: jax.Array, temperature: jax.Array, bounds: Bounds
) -> SimplexStickBreaking:
    loc, raw_scale = jnp.split(parameters, 2, axis=-1)
    scale = _between(bounds, raw_scale)
    # Phi of this shift is 1/n, 1/(n-1), ..., 1/2: equal shares for all categories.
    shift = ndtri(1 / np.arange(loc.shape[-1] + 1, 1, -1)).astype(loc.dtype)
    return SimplexStickBreaking(scale * shift + loc, scale, temperature)


def _rounding(parameters: jax.Array, temperature: jax.Array, bounds: Bounds) -> SimplexRounding:
    logits, raw_scale = jnp.split(parameters, 2, axis=-1)
    # Softmax is the Sinkhorn scaling of a single row. The supplement projects instead, which has
    # the same image, but no gradient at the vertices, where the means end up.
    return SimplexRounding(jax.nn.softmax(logits), _between(bounds, raw_scale), temperature)


def _kumaraswamy(
    parameters: jax.Array, temperature: jax.Array, bounds: Bounds
) -> SimplexKumaraswamy:
    del bounds
    return SimplexKumaraswamy(*_shapes(parameters), temperature)


def _beta(parameters: jax.Array, temperature: jax.Array, bounds: Bounds) -> SimplexBeta:
    del bounds
    # Beta sticks go to the vertices as their temperature rises; here, as everywhere, as it falls.
    return SimplexBeta(*_shapes(parameters), 1 / temperature)


def _between(bounds: Bounds, raw: jax.Array) -> jax.Array:
    low, high = bounds
    return low + (high - low) * jax.nn.sigmoid(raw)


def _shapes(parameters: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positive shape parameters, of equal shares where the parameters are zero."""
    raw_a, raw_b = jnp.split(parameters, 2, axis=-1)
    others = jnp.arange(raw_b.shape[-1], 0, -1, dtype=raw_b.dtype)
    return jnp.exp(raw_a), jnp.exp(raw_b) * others


def _sticks(categories: int) -> int:
    return 2 * (categories - 1)


FAMILIES = {
    "concrete": Family(lambda categories: categories, _concrete),
    "stick_breaking": Family(_sticks, _stick_breaking),
    "rounding": Family(lambda categories: 2 * categories, _rounding),
    "kumaraswamy": Family(_sticks, _kumaraswamy),
    "beta": Family(_sticks, _beta),
}
