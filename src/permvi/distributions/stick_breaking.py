r"""The stick-breaking family of relaxed permutations (paper, section 3.1 and supplement B.2).

:math:`\psi_{mn} \sim N(\mu_{mn}, \nu_{mn}^2)`, :math:`\beta = \sigma(\psi / \tau)`, and X is filled
stick by stick. The change of variables gives

.. math:: \log q_\tau(X) = \sum_{mn} \log N(\psi_{mn}; \mu_{mn}, \nu_{mn}^2)
          - \log |\partial X / \partial \psi|,

with respect to Lebesgue measure on the free (n-1, n-1) block of X. This measure is the same for
every order of rows and columns, so densities and ELBOs of different orders are comparable.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from numpyro.distributions import Normal, TransformedDistribution

from permvi import _checks
from permvi._checks import positive_numbers, whole
from permvi.distributions.transforms import BirkhoffStickBreakingTransform

STICK_BREAKING_SCALE_BOUNDS = (1e-4, 1.0)
"""The paper's bounds on the noise sd: it keeps the *variance* within [1e-8, 1] (supplement C)."""


class StickBreaking(TransformedDistribution):
    """Doubly-stochastic matrices whose stick proportions are logistic-normal.

    Args:
        loc: (..., n-1, n-1) means of psi.
        scale: Standard deviations of psi; broadcasts with ``loc``.
        temperature: Positive; a scalar, or of the batch shape.
        row_order: (n,) the order in which rows are filled, by default from the first to the last.
        col_order: (n,) the order in which columns are filled, likewise.
        centered: Whether psi = 0 gives the matrix with all entries 1/n; the paper has no shift.
        validate_args: As in NumPyro.

    Examples:
        >>> import jax
        >>> q = StickBreaking(jnp.zeros((2, 2)), 1.0)
        >>> q.event_shape, q.sample(jax.random.key(0), (5,)).shape
        ((3, 3), (5, 3, 3))
    """

    def __init__(
        self,
        loc: ArrayLike,
        scale: ArrayLike = 1.0,
        temperature: ArrayLike = 1.0,
        *,
        row_order: ArrayLike | None = None,
        col_order: ArrayLike | None = None,
        centered: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        loc = _checks.floating("loc", loc)
        _checks.square("loc", loc, min_size=0)
        scale = positive_numbers("scale", scale, loc.dtype)
        batch = jnp.broadcast_shapes(loc.shape, scale.shape)[:-2]
        batch = jnp.broadcast_shapes(batch, jnp.shape(temperature))
        tau = _checks.temperature(temperature, loc.dtype, batch)
        loc = jnp.broadcast_to(loc, batch + loc.shape[-2:])
        transform = BirkhoffStickBreakingTransform(
            tau, row_order=row_order, col_order=col_order, centered=centered
        )
        super().__init__(Normal(loc, scale).to_event(2), transform, validate_args=validate_args)

    def monte_carlo_entropy(self, rng_key: jax.Array, num_samples: int = 100) -> jax.Array:
        r"""Gaussian entropy plus the mean log-determinant (paper, supplement B.2), batch shape.

        :math:`H(q) = \frac12 \sum \log(2 \pi e \nu^2) + E[\log |\partial X / \partial \psi|]`; only
        the second term is estimated. (The paper's equation lacks the logarithm.)
        """
        num_samples = whole("num_samples", num_samples)
        psi = self.base_dist.rsample(rng_key, (num_samples,))
        log_det = self.transforms[0].call_with_intermediates(psi)[1]
        gaussian: Any = self.base_dist.entropy()
        return gaussian + jnp.mean(log_det, axis=0)
