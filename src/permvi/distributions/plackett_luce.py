r"""Plackett-Luce models: items are picked one after the other, in proportion to their worths.

.. math:: p(\sigma) = \prod_{t=1}^{k} \frac{e^{\theta_{\sigma_t}}}
          {\sum_{i \notin \{\sigma_1, \dots, \sigma_{t-1}\}} e^{\theta_i}}

(Luce 1959; Plackett 1975). Adding independent Gumbel noise to the log worths and sorting gives
exact draws (Yellott 1977).
"""

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks
from permvi._checks import whole


class _DistinctItems(constraints.Constraint):
    """Integer vectors of distinct entries from 0 to ``num_items - 1``."""

    event_dim = 1
    is_discrete = True

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items

    def __call__(self, x: jax.Array) -> jax.Array:
        return _are_distinct(x, self.num_items)

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        return jnp.broadcast_to(jnp.arange(prototype.shape[-1]), prototype.shape)

    def tree_flatten(self) -> tuple[tuple[()], tuple[tuple[()], dict[str, int]]]:
        return (), ((), {"num_items": self.num_items})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DistinctItems) and other.num_items == self.num_items

    def __hash__(self) -> int:
        return hash((_DistinctItems, self.num_items))


class PlackettLuce(Distribution):
    """Orderings of n items, or of the first few of them.

    A value lists items, the best one first: ``value[..., t]`` is the item in place t. The ranks of
    the items are its inverse, see `permvi.permutations.inverse`.

    Args:
        log_worths: (..., n) finite floats; a constant added to all of them changes nothing.
        num_places: The number k of places that a value lists; all n by default.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"log_worths": constraints.real_vector}
    pytree_data_fields = ("log_worths",)
    pytree_aux_fields = ("num_places",)

    def __init__(
        self,
        log_worths: ArrayLike,
        num_places: int | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        self.log_worths = _checks.floating("log_worths", log_worths)
        shape = self.log_worths.shape
        if not shape or shape[-1] < 1:
            raise ValueError(f"log_worths must have shape (..., n), got shape {shape}.")
        # On the host: JAX would trace even this if a model builds the distribution inside jit.
        if _checks.is_concrete(self.log_worths) and not np.isfinite(self.log_worths).all():
            raise ValueError("log_worths must be finite, got NaN or inf.")
        self.num_places = whole("num_places", shape[-1] if num_places is None else num_places)
        if self.num_places > shape[-1]:
            raise ValueError(
                f"num_places must be at most the {shape[-1]} items, got {self.num_places}."
            )
        super().__init__(shape[:-1], (self.num_places,), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Vectors of distinct items."""
        return _DistinctItems(self.log_worths.shape[-1])

    @property
    def mode(self) -> jax.Array:
        """(..., k) the most probable value: the items of largest worth, in that order."""
        return lax.top_k(self.log_worths, self.num_places)[1]

    def top_k(self, k: int) -> "PlackettLuce":
        """The marginal distribution of the first k places."""
        if k > self.num_places:
            raise ValueError(f"k must be at most the {self.num_places} places, got {k}.")
        return PlackettLuce(self.log_worths, k)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """Exact log probabilities of (..., k) items; -inf where they are not distinct items."""
        return _log_prob(self.log_worths, jnp.asarray(value))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draw exact independent samples."""
        shape = sample_shape + self.log_worths.shape
        noise = jax.random.gumbel(key, shape, self.log_worths.dtype)
        return lax.top_k(self.log_worths + noise, self.num_places)[1]


@functools.partial(jax.jit, static_argnums=1)
def _are_distinct(items: jax.Array, num_items: int) -> jax.Array:
    """(..., k) -> (...) whether all are items, and no two the same."""
    ordered = jnp.sort(items, axis=-1)
    inside = (ordered[..., 0] >= 0) & (ordered[..., -1] < num_items)
    return inside & jnp.all(ordered[..., 1:] > ordered[..., :-1], axis=-1)


def _one_log_prob(log_worths: jax.Array, items: jax.Array) -> jax.Array:
    """(n,) log worths and (k,) items -> ()."""
    n, k = log_worths.shape[0], items.shape[0]
    # The items that are not listed come last, in any order: only their sum matters.
    place = jnp.full(n, k).at[items].set(jnp.arange(k), mode="drop")
    ordered = log_worths[jnp.argsort(place)]
    remaining = lax.cumlogsumexp(ordered, reverse=True)
    found = jnp.sum((ordered - remaining)[:k])
    return jnp.where(_are_distinct(items, n), found, -jnp.inf)


_log_prob = jax.jit(jnp.vectorize(_one_log_prob, signature="(n),(k)->()"))
