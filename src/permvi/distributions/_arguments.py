"""Checks of the parameters of distributions; see ``permvi._checks`` for the rules."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks


def positive(name: str, value: ArrayLike, dtype: Any = None) -> jax.Array:
    """Positive numbers as floats; others raise outside ``jit`` and are NaN inside it."""
    try:
        array = jnp.asarray(value, dtype=dtype)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be positive numbers, got {value!r:.60}.") from None
    return _checks.positive(
        name, array.astype(jnp.result_type(array, float) if dtype is None else dtype)
    )


def positive_int(name: str, value: Any, smallest: int = 1) -> int:
    """An integer of at least ``smallest``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < smallest:
        raise ValueError(f"{name} must be an integer of at least {smallest}, got {value!r:.60}.")
    return int(value)
