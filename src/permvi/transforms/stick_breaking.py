r"""Stick-breaking to the Birkhoff polytope (paper, section 3.1 and supplement B.2).

Each entry in turn takes a proportion of the interval that the remaining row and column sums allow,
:math:`x_{mn} = \ell_{mn} + \beta_{mn} (u_{mn} - \ell_{mn})`. The map is a bijection
between :math:`(0,1)^{(N-1) \times (N-1)}` and the interior of the polytope. Its Jacobian is
triangular, so :math:`\log|\partial X/\partial B| = \sum_{mn} \log(u_{mn} - \ell_{mn})`. Densities
on the polytope, and all log-determinants here, are with respect to Lebesgue measure on the free
block: the first N-1 rows and columns in the order in which the sticks are broken.

The paper's raster scan carries all previous entries. Here each cell is a 2x2 table that depends on
its neighbours alone, see ``_wavefront``; value, log-determinant and gradient cost O(N^2).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks, permutations
from permvi.transforms._wavefront import birkhoff_from_logits
from permvi.transforms.sticks import Sticks


def stick_breaking(
    psi: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    row_order: ArrayLike | None = None,
    col_order: ArrayLike | None = None,
    centered: bool = False,
) -> tuple[jax.Array, jax.Array]:
    r"""Map real matrices to doubly-stochastic ones with :math:`B = \sigma(\Psi/\tau)`.

    Args:
        psi: (..., n-1, n-1) floats.
        temperature: :math:`\tau > 0`, a scalar or one for each batch member. As it falls to 0 the
            result tends to a permutation matrix; as it rises, to the image of psi = 0.
        row_order: The order in which rows are filled, a permutation of n: ``psi[i]`` belongs to row
            ``row_order[i]``. The default is 0, 1, ..., n-1, as in the paper.
        col_order: The order in which columns are filled, likewise.
        centered: Shift the logits so that psi = 0 gives the matrix with all entries 1/n; the paper
            has no shift.

    Returns:
        X of shape (..., n, n) and the log-determinant of the map, shape (...).

    Examples:
        >>> import jax.numpy as jnp
        >>> X, log_det = stick_breaking(jnp.zeros((2, 2)))
        >>> X.tolist()
        [[0.5, 0.25, 0.25], [0.25, 0.375, 0.375], [0.25, 0.375, 0.375]]

    Precision: see docs/mathematics/stick_breaking.md for the measured error at extreme logits.
    """
    psi = _checks.floating("psi", psi)
    K = _checks.square("psi", psi, min_size=0)
    tau = _checks.temperature(temperature, psi.dtype, psi.shape[:-2])
    shift = _centre(K + 1, psi.dtype) if centered else np.zeros((), psi.dtype)
    X, log_det = _fill_logistic(psi, tau, shift)
    return _place(X, row_order, col_order), log_det


def stick_breaking_inverse(
    X: ArrayLike,
    temperature: ArrayLike = 1.0,
    *,
    row_order: ArrayLike | None = None,
    col_order: ArrayLike | None = None,
    centered: bool = False,
) -> tuple[jax.Array, jax.Array]:
    r"""The psi that `stick_breaking` maps to X, and the log-determinant of this inverse map.

    Entries of X that are exactly zero have infinite psi. Outside ``jit`` X must be doubly
    stochastic up to rounding; inside it this is not checked.

    Args:
        X: (..., n, n) doubly-stochastic floats.
        temperature: As in `stick_breaking`.
        row_order: As in `stick_breaking`.
        col_order: As in `stick_breaking`.
        centered: As in `stick_breaking`.

    Returns:
        psi of shape (..., n-1, n-1) and the log-determinant, shape (...).
    """
    X = _checks.floating("X", X)
    n = _checks.square("X", X)
    tau = _checks.temperature(temperature, X.dtype, X.shape[:-2])
    sticks, log_det = sticks_from_birkhoff(X, row_order=row_order, col_order=col_order)
    shift = _centre(n, X.dtype) if centered else np.zeros((), X.dtype)
    return _logistic_inverse(sticks, log_det, tau, shift)


@jax.jit
def _logistic_inverse(
    sticks: Sticks, log_det: jax.Array, tau: jax.Array, shift: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return psi and the log-determinant, given that of the sticks."""
    log_slopes = sticks.log_beta + sticks.log_complement - jnp.log(tau)[..., None, None]
    psi = tau[..., None, None] * (sticks.log_beta - sticks.log_complement - shift)
    return psi, log_det - _sum_of_matrix(log_slopes)


def birkhoff_from_sticks(
    sticks: Sticks, *, row_order: ArrayLike | None = None, col_order: ArrayLike | None = None
) -> tuple[jax.Array, jax.Array]:
    """Map stick proportions of any distribution (logistic, Beta, ...) to the Birkhoff polytope.

    Args:
        sticks: Proportions of shape (..., n-1, n-1), as the functions of `permvi.transforms.sticks`
            return them.
        row_order: As in `stick_breaking`.
        col_order: As in `stick_breaking`.

    Returns:
        X of shape (..., n, n) and log |dX/dB|, shape (...).
    """
    logits = _checks.floating("sticks", sticks.log_beta) - sticks.log_complement
    _checks.square("sticks", logits, min_size=0)
    X, log_widths = _fill(logits)
    return _place(X, row_order, col_order), log_widths


def sticks_from_birkhoff(
    X: ArrayLike, *, row_order: ArrayLike | None = None, col_order: ArrayLike | None = None
) -> tuple[Sticks, jax.Array]:
    r"""The stick proportions of doubly-stochastic matrices; the inverse of `birkhoff_from_sticks`.

    Cell (m, n) splits the remaining matrix into four blocks: x itself, the rest of its row r', the
    rest of its column c' and the lower right L'. All are sums of entries of X, and

        b w = min(x, L'),   (1 - b) w = min(r', c'),

    so no differences are taken and all cells are computed at once.

    Returns:
        Proportions of shape (..., n-1, n-1) and log |dB/dX|, shape (...).
    """
    X = _checks.floating("X", X)
    _checks.square("X", X)
    _check_doubly_stochastic(X)
    return _split(_take(X, row_order, col_order))


@jax.jit
def _split(X: jax.Array) -> tuple[Sticks, jax.Array]:
    """Return all proportions of X, and the log-determinant."""
    rest_of_row = _sum_beyond(X, axis=-1)
    rest_of_column = _sum_beyond(X, axis=-2)
    lower_right = _sum_beyond(rest_of_row, axis=-2)
    K = X.shape[-1] - 1
    log_taken = jnp.log(jnp.minimum(X, lower_right)[..., :K, :K])
    log_left = jnp.log(jnp.minimum(rest_of_row, rest_of_column)[..., :K, :K])
    log_width = jnp.logaddexp(log_taken, log_left)
    return Sticks(log_taken - log_width, log_left - log_width), -_sum_of_matrix(log_width)


@jax.jit
def _fill_logistic(psi: jax.Array, tau: jax.Array, shift: jax.Array) -> tuple[jax.Array, jax.Array]:
    logits = psi / tau[..., None, None] + shift
    X, log_widths = _fill(logits)
    log_slopes = _log_logistic_slope(logits) - jnp.log(tau)[..., None, None]
    return X, log_widths + _sum_of_matrix(log_slopes)


@jax.jit
def _fill(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sweep a batch of matrices of logits; return X and the sum of the log widths."""
    batch, K = logits.shape[:-2], logits.shape[-1]
    if K == 0:
        return jnp.ones((*batch, 1, 1), logits.dtype), jnp.zeros(batch, logits.dtype)
    # Log widths add up at most 2K logits, and log-determinants at most 2K of those for each cell.
    largest = float(jnp.finfo(logits.dtype).max) / (8 * K**3)
    flat = jnp.clip(logits, -largest, largest).reshape(-1, K, K)
    X, log_widths = jax.vmap(birkhoff_from_logits)(flat)
    return X.reshape(*batch, K + 1, K + 1), _sum_of_rows(log_widths).reshape(batch)


def _centre(n: int, dtype: jax.typing.DTypeLike) -> jax.Array:
    """The shift -log(n-1-max(i, j)) of logits that sends psi = 0 to the barycentre."""
    index = np.arange(n - 1)
    return jnp.asarray(-np.log(n - 1 - np.maximum.outer(index, index)), dtype)


def _log_logistic_slope(logits: jax.Array) -> jax.Array:
    """log(sigmoid(a) sigmoid(-a))."""
    size = jnp.abs(logits)
    return -size - 2 * jnp.log1p(jnp.exp(-size))


def _sum_of_matrix(values: jax.Array) -> jax.Array:
    """Sum over the last two axes, row by row, which keeps float32 sums of N^2 terms accurate."""
    return _sum_of_rows(jnp.sum(values, axis=-1))


def _sum_of_rows(values: jax.Array) -> jax.Array:
    """Sum over the last axis by halving, with an error that grows as log N instead of N."""
    size = values.shape[-1]
    if size == 0:
        return jnp.zeros(values.shape[:-1], values.dtype)
    padded = 2 ** math.ceil(math.log2(size))
    values = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padded - size)])
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        values = values[..., :half] + values[..., half:]
    return values[..., 0]


def _sum_beyond(values: jax.Array, axis: int) -> jax.Array:
    """The sum of the entries that follow each entry along the axis."""
    after = jnp.flip(jnp.cumsum(jnp.flip(values, axis), axis), axis)
    zero = jnp.zeros_like(jax.lax.slice_in_dim(values, 0, 1, axis=axis))
    return jnp.concatenate([jax.lax.slice_in_dim(after, 1, None, axis=axis), zero], axis)


def _place(X: jax.Array, row_order: ArrayLike | None, col_order: ArrayLike | None) -> jax.Array:
    """Put row i of X in place ``row_order[i]`` and column j in place ``col_order[j]``."""
    n = X.shape[-1]
    if row_order is not None:
        X = jnp.take(X, permutations.inverse(order("row_order", row_order, n)), axis=-2)
    if col_order is not None:
        X = jnp.take(X, permutations.inverse(order("col_order", col_order, n)), axis=-1)
    return X


def _take(X: jax.Array, row_order: ArrayLike | None, col_order: ArrayLike | None) -> jax.Array:
    """The inverse of `_place`."""
    n = X.shape[-1]
    if row_order is not None:
        X = jnp.take(X, order("row_order", row_order, n), axis=-2)
    if col_order is not None:
        X = jnp.take(X, order("col_order", col_order, n), axis=-1)
    return X


def order(name: str, value: ArrayLike, n: int) -> jax.Array:
    """Check an order of n rows or columns."""
    array = _checks.integer(name, value)
    if array.shape != (n,) or (
        _checks.is_concrete(array) and not bool(permutations.is_permutation(array))
    ):
        raise ValueError(f"{name} must be a permutation of 0 to {n - 1}, got {array}.")
    return array


def _check_doubly_stochastic(X: jax.Array) -> None:
    if not _checks.is_concrete(X) or X.size == 0:
        return
    values = np.asarray(X)
    tolerance = 64 * values.shape[-1] * float(np.finfo(values.dtype).eps)
    for axis, line in ((-1, "row"), (-2, "column")):
        error = float(np.max(np.abs(values.sum(axis) - 1)))
        if not error <= tolerance:
            raise ValueError(
                f"X must be doubly stochastic, got a {line} whose sum is off by {error:.2g}."
            )
    if values.min() < 0:
        raise ValueError(f"X must be doubly stochastic, got the entry {values.min():.2g}.")
