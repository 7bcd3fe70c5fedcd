"""Integrate one scalar latent variable out, on a grid that adapts to its posterior."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from permvi._jax import jax
from permvi.posterior import Latent, Posterior
from permvi.posterior.diagnostics import Verdict

POINTS = 41
# The grid covers the integrand down to exp(-this) times its maximum.
_DEPTH = 40.0
# The grid is fine enough when this many of its points are in that range, and when every other one
# of them gives the same integral to within this relative error. If tails are so long that the grid
# is too coarse for the rest, it covers them less far.
_ENOUGH = 24
_AGREEMENT = 1e-4
_SHORTER_DEPTH = 16.0
_ZOOMS = 12
# The reach of the first grid in standard deviations of the prior.
_PRIOR_SDS = 8.0
_PRIOR_DRAWS = 1000
# It is made longer where the integrand is larger at an end than this many nats below its maximum:
# by as many prior standard deviations again, upwards so often and downwards once, since numbers as
# small as the next range would have are zero in float32.
_END = 16.0
_TIMES_DOWN, _TIMES_UP = 1, 3
# The share of the posterior in the last cells of a grid beyond which it does not hold the rest.
_CUT = 1e-3
_LOG_2 = float(np.log(2.0))


class Grid(NamedTuple):
    """A quadrature rule for a latent variable, equally spaced on the unconstrained scale.

    Attributes:
        values: (points,) values of the latent variable.
        log_weights: (points,) log of the prior density times the length of a cell.
        log_likelihoods: (points,) log evidence given each value.
        unconstrained: (points,) the values on the unconstrained scale.
        constrain: Maps unconstrained values to values.
    """

    values: np.ndarray
    log_weights: np.ndarray
    log_likelihoods: np.ndarray
    unconstrained: np.ndarray
    constrain: Callable[[np.ndarray], np.ndarray]

    @property
    def log_evidence(self) -> float:
        """The log of the integral."""
        return float(np.logaddexp.reduce(self.log_weights + self.log_likelihoods))

    @property
    def posterior(self) -> np.ndarray:
        """The posterior probabilities of the cells, (points,)."""
        weights = np.exp(self.log_weights + self.log_likelihoods - self.log_evidence)
        return weights / weights.sum()

    def latent(self, at: np.ndarray, rng: np.random.Generator) -> Latent:
        """Return posterior moments from the grid, and one draw from each of the cells ``at``."""
        mean = self.posterior @ self.values
        sd = np.sqrt(self.posterior @ (self.values - mean) ** 2)
        spacing = self.unconstrained[1] - self.unconstrained[0]
        places = self.unconstrained[at] + spacing * rng.uniform(-0.5, 0.5, size=len(at))
        return Latent(mean, sd, self.constrain(places))


class Axis:
    """The unconstrained scale of a scalar with a NumPyro prior; for a scale, its logarithm."""

    def __init__(self, prior: Any) -> None:
        from numpyro.distributions import biject_to

        self._prior, self._transform = prior, biject_to(prior.support)

    def constrain(self, places: np.ndarray) -> np.ndarray:
        """Return the values of places on this scale."""
        return np.asarray(self._transform(places), dtype=np.float64)

    def log_prior(self, places: np.ndarray) -> np.ndarray:
        """Return the log prior density on this scale."""
        values = self.constrain(places)
        slope = self._transform.log_abs_det_jacobian(places, values)
        return np.asarray(self._prior.log_prob(values) + slope, dtype=np.float64)

    def range(self) -> tuple[float, float]:
        """Return an interval that holds practically all of the prior."""
        draws = self._prior.sample(jax.random.key(0), (_PRIOR_DRAWS,))
        places = np.asarray(self._transform.inv(draws))
        centre, reach = float(places.mean()), _PRIOR_SDS * float(places.std())
        return centre - reach, centre + reach


def refusal(latents: Mapping[str, Any], method: str = "exact") -> str | None:
    """Return why a method cannot integrate these latent variables out, or None if it can."""
    shapes = {name: (*prior.batch_shape, *prior.event_shape) for name, prior in latents.items()}
    if list(shapes.values()) == [()]:
        return None
    listed = ", ".join(f"{name!r} of shape {shape}" for name, shape in shapes.items())
    return f"method {method!r} integrates out one scalar latent at most, got {listed}."


def not_beyond(
    posterior: Posterior, name: str, values: np.ndarray, probabilities: np.ndarray
) -> Posterior:
    """Return a posterior with "check" if its latent goes beyond the values (points,) of a grid."""
    end = 0 if probabilities[0] > probabilities[-1] else -1
    if probabilities[end] <= _CUT:
        return posterior
    reason = (
        f"the posterior of {name!r} goes beyond {values[end]:.2g}, where its prior has practically "
        "no probability: check the units, or give another prior"
    )
    found = posterior.diagnostics
    kept = () if found.verdict == "trust" else found.reasons
    verdict: Verdict = "check" if found.verdict == "trust" else found.verdict
    judged = dataclasses.replace(found, verdict=verdict, reasons=(reason, *kept))
    return dataclasses.replace(posterior, diagnostics=judged, log_evidence_kind="estimate")


def integrate(axis: Axis, log_likelihood: Callable[[float], float]) -> Grid:
    """Return a trapezoidal rule for the posterior of a scalar on the axis of its prior.

    The first grid spans the prior on the unconstrained scale, and more where the posterior goes
    beyond it. Later grids zoom in on the points that matter until there are enough of them. For a
    smooth integrand that vanishes at both ends, such a rule is exact up to rounding.
    """
    (low, high), depth = axis.range(), _DEPTH
    width, down, up = high - low, _TIMES_DOWN, _TIMES_UP
    for _ in range(_ZOOMS + down + up):
        places = np.linspace(low, high, POINTS)
        values = axis.constrain(places)
        log_weights = axis.log_prior(places) + np.log(places[1] - places[0])
        likelihoods = np.array([log_likelihood(value) for value in values.tolist()])
        heights = log_weights + likelihoods
        at_low, at_high = heights[[0, -1]] > heights.max() - _END
        if at_high and up > 0:
            low, high, up = (low + high) / 2, high + width, up - 1
            continue
        if at_low and down > 0:
            low, high, down = low - width, (low + high) / 2, down - 1
            continue
        # The ends of later grids are where the integrand has vanished.
        up = down = 0
        matter = np.flatnonzero(heights > heights.max() - depth)
        if len(matter) >= _ENOUGH:
            if depth == _SHORTER_DEPTH or unevenness(heights) < _AGREEMENT:
                break
            depth = _SHORTER_DEPTH
            matter = np.flatnonzero(heights > heights.max() - depth)
        low, high = places[max(matter[0] - 1, 0)], places[min(matter[-1] + 1, POINTS - 1)]
    return Grid(values, log_weights, likelihoods, places, axis.constrain)


def unevenness(log_terms: np.ndarray) -> float:
    """Return how far the log sum of every other term is from half of the sum of all."""
    return abs(float(np.logaddexp.reduce(log_terms[::2]) - np.logaddexp.reduce(log_terms) + _LOG_2))
