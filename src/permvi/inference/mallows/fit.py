r"""Mallows models fitted to rankings and to densities, and their draws.

**Rankings.** K of them have the log likelihood
:math:`-\theta \sum_k d(\sigma_k, \sigma_0) - K \log Z(\theta)`. So the best centre minimises the
sum of distances for every :math:`\theta`, and :math:`\theta` then makes the expected distance equal
to the mean distance.

**Densities.** With the centre fixed at the best permutation that can be found, the discrete ELBO

.. math:: L(\theta) = E_\theta[\log p(\sigma) + \theta\, d(\sigma, \sigma_0)] + \log Z(\theta)

is a function of one number. Its expectation is estimated from draws of several dispersions,
reweighted to each other (Veach and Guibas 1995; Owen and Zhou 2000), so that a few hundred
densities give the whole curve.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.special import logsumexp

from permvi import permutations
from permvi._checks import one_of
from permvi._programmes import light_jit
from permvi.distributions import Mallows
from permvi.distributions._mallows import DISTANCES, log_normalizer
from permvi.distributions.mallows import Distance

MAX_THETA = 50.0
"""The largest dispersion that fits return; with it, no draw ever leaves the centre."""

_MAX_CANDIDATES = 200


class MallowsFit(NamedTuple):
    """A Mallows model fitted to rankings.

    Attributes:
        centre: (n,) the central permutation.
        theta: The dispersion, at most `MAX_THETA`.
        distance: The name of the distance.
        mean_distance: The mean distance of the rankings from the centre.
        log_likelihood: The log likelihood of all rankings.
    """

    centre: np.ndarray
    theta: float
    distance: str
    mean_distance: float
    log_likelihood: float


def fit_rankings(perms: ArrayLike, distance: Distance = "footrule") -> MallowsFit:
    """Return the Mallows model of largest likelihood.

    The centre is exact for "footrule" and "hamming", where it is a linear assignment. For "kendall"
    (Kemeny's rule, NP-hard) it is a local optimum: moving one item does not improve it. For
    "cayley", swapping two items does not improve it.

    Args:
        perms: (K, n) permutations, ``perm[i]`` the rank of item i.
        distance: "footrule", "kendall", "cayley" or "hamming".

    Raises:
        ValueError: ``perms`` are not permutations.
    """
    one_of("distance", distance, DISTANCES)
    rankings = np.asarray(perms)
    if rankings.ndim != 2 or 0 in rankings.shape or rankings.dtype.kind not in "iu":
        raise ValueError(
            f"perms must be integers of shape (K, n), got dtype {rankings.dtype} and shape "
            f"{rankings.shape}."
        )
    if not (np.sort(rankings, axis=1) == np.arange(rankings.shape[1])).all():
        raise ValueError("perms must hold each of 0 to n-1 once, got something else.")
    centre = _CENTRES[distance](rankings)
    mean = float(_distances(rankings, centre, distance).mean())
    n = rankings.shape[1]

    def loss(theta: float) -> float:
        return float(theta * mean + log_normalizer(theta, n, distance, np))

    # The loss is convex.
    options = {"xatol": 1e-9}
    found = minimize_scalar(loss, bounds=(0.0, MAX_THETA), method="bounded", options=options)
    theta = float(found.x)
    return MallowsFit(centre, theta, distance, mean, -len(rankings) * loss(theta))


def _distances(rankings: np.ndarray, centre: np.ndarray, distance: str) -> np.ndarray:
    return np.asarray(getattr(permutations, distance)(rankings, centre))


def _footrule_centre(rankings: np.ndarray) -> np.ndarray:
    costs = np.abs(rankings[..., None] - np.arange(rankings.shape[1]))
    return linear_sum_assignment(costs.sum(axis=0))[1]


def _hamming_centre(rankings: np.ndarray) -> np.ndarray:
    costs = rankings[..., None] != np.arange(rankings.shape[1])
    return linear_sum_assignment(costs.sum(axis=0))[1]


def _kendall_centre(rankings: np.ndarray) -> np.ndarray:
    """Return Borda's order, improved by moving one item at a time to its best place."""
    n = rankings.shape[1]
    # against[i, k] counts the rankings that have k before i: the cost of putting i before k.
    against = np.stack([(rankings < rankings[:, [i]]).sum(axis=0) for i in range(n)])
    order = np.argsort(rankings.mean(axis=0), kind="stable").tolist()
    improved = True
    while improved:
        improved = False
        for item in range(n):
            place = order.index(item)
            rest = order[:place] + order[place + 1 :]
            # The cost of putting the item at each place, by the items before and after it.
            change = np.cumsum(against[rest, item] - against[item, rest])
            cost = against[item, rest].sum() + np.append(0, change)
            best = int(np.argmin(cost))
            if cost[best] < cost[place]:
                order = [*rest[:best], item, *rest[best:]]
                improved = True
    centre = np.empty(n, dtype=np.int64)
    centre[order] = np.arange(n)
    return centre


def _cayley_centre(rankings: np.ndarray) -> np.ndarray:
    """Return the best of Hamming's centre and the rankings themselves, improved by swaps."""
    candidates = np.concatenate(
        [_hamming_centre(rankings)[None], np.unique(rankings, axis=0)[:_MAX_CANDIDATES]]
    )
    first, second = np.triu_indices(rankings.shape[1], 1)
    pairs = np.arange(len(first))
    centre, least = _nearest(rankings, candidates)
    while len(pairs):
        swapped = np.tile(centre, (len(first), 1))
        swapped[pairs, first], swapped[pairs, second] = centre[second], centre[first]
        best, total = _nearest(rankings, swapped)
        if total >= least:
            break
        centre, least = best, total
    return centre


def _nearest(rankings: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the candidate with the smallest sum of Cayley distances, and that sum."""
    totals = [int(_distances(rankings, candidate, "cayley").sum()) for candidate in candidates]
    best = int(np.argmin(totals))
    return candidates[best], totals[best]


_CENTRES = {
    "footrule": _footrule_centre,
    "hamming": _hamming_centre,
    "kendall": _kendall_centre,
    "cayley": _cayley_centre,
}


def draw_exactly(law: Mallows, rng_key: jax.Array, num: int) -> jax.Array:
    """Return exact independent draws, (num, ..., n)."""
    return _draw_exactly(law.distance, num, law.centre, law.theta, rng_key)


# Not of the law itself: NumPyro orders its parts by a set, another way in every process.
@functools.partial(light_jit, static_argnums=(0, 1))
def _draw_exactly(
    distance: Distance, num: int, centre: jax.Array, theta: jax.Array, rng_key: jax.Array
) -> jax.Array:
    return Mallows(centre, theta, distance).sample(rng_key, (num,))


def draw_by_swaps(
    law: Mallows, rng_key: jax.Array, num: int, num_steps: int | jax.Array
) -> jax.Array:
    r"""Return (num, n) the last states of independent Metropolis chains of swaps from the centre.

    Each of the ``num_steps`` steps proposes a random swap of two items and accepts it with
    probability :math:`\min(1, e^{-\theta (d' - d)})`, as in the Mallows rows of Linderman et al.
    2018, section 4.1. The draws are independent, and exact in the limit of many steps. The law has
    an empty batch shape.
    """
    return _draw_by_swaps(law.distance, num, law.centre, law.theta, rng_key, num_steps)


@functools.partial(light_jit, static_argnums=(0, 1))
def _draw_by_swaps(
    distance: Distance,
    num: int,
    centre: jax.Array,
    theta: jax.Array,
    rng_key: jax.Array,
    num_steps: int | jax.Array,
) -> jax.Array:
    law = Mallows(centre, theta, distance)
    n = law.event_shape[0]
    chains = jnp.arange(num)

    def step(index: jax.Array, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        perms, distances = state
        key_first, key_second, key_accept = jax.random.split(jax.random.fold_in(rng_key, index), 3)
        i = jax.random.randint(key_first, (num,), 0, n)
        # A different item from the first.
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
    """A dispersion fitted to a density, its ELBO and the number of densities evaluated.

    The estimated discrete ELBO is a lower bound on the log evidence up to Monte Carlo error.
    """

    theta: float
    elbo: float
    num_evaluations: int


def fit_theta(
    log_density: LogDensity, centre: np.ndarray, distance: Distance, rng_key: jax.Array
) -> TargetFit:
    """Return the dispersion of largest ELBO around a centre (n,).

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
            "theta must be given if the log density is -inf for some permutations, got None."
        )
    around = Mallows(jnp.asarray(centre), 0.0, distance)
    d = np.asarray(around.distance_to_centre(perms), dtype=np.float64)
    log_z = log_normalizer(thetas, n, distance, np)
    log_mixture = logsumexp(-thetas[:, None] * d - log_z[:, None], axis=0)

    def elbo(theta: float) -> float:
        weights = counts * np.exp(-theta * d - log_mixture - (-theta * d - log_mixture).max())
        weights /= weights.sum()
        return float(weights @ (log_p + theta * d) + log_normalizer(theta, n, distance, np))

    # The curve may have several peaks: climb the one around the best of the grid.
    values = [elbo(theta) for theta in thetas]
    best = int(np.argmax(values))
    bounds = thetas[max(best - 1, 0)], thetas[min(best + 1, len(thetas) - 1)]
    found = minimize_scalar(lambda theta: -elbo(theta), bounds=bounds, method="bounded")
    theta = float(found.x) if -found.fun > values[best] else float(thetas[best])
    return TargetFit(theta, elbo(theta), len(perms))
