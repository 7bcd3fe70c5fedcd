r"""A population of particles that choose columns row by row, under a guide.

A guide is a table of log weights :math:`G` that is roughly doubly stochastic. After t rows a
particle has the target

.. math:: \log \gamma_t = \sum_{s \le t} G_{s, x_s} + \sum_{u\ \text{later}}
          \log \sum_{k\ \text{free}} e^{G_{uk}},

where the second sum looks ahead: it is the row-sum approximation to the log permanent of what is
left, and zero at the end. Rows choose with `conditionals.lookahead`, so that only what leaves the
others a matching is ever proposed, and :math:`w_t = \gamma_t / (\gamma_{t-1} q_t)` depends on the
past alone wherever every column is allowed. Whatever the guide, the estimate

.. math:: \hat Z = \prod_{\text{resamplings}} \overline{w} \cdot
          \overline{w\, p / \gamma_n}

of :math:`\sum_x p(x)` is unbiased (Del Moral 2004, section 7.4).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp

from permvi.inference.discrete.conditionals import Params
from permvi.inference.discrete.family import Family, allowed_pairs, batch_size, next_choice
from permvi.inference.discrete.structure import DrawState, begin, choose


class Population(NamedTuple):
    """Particles, with their populations in front.

    Attributes:
        choices: (populations, num, S, n).
        log_weights: (populations, num) of the particles for the guide's target, since the last
            resampling.
        log_scale: (populations,) what the mean weights before resamplings have multiplied up to.
        num_resamplings: (populations,) how often.
    """

    choices: jax.Array
    log_weights: jax.Array
    log_scale: jax.Array
    num_resamplings: jax.Array


class _Carry(NamedTuple):
    states: DrawState
    # What the target holds of the future: nothing, before a site is begun.
    outlook: jax.Array
    population: Population


@functools.partial(jax.jit, static_argnames=("num_particles", "num_populations"))
def draw_populations(
    family: Family,
    rng_key: jax.Array,
    resample_below: jax.Array,
    *,
    num_particles: int,
    num_populations: int,
) -> Population:
    """Independent populations under a guide.

    Args:
        family: One look-ahead component, whose logits and later logits are the guide.
        rng_key: A JAX random key.
        resample_below: The share of the particles that the effective sample size may not fall
            below.
        num_particles: In each population.
        num_populations: How many.
    """
    # A divisor: what is left over would be compiled once more.
    most = min(num_populations, max(1, batch_size(family) // num_particles))
    together = next(size for size in range(most, 0, -1) if num_populations % size == 0)
    return lax.map(
        lambda key: _draw_population(family, key, resample_below, num_particles),
        jax.random.split(rng_key, num_populations),
        batch_size=together,
    )


def _draw_population(
    family: Family, rng_key: jax.Array, resample_below: jax.Array, num: int
) -> Population:
    structure = family.structure
    S, n = structure.num_sites, structure.shape[0]
    params, orders = family.component(0)
    dtype = family.log_weights.dtype

    def fresh(site: jax.Array) -> Any:
        start = begin(structure.site(site))
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num, *leaf.shape)), start)

    def step(carry: _Carry, inputs: tuple[jax.Array, ...]) -> tuple[_Carry, None]:
        site, place, key = inputs
        states = jax.tree.map(
            lambda new, old: jnp.where(place == 0, new, old), fresh(site), carry.states
        )
        row, of_site = orders[site, place], structure.site(site)
        key_choose, key_resample = jax.random.split(key)
        log_probs, menus = jax.vmap(lambda s: next_choice(family, params, site, s, row))(states)
        choice = jax.random.categorical(key_choose, log_probs)
        states = jax.vmap(lambda s, m, c: choose(of_site, s, row, m, c))(states, menus, choice)
        outlook = jax.vmap(lambda s: _outlook(family, params, site, s))(states)
        log_q = jnp.take_along_axis(log_probs, choice[:, None], axis=1)[:, 0]
        log_gain = params["logits"][site, row, choice] + outlook - carry.outlook - log_q
        population = carry.population._replace(
            choices=carry.population.choices.at[:, site, row].set(choice.astype(jnp.int32)),
            log_weights=carry.population.log_weights + log_gain.astype(dtype),
        )
        # The weights of whole matchings change once more; until then there is no need.
        last = site * n + place == S * n - 1
        due = (_effective_size(population.log_weights) < resample_below * num) & ~last
        return _resample(_Carry(states, outlook, population), key_resample, due), None

    nothing = jnp.zeros((), dtype)
    start = Population(
        jnp.zeros((num, S, n), jnp.int32), jnp.zeros(num, dtype), nothing, jnp.zeros((), jnp.int32)
    )
    sites, places = jnp.divmod(jnp.arange(S * n), n)
    keys = jax.random.split(rng_key, S * n)
    begun = _Carry(fresh(jnp.array(0)), jnp.zeros(num, dtype), start)
    carry, _ = lax.scan(step, begun, (sites, places, keys))
    return carry.population


def _outlook(family: Family, params: Params, site: jax.Array, state: DrawState) -> jax.Array:
    """The log row sums of the rows that are left, over what is free, added up."""
    pairs = allowed_pairs(family.structure.site(site))
    m = state.free.shape[0]
    available = pairs.at[:, :m].set(pairs[:, :m] & state.free)
    sums = logsumexp(params["later"][site], axis=1, where=available)
    return jnp.sum(jnp.where(state.later, sums, 0.0)).astype(family.log_weights.dtype)


def _effective_size(log_weights: jax.Array) -> jax.Array:
    return jnp.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights))


def _resample(carry: _Carry, rng_key: jax.Array, due: jax.Array) -> _Carry:
    """Systematic resampling (Kitagawa 1996), if it is due."""
    states, outlook, population = carry
    log_weights = population.log_weights
    num = log_weights.shape[0]
    cumulative = jnp.cumsum(jax.nn.softmax(log_weights))
    offset = jax.random.uniform(rng_key, dtype=cumulative.dtype)
    positions = (offset + jnp.arange(num, dtype=cumulative.dtype)) / num
    parents = jnp.searchsorted(cumulative / cumulative[-1], positions, side="right")
    parents = jnp.where(due, jnp.minimum(parents, num - 1), jnp.arange(num))
    mean = logsumexp(log_weights) - jnp.log(num)
    return _Carry(
        jax.tree.map(lambda leaf: leaf[parents], states),
        outlook[parents],
        Population(
            population.choices[parents],
            jnp.where(due, 0.0, log_weights),
            population.log_scale + jnp.where(due, mean, 0.0).astype(log_weights.dtype),
            population.num_resamplings + due.astype(jnp.int32),
        ),
    )
