"""Method "quadratic" for models with a quadratic form, such as graph matching.

A search finds the modes, and symmetries complete them. Then ensembles of tempered chains weigh them
against each other and against everything else, with swaps in O(n) and jumps between modes. All runs
in NumPy and compiled loops that need no JAX.
"""

import dataclasses
from typing import Any

import numpy as np

from permvi.inference.exact import method as exact
from permvi.inference.interruptible import Stop, interruptible
from permvi.inference.map.method import is_the_only_one
from permvi.inference.method import Context, Method, MethodInfo, option_names, restore_marginals
from permvi.inference.quadratic import QuadraticOptions, sample
from permvi.inference.quadratic.form import Form, square_form, with_penalties
from permvi.inference.quadratic.modes import Modes, find_modes
from permvi.inference.quadratic.sample import Sampled
from permvi.inference.verdict.audit import audited_estimate
from permvi.posterior import Diagnostics, DrawsLaw, Marginals, Posterior, diagnose
from permvi.posterior.diagnostics import interrupted
from permvi.problem.prepare import Prepared

_ADVICE = "try more steps (num_steps) or ensembles (num_ensembles)"
# The most items that are searched and sampled in minutes.
_MAX_SIZE = 2000
# Of more items than so many, a search can miss a matching far better than all that chains see. If
# chains stay near what it found, no other one is likely to be; else it cannot be ruled out.
_MANY = 100
_NEAR = 0.5


def suits(prepared: Prepared) -> bool:
    """Return whether a model has a quadratic form that chains can sample.

    Raises:
        ValueError: It has too many unknown items.
    """
    problem = prepared.problem
    if (
        getattr(prepared.model, "quadratic", None) is None
        or problem.num_sites > 1
        or problem.latents
        or is_the_only_one(prepared)
    ):
        return False
    size = sum(problem.shape) if problem.is_partial else max(problem.shape)
    if size > _MAX_SIZE:
        what = "items and labels" if problem.is_partial else "items"
        raise ValueError(
            f"model must have at most {_MAX_SIZE} {what} whose match is unknown for a quadratic "
            f"form such as that of graphs, got {size}; give known pairs (known=...), or match "
            "parts of the graphs one by one."
        )
    return True


def run(prepared: Prepared, context: Context) -> Posterior:
    """Solve one problem; options are those of `QuadraticOptions`.

    Ctrl-C ends the chains early and gives what is known by then, with the verdict "do not trust".
    A second one, or one before anything is known, raises ``KeyboardInterrupt`` as usual.

    Raises:
        ValueError: The model has no quadratic form.
    """
    options, stop = QuadraticOptions(**context.options), Stop()
    square, allowed, log_copies = square_form(prepared)
    if len(allowed) == 1:
        # Chains have nothing to swap.
        return exact.run(prepared, context._replace(options={}))
    # The search draws as that of "map" does, so that its matching is never the better one.
    rng, stream = np.random.default_rng([context.seed, 1]), np.random.default_rng(context.seed)

    def solve() -> tuple[Form, Modes, Sampled]:
        modes = find_modes(square, allowed, stream, options.search_budget)
        form = with_penalties(square, allowed, log_copies, prepared.problem.shape, modes.perms[0])
        return form, modes, sample(form, modes.perms, options, rng, stop)

    form, modes, result = interruptible(solve, stop, context)
    n, m = form.shape
    pairs = result.marginals[:n, :m]
    reduced = Marginals(
        pairs,
        np.clip(1.0 - pairs.sum(axis=1), 0.0, 1.0),
        np.clip(1.0 - pairs.sum(axis=0), 0.0, 1.0),
    )
    evidence: dict[str, Any] = {}
    if np.isfinite(result.evidence.error):
        evidence = {
            "log_evidence": result.evidence.value,
            "log_evidence_kind": "estimate",
            "log_evidence_se": result.evidence.error,
        }
    posterior = Posterior(
        law=DrawsLaw(prepared.restore(form.matchings(result.draws))),
        **restore_marginals(prepared.reduction, reduced)._asdict(),
        mode=prepared.restore(form.matchings(result.best)),
        **evidence,
        diagnostics=_diagnostics(prepared, modes, result),
        num_evaluations=result.num_steps + modes.num_evaluations,
    )
    if prepared.problem.scores is None or not result.finished:
        return posterior
    # Modes of a table may differ in cycles of many rows, through which no swaps lead.
    return audited_estimate(prepared, posterior, "try method='linear'")


def _diagnostics(prepared: Prepared, modes: Modes, result: Sampled) -> Diagnostics:
    n = prepared.problem.shape[0]
    found = diagnose(
        row_labels=prepared.labels[0],
        advice=_ADVICE,
        sampling_error_by_row=prepared.in_all_rows(result.sampling_error[:n]),
        disagreement_by_row=prepared.in_all_rows(result.disagreement[:n]),
        missed_mass=result.missed,
        converged=result.finished,
        extras={
            "num_modes": np.array(len(modes.perms)),
            "share_near_modes": np.array(result.near),
            "num_jumps": np.array(result.num_jumps),
            "ensembles_counted": np.array(result.counted),
        },
    )
    if not result.finished:
        found = interrupted(found)
    if result.near < _NEAR and n > _MANY and found.verdict == "trust":
        reason = (
            "chains share few pairs with the best matching that was found, and among so many a far "
            "better one may be hidden"
        )
        found = dataclasses.replace(found, verdict="check", reasons=(reason, *found.reasons))
    note = f"the search found {len(modes.perms)} modes, and {result.counted} ensembles count"
    return dataclasses.replace(found, reasons=(*found.reasons, note))


METHODS = {
    "quadratic": Method(
        MethodInfo(
            name="quadratic",
            needs="a quadratic log density, such as that of graph matching, or linear scores",
            gives="marginals, draws, the mode; log evidence with its error",
            masks=True,
            partial=True,
            cost="O(n) per swap; seconds up to 100 items, minutes up to 2000",
            reference="Geyer 1991; Syed et al. 2022; Bennett 1976; Vogelstein et al. 2015",
        ),
        options=option_names(QuadraticOptions),
        run=run,
        sites=False,
    ),
}
