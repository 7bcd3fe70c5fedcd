"""Functions of one matrix or one permutation as models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from permvi._checks import one_of
from permvi._jax import ArrayLike, jax, jnp, pytree
from permvi.models import _arguments
from permvi.models.labels import NO_LABELS

Input = Literal["matrix", "perm"]


@pytree(
    leaves=(*_arguments.ARRAYS, "latents"),
    static=("function", "shape", "input", "traceable", "labels"),
)
class CallableModel(_arguments.Constrained):
    """A model whose log density is any function of one matching.

    Args:
        function: Takes one (n, m) 0/1 matrix, or one (n,) integer vector with -1 for unmatched, and
            returns the log density up to a constant, a number or -inf. A JAX function of a matrix
            should be defined between the 0/1 matrices too, where relaxed families take gradients.
            JAX functions are vmapped; others are called once per matching on NumPy arrays.
        n: Number of items, or (n, m) if the number of labels differs.
        input: Argument of the function, "matrix" or "perm".
        latents: Priors of other unknowns by name, continuous NumPyro distributions. The function
            takes their values as keyword arguments, and the posterior has them in ``latents``.
        jax: Whether it is a JAX function; by default the function is traced once to find out.
        mask: Allowed pairs; see `LinearMatching` for this and all arguments that follow.

    Raises:
        ValueError: The function does not return a number, or shapes do not fit.
        TypeError: Something is of the wrong kind.
    """

    num_sites = 1

    function: Callable[..., Any]
    latents: dict[str, Any]
    shape: tuple[int, int]
    input: str
    traceable: bool

    def __init__(
        self,
        function: Callable[..., Any],
        n: int | tuple[int, int],
        input: Input = "matrix",
        *,
        latents: Mapping[str, Any] | None = None,
        jax: bool | None = None,
        mask: Any = None,
        known: Any = None,
        labels: Any = None,
        row_unmatched: Any = None,
        col_unmatched: Any = None,
        prior_scores: Any = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"function must be callable, got {type(function).__name__}.")
        self.function = function
        self.latents = _priors(latents)
        self.shape = _shape(n)
        self.input = one_of("input", input, get_args(Input))
        self.traceable = self._is_traceable() if jax is None else bool(jax)
        if self.latents and not self.traceable:
            raise ValueError("function must be a JAX function if there are other latents.")
        given = mask, known, labels, row_unmatched, col_unmatched, prior_scores
        self._constrain(self.shape, NO_LABELS, *given)

    @property
    def relaxed(self) -> bool:
        """Whether the density and its gradient are defined between the 0/1 matrices."""
        return self.traceable and self.input == "matrix"

    def log_density(self, X: ArrayLike, **latents: Any) -> Any:
        """Return log densities (...) of matrices (..., n, m), relaxed ones only if ``relaxed``."""
        if self.input == "perm":
            columns = jnp.argmax(jnp.asarray(X), axis=-1)
            return self._map(
                jnp.where(jnp.max(jnp.asarray(X), axis=-1) > 0, columns, -1), 1, latents
            )
        return self._map(X, 2, latents)

    def log_density_of(self, perm: ArrayLike, **latents: Any) -> Any:
        """Return log densities (...) of permutations (..., n), -1 for unmatched."""
        if self.input == "perm":
            return self._map(perm, 1, latents)
        if self.traceable:
            return self._map(jax.nn.one_hot(jnp.asarray(perm), self.shape[1]), 2, latents)
        return self._map(np.eye(self.shape[1] + 1)[np.asarray(perm)][..., :-1], 2, latents)

    def _map(self, values: Any, ndim: int, latents: Mapping[str, Any]) -> Any:
        """Apply the function to each event, of ``ndim`` axes, in a batch."""
        if self.traceable:
            values = jnp.asarray(values)
            batch = values.shape[: values.ndim - ndim]
            flat = values.reshape(-1, *values.shape[values.ndim - ndim :])
            return jax.vmap(lambda event: self._number(event, latents))(flat).reshape(batch)
        values = np.asarray(values)
        batch = values.shape[: values.ndim - ndim]
        flat = values.reshape(-1, *values.shape[values.ndim - ndim :])
        return np.array([self._host_number(value) for value in flat], float).reshape(batch)

    def _number(self, event: jax.Array, latents: Mapping[str, Any]) -> jax.Array:
        value = jnp.asarray(self.function(event, **latents))
        if value.shape != ():
            raise ValueError(_no_number(f"shape {value.shape}"))
        return value

    def _host_number(self, event: np.ndarray) -> float:
        value = self.function(event)
        try:
            return float(value)
        except (TypeError, ValueError):
            raise ValueError(_no_number(f"{value!r:.60}")) from None

    def _is_traceable(self) -> bool:
        n, m = self.shape
        # What tracing a function raises if it looks at values, as plain Python code does.
        refused = (
            jax.errors.ConcretizationTypeError,
            jax.errors.TracerArrayConversionError,
            jax.errors.TracerIntegerConversionError,
            jax.errors.NonConcreteBooleanIndexError,
        )
        matrix = jax.ShapeDtypeStruct((n, m), jnp.result_type(float))
        perm = jax.ShapeDtypeStruct((n,), jnp.result_type(int))
        event = matrix if self.input == "matrix" else perm
        latents = {
            name: jax.ShapeDtypeStruct(prior.shape(), jnp.result_type(float))
            for name, prior in self.latents.items()
        }
        try:
            jax.eval_shape(self._number, event, latents)
        except refused:
            return False
        return True


def _priors(latents: Any) -> dict[str, Any]:
    """Return priors by name as a dict; raise for anything else."""
    if latents is None:
        return {}
    if not isinstance(latents, Mapping):
        raise TypeError(f"latents must be priors by name, got {type(latents).__name__}.")
    for name, prior in latents.items():
        if not (hasattr(prior, "log_prob") and hasattr(prior, "support")):
            raise TypeError(
                f"latents must be NumPyro distributions, got {type(prior).__name__} for {name!r}."
            )
    return dict(latents)


def _no_number(what: str) -> str:
    return f"function must return one number for one matching, got {what}."


def _shape(n: Any) -> tuple[int, int]:
    sizes = (n, n) if isinstance(n, int | np.integer) else tuple(n)
    whole = all(isinstance(size, int | np.integer) and size >= 1 for size in sizes)
    if len(sizes) != 2 or not whole or isinstance(n, bool):
        raise ValueError(f"n must be a positive integer or a pair (n, m) of them, got {n!r}.")
    return int(sizes[0]), int(sizes[1])
