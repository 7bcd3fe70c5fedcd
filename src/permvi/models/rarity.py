r"""How far is far: log densities of points that lie as rarely so low as a normal number lies far.

The more features, the further right labels are: of six features, 17 % are beyond three standard
deviations, of one .3 %; and tails may be heavy. So a distance D stands for the log density that
right labels exceed as often as a normal number is within D standard deviations.
"""

import math

import numpy as np
from scipy.special import erfc, gammainccinv, stdtr, stdtrit

from permvi._checks import one_of
from permvi.models.points import NOISES, log_density

# Beyond these distances, of Gaussian noise and of Student's t, the log density falls as that of a
# normal number: probabilities are too small for the arithmetic.
_FURTHEST = {"gaussian": 37.0, "student_t": 6.0}
_CELLS = 1 << 13


def log_density_as_rare(noise: str, distance: float, scale: np.ndarray, df: float) -> float:
    """Return the log density (of all features) that is as rare as a normal number so far away.

    Args:
        noise: "gaussian" or "student_t".
        distance: A positive number of standard deviations.
        scale: (d,) scales of the features.
        df: Degrees of freedom of Student's t.
    """
    one_of("noise", noise, NOISES)
    at_best = float(log_density(noise, np.zeros(len(scale)), scale, df))
    near = min(distance, _FURTHEST[noise])
    tail = float(erfc(near / math.sqrt(2.0)))
    if noise == "gaussian":
        drop = float(gammainccinv(len(scale) / 2, tail))
    else:
        drop = _drop_of_student(tail, len(scale), df)
    return at_best - drop - (distance**2 - near**2) / 2


def _drop_of_student(tail: float, d: int, df: float) -> float:
    """Return what the log density of d features is rarely further below its maximum than."""
    furthest = float(stdtrit(df, tail / (2 * d)))
    # Rarer than that, since one of the features would be beyond the furthest.
    top = d * (df + 1) / 2 * math.log1p(furthest**2 / df)
    edges = np.linspace(0.0, top, _CELLS + 1)
    mass = np.diff(1 - 2 * stdtr(df, -np.sqrt(df * np.expm1(2 * edges / (df + 1)))))
    transform, total = np.fft.rfft(mass, 2 * _CELLS), mass
    for _ in range(d - 1):
        total = np.fft.irfft(np.fft.rfft(total, 2 * _CELLS) * transform)[:_CELLS]
    # Each term lies in the middle of its cell.
    places = (np.arange(_CELLS) + (d + 1) / 2) * edges[1]
    return float(np.interp(1 - tail, np.cumsum(total), places))
