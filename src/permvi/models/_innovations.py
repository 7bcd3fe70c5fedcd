r"""Innovations of recordings: robust and filtered sums over time, and checks of their law.

With innovations from Student's t the log density has no sums over time that suffice. A dense
regression :math:`y_t = B y_{t-1} + e_t` does not depend on who is who, so it can be fitted robustly
before any matching. With the score :math:`\psi(e) = (\nu + 1) e / (\nu s^2 + e^2)` of t and
:math:`c = E\,\psi'(e)`, the pseudo-observations

.. math::
    y^*_t = B y_{t-1} + \psi(e_t) / c

have B as their least squares fit and an innovation variance :math:`E\,\psi^2 / c^2`, the inverse of
the Fisher information (modified residuals, Huber 1981, section 7.8). So their sums make the
density of a linear system with normal noise that of the robust fit, to second order around it. With
normal innovations :math:`y^* = y`.

A model is checked by its innovations in standard units under the law that a fit has found. They are
independent standard normal numbers if it is right. Heavy tails become normal by their quantiles,
:math:`z = \Phi^{-1}(T_\nu(e / s))`. With measurement noise, innovations are the errors of a Kalman
filter's predictions in its steady state, divided by a root of their covariance :math:`S = P + r I`,
where P solves Riccati's equation :math:`P = B (P - P S^{-1} P) B^\top + q I`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from permvi.models import _predictive
from permvi.models._dynamics_arguments import Statistics, draw_weights

# Innovations of this excess kurtosis or less count as normal; that of t with 26 degrees is 0.27.
_NORMAL_KURTOSIS = 0.25
_DEGREES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0)
# Residuals behind the degrees of freedom, steps of the fit and of the scale.
_NUM_RESIDUALS = 20_000
_NUM_STEPS = 5
_SCALE_STEPS = 10
_RICCATI_STEPS = 60
_CONVERGED = 1e-6


class Tails(NamedTuple):
    """Student's t: degrees of freedom and scale."""

    degrees: float
    scale: float

    def pseudo(self, residuals: np.ndarray) -> np.ndarray:
        r"""Return modified residuals :math:`\psi(e) / E\,\psi'(e)`."""
        squares = residuals**2
        spread = self.degrees * self.scale**2
        slope = float(((spread - squares) / (spread + squares) ** 2).mean())
        return residuals / (spread + squares) / slope


def student(residuals: np.ndarray) -> Tails:
    """Return the degrees of freedom, from a few, and the scale that make residuals likeliest."""
    flat = residuals.ravel()
    # Evenly spaced, so that no random numbers are needed.
    squares = flat[:: max(1, flat.size // _NUM_RESIDUALS)] ** 2
    best, found = -math.inf, Tails(_DEGREES[-1], 1.0)
    for df in _DEGREES:
        variance = scale_of(squares, df) ** 2
        value = len(squares) * (
            math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * variance)
        ) - (df + 1) / 2 * float(np.log1p(squares / (df * variance)).sum())
        if value > best:
            best, found = value, Tails(df, math.sqrt(variance))
    return found


def scale_of(squares: np.ndarray, df: float) -> float:
    """Return the scale of Student's t that makes squared residuals (num,) likeliest."""
    variance = float(np.median(squares))
    for _ in range(_SCALE_STEPS):
        variance = float(((df + 1) * squares / (df + squares / variance)).mean())
    return math.sqrt(variance)


def heavy_tailed(
    recordings: Sequence[np.ndarray], parts: Sequence[Statistics], ridge: float
) -> tuple[list[Statistics], Tails] | None:
    """Return the statistics of pseudo-observations, None if the innovations look normal.

    Args:
        recordings: (T, n) activity of each subject.
        parts: The statistics of each subject.
        ridge: The ridge of the dense regressions.
    """
    found = list(parts)
    residuals = _residuals(recordings, found, ridge)
    flat = np.concatenate([each.ravel() for each in residuals])
    squares = flat**2
    if (squares**2).mean() / squares.mean() ** 2 - 3 <= _NORMAL_KURTOSIS:
        return None
    tails = student(flat)
    for _ in range(_NUM_STEPS):
        for j, (activity, left) in enumerate(zip(recordings, residuals, strict=True)):
            targets = activity[1:] - left + tails.pseudo(left)
            found[j] = found[j]._replace(
                C1=targets.T @ activity[:-1], squares=(targets**2).sum(axis=0)
            )
        residuals = _residuals(recordings, found, ridge)
        tails = student(np.concatenate([each.ravel() for each in residuals]))
    return found, tails


def _residuals(
    recordings: Sequence[np.ndarray], parts: Sequence[Statistics], ridge: float
) -> list[np.ndarray]:
    """Return the residuals (T - 1, n) of dense ridge regressions of each subject."""
    found = []
    for activity, part in zip(recordings, parts, strict=True):
        coefficients = np.linalg.solve(part.C0 + ridge * np.eye(len(part.C0)), part.C1.T)
        found.append(activity[1:] - activity[:-1] @ coefficients)
    return found


def filtered_statistics(activity: np.ndarray, weights: np.ndarray, gain: float) -> Statistics:
    r"""Return the statistics of recorded targets (T, n) given filtered inputs.

    The inputs are :math:`x_t = B x_{t-1} + g \, (o_t - B x_{t-1})` with weights B, (n, n), and the
    gain g of a Kalman filter in its steady state.
    """
    inputs = gain * activity
    kept = (1 - gain) * weights
    for t in range(1, len(activity)):
        inputs[t] += kept @ inputs[t - 1]
    whole = Statistics.of(activity)
    before = inputs[:-1]
    return whole._replace(C0=before.T @ before, C1=activity[1:].T @ before)


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
        density = len(model.edges) / model.num_labels**2
        ridge = float(model.noise_scale) ** 2 / (float(model.weight_scale) ** 2 * density)
        found = heavy_tailed(recordings, [Statistics.of(each) for each in recordings], ridge)
        if found is not None:
            system = _with(system, found[0])
    filters = [_Filter(None, np.eye(activity.shape[1])) for activity in recordings]
    if "filter_gain" in latents:
        gain = float(latents["filter_gain"].mean)
        weights = draw_weights(system, perms[0], rng)
        own = [_within(weights, perm, y) for perm, y in zip(perms[0], recordings, strict=True)]
        pairs = list(zip(recordings, own, strict=True))
        system = _with(system, [filtered_statistics(y, B, gain) for y, B in pairs])
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

    scale = scale_of(e[~np.isnan(e)] ** 2, degrees)
    return np.copysign(norm.isf(t.sf(np.abs(e) / scale, degrees)), e)


def tests(z: np.ndarray, *, known_scale: bool) -> _predictive.Findings:
    """Test the innovations of a linear system: their size, tails, whiteness and outliers.

    Args:
        z: (num, J, n, T - 1) innovations in standard units for each draw, NaN where there is none.
        known_scale: Whether the model knows the scale.
    """
    from scipy.stats import norm

    found = _predictive.residual_tests(z, known_scale=known_scale, what="innovations")
    unit = z / np.sqrt(np.nanmean(z**2))
    products = unit[..., 1:] * unit[..., :-1]
    count = float((~np.isnan(products[0])).sum())
    correlations = np.nansum(products, axis=(1, 2, 3)) / np.sqrt(max(count, 1.0))
    # Not scaled up: drawn weights explain most of the correlation, and few draws tell how much.
    p = _predictive.two_sided(float(correlations.mean()), norm.cdf, norm.sf)
    r = float(correlations.mean() / np.sqrt(max(count, 1.0)))
    finding = f"innovations are not white (correlation {r:+.2g} from one step to the next)"
    whiteness = _predictive.Finding("whiteness of the innovations", p, finding)
    return _predictive.Findings([*found.tests, whiteness], found.outliers)
