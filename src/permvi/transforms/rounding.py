r"""Rounding toward permutation matrices (paper, section 3.2 and supplement B.2).

:math:`X = \tau \Psi + (1 - \tau)\, \mathrm{round}(\Psi)`, where round finds the nearest permutation
matrix by linear assignment. Within the cell of points that round to the same permutation the map is
affine, so its log-determinant is :math:`k \log \tau` with k the number of free entries (N^2 without
constraints). No gradient flows through round. X is near the Birkhoff polytope, not in it.

For :math:`0 < \tau \le 1` X rounds to the same permutation as :math:`\Psi` (for less than 1 it lies
strictly closer to it), which gives the inverse. Above 1 this fails, and such temperatures raise
an error. The image is the support of the density: for :math:`\tau < 1` it has holes around the cell
boundaries.

Constraints. Entries that the mask forbids, or that a known pair rules out, are zero, and entries of
known pairs are one. Neither are free, and the assignment respects them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi import _checks, assignment


class Constraints(NamedTuple):
    """Entries are ``free`` to follow psi, or have the value ``fixed``, zero or one."""

    free: jax.Array
    fixed: jax.Array


def constraints_of(
    name: str, array: jax.Array, mask: ArrayLike | None, known: ArrayLike | None
) -> Constraints:
    """Check mask and known pairs for the array ``name``; prune the mask where it is concrete."""
    n = _checks.square(name, array)
    if mask is None and known is None:
        return Constraints(
            jnp.asarray(np.ones((n, n), bool)), jnp.asarray(np.zeros((n, n), array.dtype))
        )
    allowed = jnp.ones((n, n), bool) if mask is None else _checks.mask(mask, name, array.shape)
    fixed = jnp.zeros((n, n), array.dtype)
    if known is not None:
        pairs = _checks.known(known, n)
        fixed = jax.nn.one_hot(pairs, n, dtype=array.dtype)
        unknown_row, unknown_column = jnp.sum(fixed, axis=1) == 0, jnp.sum(fixed, axis=0) == 0
        compatible = (unknown_row[:, None] & unknown_column) | (fixed == 1)
        if _checks.is_concrete(allowed, fixed) and not bool(jnp.all(allowed | (fixed == 0))):
            raise ValueError("known must name pairs that the mask allows, got one that it forbids.")
        allowed = allowed & compatible
    if _checks.is_concrete(allowed):
        allowed = jnp.asarray(assignment.prune_mask(allowed))
    return Constraints(allowed & (fixed == 0), fixed)


def rounding(
    psi: ArrayLike,
    temperature: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Move real matrices toward the nearest permutation matrix.

    Args:
        psi: (..., n, n) floats.
        temperature: In (0, 1], a scalar or one for each batch member.
        mask: Booleans that broadcast against ``psi``, True where a pair is possible. Outside
            ``jit`` entries in no perfect matching are removed first; inside it, prune them yourself
            with `permvi.assignment.prune_mask`, since they would count as free.
        known: (n,) integers, ``known[i] = j`` for pairs known to match and -1 elsewhere.

    Returns:
        X of shape (..., n, n) and the log-determinant of the map, shape (...).
    """
    psi = _checks.floating("psi", psi)
    tau = _checks.temperature(temperature, psi.dtype, psi.shape[:-2], upper=1.0)
    constraints = constraints_of("psi", psi, mask, known)
    return _mixed(psi, _round(psi, constraints), tau, constraints), _log_det(constraints, tau, psi)


def rounding_inverse(
    X: ArrayLike,
    temperature: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
) -> tuple[jax.Array, jax.Array]:
    """The psi that `rounding` maps to X, and the log-determinant of this inverse map.

    The result is an inverse only where `in_rounding_support` holds. Entries of psi that are not
    free do not affect X; they are returned with the value that X has.

    Returns:
        psi of shape (..., n, n) and the log-determinant, shape (...).
    """
    X = _checks.floating("X", X)
    tau = _checks.temperature(temperature, X.dtype, X.shape[:-2], upper=1.0)
    constraints = constraints_of("X", X, mask, known)
    return _preimage(X, tau, constraints), -_log_det(constraints, tau, X)


def in_rounding_support(
    X: ArrayLike,
    temperature: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
) -> jax.Array:
    """Whether X is in the image of `rounding`, shape (...).

    The fixed entries of X must have their values, and X and its preimage must round alike.
    """
    X = _checks.floating("X", X)
    tau = _checks.temperature(temperature, X.dtype, X.shape[:-2], upper=1.0)
    constraints = constraints_of("X", X, mask, known)
    psi = _preimage(X, tau, constraints)
    same_cell = jnp.all(_round(X, constraints) == _round(psi, constraints), axis=(-2, -1))
    in_place = jnp.all(constraints.free | (X == constraints.fixed), axis=(-2, -1))
    return same_cell & in_place


def _preimage(X: jax.Array, tau: jax.Array, constraints: Constraints) -> jax.Array:
    return _unmixed(X, _round(X, constraints), tau, constraints)


@jax.jit
def _mixed(
    psi: jax.Array, rounded: jax.Array, tau: jax.Array, constraints: Constraints
) -> jax.Array:
    weight = tau[..., None, None]
    return jnp.where(constraints.free, weight * psi + (1 - weight) * rounded, constraints.fixed)


@jax.jit
def _unmixed(
    X: jax.Array, rounded: jax.Array, tau: jax.Array, constraints: Constraints
) -> jax.Array:
    weight = tau[..., None, None]
    return jnp.where(constraints.free, (X - (1 - weight) * rounded) / weight, constraints.fixed)


def _round(psi: jax.Array, constraints: Constraints) -> jax.Array:
    """The nearest permutation matrix that the constraints allow."""
    return assignment.nearest_permutation(*_open(psi, constraints))


@jax.jit
def _open(psi: jax.Array, constraints: Constraints) -> tuple[jax.Array, jax.Array]:
    """Return the free entries, zeros elsewhere, and what the constraints allow."""
    allowed = constraints.free | (constraints.fixed == 1)
    return jnp.where(constraints.free, psi, 0), allowed


@jax.jit
def _log_det(constraints: Constraints, tau: jax.Array, like: jax.Array) -> jax.Array:
    num_free = jnp.sum(constraints.free, axis=(-2, -1)).astype(tau.dtype)
    return jnp.broadcast_to(num_free * jnp.log(tau), like.shape[:-2])
