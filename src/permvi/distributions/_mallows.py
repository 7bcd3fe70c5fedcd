r"""Log normalisers and exact samplers of Mallows models around the identity.

:math:`\log Z(\theta) = \log \sum_\sigma e^{-\theta d}`. All distances are invariant under
relabelling, so Z does not depend on the centre. Normalisers work with NumPy (float64, for fits on
the host) and with JAX; ``xp`` is the module to use. Samplers draw once per call, for vmap, in JAX.
"""

import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp as jax_logsumexp
from scipy.special import logsumexp as scipy_logsumexp

DISTANCES = ("footrule", "kendall", "cayley", "hamming")

# Log weight of the impossible: finite, since logaddexp(-inf, -inf) has a NaN derivative.
_NEVER = -1e30


def log_normalizer(theta: Any, n: int, distance: str, xp: Any = jnp) -> Any:
    r"""The log normaliser of n items for dispersions ``theta >= 0``; shape of ``theta``.

    * Kendall: :math:`\prod_{i=1}^n (1 + e^{-\theta} + \dots + e^{-(i-1)\theta})`.
    * Cayley: :math:`\prod_{i=1}^{n-1} (1 + i e^{-\theta})`.
    * Hamming: :math:`\sum_k \binom nk D_k e^{-k\theta}` with :math:`D_k` derangements of k items.
    * Footrule: see `footrule_step`.
    """
    theta = xp.asarray(theta)[..., None]
    logsumexp = scipy_logsumexp if xp is np else jax_logsumexp
    places = np.arange(n)
    if distance == "cayley":
        return xp.logaddexp(np.log(np.arange(1, n)) - theta, 0.0).sum(-1)
    if distance == "kendall":
        # Item i may be put before any number of the i earlier items.
        log_weights = xp.where(places <= places[:, None], -theta[..., None] * places, -np.inf)
        return logsumexp(log_weights, axis=-1).sum(-1)
    if distance == "hamming":
        return logsumexp(log_rencontres(n) - theta * np.arange(n + 1), axis=-1)
    log_a = footrule_start(n) - 0 * theta
    if xp is np:
        for _ in range(n):
            log_a = footrule_step(log_a, theta, np)
    else:
        log_a = jax.lax.fori_loop(
            0, n, lambda _, log_a: footrule_step(log_a, theta, jnp), xp.asarray(log_a)
        )
    return log_a[..., 0]


@functools.lru_cache(maxsize=64)
def log_rencontres(n: int) -> np.ndarray:
    """(n+1,) log number of permutations that displace k items: binomial times derangements.

    The entry for k = 1 is -inf.
    """
    derangements = [1, 0]
    for k in range(2, n + 1):
        derangements.append((k - 1) * (derangements[-1] + derangements[-2]))
    counts = [math.comb(n, k) * derangements[k] for k in range(n + 1)]
    found = np.array([math.log(count) if count else -math.inf for count in counts])
    found.flags.writeable = False
    return found


def footrule_start(n: int) -> np.ndarray:
    """(n//2 + 1,) log weights before the first item, when nothing waits for a partner."""
    start = np.full(n // 2 + 1, _NEVER)
    start[0] = 0.0
    return start


def footrule_step(log_a: Any, theta: Any, xp: Any) -> Any:
    r"""Add one item to the footrule's recurrence, O(n) for each item, O(n^2) in all.

    Items come in turn, each with its own row and column. After i of them, j rows still wait for a
    later column and as many columns for a later row. Each of these 2j adds one to
    :math:`\sum_i |\sigma_i - i|` before the next item comes. So, if :math:`a_i(j)` is the total
    weight of all ways to reach this state,

    .. math:: a_{i+1}(j) = e^{-2 \theta j}
              [(2j + 1)\, a_i(j) + a_i(j - 1) + (j + 1)^2\, a_i(j + 1)],

    where the new item takes its own column or finds a partner for one of its two sides, for none,
    or for both. The normaliser is :math:`a_n(0)`.
    """
    j = np.arange(log_a.shape[-1])
    edge = xp.full_like(log_a[..., :1], _NEVER)
    opened = xp.concatenate([edge, log_a[..., :-1]], axis=-1)
    closed = xp.concatenate([log_a[..., 1:], edge], axis=-1)
    terms = (log_a + np.log(2 * j + 1), opened, closed + 2 * np.log(j + 1))
    return xp.logaddexp(xp.logaddexp(terms[0], terms[1]), terms[2]) - 2 * theta * j


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


@functools.partial(jax.jit, static_argnums=2)
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
