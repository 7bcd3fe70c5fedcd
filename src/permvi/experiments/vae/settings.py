"""The methods that are compared, and the settings of their training.

The tuned settings had the smallest sum of negative ELBO and importance-weighted -log p(x), on the
last 5000 training images after training on the others, in grids of temperatures, noise, prior
widths, initial weights and learning-rate decays, after 20,000 or 30,000 steps. There are two
exceptions. For the relaxed ELBO of stick-breaking the importance-weighted value alone decided. The
relaxed ELBOs of Gumbel-softmax and Concrete with the vertex prior have a single setting, without a
search.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

_DECAY_EVERY = 1000

# Methods and families in the order of the paper's table. Gumbel-softmax and Concrete are the same
# distribution. They differ in that the temperature of the former is annealed and that of the latter
# is constant, and in that Concrete has a relaxed prior of its own.
METHODS = {
    "gumbel_softmax": "concrete",
    "concrete": "concrete",
    "rounding": "rounding",
    "stick_breaking": "stick_breaking",
}
PAPER = {"gumbel_softmax": 106.7, "concrete": 111.5, "rounding": 121.1, "stick_breaking": 119.8}
# The best objective of each method on the validation images.
BEST = {
    "gumbel_softmax": "categorical_kl",
    "concrete": "categorical_kl",
    "rounding": "reinforce",
    "stick_breaking": "categorical_kl",
}

# The paper's bounds as standard deviations. For stick-breaking it bounds the variance, from 1e-8.
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
"""Methods, each with the objectives that it is trained with."""


class Settings(NamedTuple):
    """The numbers of one run, traced as arrays, so that runs differ without recompiling."""

    learning_rate: float | jax.Array = 1e-3  # learning rate of Adam at the first step
    decay: float | jax.Array = 0.9  # factor of the learning rate every 1000 steps
    temperature_start: float | jax.Array = 1.0  # temperature at the first step
    temperature_end: float | jax.Array = 0.5  # temperature at the end of annealing
    # Fraction of the steps during which the temperature falls geometrically. exp(-3e-5 step), the
    # rate of Jang et al., reaches 0.5 after 23105 of their 50000 steps.
    annealing: float | jax.Array = 0.46
    # Smallest standard deviation of the noise (stick-breaking and rounding).
    scale_low: float | jax.Array = 1.0
    scale_high: float | jax.Array = 1.0  # largest standard deviation; equal bounds fix it
    # Standard deviation of the vertex prior's Gaussians, or the temperature of a Concrete prior.
    prior_width: float | jax.Array = 0.3
    # Fraction of the steps during which the weight of the KL divergence rises to 1.
    warmup: float | jax.Array = 0.0
    binary: float | jax.Array = 0.0  # 1 for binarised pixels, 0 for grey ones

    @property
    def scale_bounds(self) -> tuple[jax.Array, jax.Array]:
        """Bounds of the noise's standard deviation."""
        return jnp.asarray(self.scale_low), jnp.asarray(self.scale_high)

    def rate(self, step: jax.Array) -> jax.Array:
        """Return the learning rate at a step, a staircase as in the original code."""
        return self.learning_rate * self.decay ** (step // _DECAY_EVERY)

    def temperature(self, fraction: jax.Array) -> jax.Array:
        """Return the temperature after a fraction of the steps."""
        done = jnp.minimum(1.0, fraction / self.annealing)
        ratio = self.temperature_end / self.temperature_start
        return jnp.asarray(self.temperature_start * ratio**done)

    def kl_weight(self, fraction: jax.Array) -> jax.Array:
        """Return the weight of the KL divergence after a fraction of the steps."""
        return jnp.minimum(1.0, (fraction + 1e-6) / (self.warmup + 1e-6))


def settings_of(method: str, objective: str, schedule: str, pixels: str) -> Settings:
    """Return the settings of a run of one of `METHODS`, for "grey" or "binary" pixels.

    The schedule is "reference", that of Jang et al. (2017), or "tuned".
    """
    chosen = dict(_NOISE[METHODS[method]])
    if schedule == "tuned":
        chosen |= _SLOWER | _TUNED[method, objective]
    return Settings(**chosen, binary=float(pixels == "binary"))
