"""Which methods are compared, and with which settings.

The tuned settings had the least sum of negative ELBO and importance-weighted -log p(x), on the
last 5000 training images after training on the others, in grids of temperatures, noise, prior
widths, initial weights and learning-rate decays, after 20,000 or 30,000 steps. Exceptions: for the
relaxed ELBO of stick-breaking the importance-weighted figure alone decided, and those of
Gumbel-softmax and Concrete with the vertex prior were given a single setting, without a search.
"""

from permvi.experiments.vae.schedules import Settings

# The paper's table, in its order: method -> family. Gumbel-softmax and Concrete are one
# distribution; what tells them apart is an annealed and a constant temperature, and that
# Concrete's density has a relaxed prior of its own.
METHODS = {
    "gumbel_softmax": "concrete",
    "concrete": "concrete",
    "rounding": "rounding",
    "stick_breaking": "stick_breaking",
}
PAPER = {
    "gumbel_softmax": 106.7,
    "concrete": 111.5,
    "rounding": 121.1,
    "stick_breaking": 119.8,
}
# The objective with which each method did best on the validation images.
BEST = {
    "gumbel_softmax": "categorical_kl",
    "concrete": "categorical_kl",
    "rounding": "reinforce",
    "stick_breaking": "categorical_kl",
}

# The paper bounds the noise of rounding, and of stick-breaking in variance.
_NOISE: dict[str, dict[str, float]] = {
    "concrete": {},
    "rounding": {"scale_low": 0.1, "scale_high": 0.5},
    "stick_breaking": {"scale_low": 1e-4, "scale_high": 1.0},
}
_SLOWER = {"decay": 0.98, "annealing": 0.8}
_TUNED: dict[tuple[str, str], dict[str, float]] = {
    ("gumbel_softmax", "relaxed_elbo"): {"temperature_end": 0.67},
    ("gumbel_softmax", "categorical_kl"): {"temperature_start": 1.5, "temperature_end": 0.3},
    ("gumbel_softmax", "straight_through"): {"temperature_start": 0.5},
    ("gumbel_softmax", "reinforce"): {},
    ("concrete", "relaxed_elbo"): {"temperature_start": 0.67, "temperature_end": 0.67},
    ("concrete", "concrete_elbo"): {"temperature_start": 0.67, "temperature_end": 0.67},
    ("concrete", "categorical_kl"): {"temperature_start": 0.5},
    ("rounding", "relaxed_elbo"): {"scale_high": 0.3},
    ("rounding", "categorical_kl"): {
        "temperature_start": 0.5,
        "temperature_end": 0.3,
        "scale_low": 0.3,
        "scale_high": 0.3,
    },
    ("rounding", "straight_through"): {"temperature_end": 1.0, "scale_high": 0.1},
    ("rounding", "reinforce"): {},
    ("stick_breaking", "relaxed_elbo"): {"temperature_end": 0.5, "scale_low": 1.0},
    ("stick_breaking", "categorical_kl"): {
        "temperature_start": 0.3,
        "temperature_end": 0.15,
        "scale_low": 1.0,
    },
    ("stick_breaking", "straight_through"): {
        "temperature_start": 0.5,
        "temperature_end": 0.2,
        "scale_low": 1.0,
    },
    ("stick_breaking", "reinforce"): {"scale_low": 1.0},
}
COMPARISONS = tuple(_TUNED)
"""Methods with the objectives that they are trained with."""


def settings(method: str, objective: str, schedule: str, pixels: str) -> Settings:
    """The settings of a run.

    Args:
        method: One of `METHODS`.
        objective: Name of the training objective.
        schedule: "reference", that of the work that the paper built on, or "tuned".
        pixels: "grey" or "binary".
    """
    chosen = dict(_NOISE[METHODS[method]])
    if schedule == "tuned":
        chosen |= _SLOWER | _TUNED[method, objective]
    return Settings(**chosen, binary=float(pixels == "binary"))
