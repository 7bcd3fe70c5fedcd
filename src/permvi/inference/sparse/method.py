"""Method "sparse": linear models of thousands of items that have few candidates each.

The problem falls apart into blocks that know nothing of each other. Small ones are solved exactly;
the others are sampled by chains and, as far as the chains bear that out, smoothed with belief
propagation. The answer has its own (n, m) table; everything else works on the candidate pairs.
"""

import dataclasses

import numpy as np

from permvi.inference.method import Context, Method, MethodInfo, option_names
from permvi.inference.sparse import SparseOptions, SparseProblem, SparseResult, solve_sparse
from permvi.posterior import Diagnostics, DrawsLaw, Marginals, Posterior, diagnose
from permvi.problem.prepare import Prepared

_ADVICE = "try more steps (num_steps) or chains (num_chains)"
# From so many items on, and up to this share of allowed pairs, "auto" takes this method.
_MIN_SIZE = 65
_MAX_SHARE = 0.25


def suits(prepared: Prepared) -> bool:
    """Whether a model is linear, large, and most of its pairs are forbidden."""
    problem = prepared.problem
    if problem.scores is None or problem.num_sites > 1 or problem.mask is None:
        return False
    share = np.count_nonzero(problem.mask) / np.prod(problem.shape)
    return max(problem.shape) >= _MIN_SIZE and bool(share <= _MAX_SHARE)


def run(prepared: Prepared, context: Context) -> Posterior:
    """Solve one problem.

    Options are those of `SparseOptions`. The evidence is exact where all blocks are, else a bound.
    """
    options = SparseOptions(**context.options)
    problem = prepared.problem
    sparse = SparseProblem.from_table(
        prepared.problem.host_scores,
        None if problem.mask is None else np.asarray(problem.mask),
        *(
            None if weights is None else np.asarray(weights)
            for weights in (problem.row_unmatched, problem.col_unmatched)
        ),
    )
    result = solve_sparse(sparse, options, context.seed)
    return Posterior(
        law=DrawsLaw(prepared.restore(result.draws)),
        **_marginals(prepared, sparse, result)._asdict(),
        mode=prepared.restore(result.mode),
        log_evidence=float(problem.constant) + result.log_evidence,
        log_evidence_kind="exact" if result.exact else "bound",
        diagnostics=_diagnostics(prepared, result),
        num_evaluations=result.num_steps,
    )


def _marginals(prepared: Prepared, sparse: SparseProblem, result: SparseResult) -> Marginals:
    """The table of the whole problem, known pairs included."""
    n, m = prepared.model.shape
    table, alone_rows, alone_cols = np.zeros((n, m)), np.zeros(n), np.zeros(m)
    rows, cols = np.arange(n), np.arange(m)
    if prepared.reduction is not None:
        rows, cols = (
            np.asarray(prepared.reduction.free_rows),
            np.asarray(prepared.reduction.free_cols),
        )
        settled = np.asarray(prepared.reduction.settled)
        taken = np.flatnonzero(settled >= 0)
        table[taken, settled[taken]] = 1.0
    table[rows[sparse.rows], cols[sparse.cols]] = result.pairs
    alone_rows[rows], alone_cols[cols] = result.rows, result.cols
    return Marginals(table, alone_rows, alone_cols)


def _diagnostics(prepared: Prepared, result: SparseResult) -> Diagnostics:
    if result.exact:
        return diagnose(exact=True)
    found = diagnose(
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        sampling_error_by_row=prepared.in_all_rows(result.sampling_error),
        disagreement_by_row=prepared.in_all_rows(result.disagreement),
        converged=result.finished,
        extras={
            "exact_rows": prepared.in_all_rows(result.exact_rows.astype(float)),
            "belief_difference": prepared.in_all_rows(result.belief_difference),
            "trust_in_beliefs": prepared.in_all_rows(result.trust_in_beliefs),
        },
    )
    sampled = ~result.exact_rows
    note = (
        f"{np.count_nonzero(result.exact_rows)} of {len(sampled)} items are in blocks that were "
        f"solved exactly; of the others, chains have a share of "
        f"{1.0 - result.trust_in_beliefs[sampled].mean():.2f} and belief propagation the rest"
    )
    return dataclasses.replace(found, reasons=(*found.reasons, note))


METHODS = {
    "sparse": Method(
        MethodInfo(
            name="sparse",
            needs="linear scores, best with few allowed pairs per item",
            gives="marginals and draws, exact in small blocks; exact or a bound on evidence",
            masks=True,
            partial=True,
            cost="O(candidates) per step; 10,000 steps per item",
            reference="Sandvik and Moessner 2006; Bayati and Nair 2006",
        ),
        options=option_names(SparseOptions),
        run=run,
        linear=True,
        sites=False,
    ),
}
