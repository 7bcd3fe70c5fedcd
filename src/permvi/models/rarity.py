r"""How far is far: log densities of points that lie as rarely so low as one number lies far.

The more features, the further right labels are: of six features, 17 % are beyond three standard
deviations, of one .3 %. So a distance D stands for the log density that right labels exceed as
often as one feature is within D.
"""

import math

import numpy as np
from scipy.special import erfc, gammainccinv, stdtr, stdtrit

from permvi._checks import one_of
from permvi.models.points import NOISES, log_density

# Beyond these distances, of Gaussian noise, and tail probabilities, of Student's t, what more
# features add is taken to stay the same.
_FURTHEST, _RAREST = 37.0, 1e-9
_CELLS = 1 << 13


def log_density_as_rare(noise: str, distance: float, scale: np.ndarray, df: float) -> float:
    """Return the log density (of all features) that is as rare as one feature so far away.

    Args:
        noise: "gaussian" or "student_t".
        distance: A positive distance in units of the scale.
        scale: (d,) scales of the features.
        df: Degrees of freedom of Student's t.
    """
    one_of("noise", noise, NOISES)
    at_best = float(log_density(noise, np.zeros(len(scale)), scale, df))
    if noise == "gaussian":
        near = min(distance, _FURTHEST)
        tail = float(erfc(near / math.sqrt(2.0)))
        added = float(gammainccinv(len(scale) / 2, tail)) - near**2 / 2
        return at_best - distance**2 / 2 - added
    near = min(distance, -float(stdtrit(df, _RAREST / 2)))
    added = _drop_of_sum(near, len(scale), df) - _drop(near, df)
    return at_best - _drop(distance, df) - added


def _drop(z: float, df: float) -> float:
    """Return by how much the log density of Student's t at z is below its maximum."""
    return (df + 1) / 2 * math.log1p(z**2 / df)


def _drop_of_sum(z: float, d: int, df: float) -> float:
    """Return what the sum of `_drop` over d features exceeds as rarely as one feature exceeds z."""
    tail = 2 * float(stdtr(df, -z))
    # The sum exceeds this more rarely, since one of its terms would exceed a d-th of it.
    top = d * _drop(float(stdtrit(df, tail / (2 * d))), df)
    edges = np.linspace(0.0, top, _CELLS + 1)
    mass = np.diff(1 - 2 * stdtr(df, -np.sqrt(df * np.expm1(2 * edges / (df + 1)))))
    transform, total = np.fft.rfft(mass, 2 * _CELLS), mass
    for _ in range(d - 1):
        total = np.fft.irfft(np.fft.rfft(total, 2 * _CELLS) * transform)[:_CELLS]
    # Each term lies in the middle of its cell.
    places = (np.arange(_CELLS) + (d + 1) / 2) * edges[1]
    return float(np.interp(1 - tail, np.cumsum(total), places))
