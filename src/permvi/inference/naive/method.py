"""Method "naive": independent rows, rounded to permutations, as a baseline.

The posterior holds the rounded draws, whose marginals sum to one in rows and columns. The marginals
of the rows are ``diagnostics.extras["row_marginals"]``; their columns need not sum to one.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from permvi.inference.method import Context, Method, MethodInfo, alike, option_names
from permvi.inference.naive.rows import (
    NaiveOptions,
    draw_categorical_rows,
    draw_partial_rows,
    fit_naive,
)
from permvi.inference.pathwise import pathwise_result, refuse_infinite, stack_problems
from permvi.inference.vi.method import posterior_of
from permvi.posterior import Posterior
from permvi.problem.prepare import Prepared
from permvi.problem.unmatched import grounded

_REASON = "rows are independent in this family: two of them may take the same column"


def run(prepared: Prepared, context: Context) -> Posterior:
    """Fit one problem."""
    if prepared.problem.scores is not None:
        return _linear(prepared, context)
    return _general([prepared], context)[0]


def run_many(batch: Sequence[Prepared], context: Context) -> list[Posterior] | None:
    """Fit problems of one shape in one vmapped call; None if shapes differ or all are linear."""
    problems = [prepared.problem for prepared in batch]
    if any(problem.scores is not None for problem in problems) or not alike(problems):
        return None
    return _general(batch, context)


def _linear(prepared: Prepared, context: Context) -> Posterior:
    options = NaiveOptions(**context.options)
    problem = prepared.problem
    shape = (problem.num_sites, *problem.shape)
    tables = np.asarray(problem.scores, np.float64).reshape(shape)
    masks: Any = [None] * len(tables)
    if problem.mask is not None:
        masks = np.broadcast_to(np.asarray(problem.mask), shape)
    rng = np.random.default_rng(context.seed)
    if problem.is_partial:
        drawn = [draw_partial_rows(table, options.num_draws, rng) for table in grounded(problem)]
    else:
        drawn = [
            draw_categorical_rows(scores, mask, options.num_draws, rng)
            for scores, mask in zip(tables, masks, strict=True)
        ]
    draws = np.stack([perms for perms, _ in drawn], axis=1)
    rows = np.stack([probs for _, probs in drawn])
    result = pathwise_result(draws[None], problem, params=tables)
    return _with_rows(prepared, result, rows)


def _general(batch: Sequence[Prepared], context: Context) -> list[Posterior]:
    options = NaiveOptions(**context.options)
    results, rows = fit_naive(
        stack_problems(batch, context.method), context.rng_key, options, context.step
    )
    for result in results:
        refuse_infinite(np.asarray(result.elbo_trace), context.method)
    return [_with_rows(*each) for each in zip(batch, results, rows, strict=True)]


def _with_rows(prepared: Prepared, result: Any, rows: np.ndarray) -> Posterior:
    """Return the posterior of the draws, with the marginals (S, n, m) of the rows.

    The verdict is "trust" only if a search has found the whole posterior.
    """
    posterior = posterior_of(prepared, result)
    found = posterior.diagnostics
    audited = found.bias_by_row is not None
    diagnostics = dataclasses.replace(
        found,
        verdict="check" if found.verdict == "trust" and not audited else found.verdict,
        reasons=(*found.reasons, _REASON) if audited else (_REASON, *found.reasons),
        extras={
            **found.extras,
            "row_marginals": rows[0] if prepared.problem.num_sites == 1 else rows,
        },
    )
    return dataclasses.replace(posterior, diagnostics=diagnostics)


METHODS = {
    "naive": Method(
        MethodInfo(
            name="naive",
            needs="a JAX density of relaxed matrices, or linear scores",
            gives="marginals of independent rows",
            masks=True,
            partial=True,
            cost="O(n^2) per step and sample",
            reference="Linderman et al. 2018, section 5",
        ),
        options=option_names(NaiveOptions),
        run=run,
        run_many=run_many,
        latents=True,
    )
}
