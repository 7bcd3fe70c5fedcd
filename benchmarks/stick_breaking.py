"""Time stick-breaking against scans over entries and a compiled loop, in float32.

All references work with plain numbers where permvi carries logarithms. They lose precision near
the vertices, so the draws here lie around the centre of the polytope.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numba
import numpy as np
from jax import lax

from benchmarks.timing import side_by_side
from permvi import transforms

BATCH = 10
WANTED = {
    "stick_breaking value+grad N=100 batch=10 vs scan carrying sticks": 1.5,
    "stick_breaking value+grad N=100 batch=10 vs scan of scans": 1.5,
    "stick_breaking value+grad N=100 batch=10 vs scan carrying X": 50.0,
    "stick_breaking forward N=278 batch=10 vs numba loop": 0.5,
    "stick_breaking value+grad slope of log time in log N, 100-800": 1.0,
}
_LARGEST_SLOPE = 2.2

_Map = Callable[[jax.Array], tuple[jax.Array, jax.Array]]


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Time value and gradient and the forward map, and measure the growth of time with N."""
    size, forward_size = (6, 7) if quick else (100, 278)
    sizes, repeats = ((8, 64), 3) if quick else ((100, 200, 400, 800), 9)
    return [
        *_gradient_rows(size, repeats),
        _forward_row(forward_size, repeats),
        _slope_row(sizes, repeats),
    ]


def scan_carrying_sticks(psi: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Fill X entry by entry, carrying the remainders of the row and of each column."""
    n = len(psi) + 1
    cell, index = jnp.arange((n - 1) ** 2), jnp.arange(n)

    def fill_entry(sticks: tuple[jax.Array, jax.Array], entry: Any) -> Any:
        row_left, columns_left = sticks
        j, b = entry
        row_left = jnp.where(j == 0, 1, row_left)
        later_columns = jnp.where(index > j, columns_left, 0).sum()
        lower = jnp.maximum(0, row_left - later_columns)
        width = jnp.minimum(row_left, columns_left[j]) - lower
        x = lower + b * width
        row_left = row_left - x
        columns_left = columns_left.at[j].add(-x)
        # The last column takes the remainder of the row.
        columns_left = columns_left.at[-1].add(jnp.where(j == n - 2, -row_left, 0))
        return (row_left, columns_left), (x, row_left, width)

    sticks = jnp.ones((), psi.dtype), jnp.ones(n, psi.dtype)
    entries = cell % (n - 1), jax.nn.sigmoid(psi).ravel()
    (_, last_row), (x, row_left, width) = lax.scan(fill_entry, sticks, entries)
    last_column = row_left.reshape(n - 1, n - 1)[:, -1:]
    X = jnp.block([[x.reshape(n - 1, n - 1), last_column], [last_row]])
    return X, jnp.sum(jnp.log(width)) + _log_slopes(psi)


def scan_of_scans(psi: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Fill X by a scan over rows of scans over entries, in which no step touches a whole row.

    This is the fastest scan over entries that we know.
    """

    def fill_entry(row_left: jax.Array, entry: Any) -> Any:
        b, column_left, later_columns = entry
        lower = jnp.maximum(0, row_left - later_columns)
        width = jnp.minimum(row_left, column_left) - lower
        x = lower + b * width
        return row_left - x, (x, column_left - x, width)

    def fill_row(columns_left: jax.Array, b: jax.Array) -> Any:
        later_columns = lax.cumsum(columns_left, reverse=True)[1:]
        entries = b, columns_left[:-1], later_columns
        row_left, (x, below, width) = lax.scan(fill_entry, jnp.ones((), psi.dtype), entries)
        below = jnp.append(below, columns_left[-1] - row_left)
        return below, (jnp.append(x, row_left), jnp.sum(jnp.log(width)))

    columns = jnp.ones(len(psi) + 1, psi.dtype)
    last_row, (X, log_width) = lax.scan(fill_row, columns, jax.nn.sigmoid(psi))
    return jnp.vstack([X, last_row]), jnp.sum(log_width) + _log_slopes(psi)


def scan_carrying_matrix(psi: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Fill X entry by entry with the paper's bounds, which are sums over X."""
    n = len(psi) + 1
    cell, index = jnp.arange((n - 1) ** 2), jnp.arange(n)

    def fill_entry(X: jax.Array, entry: Any) -> Any:
        i, j, b = entry
        row, column = X[i].sum(), X[:, j].sum()
        # The rows above sum to one, so their entries beyond column j are one minus the others.
        beyond = i - jnp.where((index[:, None] < i) & (index <= j), X, 0).sum()
        lower = jnp.maximum(0, 2 - n + j - row + beyond)
        width = jnp.minimum(1 - row, 1 - column) - lower
        return X.at[i, j].set(lower + b * width), width

    entries = cell // (n - 1), cell % (n - 1), jax.nn.sigmoid(psi).ravel()
    X, width = lax.scan(fill_entry, jnp.zeros((n, n), psi.dtype), entries)
    X = X.at[:-1, -1].set(1 - X[:-1].sum(1))
    X = X.at[-1].set(1 - X.sum(0))
    return X, jnp.sum(jnp.log(width)) + _log_slopes(psi)


@numba.njit
def compiled_loop(psi: np.ndarray, X: np.ndarray, log_det: np.ndarray) -> None:
    """Fill the batches X and log_det in O(N^2) each, with one thread and one log per entry."""
    n = X.shape[-1]
    columns_left = np.empty(n, X.dtype)
    one = X.dtype.type(1)
    for k in range(len(X)):
        columns_left[:] = one
        total = X.dtype.type(0)
        for i in range(n - 1):
            row_left = one
            later_columns = X.dtype.type(n - i)
            for j in range(n - 1):
                later_columns -= columns_left[j]
                small = np.exp(-abs(psi[k, i, j]))
                b = (one if psi[k, i, j] >= 0 else small) / (one + small)
                lower = max(X.dtype.type(0), row_left - later_columns)
                width = min(row_left, columns_left[j]) - lower
                x = lower + b * width
                X[k, i, j] = x
                row_left -= x
                columns_left[j] -= x
                total += np.log(width * small / ((one + small) * (one + small)))
            X[k, i, n - 1] = row_left
            columns_left[n - 1] -= row_left
        X[k, n - 1] = columns_left
        log_det[k] = total


def _gradient_rows(n: int, repeats: int) -> list[dict[str, Any]]:
    psi = _draws(n, BATCH)
    ours = _value_and_gradient(jax.vmap(transforms.stick_breaking), n)
    references = {
        "scan carrying sticks": _value_and_gradient(jax.vmap(scan_carrying_sticks), n),
        "scan of scans": _value_and_gradient(jax.vmap(scan_of_scans), n),
        "scan carrying X": _value_and_gradient(jax.vmap(scan_carrying_matrix), n),
    }
    for reference in references.values():
        _check_same(ours(psi), reference(psi))
    functions = {"ours": ours, **references}
    seconds = side_by_side(
        {name: functools.partial(f, psi) for name, f in functions.items()}, repeats
    )
    return [
        _row(
            f"stick_breaking value+grad N={n} batch={BATCH} vs {name}",
            seconds["ours"],
            seconds[name],
        )
        for name in references
    ]


def _forward_row(n: int, repeats: int) -> dict[str, Any]:
    psi = _draws(n, BATCH)
    on_host = np.asarray(psi)
    X, log_det = np.empty((BATCH, n, n), np.float32), np.empty(BATCH, np.float32)
    ours = jax.jit(jax.vmap(transforms.stick_breaking))
    compiled_loop(on_host, X, log_det)
    _check_same(ours(psi), (X, log_det))
    seconds = side_by_side(
        {"ours": lambda: ours(psi), "numba": lambda: compiled_loop(on_host, X, log_det)}, repeats
    )
    name = f"stick_breaking forward N={n} batch={BATCH} vs numba loop"
    return _row(name, seconds["ours"], seconds["numba"])


def _slope_row(sizes: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Fit the slope of log time against log N; the reference is the largest allowed slope."""
    candidates: dict[str, Callable[[], object]] = {}
    for n in sizes:
        function = _value_and_gradient(jax.vmap(transforms.stick_breaking), n)
        candidates[str(n)] = functools.partial(function, _draws(n, 1))
    seconds = side_by_side(candidates, repeats)
    slope = float(np.polyfit(np.log(sizes), np.log([seconds[str(n)] for n in sizes]), 1)[0])
    name = f"stick_breaking value+grad slope of log time in log N, {sizes[0]}-{sizes[-1]}"
    return _row(name, slope, _LARGEST_SLOPE, unit="1")


def _value_and_gradient(batched: _Map, n: int) -> Callable[[jax.Array], Any]:
    """Differentiate ``sum(X * T) + log_det``, summed over the batch, so that both are used."""
    T = jnp.asarray(np.random.default_rng(1).normal(size=(n, n)), jnp.float32)

    def objective(psi: jax.Array) -> jax.Array:
        X, log_det = batched(psi)
        return jnp.sum(X * T) + jnp.sum(log_det)

    return jax.jit(jax.value_and_grad(objective))


def _draws(n: int, batch: int) -> jax.Array:
    """Draw normal numbers with unit variance around the psi that maps to all entries 1/n."""
    rng = np.random.default_rng(0)
    index = np.arange(n - 1)
    centre = -np.log(n - 1 - np.maximum.outer(index, index))
    return jnp.asarray(centre + rng.normal(size=(batch, n - 1, n - 1)), jnp.float32)


def _log_slopes(psi: jax.Array) -> jax.Array:
    return jnp.sum(jax.nn.log_sigmoid(psi) + jax.nn.log_sigmoid(-psi))


def _check_same(ours: Any, reference: Any) -> None:
    """Check that both give the same answer; otherwise the comparison would be pointless."""
    for a, b in zip(ours, reference, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-2, atol=1e-2)


def _row(name: str, value: float, reference: float, unit: str = "s") -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "reference": reference,
        "ratio": reference / value,
        "device": jax.devices()[0].device_kind,
    }
