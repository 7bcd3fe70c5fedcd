"""Integrate one scalar latent variable out, on a grid that adapts to its posterior."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from permvi._jax import jax
from permvi.posterior import Latent

POINTS = 41
# The grid covers the integrand down to exp(-this) times its maximum.
_DEPTH = 40.0
# The grid is fine enough when this many of its points are in that range.
_ENOUGH = 24
_ZOOMS = 12
# The reach of the first grid in standard deviations of the prior.
_PRIOR_SDS = 8.0
_PRIOR_DRAWS = 1000


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


def refusal(latents: Mapping[str, Any]) -> str | None:
    """Return why these latent variables cannot be integrated out, or None if they can."""
    shapes = {name: (*prior.batch_shape, *prior.event_shape) for name, prior in latents.items()}
    if list(shapes.values()) == [()]:
        return None
    listed = ", ".join(f"{name!r} of shape {shape}" for name, shape in shapes.items())
    return f"method 'exact' integrates out one scalar latent at most, got {listed}."


def integrate(prior: Any, log_likelihood: Callable[[float], float]) -> Grid:
    """Return a trapezoidal rule for the posterior of a scalar with this NumPyro prior.

    The first grid spans the prior on the unconstrained scale (for a scale parameter, its
    logarithm). Later grids zoom in on the points that matter until there are enough of them. For a
    smooth integrand that vanishes at both ends, such a rule is exact up to rounding.
    """
    from numpyro.distributions import biject_to

    transform = biject_to(prior.support)

    def constrain(places: np.ndarray) -> np.ndarray:
        return np.asarray(transform(places), dtype=np.float64)

    draws = np.asarray(transform.inv(prior.sample(jax.random.key(0), (_PRIOR_DRAWS,))))
    centre, reach = float(draws.mean()), _PRIOR_SDS * float(draws.std())
    low, high = centre - reach, centre + reach
    for _ in range(_ZOOMS):
        places = np.linspace(low, high, POINTS)
        values = constrain(places)
        log_prior = np.asarray(prior.log_prob(values), dtype=np.float64)
        slope = np.asarray(transform.log_abs_det_jacobian(places, values), dtype=np.float64)
        log_weights = log_prior + slope + np.log(places[1] - places[0])
        likelihoods = np.array([log_likelihood(value) for value in values.tolist()])
        heights = log_weights + likelihoods
        matter = np.flatnonzero(heights > heights.max() - _DEPTH)
        if len(matter) >= _ENOUGH:
            break
        low, high = places[max(matter[0] - 1, 0)], places[min(matter[-1] + 1, POINTS - 1)]
    return Grid(values, log_weights, likelihoods, places, constrain)
