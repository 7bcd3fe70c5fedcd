r"""The rounding family of relaxed categorical variables (supplement, "Rounding").

:math:`\psi = \bar m + \nu \odot z` with a mean on the simplex and standard normal z, and
:math:`x = \tau \psi + (1 - \tau)\,\mathrm{round}(\psi)`. On its support,

.. math:: \log q_\tau(x) = \sum_k \log N(\psi_k; \bar m_k, \nu_k^2) - n \log \tau.

Points are near the simplex rather than on it. As :math:`\tau \to 0` they become one-hot, at the
largest entry of psi.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import erfc, logsumexp
from jax.scipy.stats import norm
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks
from permvi._checks import positive_numbers
from permvi.distributions.concrete import RelaxedCategorical
from permvi.transforms import simplex
from permvi.transforms._arguments import vector

# The grid extends this many standard deviations beyond the means: Phi(-6.5) is 4e-11.
_REACH = 6.5
# Spacing of 0.2 sd when the sds are equal, and of one sd of the smaller when they are 1:5.
_POINTS = 66


class SimplexRounding(RelaxedCategorical):
    """Vectors near the simplex, pulled toward their nearest one-hot vectors.

    Args:
        loc: (..., n) means of psi: points of the simplex in the paper, for example
            `permvi.transforms.simplex.project` of any vector, or its softmax.
        scale: Standard deviations of psi; broadcasts with ``loc``.
        temperature: In (0, 1]; a scalar, or of the batch shape.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
        "temperature": constraints.unit_interval,
    }
    reparametrized_params: ClassVar[list[str]] = ["loc", "scale", "temperature"]
    pytree_data_fields = ("loc", "scale", "temperature")
    support = constraints.real_vector

    def __init__(
        self,
        loc: ArrayLike,
        scale: ArrayLike = 0.3,
        temperature: ArrayLike = 0.5,
        *,
        validate_args: bool | None = None,
    ) -> None:
        loc = vector("loc", loc)
        scale = positive_numbers("scale", scale, loc.dtype)
        shape = jnp.broadcast_shapes(loc.shape, scale.shape)
        batch = jnp.broadcast_shapes(shape[:-1], jnp.shape(temperature))
        self.temperature = _checks.temperature(temperature, loc.dtype, batch, upper=1.0)
        self.loc = jnp.broadcast_to(loc, (*batch, shape[-1]))
        self.scale = jnp.broadcast_to(scale, (*batch, shape[-1]))
        super().__init__(batch, shape[-1:], validate_args=validate_args)

    @property
    def category_log_probs(self) -> jax.Array:
        """(..., n) log probabilities of the largest entry, by one-dimensional quadrature."""
        return _log_probability_of_largest(self.loc, self.scale)

    def sample_with_intermediates(
        self, key: Any, sample_shape: tuple[int, ...] = ()
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Draw X and ``[psi]``; given psi, `log_prob` need not invert X."""
        shape = sample_shape + self.batch_shape + self.event_shape
        psi = self.loc + self.scale * jax.random.normal(key, shape, self.loc.dtype)
        return simplex.rounding(psi, self.temperature)[0], [psi]

    @validate_sample
    def log_prob(self, value: Any, intermediates: list[jax.Array] | None = None) -> jax.Array:
        """Log density; -inf off the support. With intermediates X is not inverted."""
        if intermediates is not None:
            return self._log_prob_of_psi(intermediates[0])
        shape = jnp.broadcast_shapes(jnp.shape(value), self.batch_shape + self.event_shape)
        X = jnp.broadcast_to(_checks.floating("value", value), shape)
        psi, _ = simplex.rounding_inverse(X, self.temperature)
        inside = simplex.in_rounding_support(X, self.temperature)
        return jnp.where(inside, self._log_prob_of_psi(psi), -jnp.inf)

    def _log_prob_of_psi(self, psi: jax.Array) -> jax.Array:
        entries = norm.logpdf(psi, self.loc, self.scale)
        return jnp.sum(entries, axis=-1) - psi.shape[-1] * jnp.log(self.temperature)


def _log_probability_of_largest(loc: jax.Array, scale: jax.Array) -> jax.Array:
    r"""(..., n) log probabilities that each of n independent normal variables is the largest.

    .. math:: \pi_k = P(\psi_k > \psi_j, j \ne k)
              = \int \frac{f_k(t)}{F_k(t)} \prod_j F_j(t) \, dt

    with the densities f and distribution functions F of the variables. One equally spaced grid
    serves all n integrals. The integrands are smooth and vanish at both ends, so it converges
    faster than any power of the spacing. Standard deviations within one vector should differ by at
    most a factor of five.
    """
    low = jnp.max(loc - _REACH * scale, axis=-1, keepdims=True)
    high = jnp.max(loc + _REACH * scale, axis=-1, keepdims=True)
    # The rule is accurate for any such grid, so its ends need no gradient.
    low, high = jax.lax.stop_gradient((low, high))
    places = low + (high - low) * jnp.linspace(0, 1, _POINTS, dtype=loc.dtype)
    z = (places[..., None, :] - loc[..., None]) / scale[..., None]
    # On this grid z is above -6.5, where erfc is far from underflow and cheaper than log_ndtr.
    log_below = jnp.log(erfc(-z / math.sqrt(2)) / 2)
    log_rates = norm.logpdf(z) - jnp.log(scale[..., None]) - log_below
    masses = logsumexp(log_rates + jnp.sum(log_below, axis=-2, keepdims=True), axis=-1)
    return jax.nn.log_softmax(masses, axis=-1)
