"""Log densities of many matchings, evaluated on the host and kept."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np

from permvi._jax import jax, jnp
from permvi._programmes import light_jit
from permvi.problem.problem import Problem

Result = TypeVar("Result")

_CHUNK = 8192


def log_densities(problem: Problem, perms: np.ndarray, **latents: Any) -> np.ndarray:
    """Return log densities (num,), in float64, of matchings (num, n) or (num, S, n).

    They include the weights of unmatched rows and unused columns.

    Raises:
        ValueError: The density is NaN or +inf somewhere, or not one number per matching.
    """
    if problem.traceable:
        # Powers of two, so that few sizes are ever compiled.
        size = min(_CHUNK, 1 << (len(perms) - 1).bit_length())
        parts = []
        for start in range(0, len(perms), size):
            chunk = perms[start : start + size]
            found = _evaluate(problem.log_density_of, problem.data, filled(chunk, size), latents)
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


def rounding_error(problem: Problem, values: np.ndarray) -> float:
    """Return how far rounding may move log densities (num,): half a unit in the last place.

    Zero on the host and where JAX is configured for float64.
    """
    if not problem.traceable or jnp.result_type(float) == jnp.float64:
        return 0.0
    size = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    return float(np.finfo(np.float32).eps / 2 * size)


def in_float64(problem: Problem, perms: np.ndarray, compute: Callable[[], Result]) -> Result | None:
    """Compute from `log_densities` of a JAX function in float64, whatever the user's configuration.

    Return None if the function itself returns float32 or mixes types. JAX keeps constants of one
    precision and fails on them in the other, so all compiled code is dropped before and after: this
    is for densities whose differences are lost otherwise. ``perms`` (num, ...) are some matchings.
    """
    jax.clear_caches()
    try:
        with float64():
            at = {name: prior.sample(jax.random.key(0)) for name, prior in problem.latents.items()}
            one = problem.log_density_of(problem.data, perms[:1], **at)
            return None if one.dtype != np.float64 else compute()
    except TypeError:
        # Loops that carry a float32 constant, say.
        return None
    finally:
        jax.clear_caches()


def float64(*, enabled: bool = True) -> AbstractContextManager[Any]:
    """Let JAX compute in float64, or in float32, in this thread and inside the block."""
    # Older versions have it in jax.experimental only.
    home: Any = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    return home.enable_x64(enabled)


def filled(array: np.ndarray, size: int) -> np.ndarray:
    """Fill an array up to ``size`` entries with its first one, so that few sizes are compiled."""
    return np.concatenate([array, np.repeat(array[:1], size - len(array), axis=0)])


def _one_each(found: Any, num: int) -> np.ndarray:
    values = np.asarray(found, dtype=np.float64)
    if values.shape != (num,):
        raise ValueError(
            f"log_density must return one number for each of {num} matchings, got shape "
            f"{values.shape}."
        )
    return values


@functools.partial(light_jit, static_argnums=0)
def _evaluate(density: Any, data: Any, perms: jax.Array, latents: dict[str, Any]) -> jax.Array:
    """Return log densities (num,)."""
    return density(data, perms, **latents)


def as_perms(choices: jax.Array | np.ndarray, problem: Problem) -> jax.Array | np.ndarray:
    """Return choices (..., S, n), m for unmatched, as matchings (..., n) or (..., S, n)."""
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


# Matchings (num, ...) -> their log densities (num,), on the host.
Evaluate = Callable[[np.ndarray], np.ndarray]

_INTEGER_BITS = 62


def evaluator(problem: Problem) -> Evaluate:
    """Return the function from choices (num, S, n), m for unmatched, to `log_densities`."""
    return lambda choices: log_densities(problem, np.asarray(as_perms(choices, problem)))


def codes(matchings: np.ndarray, num_labels: int) -> np.ndarray:
    """Return (num,) sortable codes of matchings (num, ...), equal exactly for equal matchings.

    Unmatched items may be -1 or ``num_labels``.
    """
    flat = matchings.reshape(len(matchings), -1) % (num_labels + 1)
    if flat.shape[1] * np.log2(num_labels + 1) <= _INTEGER_BITS:
        return flat.astype(np.int64) @ (num_labels + 1) ** np.arange(flat.shape[1], dtype=np.int64)
    small = np.ascontiguousarray(flat, dtype=np.uint8 if num_labels < 256 else np.uint16)
    return small.view(np.dtype((np.void, small.strides[0]))).ravel()


class Evaluations:
    """Matchings with their log densities, each evaluated once, in batches, up to a budget.

    Args:
        evaluate: The log density of matchings.
        num_labels: m.
        budget: The most evaluations.

    Attributes:
        num_evaluations: How many log densities were evaluated, here or elsewhere.
        left: How many more may be evaluated here.
        values: (num,) log densities of the distinct matchings, in the order of their evaluation.
    """

    def __init__(self, evaluate: Evaluate, num_labels: int, budget: float = np.inf) -> None:
        self._evaluate, self._num_labels = evaluate, num_labels
        self._places: dict[Any, int] = {}
        self._matchings: list[np.ndarray] = []
        self.values = np.empty(0)
        self.num_evaluations, self.left = 0, budget

    def __len__(self) -> int:
        return len(self.values)

    @property
    def matchings(self) -> np.ndarray:
        """(num, ...) the distinct matchings, in the order of their evaluation."""
        self._matchings = [np.concatenate(self._matchings)]
        return self._matchings[0]

    @property
    def best(self) -> np.ndarray:
        """The matching of largest density, the first of several that was evaluated."""
        return self.matchings[np.argmax(self.values)]

    def ordered(self) -> tuple[np.ndarray, np.ndarray]:
        """Return matchings and values in an order that does not depend on that of evaluation."""
        order = np.argsort(codes(self.matchings, self._num_labels), kind="stable")
        return self.matchings[order], self.values[order]

    def contains(self, matchings: np.ndarray) -> np.ndarray:
        """(num,) which of the matchings were evaluated."""
        return np.array([code in self._places for code in self._codes(matchings)], bool)

    def add(self, matchings: np.ndarray, values: np.ndarray) -> None:
        """Add matchings whose densities were evaluated elsewhere, repeats included."""
        self.num_evaluations += len(matchings)
        new = self._new(self._codes(matchings), np.inf)
        rows = list(new.values())
        self._keep(new, matchings[rows], np.asarray(values, np.float64)[rows])

    def look_up(self, matchings: np.ndarray) -> np.ndarray:
        """(num,) log densities, -inf beyond the budget; new matchings are evaluated."""
        places = self.find(matchings)
        return np.append(self.values, -np.inf)[places]

    def find(self, matchings: np.ndarray) -> np.ndarray:
        """(num,) places in `values`, -1 beyond the budget; new matchings are evaluated."""
        wanted = self._codes(matchings)
        new = self._new(wanted, self.left)
        if new:
            chosen = matchings[list(new.values())]
            values = _one_each(self._evaluate(chosen), len(chosen))
            self._keep(new, chosen, values)
            self.num_evaluations += len(new)
            self.left -= len(new)
        return np.array([self._places.get(code, -1) for code in wanted], np.int64)

    def _codes(self, matchings: np.ndarray) -> list[Any]:
        return codes(matchings, self._num_labels).tolist() if len(matchings) else []

    def _new(self, wanted: list[Any], limit: float) -> dict[Any, int]:
        """The codes that are not there yet, at most ``limit``, and where each is wanted first."""
        new: dict[Any, int] = {}
        for place, code in enumerate(wanted):
            if code not in self._places and len(new) < limit:
                new.setdefault(code, place)
        return new

    def _keep(self, new: Iterable[Any], matchings: np.ndarray, values: np.ndarray) -> None:
        self._places.update({code: len(self) + k for k, code in enumerate(new)})
        self._matchings.append(matchings)
        self.values = np.concatenate([self.values, values])
