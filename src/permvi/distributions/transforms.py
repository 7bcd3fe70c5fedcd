"""Doubly-stochastic matrices as a NumPyro constraint, with stick-breaking as its bijection."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to

from permvi.transforms import stick_breaking, stick_breaking_inverse


class _Birkhoff(constraints.ParameterFreeConstraint):
    r"""Non-negative square matrices whose rows and columns sum to one.

    Sums may be off by :math:`64 N \epsilon` of the dtype: a fixed tolerance would reject our own
    float32 samples at large N.
    """

    event_dim = 2

    def __call__(self, x: jax.Array) -> jax.Array:
        return _is_doubly_stochastic(x)

    def feasible_like(self, prototype: jax.Array) -> jax.Array:
        return jnp.full_like(prototype, 1 / prototype.shape[-1])


@jax.jit
def _is_doubly_stochastic(x: jax.Array) -> jax.Array:
    tolerance = 64 * x.shape[-1] * float(jnp.finfo(jnp.result_type(x)).eps)
    rows = jnp.all(jnp.abs(x.sum(-1) - 1) <= tolerance, axis=-1)
    columns = jnp.all(jnp.abs(x.sum(-2) - 1) <= tolerance, axis=-1)
    return jnp.all(x >= 0, axis=(-2, -1)) & rows & columns


birkhoff = _Birkhoff()
"""Doubly-stochastic matrices; ``event_dim`` is 2."""


class BirkhoffStickBreakingTransform(Transform):
    """Map real (n-1, n-1) to doubly-stochastic (n, n) matrices by `transforms.stick_breaking`.

    Args:
        temperature: Positive scalar, or one for each batch member.
        row_order: Order in which rows are filled.
        col_order: Order in which columns are filled.
        centered: Whether zero is mapped to the matrix with all entries 1/n.
    """

    domain = constraints.real_matrix
    codomain = birkhoff

    def __init__(
        self,
        temperature: ArrayLike = 1.0,
        *,
        row_order: ArrayLike | None = None,
        col_order: ArrayLike | None = None,
        centered: bool = False,
    ) -> None:
        self.temperature = temperature
        self.row_order = row_order
        self.col_order = col_order
        self.centered = centered

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.call_with_intermediates(x)[0]

    def call_with_intermediates(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the matrix and the log-determinant, which comes at no extra cost."""
        return stick_breaking(x, self.temperature, **self._options())

    def _inverse(self, y: jax.Array) -> jax.Array:
        return stick_breaking_inverse(y, self.temperature, **self._options())[0]

    def log_abs_det_jacobian(
        self, x: jax.Array, y: jax.Array, intermediates: jax.Array | None = None
    ) -> jax.Array:
        """Return the log-determinant, computed from x alone because y may be saturated."""
        return self.call_with_intermediates(x)[1] if intermediates is None else intermediates

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(..., n-1, n-1) -> (..., n, n)."""
        return _resized(shape, 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(..., n, n) -> (..., n-1, n-1)."""
        return _resized(shape, -1)

    def tree_flatten(self) -> Any:
        """Flatten with arrays as leaves, so that a new temperature compiles nothing."""
        leaves = (self.temperature, self.row_order, self.col_order)
        return leaves, (("temperature", "row_order", "col_order"), {"centered": self.centered})

    def eq(self, other: object, static: bool = False) -> Any:  # noqa: FBT001, FBT002 (NumPyro's)
        """Whether the other transform is the same map; a Python bool if ``static``."""
        if not isinstance(other, BirkhoffStickBreakingTransform):
            return False
        if self.centered != other.centered:
            return False
        mine, theirs = self.tree_flatten()[0], other.tree_flatten()[0]
        array = np if static else jnp
        return all(
            a is b or (a is not None and b is not None and array.array_equal(a, b))
            for a, b in zip(mine, theirs, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return bool(self.eq(other, static=True))

    __hash__ = None  # type: ignore[assignment]

    def _options(self) -> dict[str, Any]:
        return {"row_order": self.row_order, "col_order": self.col_order, "centered": self.centered}


@biject_to.register(birkhoff)
def _transform_to_birkhoff(constraint: constraints.Constraint) -> Transform:
    # Centred, so that NumPyro's starting points near zero are near the middle of the polytope.
    return BirkhoffStickBreakingTransform(centered=True)


def _resized(shape: tuple[int, ...], change: int) -> tuple[int, ...]:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"shape must be that of square matrices, got {shape}.")
    return (*shape[:-2], shape[-2] + change, shape[-1] + change)
