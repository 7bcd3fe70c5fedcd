r"""The rounding family of relaxed permutations (paper, section 3.2).

:math:`\Psi = \mathrm{Sinkhorn}(M) + V \odot Z` with standard normal Z, and
:math:`X = \tau \Psi + (1 - \tau)\,\mathrm{round}(\Psi)`. On its support :math:`\mathcal X_\tau`,

.. math:: \log q_\tau(X) = \sum_{\text{free } mn} \log N(\psi_{mn}; \widetilde m_{mn}, v_{mn}^2)
          - k \log \tau,

with k free entries (n^2 without constraints). X is near the Birkhoff polytope but not in
it, so the NumPyro support is that of real matrices and the density is -inf off
:math:`\mathcal X_\tau`. At temperature 1 nothing is rounded and no assignment is solved.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks
from permvi._checks import positive_numbers, whole
from permvi.transforms import in_rounding_support, rounding, rounding_inverse, sinkhorn
from permvi.transforms.rounding import constraints_of

ROUNDING_SCALE_BOUNDS = (0.1, 0.5)
"""The paper's bounds on the noise sd (supplement C)."""

SINKHORN_STEPS = 10
"""The paper's number of Sinkhorn steps (supplement C)."""


class Rounding(Distribution):
    """Matrices near the Birkhoff polytope, pulled toward their nearest permutation matrices.

    Args:
        log_m: (..., n, n) logarithms of M. Sinkhorn scaling (10 steps) of M gives the mean of Psi.
            For a doubly-stochastic mean pass its logarithm.
        scale: Standard deviations V; broadcasts with ``log_m``.
        temperature: In (0, 1]; a scalar, or of the batch shape.
        mask: (..., n, n) booleans, True where a pair is possible. The forbidden entries are zero.
            Inside ``jit`` prune it first, with `permvi.assignment.prune_mask`.
        known: (n,) integers, ``known[i] = j`` for pairs known to match and -1 elsewhere. Their
            entries are one, the rest of their rows and columns zero.
        validate_args: As in NumPyro.
    """

    # `has_rsample` compares this with `reparametrized_params`, so constraints are not among them.
    arg_constraints: ClassVar[dict[str, Any]] = {
        "log_m": constraints.real_matrix,
        "scale": constraints.independent(constraints.positive, 2),
        "temperature": constraints.unit_interval,
    }
    reparametrized_params: ClassVar[list[str]] = ["log_m", "scale", "temperature"]
    pytree_data_fields = ("log_m", "scale", "temperature", "allowed", "free", "fixed")
    support = constraints.real_matrix

    def __init__(
        self,
        log_m: ArrayLike,
        scale: ArrayLike = 0.3,
        temperature: ArrayLike = 0.5,
        mask: ArrayLike | None = None,
        known: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        log_m = _checks.floating("log_m", log_m)
        n = _checks.square("log_m", log_m)
        scale = positive_numbers("scale", scale, log_m.dtype)
        batch = jnp.broadcast_shapes(log_m.shape, scale.shape)[:-2]
        batch = jnp.broadcast_shapes(batch, jnp.shape(temperature))
        self.temperature = _checks.temperature(temperature, log_m.dtype, batch, upper=1.0)
        self.log_m = jnp.broadcast_to(log_m, (*batch, n, n))
        self.scale = jnp.broadcast_to(scale, (*batch, n, n))
        # None instead of an array of True: assignment without a mask is faster.
        self.allowed: jax.Array | None = None
        self.free: jax.Array | None = None
        self.fixed: Any = None
        if mask is not None or known is not None:
            self.free, self.fixed = constraints_of("log_m", self.log_m, mask, known)
            self.allowed = self.free | (self.fixed == 1)
        super().__init__(batch, (n, n), validate_args=validate_args)

    @property
    def mean(self) -> jax.Array:
        """The mean of Psi, which is that of X at temperature 1."""
        return self._place(sinkhorn(self.log_m, SINKHORN_STEPS, mask=self.allowed))

    def sample_with_intermediates(
        self, key: Any, sample_shape: tuple[int, ...] = ()
    ) -> tuple[jax.Array, list[jax.Array]]:
        """Draw X and ``[psi]``; given psi, `log_prob` need not invert X."""
        shape = sample_shape + self.batch_shape + self.event_shape
        noise = jax.random.normal(key, shape, self.log_m.dtype)
        psi = self._place(self.mean + self.scale * noise)
        return self._toward_vertices(psi), [psi]

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample_with_intermediates(key, sample_shape)[0]

    def rsample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.sample(key, sample_shape)

    @validate_sample
    def log_prob(self, value: Any, intermediates: list[jax.Array] | None = None) -> jax.Array:
        """Log density; -inf off the support. With intermediates X is not inverted."""
        if intermediates is not None:
            return self._log_prob_of_psi(intermediates[0])
        shape = jnp.broadcast_shapes(jnp.shape(value), self.batch_shape + self.event_shape)
        X = jnp.broadcast_to(_checks.floating("value", value), shape)
        psi, _ = rounding_inverse(X, self.temperature, self.allowed)
        inside = in_rounding_support(X, self.temperature, self.allowed)
        if self.free is not None:
            inside &= jnp.all(self.free | (X == self.fixed), axis=(-2, -1))
        return jnp.where(inside, self._log_prob_of_psi(psi), -jnp.inf)

    def monte_carlo_entropy(
        self, rng_key: jax.Array | None = None, num_samples: int = 1
    ) -> jax.Array:
        r"""Gaussian entropy of the free entries plus :math:`k \log \tau`, batch shape.

        The log-determinant is constant, so no Monte Carlo is needed; the arguments are there for
        consistency with the other families.
        """
        whole("num_samples", num_samples)
        entries = 0.5 * math.log(2 * math.pi * math.e) + jnp.log(self.scale)
        return self._sum_free(entries) + self._log_det

    @property
    def _log_det(self) -> jax.Array:
        return self._sum_free(jnp.ones((), self.log_m.dtype)) * jnp.log(self.temperature)

    def _log_prob_of_psi(self, psi: jax.Array) -> jax.Array:
        z = (psi - self.mean) / self.scale
        entries = -0.5 * (z**2 + math.log(2 * math.pi)) - jnp.log(self.scale)
        return self._sum_free(entries) - self._log_det

    def _toward_vertices(self, psi: jax.Array) -> jax.Array:
        """The rounding map, without an assignment where the temperature is 1."""
        unrounded = jnp.all(self.temperature == 1)
        if _checks.is_concrete(unrounded):
            # `cond` would be compiled at every call outside jit.
            return psi if unrounded else rounding(psi, self.temperature, self.allowed)[0]
        return lax.cond(
            unrounded,
            lambda psi: psi,
            lambda psi: rounding(psi, self.temperature, self.allowed)[0],
            psi,
        )

    def _place(self, psi: jax.Array) -> jax.Array:
        """Psi with its fixed entries set to zero or one."""
        return psi if self.free is None else jnp.where(self.free, psi, self.fixed)

    def _sum_free(self, entries: jax.Array) -> jax.Array:
        """Sum over the free entries: (..., n, n) -> at least the batch shape."""
        shape = jnp.broadcast_shapes(entries.shape, self.batch_shape + self.event_shape)
        entries = jnp.broadcast_to(entries, shape)
        if self.free is not None:
            entries = jnp.where(self.free, entries, 0)
        return jnp.sum(entries, axis=(-2, -1))
