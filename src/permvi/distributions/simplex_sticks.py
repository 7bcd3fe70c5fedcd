r"""Stick-breaking families of relaxed categorical variables (supplement, "Stick-breaking").

Each of n-1 proportions :math:`\beta_k` in (0, 1) takes its share of the remaining stick,
:math:`x_k = \beta_k (1 - \sum_{m<k} x_m)`. The paper's proportions are logistic-normal; it names
Beta and Kumaraswamy proportions as alternatives. Densities are with respect to the Lebesgue
measure of the first n-1 coordinates.
"""

import abc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks
from permvi._checks import positive_numbers
from permvi._numerics import log1mexp
from permvi.distributions.concrete import RelaxedCategorical
from permvi.transforms import simplex, sticks
from permvi.transforms._arguments import vector
from permvi.transforms.sticks import Sticks


class SimplexStickBreaking(RelaxedCategorical):
    r"""Points of the simplex with logistic-normal stick proportions.

    :math:`\psi_k \sim N(\mu_k, \nu_k^2)`, :math:`\beta_k = \sigma(\psi_k / \tau)`.

    Args:
        loc: (..., n-1) means of psi.
        scale: Standard deviations of psi; broadcasts with ``loc``.
        temperature: Positive; a scalar, or of the batch shape.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
        "temperature": constraints.positive,
    }
    reparametrized_params: ClassVar[list[str]] = ["loc", "scale", "temperature"]
    pytree_data_fields = ("loc", "scale", "temperature")
    support = constraints.simplex

    def __init__(
        self,
        loc: ArrayLike,
        scale: ArrayLike = 1.0,
        temperature: ArrayLike = 1.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        loc = vector("loc", loc, size="n-1", min_size=0)
        scale = positive_numbers("scale", scale, loc.dtype)
        shape = jnp.broadcast_shapes(loc.shape, scale.shape)
        batch = jnp.broadcast_shapes(shape[:-1], jnp.shape(temperature))
        self.temperature = _checks.temperature(temperature, loc.dtype, batch)
        self.loc = jnp.broadcast_to(loc, (*batch, shape[-1]))
        self.scale = jnp.broadcast_to(scale, (*batch, shape[-1]))
        super().__init__(batch, (shape[-1] + 1,), validate_args=validate_args)

    @property
    def category_log_probs(self) -> jax.Array:
        """(..., n) log probabilities of the categories at zero temperature, from Phi(mu/nu)."""
        return simplex.log_limit_probabilities(self.loc, self.scale)

    def sample_with_intermediates(
        self, key: Any, sample_shape: tuple[int, ...] = ()
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Draw X and ``[psi]``; given psi, `log_prob` need not invert X."""
        shape = (*sample_shape, *self.loc.shape)
        psi = self.loc + self.scale * jax.random.normal(key, shape, self.loc.dtype)
        return simplex.stick_breaking(psi, self.temperature)[0], [psi]

    @validate_sample
    def log_prob(self, value: Any, intermediates: list[jax.Array] | None = None) -> jax.Array:
        """Log density; with intermediates X is not inverted."""
        if intermediates is None:
            psi, _ = simplex.stick_breaking_inverse(value, self.temperature)
        else:
            psi = intermediates[0]
        _, log_det = simplex.stick_breaking(psi, self.temperature)
        return jnp.sum(norm.logpdf(psi, self.loc, self.scale), axis=-1) - log_det


class _ShapedSticks(RelaxedCategorical):
    """Points of the simplex whose proportions have two shape parameters, divided by tau."""

    arg_constraints: ClassVar[dict[str, Any]] = {
        "a": constraints.independent(constraints.positive, 1),
        "b": constraints.independent(constraints.positive, 1),
        "temperature": constraints.positive,
    }
    reparametrized_params: ClassVar[list[str]] = ["a", "b", "temperature"]
    pytree_data_fields = ("a", "b", "temperature")
    support = constraints.simplex

    def __init__(
        self,
        a: ArrayLike,
        b: ArrayLike,
        temperature: ArrayLike = 1.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        a = _checks.positive("a", vector("a", a, size="n-1"))
        b = _checks.positive("b", vector("b", b, size="n-1"))
        shape = jnp.broadcast_shapes(a.shape, b.shape)
        batch = jnp.broadcast_shapes(shape[:-1], jnp.shape(temperature))
        self.temperature = _checks.temperature(temperature, a.dtype, batch)
        self.a = jnp.broadcast_to(a, (*batch, shape[-1]))
        self.b = jnp.broadcast_to(b, (*batch, shape[-1]))
        super().__init__(batch, (shape[-1] + 1,), validate_args=validate_args)

    @property
    def category_log_probs(self) -> jax.Array:
        """(..., n) log probabilities of a category drawn from X: those of E[X]."""
        return simplex.log_from_sticks(self._mean_sticks())

    def sample_with_intermediates(
        self, key: Any, sample_shape: tuple[int, ...] = ()
    ) -> tuple[jax.Array, list[Sticks]]:
        """Draw X and ``[proportions]``; given them, `log_prob` need not invert X."""
        proportions = self._sample_sticks(key, (*sample_shape, *self.a.shape))
        return simplex.from_sticks(proportions)[0], [proportions]

    @validate_sample
    def log_prob(self, value: Any, intermediates: list[Sticks] | None = None) -> jax.Array:
        """Log density; with intermediates X is not inverted."""
        proportions = simplex.sticks_of(value) if intermediates is None else intermediates[0]
        _, log_det = simplex.from_sticks(proportions)
        return jnp.sum(self._sticks_log_prob(proportions), axis=-1) - log_det

    @abc.abstractmethod
    def _sample_sticks(self, key: Any, shape: tuple[int, ...]) -> Sticks:
        """Draw the proportions."""

    @abc.abstractmethod
    def _sticks_log_prob(self, proportions: Sticks) -> jax.Array:
        """Log densities of the proportions, entry by entry."""

    @abc.abstractmethod
    def _mean_sticks(self) -> Sticks:
        """Means of the proportions."""


class SimplexKumaraswamy(_ShapedSticks):
    """Points of the simplex with Kumaraswamy(a/tau, b/tau) stick proportions.

    Args:
        a: (..., n-1) positive shape parameters of the lower end.
        b: Positive shape parameters of the upper end; broadcasts with ``a``.
        temperature: Positive; a scalar, or of the batch shape.
        validate_args: As in NumPyro.
    """

    def _sample_sticks(self, key: Any, shape: tuple[int, ...]) -> Sticks:
        return sticks.kumaraswamy_sample(key, self.a, self.b, self.temperature[..., None], shape)

    def _sticks_log_prob(self, proportions: Sticks) -> jax.Array:
        return sticks.kumaraswamy_log_prob(proportions, self.a, self.b, self.temperature[..., None])

    def _mean_sticks(self) -> Sticks:
        tau = self.temperature[..., None]
        log_mean = jnp.log(self.b / tau) + betaln(1 + tau / self.a, self.b / tau)
        return Sticks(log_mean, log1mexp(log_mean))


class SimplexBeta(_ShapedSticks):
    """Generalised Dirichlet points of the simplex: Beta(a/tau, b/tau) stick proportions.

    Args:
        a: (..., n-1) positive shape parameters of the lower end.
        b: Positive shape parameters of the upper end; broadcasts with ``a``.
        temperature: Positive; a scalar, or of the batch shape. Here a *high* temperature leads to
            the vertices.
        validate_args: As in NumPyro.
    """

    def _sample_sticks(self, key: Any, shape: tuple[int, ...]) -> Sticks:
        return sticks.beta_sample(key, self.a, self.b, self.temperature[..., None], shape)

    def _sticks_log_prob(self, proportions: Sticks) -> jax.Array:
        return sticks.beta_log_prob(proportions, self.a, self.b, self.temperature[..., None])

    def _mean_sticks(self) -> Sticks:
        log_ratio = jnp.log(self.a) - jnp.log(self.b)
        return Sticks(jax.nn.log_sigmoid(log_ratio), jax.nn.log_sigmoid(-log_ratio))
