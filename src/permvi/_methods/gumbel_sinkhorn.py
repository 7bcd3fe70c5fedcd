"""Method "gumbel_sinkhorn": relaxed variational inference of Mena et al. (2018).

The draws are those of the fitted Gumbel-Matching distribution; they are compared with the model as
those of the other relaxations are, see `permvi._methods.relaxed`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from permvi._methods.context import Context
from permvi._methods.refusals import refuse_latents
from permvi._methods.relaxed import posterior_of
from permvi._methods.stacking import alike, stack
from permvi._task import Task
from permvi.inference.gumbel_sinkhorn import GumbelSinkhornOptions, fit_gumbel_sinkhorn
from permvi.inference.vi.prepare import RelaxedProblem, prepare
from permvi.posterior import Posterior

OPTIONS = tuple(field.name for field in dataclasses.fields(GumbelSinkhornOptions))


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem."""
    return _fit([task], context)[0]


def run_many(tasks: Sequence[Task], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if their shapes differ."""
    return _fit(tasks, context) if alike([task.problem for task in tasks]) else None


def _fit(tasks: Sequence[Task], context: Context) -> list[Posterior]:
    options = GumbelSinkhornOptions(**context.options)
    problems = stack_problems(tasks, context.method)
    results: Any = fit_gumbel_sinkhorn(
        problems,
        context.rng_key,
        options,
        lambda step, total, elbo: context.progress(context.method, step, total),
    )
    for result in results:
        refuse_infinite(result.elbo_trace, context.method)
    return [posterior_of(task, result) for task, result in zip(tasks, results, strict=True)]


def stack_problems(tasks: Sequence[Task], method: str) -> RelaxedProblem:
    """Problems of one shape with an axis in front, squared and with pruned masks."""
    for task in tasks:
        refuse_latents(task, method)
        if task.problem.log_density is None or not task.problem.traceable:
            raise ValueError(
                f"model must have a log density that JAX can differentiate in X for method "
                f"{method!r}, got one that is only known on permutations or is no JAX function; "
                "try method='mcmc'."
            )
    # Any family that takes masks: they all see the same square problem.
    return prepare(stack([task.problem for task in tasks]), "rounding")


def refuse_infinite(elbo_trace: np.ndarray, method: str) -> None:
    """For densities that are not finite on relaxed matrices."""
    if not np.isfinite(elbo_trace[:, -1]).any():
        raise ValueError(
            f"log_density must be finite on relaxed matrices for method {method!r}, got an ELBO of "
            f"{elbo_trace[0, -1]} from every restart."
        )
