r"""Variational inference with Gumbel-Sinkhorn matrices (Mena et al. 2018).

.. math:: X = \mathrm{Sinkhorn}((\log\alpha + G) / \tau), \qquad G_{ij} \sim \mathrm{Gumbel}(0, 1)

The density of X is not known. The authors compare the *noise* instead: the divergence of
:math:`(\log\alpha + G)/\tau` from :math:`G/\tau_0` is at least that of the matrices made of them,
and with :math:`r = \tau_0/\tau` each entry adds

.. math:: \mathrm{KL} = -\log r + \gamma (r - 1) + r \log\alpha_{ij}
          + \Gamma(1 + r)\, e^{-r \log\alpha_{ij}} - 1.

Permutations are drawn in the limit of zero temperature, the *Gumbel-Matching* distribution:
:math:`\arg\max_P \langle P, \log\alpha + G \rangle`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from permvi import assignment, transforms
from permvi.inference.method import (
    Context,
    Method,
    MethodInfo,
    StepProgress,
    alike,
    option_names,
    stack,
)
from permvi.inference.pathwise import PathwiseOptions, ascend
from permvi.inference.vi.method import posterior_of
from permvi.inference.vi.optimisers import exponential
from permvi.inference.vi.relaxed_problem import RelaxedProblem, relax
from permvi.posterior import Posterior
from permvi.problem.prepare import Prepared


@dataclasses.dataclass(frozen=True, kw_only=True)
class GumbelSinkhornOptions(PathwiseOptions):
    """How to fit; the other options are those of `permvi.inference.pathwise.PathwiseOptions`.

    The default temperature did best of 1/2, 1 and 2 on 80 matching problems of 6 points.

    Attributes:
        temperature: The temperature at the end of the fit.
        temperature_start: Where it starts; it falls exponentially over the first half of the steps.
        prior_temperature: The temperature of the prior's noise.
        sinkhorn_steps: Normalisations of rows and columns.
    """

    temperature: float = 2.0
    temperature_start: float = 2.0
    prior_temperature: float = 1.0
    sinkhorn_steps: int = 20


class _Numbers(NamedTuple):
    """What a compiled fit takes as input; other values compile nothing."""

    temperature_start: jax.Array
    temperature: jax.Array
    prior_temperature: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class PathwiseResult:
    """A fit by pathwise gradients, as draws of permutations.

    Attributes:
        draws: (num_draws, n) or (num_draws, S, n) of the best restart, -1 for rows left over.
        marginals: (restarts, n, m) or (restarts, S, n, m) frequencies of every restart.
        elbo_trace: (restarts, steps) relaxed ELBOs, or None where nothing was optimised.
        best_restart: The restart with the highest ELBO at the end.
        converged: Whether its ELBO had stopped rising.
        num_evaluations: How often the log density was evaluated.
        params: The parameters of each restart.
        vertex_distance: None: draws are not roundings of relaxed matrices.
        latents: None of them.
    """

    draws: np.ndarray
    marginals: np.ndarray
    elbo_trace: np.ndarray | None
    best_restart: int
    converged: bool
    num_evaluations: int
    params: np.ndarray
    vertex_distance: None = None
    latents: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _RelaxedElbo:
    """The relaxed ELBO with the divergence of the noise."""

    num_samples: int
    sinkhorn_steps: int

    def __call__(
        self,
        log_alpha: jax.Array,
        problem: RelaxedProblem,
        numbers: _Numbers,
        fraction: jax.Array,
        key: jax.Array,
    ) -> jax.Array:
        tau = exponential(
            jnp.minimum(2 * fraction, 1.0), numbers.temperature_start, numbers.temperature
        )
        noise = jax.random.gumbel(key, (self.num_samples, *log_alpha.shape), log_alpha.dtype)
        X = transforms.sinkhorn((log_alpha + noise) / tau, self.sinkhorn_steps, problem.mask)
        values = jax.vmap(problem.value)(X)
        divergence = noise_divergence(log_alpha, tau, numbers.prior_temperature)
        if problem.mask is not None:
            divergence = jnp.where(problem.mask, divergence, 0.0)
        return jnp.mean(values) - jnp.sum(divergence)


def noise_divergence(log_alpha: jax.Array, tau: Any, prior_tau: Any) -> jax.Array:
    """KL from ``G / prior_tau`` to ``(log_alpha + G) / tau`` for Gumbel noise G, elementwise."""
    r = jnp.asarray(prior_tau / tau)
    grown = jnp.exp(gammaln(1 + r) - r * log_alpha)
    return -jnp.log(r) + np.euler_gamma * (r - 1) + r * log_alpha + grown - 1


def fit_gumbel_sinkhorn(
    problems: RelaxedProblem,
    rng_key: jax.Array,
    options: GumbelSinkhornOptions | None = None,
    on_progress: StepProgress | None = None,
) -> list[PathwiseResult]:
    """Fit problems of one shape at once and draw permutations.

    Args:
        problems: Made by `permvi.inference.vi.relaxed_problem.relax`, with an axis over problems in
            front of all leaves. Other latents are not looked at.
        rng_key: A JAX random key.
        options: Settings.
        on_progress: Called as ``on_progress(step, total, elbo)``.

    Returns:
        One result for each problem.
    """
    options = options or GumbelSinkhornOptions()
    key_start, key_fit, key_draw = jax.random.split(rng_key, 3)
    num_problems = jax.tree.leaves(problems)[0].shape[0]
    size = problems.size
    shape = (num_problems, options.num_restarts, problems.num_sites, size, size)
    ascent = ascend(
        _RelaxedElbo(options.num_samples, options.sinkhorn_steps),
        options.start_spread * jax.random.normal(key_start, shape),
        problems,
        _Numbers(*(jnp.asarray(getattr(options, name), float) for name in _Numbers._fields)),
        key_fit,
        num_steps=options.num_steps,
        learning_rate=options.learning_rate,
        on_progress=on_progress,
    )
    mask = None if problems.mask is None else np.asarray(problems.mask)
    results = []
    for b in range(num_problems):
        log_alpha = np.asarray(ascent.params[b])
        key = jax.random.fold_in(key_draw, b)
        perms = draw_matchings(
            log_alpha, key, options.num_draws, None if mask is None else mask[b], problems.shape
        )
        results.append(
            pathwise_result(
                perms,
                problems,
                elbo_trace=ascent.elbo_trace[b],
                best_restart=int(ascent.best[b]),
                converged=bool(ascent.converged[b]),
                num_evaluations=ascent.elbo_trace[b].size * options.num_samples,
                params=log_alpha,
            )
        )
    return results


def draw_matchings(
    log_alpha: np.ndarray,
    rng_key: jax.Array,
    num: int,
    mask: np.ndarray | None,
    shape: tuple[int, int],
) -> np.ndarray:
    """Draws (..., num, S, n) of the Gumbel-Matching distribution of (..., S, N, N) parameters.

    Args:
        log_alpha: The parameters of squares of size N.
        rng_key: A JAX random key.
        num: How many.
        mask: (N, N) or (S, N, N), True where allowed, or None.
        shape: (n, m).
    """
    fits = log_alpha.shape[:-3]
    table = log_alpha.shape[-3:]
    noise = np.asarray(jax.random.gumbel(rng_key, (*fits, num, *table)))
    perturbed = log_alpha[..., None, :, :, :] + noise
    n, m = shape
    perms = np.asarray(assignment.solve(perturbed, mask))[..., :n]
    return np.where(perms < m, perms, -1)


def pathwise_result(perms: np.ndarray, problem: RelaxedProblem, **fields: Any) -> PathwiseResult:
    """The result of one problem from draws (restarts, num, S, n)."""
    columns = [(perms == j).mean(axis=1) for j in range(problem.shape[1])]
    marginals, draws = np.stack(columns, axis=-1), perms[fields["best_restart"]]
    if problem.num_sites == 1:
        marginals, draws = marginals[:, 0], draws[:, 0]
    return PathwiseResult(draws=draws, marginals=marginals, **fields)


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem."""
    return _fit([prepared], context)[0]


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if their shapes differ."""
    return _fit(batch, context) if alike([prepared.problem for prepared in batch]) else None


def _fit(batch: Sequence[Prepared], context: Context) -> list[Posterior]:
    options = GumbelSinkhornOptions(**context.options)
    problems = stack_problems(batch, context.method)
    results: Any = fit_gumbel_sinkhorn(
        problems,
        context.rng_key,
        options,
        context.step,
    )
    for result in results:
        refuse_infinite(result.elbo_trace, context.method)
    return [posterior_of(prepared, result) for prepared, result in zip(batch, results, strict=True)]


def stack_problems(batch: Sequence[Prepared], method: str) -> RelaxedProblem:
    """Problems of one shape with an axis in front, squared and with pruned masks."""
    for prepared in batch:
        if prepared.problem.log_density is None or not prepared.problem.traceable:
            raise ValueError(
                f"model must have a log density that JAX can differentiate in X for method "
                f"{method!r}, got one that is only known on permutations or is no JAX function; "
                "try method='mcmc'."
            )
    # Any family that takes masks: they all see the same square problem.
    return relax(stack([prepared.problem for prepared in batch]), "rounding")


def refuse_infinite(elbo_trace: np.ndarray, method: str) -> None:
    """For densities that are not finite on relaxed matrices."""
    if not np.isfinite(elbo_trace[:, -1]).any():
        raise ValueError(
            f"log_density must be finite on relaxed matrices for method {method!r}, got an ELBO of "
            f"{elbo_trace[0, -1]} from every restart."
        )


METHODS = {
    "gumbel_sinkhorn": Method(
        MethodInfo(
            name="gumbel_sinkhorn",
            needs="a JAX density of relaxed matrices",
            gives="draws, a bound on the evidence",
            masks=True,
            partial=True,
            cost="O(n^2) per step and sample",
            reference="Mena et al. 2018",
        ),
        options=option_names(GumbelSinkhornOptions),
        run=run,
        run_many=run_many,
    ),
}
