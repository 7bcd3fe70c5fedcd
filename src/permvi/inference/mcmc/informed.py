r"""Moves of one permutation that look at many candidates before they choose.

Each move evaluates its candidates in one batch. Both leave any density p invariant:

**Block.** The columns of k random rows are rearranged: all k! arrangements are candidates, and one
is drawn in proportion to its density. This is a Gibbs step, since an arrangement of the same rows
has the same candidates. It includes all cycles of up to k rows; with k = n it draws from p itself.

**Informed.** The candidates are swaps t of two rows. A swap is proposed with a probability
proportional to :math:`w_t(x) = g(p(tx) / p(x))` with Barker's :math:`g(r) = r / (1 + r)`, and
accepted with probability :math:`\min(1, \sum_t w_t(x) / \sum_t w_t(tx))`. Since
:math:`g(r) = r g(1/r)`, this is a Metropolis-Hastings step (Zanella 2020). If there are too many
pairs of rows, a random subset of them, chosen without regard to x, serves as well.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

LogDensities = Callable[[jax.Array], jax.Array]
"""Maps permutations (K, n) to log densities (K,), -inf for those that are not allowed."""


class Place(NamedTuple):
    """A permutation (n,) and its log density."""

    perm: jax.Array
    log_p: jax.Array


def block_step(
    log_densities: LogDensities, perm: jax.Array, rng_key: jax.Array, num_rows: int
) -> Place:
    """Draw a new arrangement of the columns of ``num_rows`` random rows of a permutation (n,)."""
    row_key, choice_key = jax.random.split(rng_key)
    rows = jax.random.permutation(row_key, len(perm))[:num_rows]
    # The first arrangement changes nothing; it is chosen if all densities are zero.
    arrangements = np.array(list(itertools.permutations(range(num_rows))))
    candidates = jnp.tile(perm, (len(arrangements), 1)).at[:, rows].set(perm[rows][arrangements])
    log_p = log_densities(candidates)
    chosen = jax.random.categorical(choice_key, log_p)
    return Place(candidates[chosen], log_p[chosen])


def informed_steps(
    log_densities: LogDensities,
    place: Place,
    rng_key: jax.Array,
    num_steps: int,
    max_pairs: int,
) -> Place:
    """Make some informed swaps, with ``max_pairs`` pairs of rows as candidates at most."""
    pairs_key, steps_key = jax.random.split(rng_key)
    first, second = map(jnp.asarray, np.triu_indices(len(place.perm), 1))
    if len(first) > max_pairs:
        kept = jax.random.permutation(pairs_key, len(first))[:max_pairs]
        first, second = first[kept], second[kept]
    each = np.arange(len(first))

    def around(perm: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return all candidates (K, n) and their log densities (K,)."""
        many = jnp.tile(perm, (len(each), 1))
        many = many.at[each, first].set(perm[second]).at[each, second].set(perm[first])
        return many, log_densities(many)

    def step(
        now: tuple[Place, jax.Array, jax.Array], key: jax.Array
    ) -> tuple[tuple[Place, jax.Array, jax.Array], None]:
        place, candidates, log_p = now
        choice_key, accept_key = jax.random.split(key)
        log_w = _log_barker(log_p, place.log_p)
        chosen = jax.random.categorical(choice_key, log_w)
        new = Place(candidates[chosen], log_p[chosen])
        beyond = around(new.perm)
        log_ratio = logsumexp(log_w) - logsumexp(_log_barker(beyond[1], new.log_p))
        possible = log_w[chosen] > -jnp.inf
        yes = possible & (jnp.log(jax.random.uniform(accept_key)) < log_ratio)
        return jax.tree.map(lambda a, b: jnp.where(yes, a, b), (new, *beyond), now), None

    start = (place, *around(place.perm))
    return jax.lax.scan(step, start, jax.random.split(steps_key, num_steps))[0][0]


def _log_barker(log_p: jax.Array, now: jax.Array) -> jax.Array:
    """Return the log of g(p / p_now), -inf where p is zero."""
    return jnp.where(log_p > -jnp.inf, jax.nn.log_sigmoid(log_p - now), -jnp.inf)
