"""Method "map": the most probable matching, without probabilities of the others.

Linear models need one assignment, in which an item that may stay unmatched has a label of its own
for that. Models with the hook ``quadratic`` whose items are all matched are searched by
Frank-Wolfe, tabu search and populations on their matrices; all others by hill climbing on
evaluations of their density. The verdict counts how many independent restarts ended at the best
value.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from permvi.inference.map import (
    MapOptions,
    MapResult,
    Quadratic,
    solve_density,
    solve_linear,
    solve_linear_partial,
    solve_quadratic,
)
from permvi.inference.map.result import num_best
from permvi.inference.method import Context, Method, MethodInfo
from permvi.inference.verdict.audit import audited
from permvi.posterior import Diagnostics, Posterior
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem
from permvi.problem.unmatched import LogWeights, grounded

_ADVICE = "try method='sequential' or 'mcmc'"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Return the best matching found, as a posterior with all its mass there.

    The evidence is that matching's density, a lower bound. Log densities, gradients and swap
    differences count as one evaluation each.

    Options are those of `MapOptions`, and ``start``: additional matchings to start from, (n,) or
    (k, n), with sites (S, n) or (k, S, n).

    Raises:
        ValueError: The model has other latents, or no finite density was found.
    """
    settings = dict(context.options)
    starts = starts_of(prepared, settings.pop("start", None))
    result = _search(prepared, MapOptions(**settings), np.random.default_rng(context.seed), starts)
    value = _log_density(prepared.problem, result.perm)
    if value == -np.inf:
        raise ValueError(
            "the log density must be finite for some matching, got -inf for all of "
            f"{result.num_evaluations + 1} tried."
        )
    alone = is_the_only_one(prepared)
    posterior = Posterior.from_draws(
        prepared.restore(result.perm[None]),
        shape=prepared.model.shape,
        log_evidence=value,
        log_evidence_kind="exact" if alone else "bound",
        diagnostics=search_diagnostics(result, alone=alone),
        num_evaluations=result.num_evaluations + 1,
    )
    if alone:
        return posterior
    # The verdict may use what the search has left of a given budget.
    budget = settings.get("max_evaluations")
    left = None if budget is None else max(0, budget - result.num_evaluations - 2)
    return _no_better_than_its_search(
        audited(prepared, posterior, result.perm, _ADVICE, left), result
    )


def _log_density(problem: Problem, perm: np.ndarray) -> float:
    """Return the log density of a matching, in float64 where it is a sum of scores."""
    if problem.scores is None:
        return float(log_densities(problem, perm[None])[0])
    tables = grounded(problem)
    sites = zip(tables, perm.reshape(len(tables), -1), strict=True)
    return float(problem.constant) + sum(float(LogWeights(table).of(one)) for table, one in sites)


def _no_better_than_its_search(posterior: Posterior, result: MapResult) -> Posterior:
    """Keep "trust" only if enough restarts agree on the best value, or a bound proves it."""
    found = posterior.diagnostics
    if found.verdict != "trust" or result.optimal or result.agreed:
        return posterior
    reason = (
        "too few restarts ended at the best value to tell that there is no better matching; try "
        "more num_restarts"
    )
    found = dataclasses.replace(found, verdict="check", reasons=(reason, *found.reasons))
    return dataclasses.replace(posterior, diagnostics=found)


def _search(
    prepared: Prepared, options: MapOptions, rng: np.random.Generator, starts: np.ndarray | None
) -> MapResult:
    problem = prepared.problem
    mask = None if problem.mask is None else np.asarray(problem.mask)
    if problem.scores is not None and problem.is_partial:
        return solve_linear_partial(grounded(problem), float(problem.constant))
    if problem.scores is not None:
        scores = prepared.problem.host_scores
        return solve_linear(scores, mask, float(problem.constant))
    # Where items may stay unmatched, the density is more than its quadratic form.
    quadratic = None if problem.is_partial else quadratic_of(prepared)
    if quadratic is not None:
        return solve_quadratic(quadratic, mask, options, rng, starts)
    return solve_density(problem, lambda perms: log_densities(problem, perms), options, rng, starts)


def quadratic_of(prepared: Prepared) -> Quadratic | None:
    """Return the quadratic form of the reduced problem with prior scores, if the model has one."""
    found = getattr(prepared.model, "quadratic", None)
    if found is None or prepared.problem.num_sites > 1:
        return None
    A, B, C = (np.asarray(part, dtype=np.float64) for part in found)
    prior = getattr(prepared.model, "prior_scores", None)
    whole = Quadratic(A, B, C if prior is None else C + np.asarray(prior))
    reduction = prepared.reduction
    if reduction is None:
        return whole
    return whole.given(reduction.settled, reduction.free_rows, reduction.free_cols)


def starts_of(prepared: Prepared, start: Any) -> np.ndarray | None:
    """Return given matchings as matchings (k, n') or (k, S, n') of the reduced problem."""
    if start is None:
        return None
    perms, (n, m) = np.asarray(start), prepared.model.shape
    event = (n,) if prepared.model.num_sites == 1 else (prepared.model.num_sites, n)
    perms = perms[None] if perms.shape == event else perms
    if perms.dtype.kind not in "iu" or perms.shape[1:] != event or not len(perms):
        raise ValueError(
            f"start must be integers of shape {event}, or several of them, got dtype "
            f"{perms.dtype} and shape {np.shape(start)}."
        )
    if (perms < -1).any() or (perms >= m).any():
        raise ValueError(f"start must hold columns 0 to {m - 1} or -1, got {perms.max()}.")
    if prepared.reduction is None:
        return perms
    inner, consistent = prepared.reduction.reduce(jnp.asarray(perms))
    if not consistent.all():
        raise ValueError("start must have the known pairs of the model, got others.")
    return np.asarray(inner, dtype=np.int64)


def is_the_only_one(prepared: Prepared) -> bool:
    """Return whether the (pruned) mask leaves a single matching."""
    problem = prepared.problem
    if problem.is_partial:
        return False
    if problem.mask is None:
        return problem.shape == (1, 1)
    pairs = np.asarray(problem.mask).sum(axis=(-2, -1))
    return bool((pairs == min(problem.shape)).all())


def search_diagnostics(result: MapResult, *, alone: bool) -> Diagnostics:
    """Say how the restarts ended; a point estimate is trusted only if it is the only matching."""
    values = result.restart_values
    best = values.max() if result.value is None else result.value
    count = num_best(values, best)
    reasons = ["a point estimate: it says nothing about how uncertain the matching is"]
    if alone:
        reasons = ["there is only one matching"]
    elif result.optimal:
        reasons.append("no matching is more probable than this one")
    else:
        reasons.append(f"{count} of {len(values)} restarts ended at the best value found")
    extras = {"restart_values": values, "num_best": np.array(count)}
    if np.isfinite(result.bound):
        gap = max(0.0, result.bound - best) / max(abs(best), np.finfo(float).tiny)
        extras |= {"upper_bound": np.array(result.bound), "relative_gap": np.array(gap)}
        if not (alone or result.optimal):
            reasons.append(
                f"no matching exceeds a log density of {result.bound:.6g} ({gap:.1%} more)"
            )
    if not result.finished:
        reasons.append("the search ended before a local optimum: allow more evaluations")
    return Diagnostics(
        "trust" if alone else "check",
        tuple(reasons),
        converged=result.finished,
        extras=extras,
    )


METHODS = {
    "map": Method(
        MethodInfo(
            name="map",
            needs="any density on permutations; best if linear or quadratic",
            gives="the most probable matching",
            masks=True,
            partial=True,
            cost="O(n^3) per step and restart",
            reference="Kuhn 1955; Vogelstein et al. 2015; Taillard 1991",
        ),
        options=(*(field.name for field in dataclasses.fields(MapOptions)), "start"),
        run=run,
    )
}
