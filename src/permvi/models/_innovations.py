r"""Heavy-tailed innovations: pseudo-observations whose sums over time are those of a robust fit.

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
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from permvi.models._dynamics_arguments import Statistics

# Innovations of this excess kurtosis or less count as normal; that of t with 26 degrees is 0.27.
_NORMAL_KURTOSIS = 0.25
_DEGREES = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 25.0)
# Residuals behind the degrees of freedom, steps of the fit and of the scale.
_NUM_RESIDUALS = 20_000
_NUM_STEPS = 5
_SCALE_STEPS = 10


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
