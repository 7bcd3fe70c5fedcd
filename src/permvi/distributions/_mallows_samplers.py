"""Exact samplers of Mallows models around the identity, in JAX; one draw per call, for vmap."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from permvi.distributions._mallows_normalizers import footrule_start, footrule_step, log_rencontres

# The sides for which a new item of the footrule's recurrence finds a partner.
_NONE, _OWN, _ROW, _COLUMN, _BOTH = range(5)


def draw_kendall(key: jax.Array, theta: jax.Array, n: int) -> jax.Array:
    r"""Draw by repeated insertion (Doignon et al. 2004).

    Item i exceeds :math:`L_i` of the items after it, with probability proportional to
    :math:`e^{-\theta L_i}`, independently of the others.
    """
    places = jnp.arange(n)
    log_weights = jnp.where(places < n - places[:, None], -theta * places, -jnp.inf)
    smaller = jax.random.categorical(key, log_weights)

    def insert(perm: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        # Later items make room for the rank of this one among them.
        moved = perm + ((places > i) & (perm >= smaller[i]))
        return jnp.where(places == i, smaller[i], moved), None

    return lax.scan(insert, jnp.zeros_like(smaller), places[::-1])[0]


def draw_cayley(key: jax.Array, theta: jax.Array, n: int) -> jax.Array:
    r"""Draw a product of transpositions (Irurozki et al. 2018).

    Item i stays in place or is exchanged with any of the i earlier items, with weight
    :math:`e^{-\theta}` each; every exchange joins two cycles.
    """
    places = jnp.arange(n)
    log_weights = jnp.where(places < places[:, None], -theta, -jnp.inf)
    log_weights = jnp.where(places == places[:, None], 0.0, log_weights)
    partners = jax.random.categorical(key, log_weights)

    def change(perm: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
        k = partners[i]
        return perm.at[i].set(perm[k]).at[k].set(perm[i]), None

    return lax.scan(change, places.astype(partners.dtype), places)[0]


def draw_hamming(key: jax.Array, theta: jax.Array, n: int) -> jax.Array:
    """Draw the number of displaced items, the items, and a derangement by rejection (e tries)."""
    key_number, key_items, key = jax.random.split(key, 3)
    places = jnp.arange(n)
    number = jax.random.categorical(key_number, log_rencontres(n) - theta * np.arange(n + 1))
    chosen = places < number

    def attempt(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, part = jax.random.split(state[0])
        # The first ``number`` places in random order, followed by the others unchanged.
        order = jnp.where(chosen, jax.random.uniform(part, (n,)), 1.0 + places)
        return key, jnp.argsort(order)

    def has_fixed_point(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(chosen & (state[1] == places))

    _, derangement = lax.while_loop(has_fixed_point, attempt, attempt((key, places)))
    items = jax.random.permutation(key_items, n)
    return jnp.zeros_like(items).at[items].set(items[derangement])


def draw_footrule(key: jax.Array, theta: jax.Array, n: int) -> jax.Array:
    """Draw backward through the normaliser's recurrence, then forward to choose the partners.

    The number of ways to take a kind of step depends on how many rows and columns wait, not on
    which. So the kinds are drawn first, from the last item to the first, and then each partner
    uniformly among those waiting.
    """
    key_kinds, key_partners = jax.random.split(key)

    def forward(log_a: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return footrule_step(log_a, theta, jnp), log_a

    start = jnp.asarray(footrule_start(n), jnp.result_type(theta))
    _, before = lax.scan(forward, start, length=n)

    def backward(j: jax.Array, inputs: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        log_a, key = inputs
        at = jnp.concatenate([log_a, jnp.full((1,), -jnp.inf, log_a.dtype)])
        log_weights = jnp.stack(
            [
                jnp.where(j > 0, at[j - 1], -jnp.inf),
                at[j],
                at[j] + jnp.log(j),
                at[j] + jnp.log(j),
                at[j + 1] + 2 * jnp.log(j + 1),
            ]
        )
        kind = jax.random.categorical(key, log_weights)
        return j + jnp.where(kind == _NONE, -1, kind == _BOTH), kind

    keys = jax.random.split(key_kinds, n)
    _, kinds = lax.scan(backward, jnp.zeros((), int), (before, keys), reverse=True)

    def choose(
        state: tuple[jax.Array, jax.Array, jax.Array], inputs: tuple[jax.Array, ...]
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array], None]:
        perm, open_rows, open_cols = state
        i, kind, key = inputs
        key_row, key_col = jax.random.split(key)
        col = jax.random.categorical(key_col, jnp.where(open_cols, 0.0, -jnp.inf))
        row = jax.random.categorical(key_row, jnp.where(open_rows, 0.0, -jnp.inf))
        takes_col, takes_row = (kind == _ROW) | (kind == _BOTH), (kind == _COLUMN) | (kind == _BOTH)
        own = kind == _OWN
        perm = perm.at[i].set(jnp.where(takes_col, col, jnp.where(own, i, perm[i])))
        perm = perm.at[row].set(jnp.where(takes_row, i, perm[row]))
        open_cols = open_cols.at[col].set(open_cols[col] & ~takes_col)
        open_rows = open_rows.at[row].set(open_rows[row] & ~takes_row)
        open_rows = open_rows.at[i].set(~(own | takes_col))
        open_cols = open_cols.at[i].set(~(own | takes_row))
        return (perm, open_rows, open_cols), None

    nothing = jnp.zeros(n, bool)
    keys = jax.random.split(key_partners, n)
    state = (jnp.zeros(n, int), nothing, nothing)
    return lax.scan(choose, state, (jnp.arange(n), kinds, keys))[0][0]


SAMPLERS: Mapping[str, Callable[[jax.Array, jax.Array, int], jax.Array]] = MappingProxyType(
    {
        "kendall": draw_kendall,
        "cayley": draw_cayley,
        "hamming": draw_hamming,
        "footrule": draw_footrule,
    }
)
"""Samplers ``(key, theta, n) -> (n,)`` by distance."""
