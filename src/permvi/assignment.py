"""Linear assignment: the best permutation under a matrix of scores, for any batch of matrices.

Every function takes any leading batch shape. ``solve`` and ``nearest_permutation`` work inside and
outside ``jit`` and ``vmap``; the mask functions need concrete values and work outside only.

Ties. If several assignments are optimal, the lexicographically smallest one is returned: the first
row has the smallest column that any optimum gives it, then the second row, and so on (an unmatched
row counts as if it had a column after the last). Assignments count as equally good if they differ
by no more than rounding: an entry may be used if its reduced cost is zero to within 16 roundings of
its two potentials (in float64 on the host, in the dtype of the scores on a device). So ties that
are exact in that precision, such as those of equal scores, equal rows or integers, are all
recognised, and all backends agree. Near-ties may differ between float32 and float64; then backends
may return different assignments, whose scores agree to rounding.

Bad values. Scores of allowed pairs must be finite, and the mask must allow an assignment. Outside
``jit`` anything else raises ``ValueError``. Inside ``jit``, ``solve`` returns -1 for all rows of
such a problem and ``nearest_permutation`` NaN for all entries; other problems of the batch are not
affected. XLA treats subnormal scores as zero.
"""

import functools
import importlib.util
import math
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks
from permvi._assignment import INFEASIBLE, NOT_FINITE, device, foreign, host, masks

_Array: TypeAlias = jax.Array | np.ndarray
Backend = Literal["auto", "host", "device", "lapx"]

_BACKENDS = ("auto", "host", "device", "lapx")
# From about this batch size on, an H200 was faster than 16 host cores, at n = 20 to 200.
_MANY = 256


def solve(
    scores: ArrayLike,
    mask: ArrayLike | None = None,
    maximize: bool = True,  # noqa: FBT001, FBT002 (the name and place are part of the contract)
    backend: Backend = "auto",
) -> jax.Array:
    r"""Find the assignment of rows to columns with the best total score.

    Solves :math:`\max_\pi \sum_i s_{i \pi(i)}` over injective maps of the rows, or the minimum.
    With more rows than columns every column is used, and the remaining rows get -1.

    Args:
        scores: (..., n, m) floats.
        mask: Booleans that broadcast against ``scores``, True where row i may have column j. Scores
            of forbidden pairs are ignored, whatever their values.
        maximize: Whether to maximise the total score; otherwise it is minimised.
        backend: "host" (a compiled solver on all cores, or SciPy for a few small problems before
            numba is loaded; programmes on an accelerator call back to it), "device" (pure JAX,
            stays where the scores are), "lapx" (the host, with the optional package lapx), or
            "auto". "auto"
            uses the host, unless JAX's default backend is an accelerator and the scores hold 256 or
            more problems; problems that ``vmap`` adds are not counted.

    Returns:
        (..., n) integers ``perm[i] = j``. See the module for ties and bad values.

    Raises:
        ValueError: If shapes do not fit; outside ``jit`` also for NaN, infinite scores and masks
            that allow no assignment.
        TypeError: If the scores are not floats or the mask is not boolean.
    """
    scores = _floating("scores", scores)
    if scores.ndim < 2 or 0 in scores.shape[-2:]:
        raise ValueError(
            f"scores must have shape (..., n, m) with n, m >= 1, got shape {scores.shape}."
        )
    return _solve(
        "scores",
        scores,
        _fitting_mask(mask, "scores", scores),
        maximize=bool(maximize),
        backend=backend,
    )


def nearest_permutation(
    psi: ArrayLike, mask: ArrayLike | None = None, backend: Backend = "auto"
) -> jax.Array:
    r"""Find the permutation matrices nearest to square matrices in the Euclidean (Frobenius) norm.

    This is :math:`\arg\max_P \langle P, \psi \rangle`, since all permutation matrices have the same
    norm. No gradient flows through it.

    Args:
        psi: (..., n, n) floats.
        mask: Booleans that broadcast against ``psi``, True where P may be one.
        backend: As in `solve`.

    Returns:
        (..., n, n) zeros and ones in the dtype of ``psi``. See the module for ties and bad values.
    """
    psi = _checks.floating("psi", psi)
    n = _checks.square("psi", psi)
    perm = _solve("psi", psi, _fitting_mask(mask, "psi", psi), maximize=True, backend=backend)
    return _matrices(perm, n, psi.dtype)


@functools.partial(jax.jit, static_argnums=(1, 2))
def _matrices(perm: jax.Array, n: int, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Return permutation matrices (..., n, n), NaN where there is no permutation."""
    solved = jnp.all(perm >= 0, axis=-1)[..., None, None]
    return jnp.where(solved, jax.nn.one_hot(perm, n, dtype=dtype), jnp.nan)


def nearest_permutation_straight_through(
    psi: ArrayLike, mask: ArrayLike | None = None, backend: Backend = "auto"
) -> jax.Array:
    """Apply `nearest_permutation`, with the gradient of the identity (for network layers)."""
    psi = _checks.floating("psi", psi)
    return _with_gradient_of(nearest_permutation(psi, mask, backend), psi)


def is_feasible(mask: ArrayLike) -> np.ndarray:
    """Whether (..., n, m) masks allow an assignment of all rows, or of all columns if n > m."""
    flat = _flat_mask(mask)
    found = [masks.is_complete(masks.maximum_matching(one), one.shape[-1]) for one in flat]
    return np.array(found, bool).reshape(np.shape(mask)[:-2])


def prune_mask(mask: ArrayLike) -> np.ndarray:
    """Remove the entries of masks that no assignment can use.

    An entry stays if some complete assignment uses it: one that gives a column to every row, or, if
    there are more rows than columns, a row to every column.

    Args:
        mask: (..., n, m) booleans, True where allowed.

    Returns:
        (..., n, m) booleans.

    Raises:
        ValueError: If a mask allows no assignment.
    """
    return masks.prune_all(_flat_mask(mask).reshape(np.shape(mask)))


def blocks(mask: ArrayLike) -> list[tuple[np.ndarray, np.ndarray]]:
    """Split a masked problem into its independent parts.

    Args:
        mask: (n, m) booleans, True where allowed. It is pruned first, which may split it further.

    Returns:
        The row and column indices of each part, in the order of their first rows. An assignment of
        the whole combines one of each part. Rows and columns that cannot be matched are in no part.

    Raises:
        ValueError: If the mask allows no assignment.
    """
    if np.ndim(mask) != 2:
        raise ValueError(f"mask must have shape (n, m), got shape {np.shape(mask)}.")
    return masks.components(prune_mask(mask))


def _solve(
    name: str, scores: _Array, mask: _Array | None, *, maximize: bool, backend: str
) -> jax.Array:
    """Solve after the checks of shape and dtype; ``name`` is the user's name for the scores."""
    if backend not in _BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(_BACKENDS)}, got {backend!r}.")
    if backend == "lapx" and importlib.util.find_spec("lap") is None:
        raise ValueError("backend 'lapx' needs the package lapx: pip install 'permvi[lapx]'.")
    if backend == "auto":
        many = math.prod(scores.shape[:-2]) >= _MANY
        backend = "device" if many and jax.default_backend() != "cpu" else "host"
    if isinstance(scores, jax.Array):
        scores = jax.lax.stop_gradient(scores)
    if jnp.finfo(scores.dtype).bits < 32:
        scores = scores.astype(jnp.float32)
    concrete = _checks.is_concrete(scores, mask)
    if backend == "device":
        perm, status = _on_device(-scores if maximize else scores, mask)
    elif concrete:
        values = np.asarray(scores), None if mask is None else np.asarray(mask)
        solver = "lapx" if backend == "lapx" else "auto"
        found, status = host.solve(*values, maximize=maximize, solver=solver)
        perm = jax.device_put(found)
    else:
        perm = _from_programme(scores, mask, maximize=maximize, backend=backend)
    if concrete:
        _refuse_unsolved(name, np.asarray(status))
    return perm


@jax.jit
def _on_device(cost: jax.Array, mask: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    n, m = cost.shape[-2:]
    batch = cost.shape[:-2]
    if mask is not None:
        batch = jnp.broadcast_shapes(batch, mask.shape[:-2])
    # A mask of None stays None here: it has no leaves.
    flat = jax.tree.map(
        lambda a: jnp.broadcast_to(a, (*batch, n, m)).reshape(-1, n, m), (cost, mask)
    )
    perm, status = jax.vmap(device.solve)(*flat)
    return perm.reshape(*batch, n), status.reshape(batch)


def _from_programme(
    scores: _Array, mask: _Array | None, *, maximize: bool, backend: str
) -> jax.Array:
    """Call the host solver from a programme; one for a CPU can be kept on disk."""
    arguments = [scores]
    if mask is not None:
        # With equal numbers of axes, those that vmap adds stay in front of all others.
        missing = tuple(range(mask.ndim - scores.ndim))
        arguments = [jnp.expand_dims(scores, missing), mask]
    batch = jnp.broadcast_shapes(*(a.shape[:-2] for a in arguments))
    if backend != "lapx":
        host.compile_for(scores.dtype)
    solver = "lapx" if backend == "lapx" else "compiled"
    shape = jax.ShapeDtypeStruct((*batch, scores.shape[-2]), jnp.int32)
    # Arguments that vmap does not batch get an axis of size one, and the host broadcasts.
    by_name = jax.ffi.ffi_call(
        foreign.target(maximize=maximize, solver=solver), shape, vmap_method="expand_dims"
    )
    call_back = functools.partial(
        jax.pure_callback,
        _callback(maximize=maximize, solver=solver),
        shape,
        vmap_method="expand_dims",
    )
    return jax.lax.platform_dependent(*arguments, cpu=by_name, default=call_back)


@functools.cache
def _callback(*, maximize: bool, solver: str) -> Any:
    """The host solver as a callback; always the same object, so that JAX reuses compiled code."""

    def callback(scores: ArrayLike, mask: ArrayLike | None = None) -> np.ndarray:
        allowed = None if mask is None else np.asarray(mask)
        return host.solve(np.asarray(scores), allowed, maximize=maximize, solver=solver)[0]

    return callback


@jax.custom_jvp
def _with_gradient_of(value: jax.Array, source: jax.Array) -> jax.Array:
    return value


@_with_gradient_of.defjvp
def _with_gradient_of_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    return primals[0], tangents[1]


def _floating(name: str, value: ArrayLike) -> _Array:
    """Floats as a JAX array; NumPy arrays stay on the host, where they may be needed."""
    if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.float64):
        return value
    return _checks.floating(name, value)


def _fitting_mask(mask: ArrayLike | None, name: str, scores: _Array) -> _Array | None:
    """The mask broadcast to the last two axes, and to at least as many axes, as the scores."""
    if mask is None:
        return None
    array = mask if isinstance(mask, jax.Array) else np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"mask must be a boolean array, got dtype {array.dtype}.")
    try:
        fits = jnp.broadcast_shapes(array.shape, scores.shape)[-2:] == scores.shape[-2:]
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"mask must broadcast against {name} of shape {scores.shape}, got shape {array.shape}."
        )
    leading = (1,) * (scores.ndim - max(array.ndim, 2)) + array.shape[:-2]
    xp: Any = np if isinstance(array, np.ndarray) else jnp
    return xp.broadcast_to(array, leading + scores.shape[-2:])


def _flat_mask(mask: ArrayLike) -> np.ndarray:
    if not _checks.is_concrete(mask):
        raise TypeError("mask must be known when this function runs, got a value traced by jit.")
    array = np.asarray(mask)
    if array.dtype != bool:
        raise TypeError(f"mask must be a boolean array, got dtype {array.dtype}.")
    if array.ndim < 2 or 0 in array.shape[-2:]:
        raise ValueError(
            f"mask must have shape (..., n, m) with n, m >= 1, got shape {array.shape}."
        )
    return array.reshape(-1, *array.shape[-2:])


def _refuse_unsolved(name: str, status: np.ndarray) -> None:
    for kind in (NOT_FINITE, INFEASIBLE):
        bad = np.flatnonzero(status == kind)
        if len(bad) == 0:
            continue
        if kind == INFEASIBLE:
            raise ValueError(masks.infeasible(status.shape, bad[0]))
        raise ValueError(
            f"{name} must be finite where allowed (forbid pairs with mask=, not with infinite "
            f"scores), got NaN or inf{masks.of_problem(status.shape, bad[0])}."
        )
