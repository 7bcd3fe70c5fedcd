"""Method "mallows": a Mallows model around the best matching.

A baseline of the paper's matching study: its probabilities are exact and easy to draw from, but
depend on the data through the centre and one number only.
"""

import dataclasses
from typing import Any

import numpy as np

from permvi import assignment
from permvi._choices import one_of
from permvi._methods.audit import audited_draws
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.refusals import (
    refuse_latents,
    refuse_mask,
    refuse_partial,
    refuse_rectangular,
    refuse_sites,
)
from permvi._task import Task
from permvi.distributions._mallows_normalizers import DISTANCES
from permvi.inference.exact.problem import positive_int
from permvi.inference.mallows import fit_theta
from permvi.inference.map import solve_density
from permvi.posterior import Posterior
from permvi.posterior.mallows_law import MallowsLaw

OPTIONS = ("theta", "distance", "centre", "sampler", "num_draws", "num_steps")

_NUM_DRAWS = 2000
_ADVICE = "try method='sequential' or 'exact'"


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem; ``theta`` by the discrete ELBO unless it is given."""
    for refuse in (
        refuse_mask, refuse_partial, refuse_latents, refuse_sites, refuse_rectangular
    ):  # fmt: skip
        refuse(task, context.method)
    options = context.options
    distance: Any = one_of("distance", options.get("distance", "footrule"), DISTANCES)
    num_draws = positive_int("num_draws", options.get("num_draws", _NUM_DRAWS))
    n = task.problem.shape[0]
    num_steps = positive_int("num_steps", options.get("num_steps", 10 * n * n))
    centre, evaluations = _centre(task, context)
    theta, extras = options.get("theta"), {}
    if theta is None:
        found = fit_theta(
            lambda perms: log_densities(task.problem, perms), centre, distance, context.rng_key
        )
        theta, evaluations = found.theta, evaluations + found.num_evaluations
        extras["elbo"] = np.array(found.elbo)
    elif not (np.ndim(theta) == 0 and 0 <= theta < np.inf):
        raise ValueError(f"theta must be a finite number of at least 0, got {theta!r:.60}.")
    law = MallowsLaw(
        task.restore(centre),
        theta,
        distance,
        known=None if task.reduction is None else np.asarray(task.reduction.settled),
        sampler=options.get("sampler", "exact"),
        num_steps=num_steps,
    )
    draws = law.sample(num_draws, np.random.default_rng(context.seed))
    reduced = draws if task.reduction is None else _reduced(task, draws)
    extras["theta"] = np.array(theta)
    posterior = Posterior.from_draws(draws, shape=task.model.shape, num_evaluations=evaluations)
    posterior = audited_draws(task, posterior, reduced, _ADVICE, {"extras": extras})
    return dataclasses.replace(posterior, law=law)


def _centre(task: Task, context: Context) -> tuple[np.ndarray, int]:
    """The centre in the reduced problem, and how many densities it took."""
    given = context.options.get("centre")
    if given is not None:
        centre = np.asarray(given)
        if centre.shape != (task.model.shape[0],) or centre.dtype.kind not in "iu":
            raise ValueError(
                f"centre must be {task.model.shape[0]} integers, got dtype {centre.dtype} and "
                f"shape {centre.shape}."
            )
        if sorted(centre.tolist()) != list(range(len(centre))):
            raise ValueError(f"centre must be a permutation, got {centre.tolist()!r:.60}.")
        return (centre if task.reduction is None else _reduced(task, centre[None])[0]), 0
    if task.problem.scores is not None:
        return np.asarray(assignment.solve(np.asarray(task.problem.scores, np.float64))), 0
    found = solve_density(
        task.problem,
        lambda perms: log_densities(task.problem, perms),
        rng=np.random.default_rng(context.seed),
    )
    return found.perm, found.num_evaluations


def _reduced(task: Task, perms: np.ndarray) -> np.ndarray:
    """Matchings (num, n) of the whole problem as those of the reduced one."""
    reduction: Any = task.reduction
    settled = np.asarray(reduction.settled)
    if not ((perms == settled) | (settled < 0)).all():
        raise ValueError("centre must agree with the known pairs, got one that does not.")
    return np.asarray(reduction.col_place)[perms[:, np.asarray(reduction.free_rows)]]
