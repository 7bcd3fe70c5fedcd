"""Method "sparse": linear models of thousands of items that have few candidates each.

The problem falls apart into blocks that know nothing of each other. Small ones are solved exactly;
the others are sampled by chains and, as far as the chains bear that out, smoothed with belief
propagation. The answer has its own (n, m) table; everything else works on the candidate pairs.
"""

import dataclasses

import numpy as np

from permvi._methods.context import Context
from permvi._methods.refusals import linear_scores, refuse_latents, refuse_sites
from permvi._task import Task
from permvi.inference.sparse import SparseOptions, SparseProblem, SparseResult, solve_sparse
from permvi.posterior import Diagnostics, DrawsLaw, Marginals, Posterior, diagnose

OPTIONS = tuple(field.name for field in dataclasses.fields(SparseOptions))

_ADVICE = "try more steps (num_steps) or chains (num_chains)"
# From so many items on, and up to this share of allowed pairs, "auto" takes this method.
_MIN_SIZE = 65
_MAX_SHARE = 0.25


def suits(task: Task) -> bool:
    """Whether a model is linear, large, and most of its pairs are forbidden."""
    problem = task.problem
    if problem.scores is None or problem.num_sites > 1 or problem.mask is None:
        return False
    share = np.count_nonzero(problem.mask) / np.prod(problem.shape)
    return max(problem.shape) >= _MIN_SIZE and bool(share <= _MAX_SHARE)


def run(task: Task, context: Context) -> Posterior:
    """Solve one problem.

    Options are those of `SparseOptions`. The evidence is exact where all blocks are, else a bound.
    """
    refuse_latents(task, context.method)
    refuse_sites(task, context.method)
    options = SparseOptions(**context.options)
    problem = task.problem
    sparse = SparseProblem.from_table(
        linear_scores(task, context.method),
        None if problem.mask is None else np.asarray(problem.mask),
        *(
            None if weights is None else np.asarray(weights)
            for weights in (problem.row_unmatched, problem.col_unmatched)
        ),
    )
    result = solve_sparse(sparse, options, context.seed)
    return Posterior(
        law=DrawsLaw(task.restore(result.draws)),
        **_marginals(task, sparse, result)._asdict(),
        mode=task.restore(result.mode),
        log_evidence=float(problem.constant) + result.log_evidence,
        log_evidence_kind="exact" if result.exact else "bound",
        diagnostics=_diagnostics(task, result),
        num_evaluations=result.num_steps,
    )


def _marginals(task: Task, sparse: SparseProblem, result: SparseResult) -> Marginals:
    """The table of the whole problem, known pairs included."""
    n, m = task.model.shape
    table, alone_rows, alone_cols = np.zeros((n, m)), np.zeros(n), np.zeros(m)
    rows, cols = np.arange(n), np.arange(m)
    if task.reduction is not None:
        rows, cols = np.asarray(task.reduction.free_rows), np.asarray(task.reduction.free_cols)
        settled = np.asarray(task.reduction.settled)
        taken = np.flatnonzero(settled >= 0)
        table[taken, settled[taken]] = 1.0
    table[rows[sparse.rows], cols[sparse.cols]] = result.pairs
    alone_rows[rows], alone_cols[cols] = result.rows, result.cols
    return Marginals(table, alone_rows, alone_cols)


def _diagnostics(task: Task, result: SparseResult) -> Diagnostics:
    if result.exact:
        return diagnose(exact=True)
    found = diagnose(
        row_labels=task.labels[0],
        advice=_ADVICE,
        sampling_error_by_row=task.in_all_rows(result.sampling_error),
        disagreement_by_row=task.in_all_rows(result.disagreement),
        converged=result.finished,
        extras={
            "exact_rows": task.in_all_rows(result.exact_rows.astype(float)),
            "belief_difference": task.in_all_rows(result.belief_difference),
            "trust_in_beliefs": task.in_all_rows(result.trust_in_beliefs),
        },
    )
    sampled = ~result.exact_rows
    note = (
        f"{np.count_nonzero(result.exact_rows)} of {len(sampled)} items are in blocks that were "
        f"solved exactly; of the others, chains have a share of "
        f"{1.0 - result.trust_in_beliefs[sampled].mean():.2f} and belief propagation the rest"
    )
    return dataclasses.replace(found, reasons=(*found.reasons, note))
