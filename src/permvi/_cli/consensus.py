r"""The posterior of the order behind rankings and comparisons: a Mallows model of each of them.

A judge who ranks :math:`r` items is :math:`d` adjacent exchanges (Kendall's distance) away from the
true order of these items with probability :math:`e^{-\theta d} / Z_r(\theta)`. Whoever lists only
the best :math:`k` of them leaves open how the others follow, which sums to

.. math::
    \frac{e^{-\theta d}}{\prod_{t=0}^{k-1} (1 + e^{-\theta} + \dots + e^{-\theta (r-t-1)})},

where :math:`d` counts the pairs with a listed item that are the other way round in the true order
(Fligner and Verducci 1986). A comparison of two items is a ranking of two. So all that the order
changes is :math:`D`, the number of pairs that it contradicts, and :math:`\theta` is integrated out
of :math:`e^{-\theta D} / Z(\theta)` with the prior :math:`e^{-\theta}` by quadrature.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp, softmax

from permvi._cli.rankings import Rankings
from permvi.models import CallableModel

# Where theta is looked for: nearly no agreement, and nearly no disagreement.
_LOG_THETAS = (np.log(1e-7), np.log(60.0))
# Nodes of the quadrature: at least so many, and so many for each standard deviation of log theta,
# of which c choices leave about 1 / sqrt(c).
_LEAST_NODES = 400
_NODES_PER_SD = 2
# The density is tabulated at so many numbers of contradicted pairs, with lines between them; or at
# all numbers, if these are whole and fewer.
_MAX_ENTRIES = 8192


class Consensus(NamedTuple):
    """What the posterior of an order depends on.

    Attributes:
        against: (n, n) ``against[i, j]`` is how often j came before i.
        thetas: (Q,) nodes of the quadrature.
        log_weights: (Q,) of the nodes, the prior and 1 / Z in them.
    """

    against: np.ndarray
    thetas: np.ndarray
    log_weights: np.ndarray

    def log_density(self, contradicted: np.ndarray) -> np.ndarray:
        """(...) numbers of contradicted pairs -> (...) log densities, theta integrated out."""
        return logsumexp(self.log_weights - np.multiply.outer(contradicted, self.thetas), axis=-1)


def consensus(rankings: Rankings) -> Consensus:
    """The pairs that rankings contradict an order by, and the normalisers of all rankings."""
    n = len(rankings.items)
    choices = sum(ranking.times * len(ranking.items) for ranking in rankings.rankings)
    width = _LOG_THETAS[1] - _LOG_THETAS[0]
    num_nodes = max(_LEAST_NODES, int(_NODES_PER_SD * width * np.sqrt(choices)))
    log_thetas = np.linspace(*_LOG_THETAS, num_nodes)
    thetas = np.exp(log_thetas)
    against, left = np.zeros((n, n)), np.zeros(n + 1)
    for ranking in rankings.rankings:
        listed = np.array(ranking.items)
        others = np.setdiff1d(np.arange(n), listed) if rankings.others_below else listed[:0]
        for t, item in enumerate(listed):
            after = np.concatenate([listed[t + 1 :], others])
            against[after, item] += ranking.times
            left[len(after) + 1] += ranking.times
    # Of all choices from r items: a geometric sum of r terms each.
    log_sums = np.log(np.expm1(-np.outer(np.arange(1, n + 1), thetas)) / np.expm1(-thetas))
    # The prior, and d theta = theta d log theta.
    log_weights = np.log(np.gradient(log_thetas)) + log_thetas - thetas - left[1:] @ log_sums
    return Consensus(against, thetas, log_weights)


def model_of(found: Consensus, names: tuple[str, ...]) -> tuple[CallableModel, float]:
    """The model of the ranks of all items, ``perm[i]`` the rank of item i from 0.

    Returns:
        The model, and the constant that its log density is too small by.
    """
    low = float(np.minimum(found.against, found.against.T).sum() / 2)
    high = float(np.maximum(found.against, found.against.T).sum() / 2)
    whole = bool((found.against == np.rint(found.against)).all())
    entries = int(np.clip(high - low + 1, 2, _MAX_ENTRIES)) if whole else _MAX_ENTRIES
    grid = np.linspace(low, max(high, low + 1), entries)
    values = np.concatenate([found.log_density(part) for part in np.array_split(grid, 64)])
    # In float32 the best orders would lose their digits to a constant.
    offset = float(values.max())
    table = jnp.asarray(values - offset)
    against, step = jnp.asarray(found.against), float(grid[1] - grid[0])

    def log_density(ranks: jnp.ndarray) -> jnp.ndarray:
        before = ranks[:, None] < ranks
        place = (jnp.sum(jnp.where(before, against, 0)) - low) / step
        below = jnp.clip(jnp.floor(place).astype(int), 0, entries - 2)
        share = place - below
        return (1 - share) * table[below] + share * table[below + 1]

    places = tuple(str(rank) for rank in range(1, len(names) + 1))
    model = CallableModel(log_density, len(names), "perm", jax=True, labels=(names, places))
    return model, offset


def dispersion(found: Consensus, orders: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of theta, given draws (num, n) of the ranks."""
    before = orders[:, :, None] < orders[:, None, :]
    contradicted, times = np.unique((before * found.against).sum(axis=(1, 2)), return_counts=True)
    weights = np.zeros_like(found.thetas)
    for pairs, count in zip(contradicted, times, strict=True):
        weights += count / len(orders) * softmax(found.log_weights - found.thetas * pairs)
    mean = float(weights @ found.thetas)
    return mean, float(np.sqrt(weights @ (found.thetas - mean) ** 2))
