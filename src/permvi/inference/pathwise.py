"""Stochastic ascent of an ELBO by pathwise gradients, for many problems and restarts at once.

All arrays have two axes in front, problems and restarts. Data, parameters and numbers are inputs of
the compiled function, so that fits of the same shapes share one compilation.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from permvi.inference.vi.prepare import RelaxedProblem

Progress = Callable[[int, int, float], None]
"""``on_progress(step, total, elbo)``, called after every chunk of steps."""

_CHUNK = 100


class Objective(Protocol):
    """An estimate of the ELBO; hashable, since a compiled fit depends on it."""

    def __call__(
        self, params: Any, problem: RelaxedProblem, numbers: Any, fraction: jax.Array, key: Any, /
    ) -> jax.Array:
        """The ELBO of one problem, with the fraction of the steps that are done in [0, 1]."""

    def __hash__(self) -> int: ...


class Ascent(NamedTuple):
    """Where the ascent ended.

    Attributes:
        params: The parameters, problems and restarts in front.
        elbo_trace: (problems, restarts, steps).
        best: (problems,) the restart with the highest mean ELBO of the last chunk.
        converged: (problems,) whether that mean rose by less than two standard errors.
    """

    params: Any
    elbo_trace: np.ndarray
    best: np.ndarray
    converged: np.ndarray


def ascend(
    objective: Objective,
    params: Any,
    problems: RelaxedProblem,
    numbers: Any,
    rng_key: jax.Array,
    *,
    num_steps: int,
    learning_rate: float,
    on_progress: Progress | None = None,
) -> Ascent:
    """Adam, whose learning rate falls to a tenth on half a cosine.

    Args:
        objective: What to maximise.
        params: Where to start; leaves (problems, restarts, ...).
        problems: Leaves with problems in front.
        numbers: What else the objective takes; shared by all.
        rng_key: A JAX random key.
        num_steps: How many steps, rounded up to whole chunks.
        learning_rate: At the start.
        on_progress: Called after every chunk with the mean of the best ELBOs.
    """
    count = -(-num_steps // _CHUNK)
    length = -(-num_steps // count)
    total = count * length
    fits = jax.tree.leaves(params)[0].shape[:2]
    state = (params, jax.vmap(jax.vmap(_adam(0.0).init))(params))
    traces: list[np.ndarray] = []
    for chunk in range(count):
        keys = jax.random.split(jax.random.fold_in(rng_key, chunk), fits)
        state, elbos = _advance(
            objective, length, problems, numbers, state, keys, chunk * length, total, learning_rate
        )
        traces.append(np.asarray(elbos))
        if on_progress is not None:
            on_progress((chunk + 1) * length, total, float(traces[-1].mean(-1).max(-1).mean()))
    last = traces[-1]
    final = last.mean(axis=-1)
    best = np.argmax(np.where(np.isnan(final), -np.inf, final), axis=1)
    previous = traces[-2] if count > 1 else last[..., : max(1, length // 2)]
    error = np.sqrt((previous.var(axis=-1) + last.var(axis=-1)) / length)
    settled = final - previous.mean(axis=-1) <= 2 * error
    converged = settled[np.arange(len(best)), best]
    return Ascent(state[0], np.concatenate(traces, axis=-1), best, converged)


def _adam(learning_rate: Any) -> optax.GradientTransformation:
    # A draw at the edge of floating point must not end the fit.
    return optax.chain(optax.zero_nans(), optax.adam(learning_rate))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _advance(
    objective: Objective,
    length: int,
    problems: RelaxedProblem,
    numbers: Any,
    states: Any,
    keys: jax.Array,
    first: jax.Array,
    total: jax.Array,
    learning_rate: jax.Array,
) -> tuple[Any, jax.Array]:
    """One chunk of steps; returns the states and the ELBOs (problems, restarts, steps)."""

    def one(problem: RelaxedProblem, state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        def step(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            params, adam = state
            index, key = inputs
            fraction = (first + index) / total

            def loss(params: Any) -> jax.Array:
                return -objective(params, problem, numbers, fraction, key)

            value, slope = jax.value_and_grad(loss)(params)
            rate = learning_rate * (0.55 + 0.45 * jnp.cos(jnp.pi * fraction))
            change, adam = _adam(rate).update(slope, adam, params)
            return (optax.apply_updates(params, change), adam), -value

        steps = (jnp.arange(length), jax.random.split(key, length))
        return jax.lax.scan(step, state, steps)

    return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)))(problems, states, keys)
