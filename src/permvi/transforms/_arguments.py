"""Checks of the arguments of ``simplex`` and ``sticks``; see ``permvi._checks`` for the rules."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks


def vector(name: str, value: ArrayLike, size: str = "n", min_size: int = 1) -> jax.Array:
    """A floating-point array with a last axis of at least ``min_size`` entries."""
    array = _checks.floating(name, value)
    if array.ndim < 1 or array.shape[-1] < min_size:
        raise ValueError(
            f"{name} must have shape (..., {size}) with n >= 1, got shape {array.shape}."
        )
    return array


def positive(name: str, value: ArrayLike) -> jax.Array:
    """Positive floating-point numbers; the others raise outside ``jit`` and are NaN inside it."""
    return _checks.positive(name, _checks.floating(name, value))


def common_shape(**arrays: jax.Array) -> tuple[int, ...]:
    """The shape to which the named arrays broadcast."""
    try:
        return jnp.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError:
        names = ", ".join(arrays)
        shapes = ", ".join(str(array.shape) for array in arrays.values())
        raise ValueError(f"{names} must broadcast together, got shapes {shapes}.") from None


def same_shape(**arrays: jax.Array) -> None:
    """Refuse the named arrays unless their shapes are equal."""
    shapes = [array.shape for array in arrays.values()]
    if any(shape != shapes[0] for shape in shapes):
        names, listed = " and ".join(arrays), " and ".join(map(str, shapes))
        raise ValueError(f"{names} must have the same shape, got {listed}.")


def mask(value: ArrayLike | None, name: str, shape: tuple[int, ...]) -> jax.Array:
    """A boolean mask of allowed entries, broadcast to ``shape``; all of them if None."""
    if value is None:
        return jnp.ones(shape, dtype=bool)
    array = jnp.broadcast_to(_checks.mask(value, name, shape), shape)
    if _checks.is_concrete(array) and not np.asarray(array).any(-1).all():
        raise ValueError("mask must allow at least one entry of each vector, got one with none.")
    return array
