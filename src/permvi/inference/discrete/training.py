r"""Fitting a family to a log density that need not be differentiable.

The exact discrete ELBO, :math:`E_q[\beta f(P) - \log q(P)]`, is maximised with score-function
gradients :math:`\sum_s c_s \nabla \log q(P_s)` and a leave-one-out baseline (Kool et al. 2019):
:math:`c_s = (r_s - \bar r) / (S - 1)` with :math:`r = \beta f - \log q`. That loses modes, so the
second part of the training of a mixture minimises the inclusive divergence KL(p || q) instead
(reweighted wake-sleep; Bornschein and Bengio 2015), :math:`c = \text{softmax}(r) - 1/S`.
:math:`\beta` rises from a value at which the target is nearly flat.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from permvi._programmes import jit, light_jit
from permvi.inference.discrete.family import Family, draw, log_prob
from permvi.inference.method import StepProgress
from permvi.inference.optimise import host_scan, optimise
from permvi.problem.evaluation import Evaluate, log_density
from permvi.problem.problem import Problem

# Steps between two reports of progress.
_CHUNK = 50
# An impossible matching counts as this many nats below the worst possible one of its step.
_IMPOSSIBLE = 10.0


@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of the training, all of them static.

    Attributes:
        num_steps: Steps.
        num_samples: Draws per step, at least 2.
        learning_rate: The learning rate of Adam, which falls to zero on half a cosine.
        inclusive_from: The share of the steps after which the inclusive divergence is minimised.
        tempered_until: The share of the steps after which beta is one.
    """

    num_steps: int = 400
    num_samples: int = 16
    learning_rate: float = 0.05
    inclusive_from: float = 1.0
    tempered_until: float = 0.0


class Trained(NamedTuple):
    """A trained family, its untempered ELBOs (steps,), and all draws with their log densities."""

    family: Family
    elbo_trace: jax.Array
    choices: jax.Array  # (steps * samples, S, n)
    log_densities: jax.Array  # (steps * samples,)


def _optax() -> Any:
    """Return optax, which families without training need not load."""
    import optax

    return optax


@functools.cache
def _optimiser() -> Any:
    return _optax().scale_by_adam(b1=0.9, b2=0.99)


class _Carry(NamedTuple):
    family: Family
    optimiser: Any
    step: jax.Array


def train(
    problem: Problem,
    family: Family,
    rng_key: jax.Array,
    training: Training,
    beta_start: Any,
    on_progress: StepProgress | None = None,
    evaluate: Evaluate | None = None,
) -> Trained:
    """Fit a family to a problem, starting from the family and at ``beta_start`` if tempered.

    ``evaluate`` is the density on the host, for problems that are not traceable.
    """
    if evaluate is None or training.num_steps == 0:
        problems, families, betas = jax.tree.map(
            lambda leaf: np.asarray(leaf)[None], (problem, family, beta_start)
        )
        if training.num_steps == 0:
            trained = _untrained(families)
        else:
            trained = train_batch(problems, families, rng_key[None], training, betas, on_progress)
        # On the host, where it costs nothing to take a problem out of a batch.
        return jax.tree.map(lambda leaf: leaf[0], jax.device_get(trained))
    keys = jax.random.split(rng_key, training.num_steps)

    def density(choices: jax.Array) -> np.ndarray:
        return evaluate(np.asarray(choices))

    def advance(carry: _Carry, start: int, stop: int) -> Any:
        return _steps(host_scan, density, carry, keys[start:stop], training, beta_start)

    carry = _start(family)
    fit = optimise(advance, carry, training.num_steps, _CHUNK, on_progress, report_elbo=False)
    outputs = jax.tree.map(lambda *parts: jnp.concatenate(parts), *fit.outputs)
    return _collect(fit.state.family, outputs)


def train_batch(
    problems: Problem,
    families: Family,
    rng_keys: jax.Array,
    training: Training,
    beta_start: jax.Array,
    on_progress: StepProgress | None = None,
) -> Trained:
    """`train` many problems of one shape at once: all leaves have one more axis in front."""
    if training.num_steps == 0:
        return _untrained(families)
    carry, keys = _start_batch(families, rng_keys, training.num_steps)

    def advance(carry: _Carry, start: int, stop: int) -> Any:
        del stop
        return _advance(problems, carry, keys[start // _CHUNK], training, beta_start)

    fit = optimise(advance, carry, training.num_steps, _CHUNK, on_progress, report_elbo=False)
    outputs = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *fit.outputs)
    return _collect_batch(fit.state.family, outputs)


def _untrained(families: Family) -> Trained:
    """Return stacked families as they are; made on the host, where nothing is compiled for it."""
    families = jax.tree.map(jax.device_put, families)
    n, S = families.structure.shape[0], families.structure.num_sites
    dtype, num = families.log_weights.dtype, len(families.log_weights)
    nothing: Any = np.zeros((num, 0), dtype)
    choices: Any = np.zeros((num, 0, S, n), np.int32)
    return Trained(families, nothing, choices, nothing)


def _collect(family: Family, outputs: tuple[jax.Array, ...]) -> Trained:
    elbo, choices, values = outputs
    return Trained(family, elbo, choices.reshape(-1, *choices.shape[2:]), values.ravel())


def _start(family: Family) -> _Carry:
    return _Carry(family, _optimiser().init(_trainable(family)), jnp.zeros((), jnp.int32))


@functools.partial(light_jit, static_argnums=2)
def _start_batch(
    families: Family, rng_keys: jax.Array, num_steps: int
) -> tuple[_Carry, list[jax.Array]]:
    """Return where training starts, and the keys (problems, steps) of each chunk of steps."""
    keys = jax.vmap(lambda key: jax.random.split(key, num_steps))(rng_keys)
    chunks = [keys[:, start : start + _CHUNK] for start in range(0, num_steps, _CHUNK)]
    return jax.vmap(_start)(families), chunks


_collect_batch = light_jit(jax.vmap(_collect))


def _trainable(family: Family) -> Any:
    return family.params, family.log_weights


@functools.partial(light_jit, static_argnums=3)
def _advance(
    problems: Problem, carry: _Carry, keys: jax.Array, training: Training, beta_start: jax.Array
) -> tuple[_Carry, tuple[jax.Array, ...]]:
    """Take a step for each key (problems, steps), all problems at once."""

    def one(problem: Problem, carry: _Carry, keys: jax.Array, beta_start: jax.Array) -> Any:
        density = functools.partial(log_density, problem)
        return _steps(lax.scan, density, carry, keys, training, beta_start)

    return jax.vmap(one)(problems, carry, keys, beta_start)


def _steps(
    scan: Any, density: Any, carry: _Carry, keys: jax.Array, training: Training, beta_start: Any
) -> Any:
    """Take a step for each key (steps,); return ELBOs, choices and log densities by step."""

    def step(carry: _Carry, key: jax.Array) -> tuple[_Carry, tuple[jax.Array, ...]]:
        choices = _draw(carry.family, key, training.num_samples)
        values = jnp.asarray(density(choices), carry.family.log_weights.dtype)
        carry, elbo = _update(carry, choices, values, training, beta_start)
        return carry, (elbo, choices.astype(jnp.int32), values)

    return scan(step, carry, keys)


@functools.partial(jit, static_argnums=2)
def _draw(family: Family, rng_key: jax.Array, num: int) -> jax.Array:
    return jax.vmap(lambda key: draw(family, key))(jax.random.split(rng_key, num))


@functools.partial(jit, static_argnums=3)
def _update(
    carry: _Carry, choices: jax.Array, values: jax.Array, training: Training, beta_start: Any
) -> tuple[_Carry, jax.Array]:
    """One step of Adam along the score-function gradient."""
    family, optimiser, step = carry
    num = training.num_samples

    def log_q(trainable: Any) -> jax.Array:
        moved = dataclasses.replace(family, params=trainable[0], log_weights=trainable[1])
        return jax.vmap(lambda one: log_prob(moved, one))(choices)

    log_probs, pull_back = jax.vjp(log_q, _trainable(family))
    possible = values > -jnp.inf
    worst = jnp.min(jnp.where(possible, values, jnp.inf))
    finite = jnp.where(possible, values, jnp.where(jnp.isfinite(worst), worst, 0.0) - _IMPOSSIBLE)
    part = step / training.num_steps
    r = _beta(part, training, beta_start) * finite - log_probs
    coefficients = jnp.where(
        part < training.inclusive_from, (r - r.mean()) / (num - 1), jax.nn.softmax(r) - 1 / num
    )
    (gradient,) = pull_back(coefficients)
    direction, optimiser = _optimiser().update(gradient, optimiser)
    rate = _optax().cosine_decay_schedule(training.learning_rate, training.num_steps)(step)
    params, log_weights = jax.tree.map(
        lambda value, slope: (value + rate * slope).astype(value.dtype),
        _trainable(family),
        direction,
    )
    family = dataclasses.replace(family, params=params, log_weights=log_weights)
    return _Carry(family, optimiser, step + 1), jnp.mean(finite - log_probs)


def _beta(part: jax.Array, training: Training, beta_start: Any) -> Any:
    """beta_start^(1 - part / tempered_until), which is one from ``tempered_until`` on."""
    if training.tempered_until == 0:
        return 1.0
    return jnp.minimum(1.0, beta_start ** (1 - part / training.tempered_until))
