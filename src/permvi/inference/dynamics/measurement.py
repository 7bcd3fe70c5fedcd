r"""Measurement noise: a Kalman filter of steady gain frees the inputs of the regressions from it.

If the recordings are :math:`o_t = y_t + \eta_t` with noise of variance :math:`r`, regressing
:math:`o_t` on :math:`o_{t-1}` shrinks the weights and spreads them to pairs without an edge. The
prediction of :math:`o_t` from the past is W times the filtered activity
:math:`x_t = W x_{t-1} + g \, (o_t - W x_{t-1})`. Its gain g is taken to be one number, where the
exact steady gain is a matrix near a multiple of the identity: :math:`r = (1 - g) v` with v the
variance of the predictions' errors. So regressions on :math:`x_{t-1}` instead of :math:`o_{t-1}`
are those of the state space model. A filter needs labels and weights, so it follows a first fit.
The evidence decides about the gain; at one nothing is filtered.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from permvi.inference.dynamics.evidence import CollapsedState
from permvi.inference.dynamics.matching import posterior_beliefs
from permvi.inference.dynamics.regression import Scales, SharedRegression

# The gains that are tried, in this order, until the evidence falls.
_GAINS = (0.8, 0.65, 0.5, 0.35)
# The least evidence for measurement noise, in nats, and for each weight: filtered inputs vary less,
# which suits weights that are not quite as the prior says, whatever the length of the recordings.
_LEAST_EVIDENCE = 20.0
_LEAST_PER_WEIGHT = 0.01

# From weights (m, m), permutations (J, m) and a gain to the statistics of filtered inputs.
Filter = Callable[[np.ndarray, np.ndarray, float], Mapping[str, np.ndarray]]


class Filtered(NamedTuple):
    """Statistics of filtered inputs.

    Attributes:
        problem: The statistics.
        scales: The variances of weights and of the errors of predictions.
        gain: The gain of the filter.
    """

    problem: SharedRegression
    scales: Scales
    gain: float

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the measurement noise."""
        return float(np.sqrt((1 - self.gain) * self.scales.noise))


def measurement_noise(
    problem: SharedRegression,
    perms: np.ndarray,
    support: np.ndarray,
    scales: Scales,
    filtered: Filter,
    **learned: bool,
) -> Filtered | None:
    """Return filtered statistics given permutations (J, m), None if nothing is to be filtered.

    Args:
        problem: Statistics without a filter.
        perms: The permutations of a first fit.
        support: (m, m) booleans, the edges of that fit. Missing ones would look like noise.
        scales: The variances of that fit.
        filtered: Filters the recordings.
        **learned: ``weight`` and ``noise``, whether these variances are learned.
    """
    state = CollapsedState(dataclasses.replace(problem, support=support), perms, scales)
    state.learn_scales(**learned)
    least = max(_LEAST_EVIDENCE, _LEAST_PER_WEIGHT * float(support.sum()))
    best, found = state.log_evidence + least, None
    for gain in _GAINS:
        weights = posterior_beliefs(state.problem, state.statistics, state.scales).mean
        given = filtered(weights, perms, gain)
        state = CollapsedState(
            dataclasses.replace(problem, support=support, **given), perms, state.scales
        )
        state.learn_scales(**learned)
        if state.log_evidence <= best:
            break
        best = state.log_evidence
        found = Filtered(dataclasses.replace(problem, **given), state.scales, gain)
    return found
