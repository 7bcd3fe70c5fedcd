r"""Draws without replacement from a row-by-row law by stochastic beam search (Kool et al. 2019).

Every matching x has the perturbed log probability :math:`\log q(x) + \text{Gumbel noise}`; the k
matchings with the largest values are a sample without replacement. The largest value below a prefix
is itself Gumbel with location log q(prefix). So a beam search that draws the children's values
given that their maximum is the parent's finds the k best.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from permvi._numerics import log1mexp
from permvi.inference.discrete.family import Family, batch_size, next_choice
from permvi.inference.discrete.structure import begin, choose


class Distinct(NamedTuple):
    """Matchings drawn without replacement, in decreasing order of their perturbed values.

    Attributes:
        choices: (num, S, n).
        log_q: (num,) exact log probabilities, -inf beyond the last matching there is.
        log_inclusion: (num,) log probabilities of being drawn, given the threshold.
    """

    choices: jax.Array
    log_q: jax.Array
    log_inclusion: jax.Array


class _Beam(NamedTuple):
    states: Any
    choices: jax.Array
    log_q: jax.Array
    perturbed: jax.Array


def draw_distinct(family: Family, rng_key: jax.Array, num: int) -> Distinct:
    r"""Draw ``num`` distinct matchings of a family of one component, or all if there are fewer.

    One more is drawn to get a threshold :math:`\kappa`, given which x is included with probability
    :math:`1 - \exp(-q(x) e^{-\kappa})`.
    """
    structure, width = family.structure, num + 1
    S, n = structure.num_sites, structure.shape[0]
    params, orders = family.component(0)
    key_root, key_steps = jax.random.split(rng_key)
    dtype = family.log_weights.dtype
    chunk = min(width, batch_size(family))

    def fresh(site: jax.Array) -> Any:
        start = begin(structure.site(site))
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (width, *leaf.shape)), start)

    def step(beam: _Beam, inputs: tuple[jax.Array, ...]) -> tuple[_Beam, None]:
        site, place, key = inputs
        row = orders[site, place]
        states = jax.tree.map(
            lambda new, old: jnp.where(place == 0, new, old), fresh(site), beam.states
        )
        log_probs, menus = lax.map(
            lambda state: next_choice(family, params, site, state, row), states, batch_size=chunk
        )
        log_q = beam.log_q[:, None] + log_probs
        values = _children(beam.perturbed, log_q, key)
        perturbed, index = lax.top_k(values.ravel(), width)
        parent, choice = jnp.divmod(index, values.shape[1])
        kept, kept_menus = jax.tree.map(lambda leaf: leaf[parent], (states, menus))
        # Without a value it is not a matching; any allowed choice will do.
        choice = jnp.where(perturbed > -jnp.inf, choice, jnp.argmax(kept_menus.allowed, axis=1))
        of_site = structure.site(site)
        states = jax.vmap(lambda s, m, c: choose(of_site, s, row, m, c))(kept, kept_menus, choice)
        choices = beam.choices[parent].at[:, site, row].set(choice.astype(jnp.int32))
        return _Beam(states, choices, log_q.ravel()[index], perturbed), None

    alone = jnp.arange(width) == 0
    root = jax.random.gumbel(key_root, dtype=dtype)
    beam = _Beam(
        fresh(jnp.array(0)),
        jnp.zeros((width, S, n), jnp.int32),
        jnp.where(alone, 0.0, -jnp.inf).astype(dtype),
        jnp.where(alone, root, -jnp.inf),
    )
    sites, places = jnp.divmod(jnp.arange(S * n), n)
    beam, _ = lax.scan(step, beam, (sites, places, jax.random.split(key_steps, S * n)))
    exists = beam.perturbed > -jnp.inf
    log_q = jnp.where(exists, beam.log_q, -jnp.inf)[:num]
    excess = log_q - beam.perturbed[num]
    return Distinct(beam.choices[:num], log_q, _log_inclusion(excess))


def _log_inclusion(excess: jax.Array) -> jax.Array:
    r"""Return :math:`\log(1 - e^{-e^x})`, at both ends by its expansions.

    Among very many matchings those drawn are still rare, and :math:`e^x` underflows in single
    precision long before its logarithm does.
    """
    found = log1mexp(-jnp.exp(jnp.clip(excess, -20.0, 20.0)))
    return jnp.where(excess < -20.0, excess - jnp.exp(jnp.minimum(excess, 0.0)) / 2, found)


def _children(parent: jax.Array, log_q: jax.Array, rng_key: jax.Array) -> jax.Array:
    """Draw perturbed values (width, C) of children given their parents' maxima (width,)."""
    free = log_q + jax.random.gumbel(rng_key, log_q.shape, log_q.dtype)
    largest = jnp.max(free, axis=1, keepdims=True)
    possible = (log_q > -jnp.inf) & (parent > -jnp.inf)[:, None]
    # Zeros for impossible entries, so that no NaN arises.
    free, largest = jnp.where(possible, free, 0.0), jnp.where(possible, largest, 0.0)
    above = jnp.where(possible, parent[:, None], 0.0)
    gap = free - largest
    log_room = jnp.where(gap < 0, jnp.log(-jnp.expm1(jnp.where(gap < 0, gap, -1.0))), -jnp.inf)
    v = above - free + log_room
    shifted = above - jnp.maximum(v, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(v)))
    return jnp.where(possible, shifted, -jnp.inf)
