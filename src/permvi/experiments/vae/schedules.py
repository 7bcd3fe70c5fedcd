"""What a training run can be told, and how it changes from step to step."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

_DECAY_EVERY = 1000


class Settings(NamedTuple):
    """The numbers of one run; as arrays they are traced, so that runs differ without recompiling.

    Attributes:
        learning_rate: Adam's, at the first step.
        decay: Its factor every 1000 steps.
        temperature_start: Temperature at the first step.
        temperature_end: Temperature when annealing is over.
        annealing: Part of the steps during which the temperature falls, geometrically.
        scale_low: Least standard deviation of the noise (stick-breaking and rounding).
        scale_high: Greatest one. Equal bounds fix it.
        prior_width: Standard deviation of the vertex prior's Gaussians, or the temperature of a
            Concrete prior.
        warmup: Part of the steps during which the weight of the KL divergence rises from 0 to 1.
        binary: 1 for binarised pixels, 0 for grey ones.
    """

    learning_rate: float | jax.Array = 1e-3
    decay: float | jax.Array = 0.9
    temperature_start: float | jax.Array = 1.0
    temperature_end: float | jax.Array = 0.5
    # exp(-3e-5 step), the rate of Jang et al., is at 0.5 after 23105 of their 50000 steps.
    annealing: float | jax.Array = 0.46
    scale_low: float | jax.Array = 1.0
    scale_high: float | jax.Array = 1.0
    prior_width: float | jax.Array = 0.3
    warmup: float | jax.Array = 0.0
    binary: float | jax.Array = 0.0

    @property
    def scale_bounds(self) -> tuple[jax.Array, jax.Array]:
        """Bounds of the noise's standard deviation."""
        return jnp.asarray(self.scale_low), jnp.asarray(self.scale_high)

    def rate(self, step: jax.Array) -> jax.Array:
        """The learning rate at a step, a staircase as in the original code."""
        return self.learning_rate * self.decay ** (step // _DECAY_EVERY)

    def temperature(self, progress: jax.Array) -> jax.Array:
        """The temperature after a part ``progress`` of the steps."""
        done = jnp.minimum(1.0, progress / self.annealing)
        ratio = self.temperature_end / self.temperature_start
        return jnp.asarray(self.temperature_start * ratio**done)

    def kl_weight(self, progress: jax.Array) -> jax.Array:
        """The weight of the KL divergence after a part ``progress`` of the steps."""
        return jnp.minimum(1.0, (progress + 1e-6) / (self.warmup + 1e-6))
