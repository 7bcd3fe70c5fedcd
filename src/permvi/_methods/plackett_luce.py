"""Method "plackett_luce": a Plackett-Luce model fitted to the density.

What it approximates: the whole posterior, by a law of one worth per item, so that places differ
only in when their turn comes. That suits targets that look like rankings; of a matching problem it
can express little more than one good matching and its neighbours. Its probabilities and draws are
exact for what it is, and its cost is a fixed number of log densities of any kind, O(n log n) each
beside that. Choose it to ask whether a posterior over orders has one strength per item, or as a
baseline.

References: Luce 1959; Plackett 1975; fitted by leave-one-out score-function gradients (Kool et al.
2019).
"""

import dataclasses

import numpy as np

from permvi._methods.audit import audited_draws
from permvi._methods.context import Context
from permvi._methods.density import log_densities
from permvi._methods.refusals import (
    refuse_latents,
    refuse_mask,
    refuse_partial,
    refuse_sites,
)
from permvi._task import Task
from permvi.inference.discrete.density import as_perms
from permvi.inference.exact.problem import positive_int
from permvi.inference.plackett_luce.target import TargetOptions, fit_target
from permvi.posterior import Posterior
from permvi.posterior.plackett_luce_law import PlackettLuceLaw

OPTIONS = (*(field.name for field in dataclasses.fields(TargetOptions)), "num_draws")

_NUM_DRAWS = 2000
_ADVICE = "try method='sequential' or 'exact'"


def run(task: Task, context: Context) -> Posterior:
    """Fit one problem.

    Options are those of `TargetOptions`, and ``num_draws``: how many draws the marginals are taken
    from. ``diagnostics.extras`` has the log worths and the discrete ELBO. The bound on the evidence
    is not that but what the search behind the verdict has found, which is closer.
    """
    for refuse in (refuse_mask, refuse_partial, refuse_latents, refuse_sites):
        refuse(task, context.method)
    options = dict(context.options)
    num_draws = positive_int("num_draws", options.pop("num_draws", _NUM_DRAWS))
    problem = task.problem

    def evaluate(choices: np.ndarray) -> np.ndarray:
        return log_densities(problem, np.asarray(as_perms(choices, problem)))

    fitted = fit_target(
        problem,
        context.rng_key,
        TargetOptions(**options),
        None if problem.traceable else evaluate,
        lambda step, total: context.progress(context.method, step, total),
    )
    whole, inner = (
        PlackettLuceLaw(fitted.log_worths, fitted.items, known=known, num_cols=num_cols)
        for known, num_cols in (
            (_known(task), task.model.shape[1]),
            (np.full(problem.shape[0], -1), problem.shape[1]),
        )
    )
    reduced = inner.sample(num_draws, np.random.default_rng(context.seed))
    extras = {"log_worths": fitted.log_worths, "elbo": np.array(fitted.elbo)}
    posterior = Posterior.from_draws(
        task.restore(reduced), shape=task.model.shape, num_evaluations=fitted.num_evaluations
    )
    signals = {"extras": extras, "elbo_trace": fitted.elbo_trace}
    posterior = audited_draws(task, posterior, reduced, _ADVICE, signals)
    return dataclasses.replace(posterior, law=whole)


def _known(task: Task) -> np.ndarray:
    """(n,) the columns of the pairs that were taken out, -1 for other rows."""
    nothing = np.full(task.model.shape[0], -1)
    return nothing if task.reduction is None else np.asarray(task.reduction.settled)
