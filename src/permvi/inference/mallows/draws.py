"""Draws of Mallows models: exact ones, and a chain of swaps as in the paper."""

import functools

import jax
import jax.numpy as jnp

from permvi.distributions import Mallows


@functools.partial(jax.jit, static_argnames="num")
def draw_exactly(law: Mallows, rng_key: jax.Array, num: int) -> jax.Array:
    """(num, ..., n) exact independent draws."""
    return law.sample(rng_key, (num,))


@functools.partial(jax.jit, static_argnames="num")
def draw_by_swaps(law: Mallows, rng_key: jax.Array, num: int, num_steps: jax.Array) -> jax.Array:
    r"""(num, n) ends of as many independent Metropolis chains of swaps from the centre.

    Every step proposes to swap two items at random and does so with probability
    :math:`\min(1, e^{-\theta (d' - d)})` (Linderman et al. 2018, section 4.1, sample their Mallows
    rows by such chains). The draws are independent, and exact as the number of steps grows.

    Args:
        law: With an empty batch shape.
        rng_key: A JAX random key.
        num: How many.
        num_steps: Steps of each chain.
    """
    n = law.event_shape[0]
    chains = jnp.arange(num)

    def step(index: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        perms, distances = state
        key_first, key_second, key_accept = jax.random.split(jax.random.fold_in(rng_key, index), 3)
        i = jax.random.randint(key_first, (num,), 0, n)
        # Never the same item twice.
        k = (i + jax.random.randint(key_second, (num,), 1, max(n, 2))) % n
        swapped = perms.at[chains, i].set(perms[chains, k]).at[chains, k].set(perms[chains, i])
        proposed = law.distance_to_centre(swapped)
        log_ratio = -law.theta * (proposed - distances)
        accept = jnp.log(jax.random.uniform(key_accept, (num,))) < log_ratio
        perms = jnp.where(accept[:, None], swapped, perms)
        return perms, jnp.where(accept, proposed, distances)

    start = jnp.broadcast_to(law.centre, (num, n))
    distances = law.distance_to_centre(start)
    return jax.lax.fori_loop(0, num_steps, step, (start, distances))[0]
