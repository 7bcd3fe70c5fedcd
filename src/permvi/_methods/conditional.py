"""Draws of linear models with unmatched items: marginals that know what rows could have done."""

import dataclasses

import numpy as np

from permvi._task import Task
from permvi.inference.partial import is_partial, tables_by_site
from permvi.inference.rao_blackwell import ConditionalMarginals, conditional_marginals
from permvi.posterior import Posterior, normalise_marginals

# Draws times cells of the table: beyond, conditional probabilities take longer than most fits.
_MAX_CELLS = 50_000_000


def conditional(
    task: Task, draws: np.ndarray, shares: np.ndarray, variances: np.ndarray | None = None
) -> ConditionalMarginals | None:
    """Marginals from conditional probabilities, or None where they gain little or cost too much.

    Args:
        task: The task.
        draws: (num, n) or (num, S, n) matchings of the whole problem.
        shares: (num,) their weights, with sum 1.
        variances: As in `conditional_marginals`; zero if there is no use for the error.
    """
    if task.linear is None or not is_partial(task.problem):
        return None
    if draws.size * (task.model.shape[1] + 1) > _MAX_CELLS:
        return None
    tables = tables_by_site(task.linear.arguments(), task.model.num_sites)
    variances = np.zeros(len(draws)) if variances is None else variances
    return conditional_marginals(tables, draws, shares, variances)


def with_marginals(posterior: Posterior, found: ConditionalMarginals | None) -> Posterior:
    """The posterior with these marginals, if there are any."""
    if found is None:
        return posterior
    summed = normalise_marginals(found.pairs, found.rows, found.cols)
    return dataclasses.replace(posterior, **summed._asdict())
