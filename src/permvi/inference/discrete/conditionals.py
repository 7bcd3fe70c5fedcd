r"""Conditional laws of one row's choice, given the columns that are left.

All are normalised exactly over the allowed choices, so their product over rows is a law on
matchings with an exact probability mass function.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# log 0 in sums that are differentiated: -inf would turn gradients into NaN.
_NOTHING = -1e9
# Weights below this share of the largest are lost to rounding, or nearly zero.
_VANISHING = 1e-30
# As many factors of at least a half as float32 can multiply.
_PRODUCT = 100


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
    ahead = _log_shares_left(jnp.where(available, params["later"], _NOTHING), given.later, m)
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


def _log_shares_left(values: jax.Array, later: jax.Array, m: int) -> jax.Array:
    r"""Return (C,) what each choice j < m leaves of the weights of later rows, zero for others.

    This is :math:`\sum_{u\ \text{later}} \log (1 - s_{uj})`, where :math:`s_{u\cdot}` is the
    softmax of row u of the values (n, C). It is computed for every row of every draw, and most of
    the time would go into logarithms. So they are taken of products: all shares but the largest of
    a row are at most a half. For the largest the others are added up, since the difference would
    cancel; where they vanish beside it, the next largest stands for them.
    """
    n, C = values.shape
    top = jnp.max(values, axis=1)
    is_top = values == top[:, None]
    # Of several that are equal, each has a share of at most a half, too.
    single = is_top.sum(axis=1) == 1
    is_largest = is_top & single[:, None]
    others = jnp.where(is_largest, _NOTHING, values)
    weights = jnp.exp(others - top[:, None])
    rest = weights.sum(axis=1)
    total = rest + single
    share_left = jnp.where(later[:, None], 1 - weights / total[:, None], 1.0)
    vanishes = rest < _VANISHING
    log_left = jnp.where(
        vanishes,
        jnp.max(others, axis=1) - top,
        jnp.log(jnp.where(vanishes, 1.0, rest)) - jnp.log(total),
    )
    of_largest = jnp.where(is_largest & later[:, None], log_left[:, None], 0.0).sum(axis=0)
    parts = [share_left[k : k + _PRODUCT] for k in range(0, n, _PRODUCT)]
    ahead = of_largest + sum(_log_of_product(part) for part in parts)
    return jnp.where(jnp.arange(C) < m, ahead, 0.0)


@jax.custom_jvp
def _log_of_product(factors: jax.Array) -> jax.Array:
    """Return logs (C,) of the products of columns (k, C) of positive numbers."""
    return jnp.log(jnp.prod(factors, axis=0))


@_log_of_product.defjvp
def _log_of_product_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    # The gradient of a product would multiply all others again.
    (factors,), (changes,) = primals, tangents
    return _log_of_product(factors), jnp.sum(changes / factors, axis=0)
