r"""Mixtures of row-by-row laws with an exact probability mass function.

A component draws the rows of each site in an order o,

.. math:: q(P) = \prod_t q(P_{o_t} \mid P_{o_1}, \dots, P_{o_{t-1}})

with one of the `conditionals`. A mixture of K components with different orders has
:math:`\log q(P) = \log \sum_k w_k q_k(P)`. Masks, rectangles and unmatched items are in the
`Structure`: a row may choose only what leaves the others a matching, so no draw is rejected and
the probabilities are exact.

Choices are integers in 0, ..., C - 1, where m stands for "unmatched".
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from permvi.inference.discrete.conditionals import CONDITIONALS, Given, Params
from permvi.inference.discrete.structure import Menu, Structure, begin, choose, menu

# Up to this size all rows of a draw are evaluated at once; beyond, one by one to save memory.
_AT_ONCE = 24
# Choices (S, n), and whether to make them instead of drawing.
_Instead = tuple[jax.Array, jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Family:
    """A mixture of K row-by-row laws.

    Attributes:
        params: Arrays by name, (K, S, n, C): "logits", and "later" for look-ahead.
        log_weights: (K,) log weights of the components, not necessarily normalised.
        orders: (K, S, n) the order of the rows.
        structure: The possible choices.
        kind: A name in `CONDITIONALS`.
    """

    params: Params
    log_weights: Any
    orders: Any
    structure: Structure
    kind: str = dataclasses.field(metadata={"static": True})

    @property
    def num_components(self) -> int:
        """K."""
        return self.log_weights.shape[-1]

    def component(self, k: int | jax.Array) -> tuple[Params, jax.Array]:
        """Return the parameters and row orders of a component."""
        return {name: value[k] for name, value in self.params.items()}, jnp.asarray(self.orders)[k]


def draw(family: Family, rng_key: jax.Array) -> jax.Array:
    """Return one draw: (S, n) choices."""
    key_component, key_sites = jax.random.split(rng_key)
    k = jax.random.categorical(key_component, family.log_weights)
    return _draw_component(family, k, key_sites)[0]


def draw_beside(
    family: Family, rng_key: jax.Array, choices: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return one draw, (S, n) choices, its exact log probability, and that of other choices.

    This compiles in half the time of `draw` and `log_prob`, since both go through the rows at once.
    """
    if family.num_components > 1:
        drawn = draw(family, rng_key)
        return drawn, log_prob(family, drawn), log_prob(family, choices)
    rng_key = jax.random.split(rng_key)[1]
    both, by_site = jax.vmap(lambda new: _draw_component(family, 0, rng_key, (choices, ~new)))(
        jnp.array([True, False])
    )
    return both[0], by_site[0].sum(), by_site[1].sum()


def draw_many(family: Family, rng_key: jax.Array, num: int) -> jax.Array:
    """Return (num, S, n) independent draws."""
    keys = jax.random.split(rng_key, num)
    return lax.map(lambda key: draw(family, key), keys, batch_size=min(num, batch_size(family)))


def log_prob(family: Family, choices: jax.Array) -> jax.Array:
    """Return the exact log probability of choices (S, n), -inf for impossible ones."""
    log_weights = jax.nn.log_softmax(family.log_weights)
    components = jax.vmap(lambda k: _component_log_prob(family, k, choices))
    return logsumexp(log_weights + components(jnp.arange(family.num_components)))


def log_prob_many(family: Family, choices: jax.Array) -> jax.Array:
    """Return exact log probabilities (num,) of choices (num, S, n)."""
    size = min(len(choices), batch_size(family))
    return lax.map(lambda one: log_prob(family, one), choices, batch_size=size)


def batch_size(family: Family) -> int:
    """Return how many draws fit into a moderate amount of memory."""
    n, C = family.structure.shape[0], family.structure.num_choices
    cells = family.num_components * family.structure.num_sites * n * C * min(n, _AT_ONCE)
    return max(1, (1 << 24) // cells)


def next_choice(
    family: Family, params: Params, site: jax.Array, state: Any, row: jax.Array
) -> tuple[jax.Array, Any]:
    """Return log probabilities (C,) of a row's choices at a state of one site, and its menu."""
    structure = family.structure.site(site)
    of_site = {name: value[site] for name, value in params.items()}
    found = menu(structure, state, row)
    given = Given(row, found.allowed, state.later.at[row].set(False), state.free)
    return CONDITIONALS[family.kind](of_site, allowed_pairs(structure), given), found


def allowed_pairs(structure: Structure) -> jax.Array:
    """Return the choices (n, C) of the rows of a site before any is made."""
    n, m = structure.shape
    if structure.edges is None:
        return jnp.ones((n, m), bool)
    return jnp.asarray(structure.edges)[:n, : structure.num_choices]


def _draw_component(
    family: Family, k: int | jax.Array, rng_key: jax.Array, instead: _Instead | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return a draw (S, n) of a component and the log probabilities (S,) of its sites."""
    params, orders = family.component(k)
    keys = jax.random.split(rng_key, family.structure.num_sites)
    sites = jnp.arange(family.structure.num_sites)
    return jax.vmap(lambda s, key: _draw_site(family, params, orders, s, key, instead))(sites, keys)


def _draw_site(
    family: Family,
    params: Params,
    orders: jax.Array,
    site: jax.Array,
    rng_key: jax.Array,
    instead: _Instead | None,
) -> tuple[jax.Array, jax.Array]:
    """Return the choices (n,) of a site and their log probability, -inf if one is impossible."""
    structure = family.structure.site(site)
    n = structure.shape[0]

    def step(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        row, key = inputs
        log_probs, found = next_choice(family, params, site, state, row)
        choice = jax.random.categorical(key, log_probs)
        if instead is None:
            return choose(structure, state, row, found, choice), (choice, log_probs[choice])
        choice = jnp.where(instead[1], instead[0][site, row], choice)
        taken = _possible(found, choice)
        return choose(structure, state, row, found, taken), (choice, log_probs[choice])

    order = orders[site]
    _, (choices, log_probs) = lax.scan(
        step, begin(structure), (order, jax.random.split(rng_key, n))
    )
    return jnp.zeros(n, choices.dtype).at[order].set(choices), log_probs.sum()


def _possible(found: Menu, choice: jax.Array) -> jax.Array:
    """Return a choice, or any allowed one after an impossible one, of probability zero."""
    return jnp.where(found.allowed[choice], choice, jnp.argmax(found.allowed))


def _component_log_prob(family: Family, k: jax.Array, choices: jax.Array) -> jax.Array:
    params, orders = family.component(k)
    sites = jnp.arange(family.structure.num_sites)
    of_sites = jax.vmap(lambda s: _site_log_prob(family, params, orders, s, choices[s]))
    return jnp.sum(of_sites(sites))


def _site_log_prob(
    family: Family, params: Params, orders: jax.Array, site: jax.Array, choices: jax.Array
) -> jax.Array:
    """Compute the states first, which do not depend on the parameters, then all rows."""
    structure = family.structure.site(site)
    n = structure.shape[0]
    of_site = {name: value[site] for name, value in params.items()}
    pairs = allowed_pairs(structure)

    def step(state: Any, row: jax.Array) -> tuple[Any, Given]:
        found = menu(structure, state, row)
        given = Given(row, found.allowed, state.later.at[row].set(False), state.free)
        return choose(structure, state, row, found, _possible(found, choices[row])), given

    def log_prob_of(given: Given) -> jax.Array:
        return CONDITIONALS[family.kind](of_site, pairs, given)[choices[given.row]]

    _, along = lax.scan(step, begin(structure), orders[site])
    if n <= _AT_ONCE:
        return jnp.sum(jax.vmap(log_prob_of)(along))
    return jnp.sum(lax.map(jax.checkpoint(log_prob_of), along))
