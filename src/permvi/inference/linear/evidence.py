r"""The log evidence with a standard error, and independent starts, by chains of falling fugacity.

With fugacity :math:`\lambda` all rows and columns may stay alone at weights :math:`r_i + \lambda`
and :math:`c_j + \lambda`, in the gauge of `permvi.inference.linear.gauge`. Then

.. math:: \frac{d \log Z_\lambda}{d \log \lambda} =
          E_\lambda \Big[ \sum_{k \text{ alone}} \frac{\lambda}{x_k + \lambda} \Big],

where x is :math:`r_i` or :math:`c_j`. Belief propagation is exact for large fugacities
:math:`\lambda_0`, where hardly any two pairs lie on a cycle, so with its free energy

.. math:: \log Z_{\lambda_1} = \log Z^B_{\lambda_0}
          - \int_{\log \lambda_1}^{\log \lambda_0} E_\lambda \, d \log \lambda.

Chains at Gauss-Legendre nodes give the integrand, and the last step from a small
:math:`\lambda_1` is

.. math:: Z / Z_{\lambda_1} = E_{\lambda_1} \Big[ \prod_{k \text{ alone}} x_k / (x_k + \lambda_1)
          \Big].

Chains begin with nothing matched, so their ends are independent of each other and of any search.
"""

from typing import NamedTuple

import numpy as np

from permvi.inference.interruptible import Stop
from permvi.inference.linear.beliefs import log_bethe, propagate
from permvi.inference.linear.chains import EMPTY, State, Walk
from permvi.inference.linear.gauge import Gauge

_HIGHEST = 4.0
_NUM_NODES = 16
# Expected numbers of items alone, beyond those without fugacity, at the lowest fugacity.
_FEW_ALONE = 0.7
_LOWEST = -40.0
# Steps of belief propagation that tell how low to go.
_ROUGH = 50
_NUM_BATCHES = 10
_WARM_UP = 0.25
_FEWEST_LOOKS = 40
# How often to look for a matching without items alone that have to be matched.
_MAX_TRIES = 2000


class Ladder(NamedTuple):
    """Fugacities from high to low.

    Attributes:
        fugacities: (K+1,) K nodes, then the lowest fugacity.
        weights: (K,) quadrature weights.
        log_highest: log Z' at the highest fugacity.
    """

    fugacities: np.ndarray
    weights: np.ndarray
    log_highest: float


def build_ladder(gauge: Gauge, stopped: Stop) -> Ladder:
    """Find how low to go by belief propagation; rough beliefs are enough for that."""
    highest = lowest = np.log(_HIGHEST)
    alone = gauge.row_alone + _HIGHEST, gauge.col_alone + _HIGHEST
    found = propagate(gauge, *alone)
    log_weights = np.log(np.maximum(gauge.weights, np.finfo(float).tiny))
    log_alone = np.log(alone[0]), np.log(alone[1])
    log_highest = log_bethe(log_weights, log_alone, found.pairs, found.rows, found.cols)
    while lowest > _LOWEST and not stopped.asked:
        lowest -= 1.0
        fugacity = np.exp(lowest)
        alone = gauge.row_alone + fugacity, gauge.col_alone + fugacity
        found = propagate(gauge, *alone, found.messages, max_steps=_ROUGH)
        number = found.rows @ (fugacity / alone[0]) + found.cols @ (fugacity / alone[1])
        if number <= _FEW_ALONE:
            break
    nodes, weights = np.polynomial.legendre.leggauss(_NUM_NODES)
    half = 0.5 * (highest - lowest)
    fugacities = np.exp(lowest + half * (1.0 - nodes))
    return Ladder(np.append(fugacities, np.exp(lowest)), half * weights, log_highest)


class Descent(NamedTuple):
    """A chain that went down the ladder.

    Attributes:
        means: (K, batches) derivatives at the nodes.
        ratios: (batches,) estimates of Z over that at the lowest fugacity.
        start: The state at the end, in which all that have to be matched are, or None.
    """

    means: np.ndarray
    ratios: np.ndarray
    start: State | None


def descend(
    walk: Walk, ladder: Ladder, rng: np.random.Generator, num_steps: int, stopped: Stop
) -> Descent | None:
    """Run a chain from high to low fugacities, or return None if it is told to stop."""
    gauge = walk.gauge
    n = gauge.problem.shape[0]
    state = walk.start(np.full(n, -1), rng)
    count = len(ladder.fugacities)
    means = np.empty((count, _NUM_BATCHES))
    per_level = num_steps / count
    for k, fugacity in enumerate(ladder.fugacities):
        rates = walk.at(fugacity)
        # An open worm for each row between two looks at the chain. Closed worms would be of no use
        # at high fugacities, and where most rows are about to be matched they become very long.
        looks = max(_FEWEST_LOOKS, int(per_level / (n * walk.cost(state, rates, 0.0))))
        warm_up = int(_WARM_UP * looks)
        looks = (looks - warm_up) // _NUM_BATCHES
        last = k == count - 1
        for batch in range(-1, _NUM_BATCHES):
            number = looks if batch >= 0 else warm_up
            total, ratio, steps = walk.watch(state, rates, 0.0, n, number, fugacity)
            if stopped(steps):
                return None
            means[k, batch] = ratio if last else total
    return Descent(means[:-1], means[-1], _settle(walk, state, ladder.fugacities[-1], stopped))


def _settle(walk: Walk, state: State, fugacity: float, stopped: Stop) -> State | None:
    """Run on until all that have to be matched are, or give up."""
    gauge = walk.gauge
    rates = walk.at(fugacity)
    for _ in range(_MAX_TRIES):
        if (gauge.row_alone[state.choice >= len(gauge.weights)] > 0).all() and (
            gauge.col_alone[state.holder < 0] > 0
        ).all():
            return state
        if stopped(walk.worms(state, rates, 0.0, gauge.problem.shape[0], EMPTY)):
            break
    return None


def log_evidence(ladder: Ladder, descents: list[Descent]) -> tuple[float, float]:
    """Return log Z' and its standard error from independent descents.

    The error is the largest of three estimates: from the batches of each level, from the
    differences between descents at each level, and from those between whole descents.
    """
    # (descents, levels, batches), and (descents, batches) for the last level.
    sums = np.stack([descent.means for descent in descents])
    ratios = np.stack([descent.ratios for descent in descents])
    ratio = ratios.mean()
    if ratio == 0.0:
        return -np.inf, np.inf
    value = ladder.log_highest - ladder.weights @ sums.mean(axis=(0, 2)) + np.log(ratio)
    terms = np.concatenate([-ladder.weights[:, None] * sums, ratios[:, None] / ratio], axis=1)
    num, _, batches = terms.shape
    variances = [terms.var(axis=2, ddof=1).mean(axis=0).sum() / (num * batches)]
    if num > 1:
        by_level = terms.mean(axis=2)
        variances += [by_level.var(axis=0, ddof=1).sum() / num]
        variances += [by_level.sum(axis=1).var(ddof=1) / num]
    return float(value), float(np.sqrt(max(variances)))
