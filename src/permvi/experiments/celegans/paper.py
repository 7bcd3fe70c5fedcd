"""Accuracies read off the paper's Figures 4b and 4c, means of five simulations.

Caption and supplement disagree on whether many worms are 5 or 4, so both have the same values. The
figures have one curve for MCMC and one for naive inference, here those of many worms.
"""

from permvi.experiments.celegans.settings import KNOWN, TOLERANCES, Setting

_MANY = {
    "rounding": (0.93, 0.88, 0.70, 0.47, 0.39),
    "map": (0.65, 0.47, 0.29, 0.21, 0.16),
    "mcmc": (0.34, 0.34, 0.16, 0.13, 0.11),
    "naive": (0.33, 0.28, 0.16, 0.13, 0.11),
}
_ONE = {
    "rounding": (0.77, 0.65, 0.33, 0.18, 0.16),
    "map": (0.34, 0.30, 0.18, 0.16, 0.12),
}
_BASELINES = (0.11, 0.22, 0.32, 0.42)
_KNOWN = {
    ("rounding", 0.05): (0.39, 0.71, 0.86, 0.96),
    ("rounding", 0.1): (0.18, 0.55, 0.83, 0.92),
    ("map", 0.05): (0.16, 0.28, 0.57, 0.85),
    ("map", 0.1): (0.11, 0.24, 0.48, 0.89),
    ("mcmc", 0.05): _BASELINES,
    ("mcmc", 0.1): _BASELINES,
    ("naive", 0.05): _BASELINES,
    ("naive", 0.1): _BASELINES,
}


def reported(method: str, setting: Setting) -> float | None:
    """The paper's mean accuracy; both temperatures of rounding stand beside the same value."""
    name = method.removesuffix("_temperature_1")
    if setting.variant or setting.T != 1000:
        return None
    if setting.known == KNOWN[0] and setting.tolerance in TOLERANCES:
        means = (_ONE if setting.worms == 1 else _MANY).get(name)
        return None if means is None else means[TOLERANCES.index(setting.tolerance)]
    if setting.known in KNOWN and setting.worms == 4 and (name, setting.tolerance) in _KNOWN:
        return _KNOWN[name, setting.tolerance][KNOWN.index(setting.known)]
    return None
