r"""The Concrete, or Gumbel-softmax, distribution (Maddison et al. 2017; Jang et al. 2017)."""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks
from permvi.transforms import simplex
from permvi.transforms._arguments import vector


class RelaxedCategorical(Distribution):
    """A continuous vector (..., n) that stands for one of n categories."""

    @property
    @abc.abstractmethod
    def category_log_probs(self) -> jax.Array:
        """(..., n) log probabilities of the category that a draw stands for."""

    @abc.abstractmethod
    def sample_with_intermediates(
        self, key: Any, sample_shape: tuple[int, ...] = ()
    ) -> tuple[jax.Array, list[Any]]:
        """Draw X with the intermediates that let `log_prob` avoid inverting it."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample_with_intermediates(key, sample_shape)[0]

    def rsample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample(key, sample_shape)


class Concrete(RelaxedCategorical):
    r"""Points of the simplex, :math:`\mathrm{softmax}((\log\theta + G) / \tau)` with Gumbel G.

    Args:
        logits: (..., n) logarithms of theta, up to a constant.
        temperature: Positive; a scalar, or of the batch shape.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "logits": constraints.real_vector,
        "temperature": constraints.positive,
    }
    reparametrized_params: ClassVar[list[str]] = ["logits", "temperature"]
    pytree_data_fields = ("logits", "temperature")
    support = constraints.simplex

    def __init__(
        self, logits: ArrayLike, temperature: ArrayLike = 1.0, *, validate_args: bool | None = None
    ) -> None:
        logits = vector("logits", logits)
        batch = jnp.broadcast_shapes(logits.shape[:-1], jnp.shape(temperature))
        self.temperature = _checks.temperature(temperature, logits.dtype, batch)
        self.logits = jnp.broadcast_to(logits, (*batch, logits.shape[-1]))
        super().__init__(batch, logits.shape[-1:], validate_args=validate_args)

    @property
    def category_log_probs(self) -> jax.Array:
        """(..., n) log probabilities of the largest entry, at any temperature: log softmax."""
        return jax.nn.log_softmax(self.logits, axis=-1)

    def sample_with_intermediates(
        self, key: Any, sample_shape: tuple[int, ...] = ()
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Draw X and ``[log X]``, which `log_prob` needs if X itself underflows."""
        log_X = simplex.exp_concrete_sample(key, self.logits, self.temperature, sample_shape)
        return jnp.exp(log_X), [log_X]

    @validate_sample
    def log_prob(self, value: Any, intermediates: list[jax.Array] | None = None) -> jax.Array:
        """Log density of the first n-1 coordinates (Maddison et al. 2017, equation 10)."""
        if intermediates is None:
            return simplex.concrete_log_prob(value, self.logits, self.temperature)
        return simplex.concrete_log_prob_of_log(intermediates[0], self.logits, self.temperature)
