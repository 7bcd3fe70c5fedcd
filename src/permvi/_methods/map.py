"""Method "map": the most probable matching, and nothing about how probable the others are.

Linear models need one assignment, in which every item has a label of its own for being unmatched
where it may be that. Models with the hook ``quadratic`` whose items are all matched are searched by
Frank-Wolfe and tabu search on their matrices, without the model itself; all others by climbing on
evaluations of their density.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from permvi._methods import refusals, shared_dynamics
from permvi._methods.audit import audited
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._task import Task
from permvi.inference.map import (
    MapOptions,
    MapResult,
    Quadratic,
    solve_density,
    solve_linear,
    solve_linear_partial,
    solve_quadratic,
)
from permvi.inference.partial import grounded, is_partial
from permvi.models.protocol import optional
from permvi.posterior import Diagnostics, Latent, Posterior

OPTIONS = (
    *(field.name for field in dataclasses.fields(MapOptions)),
    "start",
    shared_dynamics.OBSERVE,
)

_ADVICE = "try method='sequential' or 'mcmc'"
# Of models with shared dynamics, where a restart takes seconds.
_RESTARTS_ON_DYNAMICS = 4
# Log densities this close, relative to their size, are one and the same.
_SAME = 1e-6


def run(task: Task, context: Context) -> Posterior:
    """The best matching found, as a posterior with all its mass there.

    Its evidence is that matching's density, a bound from below. Evaluations are log densities,
    gradients and swap differences, each counting one.

    Options are those of `MapOptions`, and ``start``: (n,), or (k, n) for several, matchings to
    start from as well; with sites (S, n) or (k, S, n).

    Models with shared dynamics are searched together with their weights, see `alternate`, with 4
    restarts by default; ``max_iter`` is the most alternations, and ``max_evaluations`` ends them.
    The evidence is that of the matching, the weights integrated out. Their option ``observe`` is a
    function that is called with the best permutations, (1, n) or (1, J, n), and weights, (1, E),
    after every alternation.

    Raises:
        ValueError: The model has other latents, or no finite density was found.
    """
    if shared_dynamics.has_dynamics(task):
        return _with_weights(task, context)
    refusals.refuse_latents(task, context.method)
    shared_dynamics.refuse_observer(context.options)
    settings = dict(context.options)
    starts = _starts(task, settings.pop("start", None))
    result = _search(task, MapOptions(**settings), np.random.default_rng(context.seed), starts)
    value = log_densities(task.problem, result.perm[None])[0]
    if value == -np.inf:
        raise ValueError(
            "the log density must be finite for some matching, got -inf for all of "
            f"{result.num_evaluations + 1} tried."
        )
    alone = _is_the_only_one(task)
    posterior = Posterior.from_draws(
        task.restore(result.perm[None]),
        shape=task.model.shape,
        log_evidence=value,
        log_evidence_kind="exact" if alone else "bound",
        diagnostics=_diagnostics(result, alone=alone),
        num_evaluations=result.num_evaluations + 1,
    )
    if alone:
        return posterior
    # What was asked for is the matching: the verdict on it keeps to what is left of a given budget.
    budget = settings.get("max_evaluations")
    left = None if budget is None else max(0, budget - result.num_evaluations - 2)
    return audited(task, posterior, result.perm, _ADVICE, left)


def _with_weights(task: Task, context: Context) -> Posterior:
    """The best permutations and weights together, the weights with their spread given the rest."""
    from permvi.inference.collapsed.edges import posterior_beliefs
    from permvi.inference.collapsed.state import State
    from permvi.inference.dynamics import alternate

    settings = {"num_restarts": _RESTARTS_ON_DYNAMICS, **context.options}
    observe = shared_dynamics.observer(task, settings.pop(shared_dynamics.OBSERVE, None))
    given = _starts(task, settings.pop("start", None))
    problem, scales = shared_dynamics.dynamics_of(task)
    starts = None if given is None else shared_dynamics.inner(problem.mask, task.restore(given))
    result = alternate(
        problem,
        scales,
        np.random.default_rng(context.seed),
        MapOptions(**settings),
        starts=starts,
        observe=observe,
    ).found
    state = State(problem, result.perm, scales)
    beliefs, at = posterior_beliefs(problem, *state.statistics, scales), np.nonzero(problem.support)
    alone = _is_the_only_one(task)
    return Posterior.from_draws(
        shared_dynamics.outer(task, result.perm)[None],
        shape=task.model.shape,
        latents={shared_dynamics.LATENT: Latent(beliefs.mean[at], np.sqrt(beliefs.variance[at]))},
        log_evidence=state.log_evidence,
        log_evidence_kind="exact" if alone else "bound",
        diagnostics=_diagnostics(result, alone=alone),
        num_evaluations=result.num_evaluations + 1,
    )


def _search(
    task: Task, options: MapOptions, rng: np.random.Generator, starts: np.ndarray | None
) -> MapResult:
    problem = task.problem
    mask = None if problem.mask is None else np.asarray(problem.mask)
    if problem.scores is not None and is_partial(problem):
        return solve_linear_partial(grounded(problem), float(problem.constant))
    if problem.scores is not None:
        scores = refusals.linear_scores(task, "map")
        return solve_linear(scores, mask, float(problem.constant))
    # Where items may stay unmatched there is more to a density than its quadratic form.
    quadratic = None if is_partial(problem) else quadratic_of(task)
    if quadratic is not None:
        return solve_quadratic(quadratic, mask, options, rng, starts)
    return solve_density(problem, lambda perms: log_densities(problem, perms), options, rng, starts)


def quadratic_of(task: Task) -> Quadratic | None:
    """The quadratic form of the reduced problem, prior scores included, if the model has one."""
    found = optional(task.model, "quadratic")
    if found is None or task.problem.num_sites > 1:
        return None
    A, B, C = (np.asarray(part, dtype=np.float64) for part in found)
    prior = optional(task.model, "prior_scores")
    whole = Quadratic(A, B, C if prior is None else C + np.asarray(prior))
    reduction = task.reduction
    if reduction is None:
        return whole
    return whole.given(reduction.settled, reduction.free_rows, reduction.free_cols)


def _starts(task: Task, start: Any) -> np.ndarray | None:
    """Given matchings as (k, n') or (k, S, n') matchings of the reduced problem."""
    if start is None:
        return None
    perms, (n, m) = np.asarray(start), task.model.shape
    event = (n,) if task.model.num_sites == 1 else (task.model.num_sites, n)
    perms = perms[None] if perms.shape == event else perms
    if perms.dtype.kind not in "iu" or perms.shape[1:] != event or not len(perms):
        raise ValueError(
            f"start must be integers of shape {event}, or several of them, got dtype "
            f"{perms.dtype} and shape {np.shape(start)}."
        )
    if (perms < -1).any() or (perms >= m).any():
        raise ValueError(f"start must hold columns 0 to {m - 1} or -1, got {perms.max()}.")
    if task.reduction is None:
        return perms
    inner, consistent = task.reduction.reduce(jnp.asarray(perms))
    if not consistent.all():
        raise ValueError("start must have the known pairs of the model, got others.")
    return np.asarray(inner, dtype=np.int64)


def _is_the_only_one(task: Task) -> bool:
    """Whether the (pruned) mask leaves a single matching."""
    problem = task.problem
    if is_partial(problem):
        return False
    if problem.mask is None:
        return problem.shape == (1, 1)
    pairs = np.asarray(problem.mask).sum(axis=(-2, -1))
    return bool((pairs == min(problem.shape)).all())


def _diagnostics(result: MapResult, *, alone: bool) -> Diagnostics:
    values = result.restart_values
    best = values.max()
    num_best = int((values >= best - _SAME * max(1.0, abs(best))).sum())
    reasons = ["a point estimate: it says nothing about how uncertain the matching is"]
    if alone:
        reasons = ["there is only one matching"]
    elif result.optimal:
        reasons.append("no matching is more probable than this one")
    else:
        reasons.append(f"{num_best} of {len(values)} restarts ended at the best value found")
    if not result.finished:
        reasons.append("the search ended before a local optimum: allow more evaluations")
    return Diagnostics(
        "trust" if alone else "check",
        tuple(reasons),
        converged=result.finished,
        extras={"restart_values": values, "num_best": np.array(num_best)},
    )
