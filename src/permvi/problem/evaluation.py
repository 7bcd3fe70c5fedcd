"""Log densities of many matchings, on the host, with one compilation for all chunks."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi.problem.problem import Problem

_CHUNK = 8192


def log_densities(problem: Problem, perms: np.ndarray, **latents: Any) -> np.ndarray:
    """(num, n) or (num, S, n) matchings of a problem -> (num,) log densities in float64.

    They include what unmatched rows and columns weigh.

    Raises:
        ValueError: The density is NaN or +inf somewhere, or not one number per matching.
    """
    if problem.traceable:
        # Powers of two, so that few sizes are ever compiled.
        size = min(_CHUNK, 1 << (len(perms) - 1).bit_length())
        parts = []
        for start in range(0, len(perms), size):
            chunk = perms[start : start + size]
            padded = np.concatenate([chunk, np.repeat(chunk[:1], size - len(chunk), axis=0)])
            found = _evaluate(problem.log_density_of, problem.data, padded, latents)
            parts.append(_one_each(found, size)[: len(chunk)])
        values = np.concatenate(parts)
    else:
        found = problem.log_density_of(problem.data, perms, **latents)
        values = _one_each(found, len(perms))
    bad = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if len(bad):
        raise ValueError(
            f"the log density must be finite or -inf, got {values[bad[0]]} at "
            f"{perms[bad[0]].tolist()}."
        )
    return values + problem.unmatched.of(perms) if problem.is_partial else values


def _one_each(found: Any, num: int) -> np.ndarray:
    values = np.asarray(found, dtype=np.float64)
    if values.shape != (num,):
        raise ValueError(
            f"log_density must return one number for each of {num} matchings, got shape "
            f"{values.shape}."
        )
    return values


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(log_density_of: Any, data: Any, perms: jax.Array, latents: Any) -> jax.Array:
    return log_density_of(data, perms, **latents)


def as_perms(choices: jax.Array | np.ndarray, problem: Problem) -> jax.Array | np.ndarray:
    """Choices (..., S, n), m for unmatched, as matchings (..., n) or (..., S, n), -1 likewise."""
    xp = np if isinstance(choices, np.ndarray) else jnp
    perms = xp.where(choices == problem.shape[1], -1, choices)
    return perms[..., 0, :] if problem.num_sites == 1 else perms


def log_density(problem: Problem, choices: jax.Array) -> jax.Array:
    """Return the log density at choices (..., S, n) -> (...), inside JAX; NaN becomes -inf.

    It includes the weights of unmatched rows and unused columns.
    """
    perms = as_perms(choices, problem)
    value = problem.log_density_of(problem.data, perms)
    if problem.is_partial:
        value = value + problem.unmatched.of(perms)
    return jnp.where(jnp.isnan(value), -jnp.inf, value)


# The density of distinct choices (num, S, n) on the host, (num,).
Evaluate = Callable[[np.ndarray], np.ndarray]

_INTEGER_BITS = 62


def codes(choices: np.ndarray, num_choices: int) -> np.ndarray:
    """(num, S, n) -> (num,) sortable codes, equal exactly for equal matchings."""
    flat = choices.reshape(len(choices), -1)
    if flat.shape[1] * np.log2(num_choices) <= _INTEGER_BITS:
        powers = num_choices ** np.arange(flat.shape[1], dtype=np.int64)
        return flat.astype(np.int64) @ powers
    small = np.ascontiguousarray(flat, dtype=np.uint8 if num_choices <= 256 else np.uint16)
    return small.view(np.dtype((np.void, small.strides[0]))).ravel()


class Seen:
    """A growing set of matchings with their log densities.

    Args:
        num_choices: C.
        evaluate: The log density.
    """

    def __init__(self, num_choices: int, evaluate: Evaluate) -> None:
        self.num_evaluations = 0
        self._num_choices = num_choices
        self._evaluate = evaluate
        self._codes: np.ndarray | None = None
        self._choices: np.ndarray | None = None
        self._values = np.zeros(0)

    @property
    def choices(self) -> np.ndarray:
        """(num, S, n) the matchings, sorted by their codes."""
        if self._choices is None:
            raise ValueError("nothing was evaluated yet.")
        return self._choices

    @property
    def values(self) -> np.ndarray:
        """(num,) their log densities."""
        return self._values

    def __len__(self) -> int:
        return len(self._values)

    def contains(self, choices: np.ndarray) -> np.ndarray:
        """(num,) which of the matchings are there."""
        if self._codes is None:
            return np.zeros(len(choices), bool)
        return self._find(codes(choices, self._num_choices))[1]

    def add(self, choices: np.ndarray, values: np.ndarray) -> None:
        """Take in matchings whose densities were computed elsewhere, repeats and all."""
        self.num_evaluations += len(choices)
        self._merge(choices, values)

    def look_up(self, choices: np.ndarray) -> np.ndarray:
        """(num,) log densities of matchings, new ones evaluated and kept."""
        unknown = ~self.contains(choices)
        if unknown.any():
            _, first = np.unique(codes(choices[unknown], self._num_choices), return_index=True)
            new = choices[unknown][first]
            self.add(new, self._evaluate(new))
        return self._values[self._find(codes(choices, self._num_choices))[0]]

    def _find(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        table: np.ndarray = self._codes  # type: ignore[assignment]
        place = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
        return place, table[place] == wanted

    def _merge(self, choices: np.ndarray, values: np.ndarray) -> None:
        if self._choices is not None:
            choices = np.concatenate([self._choices, choices])
            values = np.concatenate([self._values, values])
        self._codes, first = np.unique(codes(choices, self._num_choices), return_index=True)
        self._choices, self._values = choices[first], np.asarray(values, np.float64)[first]
