"""Masks and known pairs of a square problem: the free entries, and the values of the others."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
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
    if (mask is not None or known is not None) and _checks.is_concrete(allowed):
        allowed = jnp.asarray(assignment.prune_mask(allowed))
    return Constraints(allowed & (fixed == 0), fixed)
