r"""Innovations of recordings in standard units, under the law that a fit has found.

If the model is right they are independent standard normal numbers. Heavy tails become normal by
their quantiles, :math:`z = \Phi^{-1}(T_\nu(e / s))`. With measurement noise, innovations are the
errors of a Kalman filter's predictions in its steady state, divided by a root of their covariance
:math:`S = P + r I`, where P solves Riccati's equation

.. math:: P = B (P - P S^{-1} P) B^\top + q I .
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from permvi.models import _innovations
from permvi.models._dynamics_arguments import Statistics, draw_weights

_RICCATI_STEPS = 60
_CONVERGED = 1e-6


class _System(NamedTuple):
    """What `draw_weights` needs of a model."""

    num_labels: int
    edges: np.ndarray
    weight_scale: float
    noise_scale: float
    C0: np.ndarray
    C1: np.ndarray
    recorded: np.ndarray


def standardised(
    model: Any,
    recordings: Sequence[np.ndarray],
    perms: np.ndarray,
    latents: Mapping[str, Any],
    rng: np.random.Generator,
) -> np.ndarray:
    """Return innovations (num, J, n, T - 1) given permutations (num, J, n), NaN where none is.

    Weights are drawn given each permutation. ``latents`` may hold what a fit has allowed for:
    ``edges`` (m, m), the probabilities of edges; ``innovation_degrees`` of Student's t; and
    ``filter_gain``, the steady gain of a filter against measurement noise.
    """
    system = _System(*(getattr(model, name) for name in _System._fields))
    if "edges" in latents:
        system = system._replace(edges=np.argwhere(latents["edges"].mean > 0.5))
    if "innovation_degrees" in latents:
        found = _innovations.heavy_tailed(recordings, _parts(recordings), _ridge(model))
        if found is not None:
            system = _with(system, found[0])
    filters = [_Filter.plain(activity.shape[1]) for activity in recordings]
    if "filter_gain" in latents:
        gain = float(latents["filter_gain"].mean)
        weights = draw_weights(system, perms[0], rng)
        own = [_within(weights, perm, y) for perm, y in zip(perms[0], recordings, strict=True)]
        pairs = list(zip(recordings, own, strict=True))
        system = _with(system, [_innovations.filtered_statistics(y, B, gain) for y, B in pairs])
        filters = [_Filter.of(y, B, gain) for y, B in pairs]
    longest = max(len(each) for each in recordings) - 1
    z = np.full((*perms.shape, longest), np.nan)
    for k, perm in enumerate(perms):
        weights = draw_weights(system, perm, rng)
        for j, y in enumerate(recordings):
            e = filters[j].errors(y, _within(weights, perm[j], y))
            z[k, j, : y.shape[1], : len(e)] = e.T
    if "innovation_degrees" in latents:
        return _normal_scores(z, float(latents["innovation_degrees"].mean))
    return z / float(model.noise_scale) if "filter_gain" not in latents else z


def _ridge(model: Any) -> float:
    density = len(model.edges) / model.num_labels**2
    return float(model.noise_scale) ** 2 / (float(model.weight_scale) ** 2 * density)


def _parts(recordings: Sequence[np.ndarray]) -> list[Statistics]:
    return [Statistics.of(each) for each in recordings]


def _with(system: _System, parts: Sequence[Statistics]) -> _System:
    n = system.recorded.shape[-1]
    stacked = Statistics.stack([part.padded(n) for part in parts])
    return system._replace(C0=stacked.C0, C1=stacked.C1)


def _within(weights: np.ndarray, perm: np.ndarray, activity: np.ndarray) -> np.ndarray:
    """Return the weights (n, n) between the neurons of a recording (T, n)."""
    labels = perm[: activity.shape[1]]
    return weights[np.ix_(labels, labels)]


class _Filter(NamedTuple):
    """A Kalman filter in its steady state.

    Attributes:
        gain: (n, n), None if what is recorded is the state.
        root: (n, n) the inverse of a root of the covariance of prediction errors.
    """

    gain: np.ndarray | None
    root: np.ndarray

    @classmethod
    def plain(cls, n: int) -> "_Filter":
        return cls(None, np.eye(n))

    @classmethod
    def of(cls, activity: np.ndarray, weights: np.ndarray, gain: float) -> "_Filter":
        """Return the filter of a recording (T, n) whose gain is about a given number."""
        n = len(weights)
        scalar = cls(gain * np.eye(n), np.eye(n))
        variance = float((scalar.errors(activity, weights) ** 2).mean())
        r = (1 - gain) * variance
        q = gain * variance * (1 - (1 - gain) * float((weights**2).sum()) / n)
        P = gain * variance * np.eye(n)
        for _ in range(_RICCATI_STEPS):
            kept = P - P @ np.linalg.solve(P + r * np.eye(n), P)
            before, P = P, weights @ kept @ weights.T + q * np.eye(n)
            if np.abs(P - before).max() < _CONVERGED * variance:
                break
        S = P + r * np.eye(n)
        return cls(np.linalg.solve(S, P).T, np.linalg.inv(np.linalg.cholesky(S)))

    def errors(self, activity: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the errors (T - 1, n) of predictions, in units of their root."""
        if self.gain is None:
            return activity[1:] - activity[:-1] @ weights.T
        state, found = self.gain @ activity[0], np.empty((len(activity) - 1, len(weights)))
        for t, seen in enumerate(activity[1:]):
            predicted = weights @ state
            found[t] = seen - predicted
            state = predicted + self.gain @ found[t]
        return found @ self.root.T


def _normal_scores(e: np.ndarray, degrees: float) -> np.ndarray:
    """Return normal numbers with the quantiles that e has under Student's t, NaN for NaN."""
    from scipy.stats import norm, t

    scale = _innovations.scale_of(e[~np.isnan(e)] ** 2, degrees)
    return np.copysign(norm.isf(t.sf(np.abs(e) / scale, degrees)), e)
