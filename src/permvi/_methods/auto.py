"""Method "auto": exact where that is affordable, else the best general method there is."""

from collections.abc import Mapping
from typing import Any

from permvi._methods import exact, sparse
from permvi._task import Task
from permvi.inference.partial import is_partial
from permvi.models.protocol import optional

# The cost of a draw of a row-by-row family grows with the cube of the number of rows.
_MAX_SEQUENTIAL = 64
# Beyond this, even asking whether a table splits into affordable blocks takes its time.
_MAX_EXACT = 500


def choose(task: Task) -> str:
    """The name of the method for a task.

    Exact where that takes seconds; else the model's own `auto_method` if it has one. Families with
    exact probabilities up to 64 items; beyond that the sparse method where most pairs are forbidden
    (it is exact in small blocks, too), relaxed families, or chains where the density is not known
    between permutations or items may stay unmatched. Other latents take a relaxed family, those of
    shared dynamics the method that integrates them out.

    Raises:
        ValueError: There is none.
    """
    problem = task.problem
    if callable(optional(task.model, "shared_regression")):
        return "collapsed"
    few_candidates = sparse.suits(task)
    if few_candidates and max(problem.shape) > _MAX_EXACT:
        return "sparse"
    if exact.affordable(task):
        return "exact"
    preferred = optional(task.model, "auto_method")
    if preferred is not None:
        return str(preferred[0])
    if few_candidates:
        return "sparse"
    relaxed = problem.log_density is not None
    if problem.latents:
        if not relaxed:
            raise ValueError(
                "model must be a JAX function of matrices if it has other latents, got one of "
                f"shape {problem.shape} that is not; no method takes it yet."
            )
        return "rounding"
    if problem.num_sites * max(problem.shape) <= _MAX_SEQUENTIAL:
        return "sequential"
    return "rounding" if relaxed and not is_partial(problem) else "mcmc"


def options_of(task: Task, name: str) -> Mapping[str, Any]:
    """The options that the model's `auto_method` has for the method that was chosen."""
    preferred = optional(task.model, "auto_method")
    return {} if preferred is None or preferred[0] != name else dict(preferred[1])
