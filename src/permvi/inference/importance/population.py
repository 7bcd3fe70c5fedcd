r"""Populations of particles that choose columns row by row under a guide, and their combination.

A guide is a roughly doubly stochastic table with logarithms :math:`G`. After t rows a particle has
the target

.. math:: \log \gamma_t = \sum_{s \le t} G_{s, x_s} + \sum_{u\ \text{later}}
          \log \sum_{k\ \text{free}} e^{G_{uk}},

where the second sum looks ahead: it is the row-sum approximation to the log permanent of the
remaining table, and zero at the end. Rows choose with `conditionals.lookahead`, so that every
choice leaves the others a matching. If every column is allowed,
:math:`w_t = \gamma_t / (\gamma_{t-1} q_t)` depends on the past only. For every guide, the estimate

.. math:: \hat Z = \prod_{\text{resamplings}} \overline{w} \cdot
          \overline{w\, p / \gamma_n}

of :math:`\sum_x p(x)` is unbiased (Del Moral 2004, section 7.4).

**Combination.** The populations' estimates :math:`Z_g` of the evidence are independent and
unbiased, and so is their mean, on the natural scale. Its standard error comes from their spread.
Marginals are ratios :math:`M = \sum_g Z_g M_g / \sum_g Z_g`, and their errors are linearised.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from scipy.special import logsumexp as host_logsumexp

from permvi._programmes import light_jit
from permvi.inference.discrete.conditionals import Params
from permvi.inference.discrete.family import Family, allowed_pairs, batch_size, next_choice
from permvi.inference.discrete.structure import DrawState, begin, choose


class Population(NamedTuple):
    """Populations of particles.

    Attributes:
        choices: (populations, num, S, n) choices of the particles.
        log_weights: (populations, num) log weights for the guide's target since the last
            resampling.
        log_scale: (populations,) the log of the product of the mean weights before resamplings.
        num_resamplings: (populations,) numbers of resamplings.
    """

    choices: jax.Array
    log_weights: jax.Array
    log_scale: jax.Array
    num_resamplings: jax.Array


class _Carry(NamedTuple):
    states: DrawState
    # The second sum of the target; zero before a site begins.
    outlook: jax.Array
    population: Population


@functools.partial(light_jit, static_argnames=("num_particles", "num_populations"))
def draw_populations(
    family: Family,
    rng_key: jax.Array,
    resample_below: jax.Array,
    *,
    num_particles: int,
    num_populations: int,
) -> Population:
    """Draw independent populations under a guide.

    The guide is the logits and later logits of ``family``, one look-ahead component. A population
    is resampled when its effective sample size is below the share ``resample_below``.
    """
    # A divisor of the number, since a remainder would be compiled again.
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
        # After the last row the density still changes the weights, so do not resample there.
        last = site * n + place == S * n - 1
        weights = population.log_weights
        size = jnp.exp(2 * logsumexp(weights) - logsumexp(2 * weights))
        due = (size < resample_below * num) & ~last
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
    """Return the sum of the log row sums of the remaining rows over free columns."""
    pairs = allowed_pairs(family.structure.site(site))
    m = state.free.shape[0]
    available = pairs.at[:, :m].set(pairs[:, :m] & state.free)
    sums = logsumexp(params["later"][site], axis=1, where=available)
    return jnp.sum(jnp.where(state.later, sums, 0.0)).astype(family.log_weights.dtype)


def _resample(carry: _Carry, rng_key: jax.Array, due: jax.Array) -> _Carry:
    """Resample systematically (Kitagawa 1996) if it is due."""
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


class Weighted(NamedTuple):
    """Weighted matchings.

    Attributes:
        perms: (num, n) or (num, S, n) matchings of all populations.
        log_weights: (num,) log weights; the mean weight is the evidence.
        log_evidence: The log of an unbiased estimate.
        log_evidence_se: Its standard error, which is the relative standard error of the estimate.
        log_evidence_by_population: (populations,) the log of each population's estimate.
        ess_per_draw: The effective sample size per draw of the weights, after any resampling.
        error_by_row: (n,) or (S, n) expected total variation between the marginals and those of the
            posterior, due to sampling.
        disagreement_by_row: (n,) or (S, n) total variation between the marginals of the first and
            the second half of the populations, beyond what their errors explain.
    """

    perms: np.ndarray
    log_weights: np.ndarray
    log_evidence: float
    log_evidence_se: float
    log_evidence_by_population: np.ndarray
    ess_per_draw: float
    error_by_row: np.ndarray
    disagreement_by_row: np.ndarray


def combine(perms: np.ndarray, log_weights: np.ndarray, num_cols: int) -> Weighted:
    """Combine populations.

    Args:
        perms: (populations, num, n) or (populations, num, S, n) matchings, -1 for unmatched.
        log_weights: (populations, num) log weights, not all -inf. The mean weight of a population
            is its estimate of the evidence.
        num_cols: The number of columns m.
    """
    groups, num = log_weights.shape
    each = host_logsumexp(log_weights, axis=1) - np.log(num)
    log_evidence = float(host_logsumexp(each) - np.log(groups))
    flat = log_weights.ravel()
    shares = np.exp(flat - host_logsumexp(flat))
    tables = _tables(perms, np.exp(log_weights - log_evidence) / num, num_cols)
    halves = [_ratio(part) for part in (tables[: groups // 2], tables[groups // 2 :])]
    apart = 0.5 * np.abs(halves[0][0] - halves[1][0]).sum(axis=-1)
    expected = np.hypot(halves[0][1], halves[1][1])
    event = perms.shape[2:]
    return Weighted(
        perms.reshape(-1, *event),
        flat,
        log_evidence,
        # Relative to the mean, to avoid overflow.
        float(np.exp(each - log_evidence).std(ddof=1) / np.sqrt(groups)),
        each,
        float(1 / (shares**2).sum() / len(shares)),
        _ratio(tables)[1].reshape(event),
        np.maximum(apart - expected, 0.0).reshape(event),
    )


def _tables(perms: np.ndarray, weights: np.ndarray, num_cols: int) -> np.ndarray:
    """Return (populations, rows, m + 1) the weight of each column, and of unmatched, by row."""
    groups, num = weights.shape
    rows = perms.reshape(groups, num, -1) % (num_cols + 1)
    tables = np.zeros((groups, rows.shape[2], num_cols + 1))
    index = np.arange(groups)[:, None, None], np.arange(rows.shape[2])
    np.add.at(tables, (*index, rows), weights[:, :, None])
    return tables


def _ratio(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the marginals (rows, m + 1) of some populations, and the expected error by row.

    A normal error of sd s has the mean absolute value :math:`s \sqrt{2 / \pi}`, and total variation
    is half the sum over columns.
    """
    groups, totals = len(tables), tables[:, 0].sum(axis=-1)
    if totals.sum() == 0 or groups < 2:
        rows, states = tables.shape[1:]
        return np.full((rows, states), 1 / states), np.ones(rows)
    marginals = tables.sum(axis=0) / totals.sum()
    residuals = (tables - totals[:, None, None] * marginals) / totals.sum()
    variances = (residuals**2).sum(axis=0) * groups / (groups - 1)
    return marginals, np.sqrt(variances / (2 * np.pi)).sum(axis=-1)
