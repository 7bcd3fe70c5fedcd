"""The optimisation itself: compiled chunks of steps, for many problems and restarts at once.

All arrays have two axes in front, problems and restarts. Data, parameters and all numbers are
inputs of the compiled functions, so that fits of the same shapes share one compilation.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.vi.objective import Config, Numbers, last_stage, make_svi, stage_at
from permvi.inference.vi.prepare import RelaxedProblem

Progress = Callable[[int, int, float], None]
"""``on_progress(step, total, elbo)``, called after every chunk."""


class Optimised(NamedTuple):
    """Where the optimisation ended; all leaves have problems and restarts in front.

    Attributes:
        params: The variational parameters.
        elbo_trace: (problems, restarts, steps) estimates of the ELBO.
        final_elbo: (problems, restarts) means of the last chunk; -inf where it is NaN.
        settled: (problems, restarts) whether the smoothed ELBO had stopped rising.
        interrupted: Whether it was stopped by the user.
    """

    params: dict[str, jax.Array]
    elbo_trace: np.ndarray
    final_elbo: np.ndarray
    settled: np.ndarray
    interrupted: bool


def optimise(
    problems: RelaxedProblem,
    keys: jax.Array,
    config: Config,
    numbers: Numbers,
    patience: int | None,
    on_progress: Progress | None,
) -> Optimised:
    """Fit all problems, from all restarts; ``keys`` has shape (problems, restarts)."""
    total = int(numbers.num_steps)
    moves = config.temperature_schedule != "constant" or numbers.tempering < 1
    still_annealing = float(numbers.anneal_steps) if moves else 0.0
    state = _start(config, problems, numbers, keys)
    traces: list[np.ndarray] = []
    quiet, interrupted = 0, False
    try:
        for step in range(0, total, config.chunk_length):
            state, elbos = _advance(config, problems, numbers, state, step)
            traces.append(np.asarray(elbos))
            if on_progress is not None:
                elbo = float(_smoothed(traces[-1]).max(axis=-1).mean())
                on_progress(step + config.chunk_length, total, elbo)
            if patience is not None and step - config.chunk_length >= still_annealing:
                quiet = quiet + 1 if _settled(traces).all() else 0
                if quiet >= patience:
                    break
    except KeyboardInterrupt:
        if not traces:
            raise
        interrupted = True
    # The optimiser's own state comes with the parameters, all of them unconstrained.
    params, _ = state.optim_state[1]
    trace = np.concatenate(traces, axis=-1)
    return Optimised(params, trace, _smoothed(traces[-1]), _settled(traces), interrupted)


def _smoothed(chunk: np.ndarray) -> np.ndarray:
    """The mean ELBO of a chunk of steps for each fit, -inf where it is NaN."""
    mean = chunk.mean(axis=-1)
    return np.where(np.isnan(mean), -np.inf, mean)


def _settled(traces: list[np.ndarray]) -> np.ndarray:
    """Whether the last chunk's mean ELBO rose by less than two standard errors, for each fit."""
    if len(traces) < 2:
        return np.zeros(traces[-1].shape[:2], bool)
    before, last = traces[-2:]
    variance = (before.var(axis=-1) + last.var(axis=-1)) / last.shape[-1]
    return last.mean(axis=-1) - before.mean(axis=-1) <= 2 * np.sqrt(variance)


def _over_problems_and_restarts(one: Callable[..., Any]) -> Callable[..., Any]:
    """``one(problem, x)`` for problems (p, ...) and x (p, r, ...)."""
    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))


@functools.partial(jax.jit, static_argnames="config")
def _start(config: Config, problems: RelaxedProblem, numbers: Numbers, keys: jax.Array) -> Any:
    def one(problem: RelaxedProblem, key: jax.Array) -> Any:
        stage = stage_at(jnp.zeros(()), config, numbers)
        return make_svi(config, numbers).init(key, problem, numbers, stage)

    return _over_problems_and_restarts(one)(problems, keys)


@functools.partial(jax.jit, static_argnames="config")
def _advance(
    config: Config, problems: RelaxedProblem, numbers: Numbers, states: Any, first: jax.Array
) -> tuple[Any, jax.Array]:
    """One chunk of steps; returns the states and the ELBOs (problems, restarts, steps)."""
    svi = make_svi(config, numbers)

    def one(problem: RelaxedProblem, state: Any) -> tuple[Any, jax.Array]:
        # SVI learns in `init` how parameters are constrained; their shapes are enough for that.
        jax.eval_shape(svi.init, state.rng_key, problem, numbers, last_stage(numbers))

        def step(state: Any, index: jax.Array) -> tuple[Any, jax.Array]:
            stage = stage_at(index, config, numbers)
            state, loss = svi.stable_update(state, problem, numbers, stage)
            return state, -loss

        return jax.lax.scan(step, state, first + jnp.arange(config.chunk_length))

    return _over_problems_and_restarts(one)(problems, states)
