"""Answers to bad input: one sentence naming the argument, what was expected and what came.

Shapes and dtypes are known while tracing, so those checks always run. Values are checked only
where they are concrete; inside ``jit`` the functions document what a bad value turns into.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike


def is_concrete(*values: Any) -> bool:
    """Whether the values (arrays or None) can be looked at, i.e. no JAX trace hides them."""
    return not any(isinstance(value, jax.core.Tracer) for value in values)


def floating(name: str, value: ArrayLike) -> jax.Array:
    """``value`` as a JAX array, refused with ``TypeError`` unless it is floating point."""
    array = _array(name, value, "a floating-point array")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be a floating-point array, got dtype {array.dtype}.")
    return array


def integer(name: str, value: ArrayLike) -> jax.Array:
    """``value`` as a JAX array, refused with ``TypeError`` unless it is of integer dtype."""
    array = _array(name, value, "an integer array")
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer array, got dtype {array.dtype}.")
    return array


def positive(name: str, array: jax.Array) -> jax.Array:
    """``array`` if its entries are positive; others raise outside ``jit`` and are NaN inside it."""
    if is_concrete(array):
        concrete = np.asarray(array)
        good = concrete > 0
        if not good.all():
            raise ValueError(f"{name} must be positive, got {concrete[~good].flat[0]}.")
    return jnp.where(array > 0, array, jnp.nan)


def square(name: str, array: jax.Array | np.ndarray, min_size: int = 1) -> int:
    """The size n of a (..., n, n) array, refused with ``ValueError`` if it is not square."""
    shape = array.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < min_size:
        raise ValueError(
            f"{name} must have shape (..., n, n) with n >= {min_size}, got shape {shape}."
        )
    return int(shape[-1])


def temperature(
    value: ArrayLike, dtype: Any, batch_shape: tuple[int, ...], upper: float | None = None
) -> jax.Array:
    """A positive temperature, scalar or one per batch member, in the data's dtype.

    Returns an array that broadcasts against ``batch_shape``. Outside ``jit`` a bad value raises
    ``ValueError``; inside it the bad entries become NaN, and with them the results.
    """
    array = _array("temperature", value, "a real number")
    if not jnp.issubdtype(array.dtype, jnp.number) or jnp.iscomplexobj(array):
        raise TypeError(f"temperature must be a real number, got dtype {array.dtype}.")
    try:
        fits = jnp.broadcast_shapes(array.shape, batch_shape) == batch_shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"temperature must be a scalar or broadcast to the batch shape {batch_shape}, "
            f"got shape {array.shape}."
        )
    expected = "positive" if upper is None else f"in (0, {upper:g}]"
    if is_concrete(array):
        concrete = np.asarray(array)
        good = concrete > 0 if upper is None else (concrete > 0) & (concrete <= upper)
        if not good.all():
            raise ValueError(f"temperature must be {expected}, got {concrete[~good].flat[0]}.")
    array = array.astype(dtype)
    valid = array > 0 if upper is None else (array > 0) & (array <= upper)
    return jnp.where(valid, array, jnp.nan)


def mask(value: ArrayLike, name: str, shape: tuple[int, ...]) -> jax.Array:
    """A boolean mask for the array ``name``, of its last two axes and at most its batch shape."""
    array = _array("mask", value, "a boolean array")
    if array.dtype != bool:
        raise TypeError(f"mask must be a boolean array, got dtype {array.dtype}.")
    try:
        fits = jnp.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask must broadcast to the shape {shape} of {name}, got shape {array.shape}."
        )
    return jnp.broadcast_to(array, array.shape[:-2] + shape[-2:])


def known(value: ArrayLike, n: int) -> jax.Array:
    """Known pairs: (n,) integers, the column of each row and -1 where it is not known."""
    array = integer("known", value)
    if array.shape != (n,):
        raise ValueError(f"known must have shape ({n},), got shape {array.shape}.")
    if is_concrete(array):
        given = np.asarray(array)[np.asarray(array) != -1]
        if (given < 0).any() or (given >= n).any() or len(set(given.tolist())) != len(given):
            raise ValueError(
                f"known must hold distinct columns from 0 to {n - 1}, or -1, got {array}."
            )
    return array


def _array(name: str, value: ArrayLike, expected: str) -> jax.Array:
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {expected}, got {value!r:.60}.") from None
