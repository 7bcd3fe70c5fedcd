r"""Integrate one scalar latent out of a model that is linear given its value.

The linear engine solves the problem at a few values u of the latent on its unconstrained scale. It
gives the log evidence with a standard error that may be half a nat, too much to compare values
with. But the marginals also give its slope,

.. math:: \frac{d}{du} \log Z(u) = \sum_{ij} P_{ij}(u) \frac{d}{du} s_{ij}(u),

which is precise and smooth in u. So differences between values come from a spline through the
slopes, and only the common level from the estimates of the evidence. Values are spaced by about one
posterior standard deviation, where the trapezoidal rule is practically exact for a smooth
posterior; their marginals are averaged by their posterior probabilities.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from permvi.inference.exact.quadrature import Axis, integrate, not_beyond, unevenness
from permvi.inference.linear.gauge import scale
from permvi.models.linear import LinearMatching
from permvi.posterior import DrawsLaw, Latent, Posterior, diagnose
from permvi.problem.candidates import best_matching
from permvi.problem.prepare import Prepared, prepare

# The spacing of values in posterior standard deviations, as far as these are known beforehand.
_SPACING = 0.8
# Values lie too far apart if every other one of them gives an integral that differs by this factor.
_LARGEST_DIFFERENCE = 0.03
# Values with less log density than the largest minus this end the range.
_DEPTH = 8.5
_MAX_NODES = 40
# The step of the derivative of scores.
_STEP = 1e-4
# The least standard error of the evidence: all values share errors of the slopes between them.
_LEAST_ERROR = 0.03
_FINE = 801


class _Node(NamedTuple):
    """The solution at one value: its posterior and the slope of its log evidence."""

    posterior: Posterior
    slope: float

    @property
    def evidence(self) -> tuple[float, float]:
        """The log evidence and its standard error."""
        if self.posterior.log_evidence is None:
            # The chains were interrupted before they had an estimate.
            raise KeyboardInterrupt
        return self.posterior.log_evidence, self.posterior.log_evidence_se or 0.0


def integrated(
    prepared: Prepared,
    solve: Callable[[Prepared, int], Posterior],
    num_draws: int,
    seed: int,
    advice: str,
) -> Posterior:
    """Return the posterior of a model with one scalar latent.

    ``solve(problem, seed)`` solves the linear problem given a value of the latent.
    """
    (name, prior), *_ = prepared.problem.latents.items()
    axis = Axis(prior)
    values = _Values(prepared, axis, solve, seed)
    places, nodes = values.cover(*_locate(prepared, axis))
    log_p, level, level_se = _density(axis, places, nodes)
    weights = np.exp(log_p - np.logaddexp.reduce(log_p))
    posteriors = [node.posterior for node in nodes]
    mixed: dict[str, Any] = {
        field: _average(weights, [getattr(one, field) for one in posteriors])
        for field in ("marginals", "p_unmatched_rows", "p_unmatched_cols")
    }
    rng = np.random.default_rng(seed)
    latent, chosen, extras = _draw(axis, places, log_p, num_draws, rng)
    draws = np.zeros((num_draws, *posteriors[0].mode.shape), np.int64)
    for index in np.unique(chosen):
        here = np.flatnonzero(chosen == index)
        draws[here] = posteriors[index].sample(len(here), seed + int(index))
    best = posteriors[int(np.argmax(weights))]
    exact = all(one.log_evidence_kind == "exact" for one in posteriors)
    found = Posterior(
        law=DrawsLaw(draws),
        **mixed,
        mode=best.mode,
        log_evidence=level + np.logaddexp.reduce(log_p) + np.log(places[1] - places[0]),
        log_evidence_kind="exact" if exact else "estimate",
        log_evidence_se=None if exact else level_se,
        latents={name: latent},
        diagnostics=_judge(
            prepared, posteriors, weights, {f"{name}_{key}": v for key, v in extras.items()}, advice
        ),
        num_evaluations=sum(one.num_evaluations or 0 for one in values.solved()),
    )
    return not_beyond(found, name, axis.constrain(places), weights)


def _locate(prepared: Prepared, axis: Axis) -> tuple[float, float]:
    """Return about where the posterior of the latent is, and about its standard deviation.

    A doubly stochastic scaling of the weights bounds the log evidence to within the number of
    items, which is near enough to begin with.
    """

    def bound(value: float) -> float:
        given = _given(prepared, value)
        pairs = given.candidates
        return float(given.problem.constant) + scale(pairs, best_matching(pairs)).log_factor

    grid = integrate(axis, bound)
    mean = grid.posterior @ grid.unconstrained
    return float(mean), float(np.sqrt(grid.posterior @ (grid.unconstrained - mean) ** 2))


def _given(prepared: Prepared, value: float) -> Prepared:
    """Return the linear problem given a value of the latent."""
    scores = prepared.model.pair_scores(np.float64(value))
    return prepare(LinearMatching(**prepared.linear_with(scores).arguments()), lists=False)


class _Values:
    """The nodes of a lattice of places, solved when they are asked for."""

    def __init__(
        self, prepared: Prepared, axis: Axis, solve: Callable[[Prepared, int], Posterior], seed: int
    ) -> None:
        self._prepared, self._axis, self._solve, self._seed = prepared, axis, solve, seed
        self._nodes: dict[float, _Node] = {}

    def solved(self) -> list[Posterior]:
        """Return all solutions so far."""
        return [node.posterior for node in self._nodes.values()]

    def cover(self, start: float, sd: float) -> tuple[np.ndarray, list[_Node]]:
        """Return equally spaced places that cover the posterior, and their nodes."""
        spacing, low, high = _SPACING * sd, -1, 1
        while True:
            places = start + spacing * np.arange(low, high + 1)
            nodes = [self._node(place) for place in places.tolist()]
            log_p = _density(self._axis, places, nodes)[0]
            log_p -= np.logaddexp.reduce(log_p)
            if len(self._nodes) >= _MAX_NODES:
                return places, nodes
            floor = log_p.max() - _DEPTH
            if log_p[0] > floor or log_p[-1] > floor:
                # The side that is higher comes first: the posterior may lie beyond it.
                ahead = log_p[-1] > log_p[0]
                high, low = (high + 1, low) if ahead else (high, low - 1)
            elif unevenness(log_p) > _LARGEST_DIFFERENCE:
                spacing, low, high = spacing / 2, 2 * low, 2 * high
            else:
                return places, nodes

    def _node(self, place: float) -> _Node:
        key = round(place, 12)
        if key not in self._nodes:
            value = float(self._axis.constrain(np.array(place)))
            posterior = self._solve(_given(self._prepared, value), self._seed + len(self._nodes))
            near = self._axis.constrain(place + _STEP * np.array([-1.0, 1.0]))
            less, more = (self._prepared.model.pair_scores(np.float64(v)) for v in near)
            slope = float(np.sum(posterior.marginals * (more - less)) / (2 * _STEP))
            self._nodes[key] = _Node(posterior, slope)
        return self._nodes[key]


def _density(axis: Axis, places: np.ndarray, nodes: list[_Node]) -> tuple[np.ndarray, float, float]:
    """Return the log posterior density at places up to its level, the level and its error."""
    values, errors = np.array([node.evidence for node in nodes]).T
    prior = axis.log_prior(places)
    if not errors.any():
        return prior + values - values[0], float(values[0]), 0.0
    # Imported where it is used: every fit loads this module, and SciPy's splines take a while.
    from scipy.interpolate import CubicSpline

    slopes = CubicSpline(places, [node.slope for node in nodes])
    curve = slopes.antiderivative()(places)
    precision = 1.0 / np.maximum(errors, _LEAST_ERROR) ** 2
    level = float(precision @ (values - curve) / precision.sum())
    return prior + curve, level, float(np.hypot(precision.sum() ** -0.5, _LEAST_ERROR))


def _average(weights: np.ndarray, arrays: list[np.ndarray]) -> np.ndarray:
    return np.tensordot(weights, np.stack(arrays), axes=1)


def _draw(
    axis: Axis, places: np.ndarray, log_p: np.ndarray, num: int, rng: np.random.Generator
) -> tuple[Latent, np.ndarray, dict[str, np.ndarray]]:
    """Return the latent's posterior with draws, the place next to each draw, and a fine grid."""
    from scipy.interpolate import CubicSpline

    fine = np.linspace(places[0], places[-1], _FINE)
    density = CubicSpline(places, log_p)(fine)
    p = np.exp(density - density.max())
    p /= p.sum()
    values = axis.constrain(fine)
    mean = p @ values
    cells = rng.choice(_FINE, size=num, p=p)
    width = fine[1] - fine[0]
    drawn = np.clip(fine[cells] + width * rng.uniform(-0.5, 0.5, num), places[0], places[-1])
    chosen = np.rint((drawn - places[0]) / (places[1] - places[0])).astype(int)
    latent = Latent(mean, np.sqrt(p @ (values - mean) ** 2), axis.constrain(drawn))
    return latent, chosen, {"values": values, "probabilities": p}


def _judge(
    prepared: Prepared,
    posteriors: list[Posterior],
    weights: np.ndarray,
    extras: dict[str, np.ndarray],
    advice: str,
) -> Any:
    """Combine the diagnostics at all values."""
    note = f"the latent was integrated out at {len(posteriors)} values"
    found = [one.diagnostics for one in posteriors]
    sampled = [one for one in posteriors if one.diagnostics.sampling_error_by_row is not None]
    if not sampled:
        judged = diagnose(exact=True, extras=extras)
        return dataclasses.replace(judged, reasons=(*judged.reasons, note))
    nothing = np.zeros(posteriors[0].mode.shape)
    errors, distances = (
        np.stack([nothing if getattr(d, name) is None else getattr(d, name) for d in found])
        for name in ("sampling_error_by_row", "disagreement_by_row")
    )
    judged = diagnose(
        row_labels=prepared.labels[0],
        advice=advice,
        sampling_error_by_row=np.sqrt(np.tensordot(weights**2, errors**2, axes=1)),
        disagreement_by_row=np.tensordot(weights, distances, axes=1),
        converged=all(d.converged is not False for d in found),
        extras=extras,
    )
    return dataclasses.replace(judged, reasons=(*judged.reasons, note))
