"""Method "naive": independent rows, rounded to permutations; the baseline to be beaten.

What a posterior holds are the rounded draws, whose marginals sum to one in rows and columns. The
marginals of the rows themselves are ``diagnostics.extras["row_marginals"]``; their columns need not
sum to one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from permvi._methods.context import Context
from permvi._methods.gumbel_sinkhorn import refuse_infinite, stack_problems
from permvi._methods.refusals import refuse_latents
from permvi._methods.relaxed import posterior_of
from permvi._methods.shared_dynamics import has_dynamics
from permvi._methods.stacking import alike, stack
from permvi._task import Task
from permvi.inference.gumbel_sinkhorn import PathwiseResult
from permvi.inference.naive import (
    NaiveOptions,
    draw_categorical_rows,
    draw_partial_rows,
    fit_naive,
)
from permvi.inference.partial import grounded, is_partial
from permvi.inference.vi.prepare import RelaxedProblem, prepare
from permvi.posterior import Posterior

OPTIONS = tuple(field.name for field in dataclasses.fields(NaiveOptions))

# Hundreds of neurons and thousands of weights take long enough with one sample of the gradient.
_FOR_DYNAMICS = {"num_steps": 200, "num_samples": 1, "num_restarts": 1, "num_draws": 100}

_REASON = "rows are independent in this family: nothing keeps two of them from one column"


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem."""
    if task.problem.scores is not None:
        return _linear(task, context)
    return _general([task], context)[0]


def run_many(tasks: Sequence[Task], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if shapes differ or all are linear."""
    problems = [task.problem for task in tasks]
    if any(problem.scores is not None for problem in problems) or not alike(problems):
        return None
    return _general(tasks, context)


def _linear(task: Task, context: Context) -> Posterior:
    refuse_latents(task, context.method)
    options = NaiveOptions(**context.options)
    problem = task.problem
    shape = (problem.num_sites, *problem.shape)
    tables = np.asarray(problem.scores, np.float64).reshape(shape)
    masks: Any = [None] * len(tables)
    if problem.mask is not None:
        masks = np.broadcast_to(np.asarray(problem.mask), shape)
    rng = np.random.default_rng(context.seed)
    if is_partial(problem):
        drawn = [draw_partial_rows(table, options.num_draws, rng) for table in grounded(problem)]
    else:
        drawn = [
            draw_categorical_rows(scores, mask, options.num_draws, rng)
            for scores, mask in zip(tables, masks, strict=True)
        ]
    draws = np.stack([perms for perms, _ in drawn], axis=1)
    rows = np.stack([probs for _, probs in drawn])
    frequencies = np.stack([(draws == j).mean(axis=0) for j in range(shape[2])], axis=-1)
    if problem.num_sites == 1:
        draws, frequencies = draws[:, 0], frequencies[0]
    result = PathwiseResult(
        draws=draws,
        marginals=frequencies[None],
        elbo_trace=None,
        best_restart=0,
        converged=True,
        num_evaluations=0,
        params=tables,
    )
    return _with_rows(task, result, rows)


def _general(tasks: Sequence[Task], context: Context) -> list[Posterior]:
    defaults = _FOR_DYNAMICS if has_dynamics(tasks[0]) else {}
    options = NaiveOptions(**{**defaults, **context.options})
    results, rows = fit_naive(
        _stacked(tasks, context.method),
        context.rng_key,
        options,
        lambda step, total, elbo: context.progress(context.method, step, total),
    )
    for result in results:
        refuse_infinite(np.asarray(result.elbo_trace), context.method)
    return [_with_rows(*each) for each in zip(tasks, results, rows, strict=True)]


def _stacked(tasks: Sequence[Task], method: str) -> RelaxedProblem:
    if not tasks[0].problem.latents:
        return stack_problems(tasks, method)
    # Any family that takes masks: they all see the same square problem.
    return prepare(stack([task.problem for task in tasks]), "rounding")


def _with_rows(task: Task, result: Any, rows: np.ndarray) -> Posterior:
    """The posterior of the draws, with the marginals (S, n, m) of the rows.

    Only a search that has found the whole posterior can make it trusted.
    """
    posterior = posterior_of(task, result)
    found = posterior.diagnostics
    audited = found.bias_by_row is not None
    diagnostics = dataclasses.replace(
        found,
        verdict="check" if found.verdict == "trust" and not audited else found.verdict,
        reasons=(*found.reasons, _REASON) if audited else (_REASON, *found.reasons),
        extras={
            **found.extras,
            "row_marginals": rows[0] if task.problem.num_sites == 1 else rows,
        },
    )
    return dataclasses.replace(posterior, diagnostics=diagnostics)
