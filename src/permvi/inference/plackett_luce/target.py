r"""A Plackett-Luce model fitted to a density over matchings.

The exact discrete ELBO :math:`E_q[\log p(\sigma) - \log q(\sigma)]` is maximised with
score-function gradients and a leave-one-out baseline (Williams 1992; Kool et al. 2019):

.. math:: \frac{1}{S - 1} \sum_s (r_s - \bar r) \nabla \log q(\sigma_s), \qquad
          r = \log p - \log q.

The density need not be differentiable. It must be positive everywhere, as the model is.
"""

import dataclasses
import functools
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from permvi._checks import one_of, positive_number, whole
from permvi._programmes import jit, light_jit
from permvi.distributions import PlackettLuce
from permvi.inference.method import StepProgress
from permvi.inference.optimise import host_scan, optimise
from permvi.problem.evaluation import Evaluate, log_density
from permvi.problem.problem import Problem

Items = Literal["rows", "columns"]

# Steps between two reports of progress.
_CHUNK = 50
# The share of the steps at the end whose ELBOs are averaged.
_TAIL = 0.1


@dataclasses.dataclass(frozen=True)
class TargetOptions:
    """How to fit.

    Attributes:
        items: Which side has worths: "rows" (columns are places), "columns" (rows are places), or
            "auto": the larger side, whose surplus stays unmatched. If both are equal, both are
            tried and the fit of larger ELBO is kept.
        num_steps: Steps.
        num_samples: Draws per step, at least 2.
        learning_rate: The learning rate of Adam, which falls to zero on half a cosine.
    """

    items: Literal["auto", "rows", "columns"] = "auto"
    num_steps: int = 800
    num_samples: int = 16
    learning_rate: float = 0.05

    def __post_init__(self) -> None:
        one_of("items", self.items, ("auto", *get_args(Items)))
        whole("num_steps", self.num_steps)
        whole("num_samples", self.num_samples, least=2)
        positive_number("learning_rate", self.learning_rate)


class TargetFit(NamedTuple):
    """A Plackett-Luce model fitted to a density.

    Attributes:
        log_worths: (n,) or (m,) the log worths, with mean zero.
        items: The side that has worths.
        elbo: The discrete ELBO at the end, up to Monte Carlo error a bound on the log evidence.
        elbo_trace: (steps,) means over the draws of each step.
        num_evaluations: How many densities were evaluated.
    """

    log_worths: np.ndarray
    items: Items
    elbo: float
    elbo_trace: np.ndarray
    num_evaluations: int


class _Fit(NamedTuple):
    log_worths: jax.Array
    optimiser: Any


def fit_target(
    problem: Problem,
    rng_key: jax.Array,
    options: TargetOptions | None = None,
    evaluate: Evaluate | None = None,
    on_progress: StepProgress | None = None,
) -> TargetFit:
    """Fit a Plackett-Luce model to a density by maximising the ELBO.

    It costs ``num_steps * num_samples`` log densities for each side that is tried.

    Args:
        problem: One site, without mask, unmatched items beyond a surplus and other latents.
        rng_key: A JAX random key.
        options: Settings.
        evaluate: The density on the host, for problems that are not traceable.
        on_progress: Called as ``on_progress(step, num_steps)``.

    Raises:
        ValueError: ``items`` names the smaller side, or the density is zero somewhere.
    """
    options = options or TargetOptions()
    n, m = problem.shape
    sizes: dict[Items, int] = {"rows": n, "columns": m}
    possible = [side for side, size in sizes.items() if size == max(n, m)]
    if options.items != "auto":
        if options.items not in possible:
            raise ValueError(
                f"items must be {possible[0]!r}, the larger side, for {n} rows and {m} columns, "
                f"got {options.items!r}."
            )
        possible = [options.items]
    fits = [_fit(problem, items, rng_key, options, evaluate, on_progress) for items in possible]
    spent = sum(fit.num_evaluations for fit in fits)
    return max(fits, key=lambda fit: fit.elbo)._replace(num_evaluations=spent)


def as_choices(values: jax.Array, items: Items, shape: tuple[int, int]) -> jax.Array:
    """Return orderings (num, k) of items as choices (num, 1, n) of rows, m for unmatched."""
    n, m = shape
    if items == "columns":
        return values[:, None, :]
    places = jnp.full((len(values), n), m, values.dtype)
    rows = jnp.arange(len(values))[:, None]
    return places.at[rows, values].set(jnp.arange(m, dtype=values.dtype))[:, None, :]


def _fit(
    problem: Problem,
    items: Items,
    rng_key: jax.Array,
    options: TargetOptions,
    evaluate: Evaluate | None,
    on_progress: StepProgress | None,
) -> TargetFit:
    log_worths = jnp.zeros(max(problem.shape))
    keys = jax.random.split(rng_key, options.num_steps)
    schedule = optax.cosine_decay_schedule(options.learning_rate, options.num_steps)
    rates = schedule(jnp.arange(options.num_steps)).astype(log_worths.dtype)

    def advance(state: _Fit, start: int, stop: int) -> Any:
        chunk = keys[start:stop], rates[start:stop]
        if evaluate is None:
            return _advance(problem, state, chunk, items, options.num_samples)
        density = lambda choices: evaluate(np.asarray(choices))  # noqa: E731
        inputs = zip(*chunk, strict=True)
        return _steps(host_scan, density, problem.shape, state, inputs, items, options.num_samples)

    state = _Fit(log_worths, _OPTIMISER.init(log_worths))
    fit = optimise(advance, state, options.num_steps, _CHUNK, on_progress, report_elbo=False)
    if min(float(lowest.min()) for _, lowest in fit.outputs) == -np.inf:
        raise ValueError(
            "the log density must be finite for all matchings of a Plackett-Luce fit, got -inf for "
            "some; try method='sequential'."
        )
    trace = np.asarray(fit.elbo_trace, np.float64)
    worths = np.asarray(fit.state.log_worths, np.float64)
    tail = trace[-max(1, int(_TAIL * len(trace))) :]
    spent = options.num_steps * options.num_samples
    return TargetFit(worths - worths.mean(), items, float(tail.mean()), trace, spent)


_OPTIMISER = optax.scale_by_adam(b1=0.9, b2=0.99)


@functools.partial(light_jit, static_argnums=(3, 4))
def _advance(problem: Problem, state: _Fit, inputs: Any, items: Items, num_samples: int) -> Any:
    density = functools.partial(log_density, problem)
    return _steps(lax.scan, density, problem.shape, state, inputs, items, num_samples)


def _steps(
    scan: Any,
    density: Any,
    shape: tuple[int, int],
    state: _Fit,
    inputs: Any,
    items: Items,
    num_samples: int,
) -> Any:
    """Take a step for each key and rate; return ELBOs and the least log densities by step."""

    def step(state: _Fit, inputs: tuple[jax.Array, jax.Array]) -> tuple[_Fit, Any]:
        key, rate = inputs
        values = _draw(state, key, min(shape), num_samples)
        found = density(as_choices(values, items, shape))
        log_p = jnp.asarray(found, state.log_worths.dtype)
        state, elbo = _update(state, values, log_p, rate)
        return state, (elbo, log_p.min())

    return scan(step, state, inputs)


@functools.partial(jit, static_argnums=(2, 3))
def _draw(state: _Fit, rng_key: jax.Array, num_places: int, num_samples: int) -> jax.Array:
    return PlackettLuce(state.log_worths, num_places).sample(rng_key, (num_samples,))


@jit
def _update(
    state: _Fit, values: jax.Array, log_p: jax.Array, rate: jax.Array
) -> tuple[_Fit, jax.Array]:
    """Take a step of Adam along the score-function gradient; return the ELBO of its draws too."""

    def log_q(log_worths: jax.Array) -> jax.Array:
        return PlackettLuce(log_worths, values.shape[1]).log_prob(values)

    log_probs, pull_back = jax.vjp(log_q, state.log_worths)
    r = log_p - log_probs
    (ascent,) = pull_back((r - r.mean()) / (len(values) - 1))
    direction, optimiser = _OPTIMISER.update(ascent, state.optimiser)
    return _Fit(state.log_worths + rate * direction, optimiser), r.mean()
