"""The relaxed families, as variational inference sees them: parameters in, distribution out."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from permvi.distributions import (
    ROUNDING_SCALE_BOUNDS,
    STICK_BREAKING_SCALE_BOUNDS,
    Rounding,
    StickBreaking,
)


class Family(NamedTuple):
    """A relaxed family of n by n matrices.

    Attributes:
        num_missing: The location parameter has n - num_missing rows and columns; at zero it stands
            for the matrix of equal entries.
        scale_bounds: The paper's bounds of the noise sd.
        max_temperature: The largest temperature there is, or None.
        masks: Whether the family honours masks.
        inside_polytope: Whether its samples are doubly stochastic.
        distribution: ``(loc, scale, temperature, mask) -> Distribution`` with event (n, n).
    """

    num_missing: int
    scale_bounds: tuple[float, float]
    max_temperature: float | None
    masks: bool
    inside_polytope: bool
    distribution: Callable[[jax.Array, jax.Array, Any, Any], Any]


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
            distribution=Rounding,
        ),
        "stick_breaking": Family(
            num_missing=1,
            scale_bounds=STICK_BREAKING_SCALE_BOUNDS,
            max_temperature=None,
            masks=False,
            inside_polytope=True,
            distribution=_stick_breaking,
        ),
    }
)


def bounded_scale(raw: jax.Array, lower: Any, upper: Any) -> jax.Array:
    """The noise sd of an unconstrained parameter: ``lower + (upper - lower) sigmoid(raw)``."""
    return lower + (upper - lower) * jax.nn.sigmoid(raw)
