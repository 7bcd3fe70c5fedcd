"""Moments of log worths by a Markov chain, where draws around the modes are too far off."""

from typing import NamedTuple

import numpy as np

from permvi.models.rankings import Ballots

# States of the chain, and sweeps between them.
_STATES, _THIN = 4_000, 2
# Chains with more steps in a sweep take more than some seconds; a voter with ties takes more steps.
_MOST_STEPS, _OF_TIES = 4_000, 20
# Moments for a sigma are those of states within this width of its logarithm, or more if these are
# less than so many for each item.
_WIDTH, _STATES_PER_ITEM = 0.3, 20


class Moments(NamedTuple):
    """What states of a chain near a sigma say.

    Attributes:
        mean: (n,) mean log worths.
        covariance: (n, n)
        share: In proportion to the states near this sigma.
    """

    mean: np.ndarray
    covariance: np.ndarray
    share: float


def are_quick(ballots: Ballots) -> bool:
    """Whether a chain takes a second or two; it needs whole counts."""
    steps = float(np.count_nonzero(ballots.levels >= 0))
    if not ballots.is_staged:
        steps += _OF_TIES * (ballots.counts.sum() + len(ballots.counts))
    return bool(steps < _MOST_STEPS and (ballots.counts == np.rint(ballots.counts)).all())


def moments(
    ballots: tuple[np.ndarray, ...],
    counts: np.ndarray,
    start: np.ndarray,
    log_sigmas: np.ndarray,
    seed: int,
) -> list[Moments]:
    """Return the moments of the log worths given each sigma.

    Args:
        ballots: The ballots as `group_worth_kernels` takes them.
        counts: (R,) how often each was given, whole numbers.
        start: (n,) the first log worths.
        log_sigmas: (S,) logarithms of sigma.
        seed: Seed of the chain.
    """
    from permvi.inference.rankings import group_worth_kernels

    rng = np.random.default_rng([seed, 3])
    log_worths, sigmas = start[None, None].copy(), np.ones((1, 1))
    # All voters are one group of one particle.
    state = log_worths, sigmas, np.ones((1, 1)), np.zeros((1, len(counts), 1))
    points, logs = np.zeros((_STATES, len(start))), np.zeros(_STATES)
    group_worth_kernels.move_groups(*ballots, counts, 0, 0.0, *state, _STATES // 5, rng)
    for k in range(_STATES):
        group_worth_kernels.move_groups(*ballots, counts, 0, 0.0, *state, _THIN, rng)
        points[k], logs[k] = log_worths[0, 0], np.log(sigmas[0, 0])
    return [_moments_near(log_sigma, points, logs) for log_sigma in log_sigmas.tolist()]


def _moments_near(log_sigma: float, points: np.ndarray, log_sigmas: np.ndarray) -> Moments:
    """Moments of states (num, n), the more they weigh the nearer their sigma is."""
    apart, width = log_sigma - log_sigmas, _WIDTH
    share = float(np.exp(-0.5 * (apart / width) ** 2).mean())
    enough = min(_STATES_PER_ITEM * points.shape[1], len(points) // 2)
    # Far away all weights are of the nearest state at first.
    squares = apart**2 - (apart**2).min()
    weights = np.exp(-0.5 * squares / width**2)
    while weights.sum() ** 2 < enough * (weights**2).sum():
        width *= 1.5
        weights = np.exp(-0.5 * squares / width**2)
    # What ballots say little of has the scale of sigma.
    scaled = points * np.exp(apart)[:, None]
    mean = np.average(scaled, axis=0, weights=weights)
    return Moments(mean, np.cov(scaled.T, aweights=weights), share)
