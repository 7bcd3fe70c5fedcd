"""Method "linear" for linear tables of any size.

The problem splits into independent parts, from which pairs are dropped that are proven to be
improbable. Parts are solved exactly, by the subset programme or the frontier programme, as far as
possible. The others are sampled by Markov chains, whose marginals are combined with those of belief
propagation as far as the two agree. Everything works on lists of candidate pairs and in compiled
loops that need no JAX; only the result may have an (n, m) table.
"""

import dataclasses
from typing import Any

import numpy as np

from permvi.inference.exact.quadrature import refusal
from permvi.inference.interruptible import Stop, interruptible
from permvi.inference.linear import LinearOptions, LinearResult, solve_linear
from permvi.inference.linear.latent import integrated
from permvi.inference.linear.law import LinearLaw
from permvi.inference.method import Context, Method, MethodInfo, option_names, restore_marginals
from permvi.posterior import Diagnostics, DrawsLaw, Marginals, Posterior, diagnose
from permvi.posterior.diagnostics import interrupted
from permvi.problem.prepare import Prepared

_ADVICE = "try more steps (num_steps) or chains (num_chains)"
_MANY_UNDONE = 0.05
# The error of one of several values of a latent, relative to the error of their average.
_LOOSER = 1.5


def suits(prepared: Prepared) -> bool:
    """Return whether a model is linear, or is so given one scalar latent."""
    if prepared.is_linear_given_latents:
        return refusal(prepared.problem.latents) is None
    return prepared.problem.scores is not None


def run(prepared: Prepared, context: Context) -> Posterior:
    """Solve one problem; options are those of `LinearOptions`.

    Ctrl-C ends the chains early and gives what is known by then, with the verdict "do not trust".
    A second one, or one before anything is known, raises ``KeyboardInterrupt`` as usual. One scalar
    latent variable is integrated out.
    """
    if prepared.problem.latents:
        return _integrated(prepared, context)
    problem, candidates = prepared.problem, prepared.candidates
    options, stop = LinearOptions(**context.options), Stop()
    result = interruptible(
        lambda: solve_linear(candidates, options, context.seed, stop), stop, context
    )
    layout = problem.layout
    return Posterior(
        law=_law(prepared, result),
        **marginals_of(prepared, result)._asdict(),
        mode=prepared.restore(layout.split(result.mode)),
        **_evidence(float(problem.constant), result),
        diagnostics=_diagnostics(prepared, result),
        num_evaluations=result.num_steps,
    )


def _law(prepared: Prepared, result: LinearResult) -> DrawsLaw:
    """Return the draws, with probabilities if the evidence is known and there is a table."""
    draws = prepared.restore(prepared.problem.layout.split(result.draws))
    evidence, linear = _evidence(float(prepared.problem.constant), result), prepared.linear
    if not evidence or linear is None:
        return DrawsLaw(draws)
    return LinearLaw(draws, evidence["log_evidence"], **linear.arguments())


def _integrated(prepared: Prepared, context: Context) -> Posterior:
    """Solve a problem with one scalar latent at several values of it."""
    refused = refusal(prepared.problem.latents, "linear")
    if refused is not None:
        raise ValueError(refused)
    options = LinearOptions(**context.options)
    # Several values share the posterior, so that each of them may have a larger error.
    loose = {**context.options, "tolerance": _LOOSER * options.tolerance}

    def solve(given: Prepared, seed: int) -> Posterior:
        return run(given, context._replace(options=loose, seed=seed))

    return integrated(prepared, solve, options.num_draws, context.seed, _ADVICE)


def _evidence(constant: float, result: LinearResult) -> dict[str, Any]:
    """Return the fields of the evidence; it is unknown if chains were stopped before it was."""
    if not np.isfinite(result.log_evidence_se):
        return {}
    kind = "exact" if result.exact else "estimate"
    error = None if result.exact else result.log_evidence_se
    value = constant + result.log_evidence
    return {"log_evidence": value, "log_evidence_kind": kind, "log_evidence_se": error}


def marginals_of(prepared: Prepared, result: LinearResult) -> Marginals:
    """Return the marginals of the whole problem, known pairs included."""
    pairs, reduction = prepared.candidates, prepared.reduction
    layout = prepared.problem.layout
    if layout.num_sites > 1:
        table = np.zeros(layout.joined_shape)
        table[pairs.rows, pairs.cols] = result.pairs
        reduced = Marginals(
            layout.split_table(table),
            result.rows.reshape(layout.event_shape),
            result.cols.reshape(*layout.site_axes, -1),
        )
        return restore_marginals(reduction, reduced)
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
    extras = {"proven_error": np.array([result.proven_error])}
    if result.exact:
        found = diagnose(exact=True, extras=extras)
        if not result.proven_error:
            return found
        note = f"all that was left out has a probability of at most {result.proven_error:.1e}"
        return dataclasses.replace(found, reasons=(*found.reasons, note))
    layout = prepared.problem.layout

    def by_row(values: np.ndarray) -> np.ndarray:
        return prepared.in_all_rows(values.astype(float).reshape(layout.event_shape))

    found = diagnose(
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        sampling_error_by_row=by_row(result.sampling_error),
        disagreement_by_row=by_row(result.disagreement),
        converged=result.finished,
        extras=extras
        | {
            "exact_rows": by_row(result.exact_rows),
            "belief_difference": by_row(result.belief_difference),
            "trust_in_beliefs": by_row(result.trust_in_beliefs),
        },
    )
    if not result.finished:
        found = interrupted(found)
    return dataclasses.replace(found, reasons=(*found.reasons, *_notes(result)))


def _notes(result: LinearResult) -> list[str]:
    sampled = ~result.exact_rows
    notes = [
        f"{np.count_nonzero(result.exact_rows)} of {len(sampled)} items were solved exactly; in "
        "the answer for the others, chains have a weight of "
        f"{1.0 - result.trust_in_beliefs[sampled].mean():.2f} and belief propagation the rest"
    ]
    if result.undone > _MANY_UNDONE:
        notes.append(f"{result.undone:.0%} of the moves of the chains were too long and undone")
    return notes


METHODS = {
    "linear": Method(
        MethodInfo(
            name="linear",
            needs="linear scores, also given one scalar latent",
            gives="marginals and draws, exact where possible; log evidence with its error",
            masks=True,
            partial=True,
            cost="O(1) per step of a chain; up to 30,000 steps per item",
            reference="Gurvits 2011; Sandvik and Moessner 2006; Bayati and Nair 2006",
        ),
        options=option_names(LinearOptions),
        run=run,
        latents=True,
        linear=True,
        lists=True,
        rounds=False,
    ),
}
