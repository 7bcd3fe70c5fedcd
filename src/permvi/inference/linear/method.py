"""Method "linear" for linear models with thousands of items that have few candidates each.

The problem splits into independent blocks. Small blocks are solved exactly. The others are sampled
by Markov chains, whose marginals are combined with those of belief propagation as far as the two
agree. Everything works on lists of candidate pairs; only the result has an (n, m) table.
"""

import dataclasses

import numpy as np

from permvi.inference.linear import LinearOptions, LinearResult, solve_linear
from permvi.inference.method import Context, Method, MethodInfo, option_names
from permvi.posterior import Diagnostics, DrawsLaw, Marginals, Posterior, diagnose
from permvi.problem.prepare import Prepared

_ADVICE = "try more steps (num_steps) or chains (num_chains)"
# Method "auto" chooses this one from this many items on, up to this share of allowed pairs.
_MIN_SIZE = 65
_MAX_SHARE = 0.25


def suits(prepared: Prepared) -> bool:
    """Return whether a model is linear and large and most of its pairs are forbidden."""
    problem = prepared.problem
    if problem.scores is None or problem.num_sites > 1 or problem.mask is None:
        return False
    share = np.count_nonzero(problem.mask) / np.prod(problem.shape)
    return max(problem.shape) >= _MIN_SIZE and bool(share <= _MAX_SHARE)


def run(prepared: Prepared, context: Context) -> Posterior:
    """Solve one problem.

    Options are those of `LinearOptions`. The evidence is exact if all blocks are, else a bound.
    """
    problem = prepared.problem
    sparse = prepared.candidates
    result = solve_linear(sparse, LinearOptions(**context.options), context.seed)
    return Posterior(
        law=DrawsLaw(prepared.restore(result.draws)),
        **_marginals(prepared, result)._asdict(),
        mode=prepared.restore(result.mode),
        log_evidence=float(problem.constant) + result.log_evidence,
        log_evidence_kind="exact" if result.exact else "bound",
        diagnostics=_diagnostics(prepared, result),
        num_evaluations=result.num_steps,
    )


def _marginals(prepared: Prepared, result: LinearResult) -> Marginals:
    """Return the marginals of the whole problem, known pairs included."""
    pairs, reduction = prepared.candidates, prepared.reduction
    if reduction is None:
        return Marginals.of_pairs(pairs.rows, pairs.cols, result.pairs, result.rows, result.cols)
    settled = np.asarray(reduction.settled)
    known = np.flatnonzero(settled >= 0)
    free_rows, free_cols = np.asarray(reduction.free_rows), np.asarray(reduction.free_cols)
    p_rows, p_cols = np.zeros(len(settled)), np.zeros(len(reduction.col_place))
    p_rows[free_rows], p_cols[free_cols] = result.rows, result.cols
    return Marginals.of_pairs(
        np.concatenate([free_rows[pairs.rows], known]),
        np.concatenate([free_cols[pairs.cols], settled[known]]),
        np.concatenate([result.pairs, np.ones(len(known))]),
        p_rows,
        p_cols,
    )


def _diagnostics(prepared: Prepared, result: LinearResult) -> Diagnostics:
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
        "solved exactly; in the answer for the others, chains have a weight of "
        f"{1.0 - result.trust_in_beliefs[sampled].mean():.2f} and belief propagation the rest"
    )
    return dataclasses.replace(found, reasons=(*found.reasons, note))


METHODS = {
    "linear": Method(
        MethodInfo(
            name="linear",
            needs="linear scores, best with few allowed pairs per item",
            gives="marginals and draws, exact in small blocks; exact or a bound on evidence",
            masks=True,
            partial=True,
            cost="O(candidates) per step; 10,000 steps per item",
            reference="Sandvik and Moessner 2006; Bayati and Nair 2006",
        ),
        options=option_names(LinearOptions),
        run=run,
        linear=True,
        sites=False,
        lists=True,
    ),
}
