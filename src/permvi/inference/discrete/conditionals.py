r"""Conditional laws of one row's choice, given the columns that are left.

All are normalised exactly over the allowed choices, so their product over rows is a law on
matchings with an exact probability mass function.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp

# log 0 in sums that are differentiated: -inf would turn gradients into NaN.
_NOTHING = -1e9


class Given(NamedTuple):
    """The arguments of a conditional beside its parameters and the possible pairs (n, C)."""

    row: jax.Array
    allowed: jax.Array  # (C,) the choices of the row
    later: jax.Array  # (n,) the rows that choose after it
    free: jax.Array  # (m,) the columns that are left


Params = dict[str, jax.Array]
Conditional = Callable[[Params, jax.Array, Given], jax.Array]


def plain(params: Params, pairs: jax.Array, given: Given) -> jax.Array:
    r"""Masked softmax: :math:`q(j) \propto e^{A_{rj}}` over the allowed choices."""
    del pairs
    return _normalised(params["logits"][given.row], given.allowed)


def lookahead(params: Params, pairs: jax.Array, given: Given) -> jax.Array:
    r"""Softmax of a logit and of the weight that the choice leaves to later rows.

    .. math:: \log q(j) = A_{rj} + \sum_{u\ \text{later}} \log \sum_{k \in F \setminus \{j\}}
        e^{B_{uk}} + \text{const},

    where F are the free columns. The sum approximates the log permanent of the remaining table by
    row sums; A = B = 0 is the uniform law.
    """
    m = given.free.shape[0]
    available = pairs.at[:, :m].set(pairs[:, :m] & given.free)
    values = jnp.where(available, params["later"], _NOTHING)
    left = _logsumexp_without_each(values, m)
    ahead = jnp.sum(jnp.where(given.later[:, None], left, 0.0), axis=0)
    return _normalised(params["logits"][given.row] + ahead, given.allowed)


def stick_breaking(params: Params, pairs: jax.Array, given: Given) -> jax.Array:
    r"""Stick-breaking at temperature zero: from left to right, take a column with odds e^A.

    :math:`q(j) = \rho_{rj} \prod_{k < j} (1 - \rho_{rk})` over the allowed choices in their order,
    with :math:`\rho = 1 / (1 + e^{-A})`; the last one gets the rest.
    """
    del pairs
    logits, allowed = params["logits"][given.row], given.allowed
    passed = jnp.where(allowed, jax.nn.log_sigmoid(-logits), 0.0)
    before = jnp.cumsum(passed) - passed
    last = jnp.cumsum(allowed[::-1])[::-1] == 1
    taken = jnp.where(last, 0.0, jax.nn.log_sigmoid(logits))
    return jnp.where(allowed, before + taken, -jnp.inf)


CONDITIONALS: Mapping[str, Conditional] = MappingProxyType(
    {"plain": plain, "lookahead": lookahead, "stick_breaking": stick_breaking}
)


def _normalised(logits: jax.Array, allowed: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(jnp.where(allowed, logits, -jnp.inf))


def _logsumexp_without_each(values: jax.Array, m: int) -> jax.Array:
    """Return (n, C) log-sum-exp of rows (n, C) without entry j if j < m, and of all otherwise.

    Subtracting the largest entry from the sum would cancel, so the others are summed for it.
    """
    n, C = values.shape
    total = logsumexp(values, axis=1, keepdims=True)
    largest = jnp.argmax(values, axis=1)
    is_largest = largest[:, None] == jnp.arange(C)
    share = jnp.where(is_largest, 0.0, jnp.exp(values - total))
    rest = logsumexp(jnp.where(is_largest, _NOTHING, values), axis=1, keepdims=True)
    without = jnp.where(is_largest, rest, total + jnp.log1p(-share))
    return without.at[:, m:].set(jnp.broadcast_to(total, (n, C - m)))
