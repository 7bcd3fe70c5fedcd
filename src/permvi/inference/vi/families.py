"""The relaxed families of variational inference: parameters in, distribution out."""

from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
from jax import lax

from permvi.distributions import (
    ROUNDING_SCALE_BOUNDS,
    STICK_BREAKING_SCALE_BOUNDS,
    Rounding,
    StickBreaking,
)


class Family(NamedTuple):
    """A relaxed family of n by n matrices, with location zero at the matrix of equal entries.

    ``distribution`` maps (loc, scale, temperature, mask) to a NumPyro distribution of (n, n)
    events; so does ``mirrored``, whose location has the gradient of the mean.
    """

    num_missing: int  # the location has n - num_missing rows and columns
    scale_bounds: tuple[float, float]  # the paper's bounds of the noise sd
    max_temperature: float | None
    masks: bool
    inside_polytope: bool  # whether its samples are doubly stochastic
    distribution: Callable[[jax.Array, jax.Array, Any, Any], Any]
    mirrored: Callable[[jax.Array, jax.Array, Any, Any], Any] | None


class _ScaledOnce(Rounding):
    """The rounding family with a cached mean: a sample and its density scale the matrix once."""

    @cached_property
    def mean(self) -> jax.Array:
        """The mean of the family."""
        return super().mean


class _Mirrored(_ScaledOnce):
    """The rounding family whose logarithm of M has the gradient of the mean."""

    @cached_property
    def mean(self) -> jax.Array:
        """The mean of the family, differentiated as if it were the logarithm of M."""
        identity = self.log_m - lax.stop_gradient(self.log_m)
        return lax.stop_gradient(super().mean) + identity


def _stick_breaking(loc: jax.Array, scale: jax.Array, temperature: Any, mask: None) -> Any:
    # Uncentred sticks would start near the matrix whose first row is 1/2, 1/4, 1/8, ...
    return StickBreaking(loc, scale, temperature, centered=True)


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "rounding": Family(
            num_missing=0,
            scale_bounds=ROUNDING_SCALE_BOUNDS,
            max_temperature=1.0,
            masks=True,
            inside_polytope=False,
            distribution=_ScaledOnce,
            mirrored=_Mirrored,
        ),
        "stick_breaking": Family(
            num_missing=1,
            scale_bounds=STICK_BREAKING_SCALE_BOUNDS,
            max_temperature=None,
            masks=False,
            inside_polytope=True,
            distribution=_stick_breaking,
            mirrored=None,
        ),
    }
)


def bounded_scale(raw: jax.Array, lower: Any, upper: Any) -> jax.Array:
    """Return the noise sd of a real parameter: ``lower + (upper - lower) sigmoid(raw)``."""
    return lower + (upper - lower) * jax.nn.sigmoid(raw)
