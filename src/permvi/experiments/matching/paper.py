"""What the paper's Table 1 prints: mean "BD" at sigma .1, .25, .5 and .75, of 200 repetitions.

The printed theta = 0.5 row is closest to a footrule Mallows model with theta = 1, so it stands
beside both.
"""

from permvi.experiments.matching.problems import SIGMAS

_MISLABELLED = (0.51, 0.53, 0.61, 0.71)
_MEANS = {
    "stick_breaking": (0.09, 0.23, 0.41, 0.55),
    "rounding": (0.06, 0.21, 0.32, 0.38),
    "mallows_0.1": (0.93, 0.92, 0.89, 0.85),
    "mallows_0.5": _MISLABELLED,
    "mallows_1": _MISLABELLED,
    "mallows_2": (0.23, 0.33, 0.53, 0.69),
    "mallows_5": (0.08, 0.27, 0.54, 0.72),
    "mallows_10": (0.08, 0.27, 0.54, 0.72),
}


def reported(method: str, sigma: float) -> float | None:
    """The paper's mean for a row of the table; its own bounds and ours share a value."""
    means = _MEANS.get(method.removesuffix("_paper").removesuffix("_exact"))
    return None if means is None else means[SIGMAS.index(sigma)]
