r"""Stick-breaking at temperature zero: an exact probability mass function on permutations.

As the temperature falls, :math:`\beta \to \mathrm{Bern}(\rho)` with
:math:`\rho = \Phi(\mu/\nu)` for logistic-normal sticks (the paper's sign is wrong), and the filled
matrix is a permutation P with

.. math:: q(P) = \prod_{\text{free } (m, n)} \rho_{mn}^{x_{mn}} (1 - \rho_{mn})^{1 - x_{mn}},

where an entry is free if its column is unused by the rows above, its row is not yet assigned and an
unused column remains to its right. The other entries are forced and do not depend on their sticks.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr
from jax.typing import ArrayLike

from permvi import _checks, permutations
from permvi.transforms.stick_breaking import order
from permvi.transforms.sticks import Sticks


def limit_sticks(loc: ArrayLike, scale: ArrayLike = 1.0) -> Sticks:
    r"""log rho and log(1 - rho) of the limit of logistic-normal sticks N(loc, scale^2).

    Args:
        loc: Floats of any shape.
        scale: Positive floats that broadcast against ``loc``.
    """
    ratio = _checks.floating("loc", loc) / _checks.floating("scale", scale)
    return Sticks(log_ndtr(ratio), log_ndtr(-ratio))


def limit_log_prob(
    perm: ArrayLike,
    sticks: Sticks,
    *,
    row_order: ArrayLike | None = None,
    col_order: ArrayLike | None = None,
) -> jax.Array:
    """Exact log probability of permutations under stick-breaking at temperature zero.

    Args:
        perm: (..., n) integers.
        sticks: log rho and log(1 - rho), shape (..., n-1, n-1), from `limit_sticks` or any other
            Bernoulli probabilities; batch shapes broadcast.
        row_order: As in `stick_breaking`.
        col_order: As in `stick_breaking`.

    Returns:
        log q(P), shape (...), in O(n^2).
    """
    log_rho, _ = sticks
    K = _checks.square("sticks", log_rho, min_size=0)
    perm = _checks.integer("perm", perm)
    if perm.ndim < 1 or perm.shape[-1] != K + 1:
        raise ValueError(
            f"perm must have shape (..., {K + 1}) for sticks of shape {log_rho.shape}, "
            f"got shape {perm.shape}."
        )
    if row_order is not None:
        perm = jnp.take(perm, order("row_order", row_order, K + 1), axis=-1)
    if col_order is not None:
        perm = jnp.take(permutations.inverse(order("col_order", col_order, K + 1)), perm)
    return _log_prob(perm, sticks)


@jax.jit
def _log_prob(perm: jax.Array, sticks: Sticks) -> jax.Array:
    """Return log q of permutations in the order in which entries are filled."""
    log_rho, log_not_rho = sticks
    K = perm.shape[-1] - 1
    row, column = jnp.arange(K)[:, None], jnp.arange(K)
    owner = permutations.inverse(perm)
    # The last row that takes one of the columns beyond n.
    last_beyond = jax.lax.cummax(owner[..., 1:], axis=owner.ndim - 1, reverse=True)
    column_unused = owner[..., None, :K] >= row
    row_unassigned = perm[..., :K, None] >= column
    room_to_the_right = last_beyond[..., None, :] >= row
    free = column_unused & row_unassigned & room_to_the_right
    taken = perm[..., :K, None] == column
    return jnp.sum(jnp.where(free, jnp.where(taken, log_rho, log_not_rho), 0), axis=(-2, -1))
