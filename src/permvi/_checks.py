"""Checks of arguments: one sentence naming the argument, what was expected and what came.

Checks of names and numbers need neither NumPy nor JAX, which are imported where they are used, so
that the command line can answer at once. Those of JAX arrays come last. Shapes and dtypes are known
while tracing, so they are always checked. Values are checked only where they are concrete; inside
``jit`` the functions document what a bad value turns into.
"""

import difflib
import math
from collections.abc import Collection
from numbers import Integral
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import numpy as np
    from jax.typing import ArrayLike


def one_of(argument: str, value: str, choices: Collection[str]) -> str:
    """Return ``value`` if it is a choice; else raise ``ValueError`` and suggest the nearest one."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be a name, got {value!r:.60}.")
    if value in choices:
        return value
    listed = [repr(choice) for choice in choices]
    expected = " or ".join(listed) if len(listed) < 3 else f"one of {', '.join(listed)}"
    close = difflib.get_close_matches(value, choices, n=1)
    close = close or [choice for choice in choices if value and choice.startswith(value)]
    end = f"; did you mean {close[0]!r}?" if close else "."
    raise ValueError(f"{argument} must be {expected}, got {value!r}{end}")


def whole(name: str, value: object, least: int = 1) -> int:
    """Return ``value`` as an int if it is an integer (Python's or NumPy's) of at least ``least``.

    Others, bools included, raise ``TypeError``, smaller ones ``ValueError``.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an integer, got {value!r:.60}.")
    if value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value}.")
    return int(value)


def positive_number(name: str, value: Any, largest: float = math.inf) -> float:
    """Return ``value`` if it is a finite number in (0, largest]; else raise ``ValueError``."""
    import numpy as np

    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if number and 0 < value <= largest and value < math.inf:
        return value
    expected = "a positive number" if largest == math.inf else f"in (0, {largest:g}]"
    raise ValueError(f"{name} must be {expected}, got {value!r:.60}.")


def seed(value: object) -> int:
    """Return a seed as an int from 0 to 2**32 - 1."""
    number = whole("seed", value, least=-(2**63))
    if not 0 <= number < 2**32:
        raise ValueError(f"seed must be between 0 and 2**32 - 1, got {value}.")
    return number


def real_array(name: str, value: Any) -> "np.ndarray":
    """Return ``value`` as a float64 array on the host; raise ``TypeError`` for other dtypes."""
    import numpy as np

    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be an array of numbers, got {value!r:.60}.") from None
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}.")
    return array.astype(np.float64)


def below_infinity(name: str, array: "np.ndarray") -> "np.ndarray":
    """Return log weights of staying unmatched if each is finite or -inf."""
    import numpy as np

    bad = array[np.isnan(array) | (array == math.inf)]
    if bad.size:
        raise ValueError(
            f"{name} must be finite, or -inf for what has to be matched, got {bad[0]}."
        )
    return array


def check_matchings(name: str, value: Any, shape: tuple[int, int]) -> "np.ndarray":
    """Return ``value`` as a (..., n) array of columns in -1..m-1."""
    import numpy as np

    n, m = shape
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be an integer array, got dtype {array.dtype}.")
    if array.ndim < 1 or array.shape[-1] != n:
        raise ValueError(f"{name} must have shape (..., {n}), got shape {array.shape}.")
    array = array.astype(np.int64)
    outside = array[(array < -1) | (array >= m)]
    if outside.size:
        raise ValueError(f"{name} must hold columns 0 to {m - 1} or -1, got {outside[0]}.")
    return array


def distinct_columns(name: str, array: "np.ndarray") -> "np.ndarray":
    """Return matchings (..., n) if none of them uses a column twice."""
    import numpy as np

    for perm in array.reshape(-1, array.shape[-1]):
        columns, counts = np.unique(perm[perm >= 0], return_counts=True)
        if (counts > 1).any():
            twice = columns[counts > 1][0]
            raise ValueError(f"{name} must use each column at most once, got column {twice} twice.")
    return array


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether an array of this shape broadcasts to ``target`` without changing it."""
    import numpy as np

    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


def is_concrete(*values: Any) -> bool:
    """Return whether values (arrays or None) can be looked at, i.e. no JAX trace hides them."""
    from permvi._jax import is_loaded, jax

    return not (is_loaded() and any(isinstance(value, jax.core.Tracer) for value in values))


def floating(name: str, value: "ArrayLike") -> "jax.Array":
    """``value`` as a JAX array, refused with ``TypeError`` unless it is floating point."""
    import jax.numpy as jnp

    array = _array(name, value, "a floating-point array")
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name} must be a floating-point array, got dtype {array.dtype}.")
    return array


def integer(name: str, value: "ArrayLike") -> "jax.Array":
    """``value`` as a JAX array, refused with ``TypeError`` unless it is of integer dtype."""
    import jax.numpy as jnp

    array = _array(name, value, "an integer array")
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer array, got dtype {array.dtype}.")
    return array


def positive(name: str, array: "jax.Array") -> "jax.Array":
    """``array`` if its entries are positive; others raise outside ``jit`` and are NaN inside it."""
    import jax.numpy as jnp
    import numpy as np

    if is_concrete(array):
        concrete = np.asarray(array)
        good = concrete > 0
        if not good.all():
            raise ValueError(f"{name} must be positive, got {concrete[~good].flat[0]}.")
    return jnp.where(array > 0, array, jnp.nan)


def positive_numbers(name: str, value: "ArrayLike", dtype: Any = None) -> "jax.Array":
    """Return positive numbers as floats; others raise outside ``jit`` and are NaN inside it."""
    import jax.numpy as jnp

    try:
        array = jnp.asarray(value, dtype=dtype)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be positive numbers, got {value!r:.60}.") from None
    return positive(name, array.astype(jnp.result_type(array, float) if dtype is None else dtype))


def square(name: str, array: "jax.Array | np.ndarray", min_size: int = 1) -> int:
    """The size n of a (..., n, n) array, refused with ``ValueError`` if it is not square."""
    shape = array.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] < min_size:
        raise ValueError(
            f"{name} must have shape (..., n, n) with n >= {min_size}, got shape {shape}."
        )
    return int(shape[-1])


def temperature(
    value: "ArrayLike", dtype: Any, batch_shape: tuple[int, ...], upper: float = math.inf
) -> "jax.Array":
    """A positive temperature, scalar or one per batch member, in the data's dtype.

    Returns an array that broadcasts against ``batch_shape``. Outside ``jit`` a bad value raises
    ``ValueError``; inside it the bad entries become NaN, and with them the results.
    """
    import jax.numpy as jnp
    import numpy as np

    array = _array("temperature", value, "a real number")
    if not jnp.issubdtype(array.dtype, jnp.number) or jnp.iscomplexobj(array):
        raise TypeError(f"temperature must be a real number, got dtype {array.dtype}.")
    if not broadcasts(array.shape, batch_shape):
        raise ValueError(
            f"temperature must be a scalar or broadcast to the batch shape {batch_shape}, "
            f"got shape {array.shape}."
        )
    if is_concrete(array):
        concrete = np.asarray(array)
        good = (concrete > 0) & (concrete <= upper)
        if not good.all():
            expected = "positive" if upper == math.inf else f"in (0, {upper:g}]"
            raise ValueError(f"temperature must be {expected}, got {concrete[~good].flat[0]}.")
        # Without JAX, which would compile each step; a number may vanish in another dtype.
        cast = concrete.astype(dtype)
        return jnp.asarray(np.where((cast > 0) & (cast <= upper), cast, np.asarray(np.nan, dtype)))
    array = array.astype(dtype)
    return jnp.where((array > 0) & (array <= upper), array, jnp.nan)


def mask(value: "ArrayLike", name: str, shape: tuple[int, ...]) -> "jax.Array":
    """A boolean mask for the array ``name``, of its last two axes and at most its batch shape."""
    import jax.numpy as jnp

    array = _array("mask", value, "a boolean array")
    if array.dtype != bool:
        raise TypeError(f"mask must be a boolean array, got dtype {array.dtype}.")
    if not broadcasts(array.shape, shape):
        raise ValueError(
            f"mask must broadcast to the shape {shape} of {name}, got shape {array.shape}."
        )
    return jnp.broadcast_to(array, array.shape[:-2] + shape[-2:])


def known(value: "ArrayLike", n: int) -> "jax.Array":
    """Known pairs: (n,) integers, the column of each row and -1 where it is not known."""
    import numpy as np

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


def _array(name: str, value: "ArrayLike", expected: str) -> "jax.Array":
    import jax.numpy as jnp

    try:
        return jnp.asarray(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be {expected}, got {value!r:.60}.") from None
