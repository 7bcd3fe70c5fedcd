"""Stochastic ascent of an ELBO by pathwise gradients, for many problems and restarts at once.

All arrays have two axes in front, problems and restarts. Data, parameters and numbers are inputs of
the compiled function, so that fits of the same shapes share one compilation.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
import optax

from permvi._checks import positive_number, whole
from permvi._programmes import light_jit
from permvi.inference.method import StepProgress, stack
from permvi.inference.optimise import equal_chunks, has_settled, optimise
from permvi.inference.vi.relaxed_problem import RelaxedProblem, relax
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem

Progress = StepProgress
"""``on_progress(step, total, elbo)``, called after every chunk of steps."""

_CHUNK = 100


@dataclasses.dataclass(frozen=True, kw_only=True)
class PathwiseOptions:
    """How to fit by pathwise gradients.

    Attributes:
        learning_rate: The learning rate of Adam at the start.
        num_steps: Number of steps, rounded up to whole chunks.
        num_samples: Monte Carlo samples of the ELBO in each step.
        num_restarts: Independent fits, of which the one with the best ELBO is kept.
        start_spread: Standard deviation of the random start around equal entries. Other latents
            with a normal prior start as far from its mean, in units of its standard deviation.
        num_draws: Permutations drawn from each restart.
    """

    learning_rate: float = 0.1
    num_steps: int = 500
    num_samples: int = 8
    num_restarts: int = 4
    start_spread: float = 0.1
    num_draws: int = 2000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if field.name != "start_spread":
                check = whole if isinstance(field.default, int) else positive_number
                check(field.name, getattr(self, field.name))
        if not 0 <= self.start_spread < np.inf:
            raise ValueError(f"start_spread must be at least 0, got {self.start_spread!r:.60}.")


class Objective(Protocol):
    """An estimate of the ELBO; hashable, since a compiled fit depends on it."""

    def __call__(
        self, params: Any, problem: RelaxedProblem, numbers: Any, fraction: jax.Array, key: Any, /
    ) -> jax.Array:
        """Return the ELBO of one problem; ``fraction`` in [0, 1] is the share of steps done."""

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

    def summary(self, b: int, num_samples: int) -> dict[str, Any]:
        """Return the fields of the `PathwiseResult` of problem b that the ascent decides."""
        return {
            "elbo_trace": self.elbo_trace[b],
            "best_restart": int(self.best[b]),
            "converged": bool(self.converged[b]),
            "num_evaluations": self.elbo_trace[b].size * num_samples,
        }


@dataclasses.dataclass(frozen=True, eq=False)
class PathwiseResult:
    """A fit by pathwise gradients, as draws of permutations.

    Attributes:
        draws: (num_draws, n) or (num_draws, S, n) of the best restart, -1 for unmatched rows.
        marginals: (restarts, n, m) or (restarts, S, n, m) frequencies of every restart.
        params: The parameters of each restart.
        elbo_trace: (restarts, steps) relaxed ELBOs, or None if nothing was optimised.
        best_restart: The restart with the highest ELBO at the end.
        converged: Whether its ELBO had stopped rising.
        num_evaluations: How often the log density was evaluated.
        vertex_distance: None, since draws are not rounded relaxed matrices.
        latents: Draws of other latents by name.
    """

    draws: np.ndarray
    marginals: np.ndarray
    params: np.ndarray
    elbo_trace: np.ndarray | None = None
    best_restart: int = 0
    converged: bool = True
    num_evaluations: int = 0
    vertex_distance: None = None
    latents: dict[str, Any] = dataclasses.field(default_factory=dict)


def pathwise_result(
    perms: np.ndarray, problem: RelaxedProblem | Problem, *, best_restart: int = 0, **fields: Any
) -> PathwiseResult:
    """Return the result of one problem from draws (restarts, num, S, n)."""
    columns = [(perms == j).mean(axis=1) for j in range(problem.shape[1])]
    marginals, draws = np.stack(columns, axis=-1), perms[best_restart]
    if problem.num_sites == 1:
        marginals, draws = marginals[:, 0], draws[:, 0]
    return PathwiseResult(draws, marginals, best_restart=best_restart, **fields)


def stack_problems(batch: Sequence[Prepared], method: str) -> RelaxedProblem:
    """Return problems of one shape with an axis in front, square and with pruned masks."""
    for prepared in batch:
        if prepared.problem.log_density is None or not prepared.problem.traceable:
            raise ValueError(
                f"model must have a log density that JAX can differentiate in X for method "
                f"{method!r}, got one that is defined on permutations only or not a JAX function; "
                "try method='mcmc'."
            )
    # All families that honour masks get the same square problem.
    return relax(stack([prepared.problem for prepared in batch]), "rounding")


def refuse_infinite(elbo_trace: np.ndarray, method: str) -> None:
    """Raise ``ValueError`` if the density is not finite on relaxed matrices."""
    if not np.isfinite(elbo_trace[:, -1]).any():
        raise ValueError(
            f"log_density must be finite on relaxed matrices for method {method!r}, got an ELBO of "
            f"{elbo_trace[0, -1]} from every restart."
        )


def ascend(
    objective: Objective,
    params: Any,
    problems: RelaxedProblem,
    numbers: Any,
    rng_key: jax.Array,
    *,
    num_steps: int,
    learning_rate: float,
    on_progress: StepProgress | None = None,
) -> Ascent:
    """Maximise an ELBO by Adam, whose learning rate falls to a tenth on half a cosine.

    Args:
        objective: The ELBO.
        params: Where to start; leaves (problems, restarts, ...).
        problems: Leaves with problems in front.
        numbers: What else the objective takes; shared by all fits.
        rng_key: A JAX random key.
        num_steps: How many steps, rounded up to whole chunks.
        learning_rate: The learning rate of the first step.
        on_progress: Called after every chunk with the mean over problems of the best ELBO.
    """
    count, length = equal_chunks(num_steps, _CHUNK)
    dtype = jax.dtypes.canonicalize_dtype(float)

    def advance(state: Any, start: int, stop: int) -> tuple[Any, tuple[jax.Array]]:
        fractions = (np.arange(start, stop) / (count * length)).astype(dtype)
        rate = np.asarray(learning_rate, dtype)
        chunk = start // length
        return _advance(objective, problems, numbers, state, rng_key, chunk, fractions, rate)

    state = params, _first_state(params)
    fit = optimise(advance, state, count * length, length, on_progress)
    trace, best = fit.elbo_trace, fit.best
    # A single chunk is compared with its own first half.
    settled = fit.settled if count > 1 else has_settled(trace[..., : max(1, length // 2)], trace)
    return Ascent(fit.state[0], trace, best, settled[np.arange(len(best)), best])


def _adam(learning_rate: Any) -> optax.GradientTransformation:
    # A draw at the edge of floating point must not end the fit.
    return optax.chain(optax.zero_nans(), optax.adam(learning_rate))


@light_jit
def _first_state(params: Any) -> Any:
    """Return the optimiser's states before the first step, (problems, restarts, ...)."""
    return jax.vmap(jax.vmap(_adam(0.0).init))(params)


@functools.partial(light_jit, static_argnums=0)
def _advance(
    objective: Objective,
    problems: RelaxedProblem,
    numbers: Any,
    states: Any,
    rng_key: jax.Array,
    chunk: int,
    fractions: jax.Array,
    learning_rate: jax.Array,
) -> tuple[Any, tuple[jax.Array]]:
    """Take a chunk of steps; return the states and the ELBOs (problems, restarts, steps)."""
    rate = optax.cosine_decay_schedule(learning_rate, 1, alpha=0.1)
    fits = jax.tree.leaves(states)[0].shape[:2]
    keys = jax.random.split(jax.random.fold_in(rng_key, chunk), fits)

    def one(problem: RelaxedProblem, state: Any, key: jax.Array) -> tuple[Any, tuple[jax.Array]]:
        def step(state: Any, inputs: tuple[jax.Array, jax.Array]) -> tuple[Any, tuple[jax.Array]]:
            (params, adam), (fraction, key) = state, inputs

            def loss(params: Any) -> jax.Array:
                return -objective(params, problem, numbers, fraction, key)

            value, slope = jax.value_and_grad(loss)(params)
            change, adam = _adam(rate(fraction)).update(slope, adam, params)
            return (optax.apply_updates(params, change), adam), (-value,)

        return jax.lax.scan(step, state, (fractions, jax.random.split(key, len(fractions))))

    return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)))(problems, states, keys)
