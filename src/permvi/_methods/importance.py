"""Method "importance": sequential importance sampling, row by row.

What it approximates: the posterior by weighted matchings, and the evidence by an estimate that is
unbiased on its natural scale, whatever the density; both have standard errors from independent
populations. Cost: O(n^3) and one log density per matching. Choose it where the evidence and its
error matter, for matchings with forbidden pairs above all, and for linear models: columns are
chosen by Sinkhorn-balanced scores and by what they leave to the rows that follow. A density that
is far from any linear function is met only in the last factor of a weight; then a few matchings
have all the weight, which the errors and the verdict tell.

References: Harrison and Miller 2013; resampling as in Del Moral et al. 2006.
"""

import dataclasses

import numpy as np

from permvi._methods.audit import audited
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.refusals import refuse_latents
from permvi._task import Task
from permvi.inference.discrete.density import as_perms
from permvi.inference.importance import ImportanceOptions, run_importance
from permvi.posterior import Posterior, diagnose

OPTIONS = tuple(field.name for field in dataclasses.fields(ImportanceOptions))

_ADVICE = "try more particles, or method='sequential' or 'mcmc'"


def run(task: Task, context: Context) -> Posterior:
    """Sample one problem; options are those of `ImportanceOptions`."""
    refuse_latents(task, context.method)
    options = ImportanceOptions(**context.options)
    problem = task.problem

    def evaluate(choices: np.ndarray) -> np.ndarray:
        return log_densities(problem, np.asarray(as_perms(choices, problem)))

    result = run_importance(problem, context.rng_key, evaluate, options)
    weighted = result.weighted
    diagnostics = diagnose(
        row_labels=task.labels[0],
        advice=_ADVICE,
        ess_per_draw=weighted.ess_per_draw,
        sampling_error_by_row=task.in_all_rows(weighted.error_by_row),
        disagreement_by_row=task.in_all_rows(weighted.disagreement_by_row),
        extras={
            "log_evidence_by_population": weighted.log_evidence_by_population,
            "num_resamplings": np.array(result.num_resamplings),
        },
    )
    posterior = Posterior.from_draws(
        task.restore(weighted.perms),
        weighted.log_weights,
        shape=task.model.shape,
        mode=task.restore(result.mode),
        log_evidence=weighted.log_evidence,
        log_evidence_kind="estimate",
        log_evidence_se=weighted.log_evidence_se,
        diagnostics=diagnostics,
        num_evaluations=result.num_evaluations,
    )
    # The search behind a verdict knows of matchings that are as large as can be.
    if problem.row_unmatched is not None or problem.col_unmatched is not None:
        return posterior
    return audited(task, posterior, result.mode, _ADVICE)
