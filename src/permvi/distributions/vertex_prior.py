r"""Priors of relaxed matrices and vectors that prefer the vertices (paper, supplement B.1).

Relaxed permutations need a prior density in place of the model's prior probability. The paper uses
a mixture of Gaussians at 0 and 1 for each entry of a matrix (its equation "permprior"), and at the
one-hot vectors for a categorical variable, but states no width.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jax.typing import ArrayLike
from numpyro.distributions import Distribution, constraints
from numpyro.distributions.util import validate_sample

from permvi import _checks, assignment
from permvi._checks import positive_numbers, whole

DEFAULT_WIDTH = 0.5
"""The largest width at which the even mixture of Gaussians at 0 and 1 has no peak in between.

Wider Gaussians prefer the middle to the vertices. Narrower ones put a barrier between the vertices
that stochastic gradients must cross. `permvi.inference.vi.VIOptions` has calibrated widths.
"""


class VertexPrior(Distribution):
    r"""Independent entries, each from an even mixture of Gaussians at 0 and 1.

    :math:`p(X) = \prod_{mn} \frac12 [N(x_{mn}; 0, \eta^2) + N(x_{mn}; 1, \eta^2)]`, over the
    entries that the mask allows; the others are zero. `permvi.AutoPermutation`
    treats a site of a NumPyro model with this prior as permutation-valued.

    Args:
        n: Number of rows and columns.
        width: :math:`\eta > 0`, a scalar or of the batch shape.
        mask: (..., n, n) booleans, True where a pair is possible.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"width": constraints.positive}
    reparametrized_params: ClassVar[list[str]] = []
    pytree_data_fields = ("width", "mask")
    support = constraints.real_matrix

    def __init__(
        self,
        n: int,
        width: ArrayLike = DEFAULT_WIDTH,
        mask: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        n = whole("n", n)
        self.width = positive_numbers("width", width)
        batch = self.width.shape
        self.mask = None
        if mask is not None:
            batch = jnp.broadcast_shapes(batch, jnp.shape(mask)[:-2])
            self.mask = _checks.mask(mask, "the matrix", (*batch, n, n))
            if _checks.is_concrete(self.mask):
                self.mask = jnp.asarray(assignment.prune_mask(self.mask))
        super().__init__(batch, (n, n), validate_args=validate_args)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        shape = sample_shape + self.batch_shape + self.event_shape
        key_vertex, key_noise = jax.random.split(key)
        dtype = self.width.dtype
        vertex = jax.random.bernoulli(key_vertex, 0.5, shape).astype(dtype)
        X = vertex + self.width[..., None, None] * jax.random.normal(key_noise, shape, dtype)
        return X if self.mask is None else jnp.where(self.mask, X, 0)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        """Log density of the allowed entries; the other entries are ignored."""
        width = self.width[..., None, None]
        entries = jnp.logaddexp(_log_normal(value, width), _log_normal(value - 1, width))
        entries = entries - math.log(2)
        if self.mask is not None:
            entries = jnp.where(self.mask, entries, 0)
        return jnp.sum(entries, axis=(-2, -1))


class OneHotPrior(Distribution):
    r"""An even mixture of Gaussians at the n one-hot vectors, for relaxed categorical variables.

    :math:`p(x) = \frac1n \sum_k N(x; e_k, \eta^2 I)` (paper, supplement B.1).

    Args:
        n: Number of categories.
        width: :math:`\eta > 0`, a scalar or of the batch shape.
        validate_args: As in NumPyro.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {"width": constraints.positive}
    reparametrized_params: ClassVar[list[str]] = []
    pytree_data_fields = ("width",)
    support = constraints.real_vector

    def __init__(
        self, n: int, width: ArrayLike = DEFAULT_WIDTH, *, validate_args: bool | None = None
    ) -> None:
        n = whole("n", n)
        self.width = positive_numbers("width", width)
        super().__init__(self.width.shape, (n,), validate_args=validate_args)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        batch, (n,) = sample_shape + self.batch_shape, self.event_shape
        key_vertex, key_noise = jax.random.split(key)
        dtype = self.width.dtype
        vertex = jax.nn.one_hot(jax.random.randint(key_vertex, batch, 0, n), n, dtype=dtype)
        return vertex + self.width[..., None] * jax.random.normal(key_noise, (*batch, n), dtype)

    @validate_sample
    def log_prob(self, value: Any) -> jax.Array:
        n, width = self.event_shape[0], self.width[..., None]
        # Relative to a Gaussian at the origin, component k is exp((2 x_k - 1) / (2 width^2)).
        at_origin = jnp.sum(_log_normal(value, width), axis=-1)
        return at_origin + logsumexp((value - 0.5) / width**2, axis=-1) - math.log(n)


def _log_normal(value: jax.Array, width: jax.Array) -> jax.Array:
    return -0.5 * ((value / width) ** 2 + math.log(2 * math.pi)) - jnp.log(width)
