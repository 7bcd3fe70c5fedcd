r"""Mallows models: the probability of a permutation falls with its distance from a centre.

.. math:: p(\sigma) = e^{-\theta\, d(\sigma, \sigma_0)} / Z(\theta)

with one of four distances (Mallows 1957; Diaconis 1988, chapter 6). Normaliser and sampler are
exact for all of them and all n; for Spearman's footrule, which has no product form, both come from
a recurrence over the number of items that wait for a partner.
"""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks, permutations
from permvi._checks import one_of
from permvi.distributions._mallows import DISTANCES, SAMPLERS, log_normalizer

Distance = Literal["footrule", "kendall", "cayley", "hamming"]


class _PermutationVector(constraints.ParameterFreeConstraint):
    """Integer vectors that hold each of 0, ..., n-1 once."""

    event_dim = 1
    is_discrete = True

    def __call__(self, x: jax.Array) -> jax.Array:
        return permutations.is_permutation(x)

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.arange(prototype.shape[-1]), prototype.shape)


permutation_vector = _PermutationVector()
"""Permutations as integer vectors; ``event_dim`` is 1."""


class Mallows(Distribution):
    """A Mallows model: permutations around a centre.

    Args:
        centre: (..., n) integers, the most probable permutation.
        theta: Dispersion, at least 0 (uniform); broadcasts against the batch shape.
        distance: "footrule", "kendall", "cayley" or "hamming", see `permvi.permutations`. The first
            two depend on the order of the labels, the others do not.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "centre": permutation_vector,
        "theta": constraints.nonnegative,
    }
    pytree_data_fields = ("centre", "theta")
    pytree_aux_fields = ("distance",)
    support = permutation_vector

    def __init__(
        self,
        centre: ArrayLike,
        theta: ArrayLike = 1.0,
        distance: Distance = "footrule",
        *,
        validate_args: bool | None = None,
    ) -> None:
        centre = _checks.integer("centre", centre)
        if centre.ndim < 1 or centre.shape[-1] < 1:
            raise ValueError(f"centre must have shape (..., n), got shape {centre.shape}.")
        # On the host: JAX would trace even this if a model builds the distribution inside jit.
        if _checks.is_concrete(centre) and not _are_permutations(np.asarray(centre)):
            raise ValueError("centre must hold each of 0 to n-1 once, got something else.")
        self.distance = one_of("distance", distance, DISTANCES)
        theta = _dispersion(theta)
        batch = jnp.broadcast_shapes(centre.shape[:-1], theta.shape)
        self.centre = jnp.broadcast_to(centre, (*batch, centre.shape[-1]))
        self.theta = jnp.broadcast_to(theta, batch)
        super().__init__(batch, centre.shape[-1:], validate_args=validate_args)

    @property
    def log_normalizer(self) -> jax.Array:
        """The log normaliser, batch shape; its gradient in theta is minus the mean distance."""
        return log_normalizer(self.theta, self.event_shape[0], self.distance)

    def distance_to_centre(self, value: ArrayLike) -> jax.Array:
        """The distances of permutations (..., n) from the centre."""
        return getattr(permutations, self.distance)(value, self.centre)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """Exact log probabilities; -inf for vectors that are not permutations."""
        found = -self.theta * self.distance_to_centre(value) - self.log_normalizer
        return jnp.where(permutations.is_permutation(value), found, -jnp.inf)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw exact independent samples."""
        shape = sample_shape + self.batch_shape
        keys = jax.random.split(key, shape).reshape(-1)
        theta = jnp.broadcast_to(self.theta, shape).reshape(-1)
        n = self.event_shape[0]
        draw = SAMPLERS[self.distance]
        around = jax.vmap(lambda key, theta: draw(key, theta, n))(keys, theta)
        centre = jnp.broadcast_to(self.centre, (*shape, n))
        return permutations.compose(centre, around.reshape(*shape, n).astype(centre.dtype))


def _are_permutations(array: np.ndarray) -> bool:
    return bool((np.sort(array, axis=-1) == np.arange(array.shape[-1])).all())


def _dispersion(theta: ArrayLike) -> jax.Array:
    array = jnp.asarray(theta)
    array = array.astype(jnp.result_type(array, float))
    if _checks.is_concrete(array) and not ((np.asarray(array) >= 0) & np.isfinite(array)).all():
        raise ValueError(f"theta must be finite and at least 0, got {theta!r:.60}.")
    return array
