"""The base class of the relaxed categorical families."""

import abc
from typing import Any

import jax
from numpyro.distributions import Distribution


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
