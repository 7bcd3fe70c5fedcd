"""Draws of Mallows models: exact ones, and a chain of swaps as in the paper."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp

from permvi.distributions import Mallows
from permvi.distributions._mallows_normalizers import log_normalizer
from permvi.distributions.mallows import Distance


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


LogDensity = Callable[[np.ndarray], np.ndarray]
"""(num, n) permutations -> (num,) log densities on the host."""

_LARGEST_THETA = 20.0
_NUM_THETAS = 16
_DRAWS_EACH = 64


class TargetFit(NamedTuple):
    """A dispersion fitted to a density.

    Attributes:
        theta: The dispersion.
        elbo: The estimated discrete ELBO, a lower bound on the log evidence up to Monte Carlo
            error.
        num_evaluations: How many densities were evaluated.
    """

    theta: float
    elbo: float
    num_evaluations: int


def fit_theta(
    log_density: LogDensity, centre: np.ndarray, distance: Distance, rng_key: jax.Array
) -> TargetFit:
    """The dispersion of largest ELBO around a centre.

    Args:
        log_density: Of permutations.
        centre: (n,) the centre.
        distance: The distance of the Mallows model.
        rng_key: A JAX random key.

    Raises:
        ValueError: Every dispersion gives weight to permutations of density zero.
    """
    n = len(centre)
    thetas = np.append(0.0, np.geomspace(1 / n**2, _LARGEST_THETA, _NUM_THETAS - 1))
    law = Mallows(jnp.asarray(centre), jnp.asarray(thetas), distance)
    draws = np.asarray(draw_exactly(law, rng_key, _DRAWS_EACH)).reshape(-1, n)
    perms, counts = np.unique(draws, axis=0, return_counts=True)
    log_p = log_density(perms)
    if np.isneginf(log_p).any():
        raise ValueError(
            "theta must be given where the log density is -inf for some permutations, got None."
        )
    around = Mallows(jnp.asarray(centre), 0.0, distance)
    d = np.asarray(around.distance_to_centre(perms), dtype=np.float64)
    log_z = log_normalizer(thetas, n, distance, np)
    log_mixture = logsumexp(-thetas[:, None] * d - log_z[:, None], axis=0)

    def elbo(theta: float) -> float:
        weights = counts * np.exp(-theta * d - log_mixture - (-theta * d - log_mixture).max())
        weights /= weights.sum()
        return float(weights @ (log_p + theta * d) + log_normalizer(theta, n, distance, np))

    # The curve may have several peaks: the best of the grid brackets the one to climb.
    values = [elbo(theta) for theta in thetas]
    best = int(np.argmax(values))
    bounds = thetas[max(best - 1, 0)], thetas[min(best + 1, len(thetas) - 1)]
    found = minimize_scalar(lambda theta: -elbo(theta), bounds=bounds, method="bounded")
    theta = float(found.x) if -found.fun > values[best] else float(thetas[best])
    return TargetFit(theta, elbo(theta), len(perms))
