"""Method "auto": exact where that is affordable, else the best general method there is."""

from permvi._methods import exact
from permvi._task import Task

# The cost of a draw of a row-by-row family grows with the cube of the number of rows.
_MAX_SEQUENTIAL = 64


def choose(task: Task) -> str:
    """The name of the method for a task.

    Exact where that takes seconds; families with exact probabilities up to 64 items; beyond that
    relaxed families, or chains where the density is not known between permutations. Other latents
    take a relaxed family.

    Raises:
        ValueError: There is none.
    """
    if exact.affordable(task):
        return "exact"
    problem = task.problem
    partial = problem.row_unmatched is not None or problem.col_unmatched is not None
    relaxed = problem.log_density is not None and not partial
    if problem.latents:
        if not relaxed:
            raise ValueError(
                "model must match every item and be a JAX function of matrices if it has other "
                f"latents, got one of shape {problem.shape} that is not; no method takes it yet."
            )
        return "rounding"
    if problem.num_sites * max(problem.shape) <= _MAX_SEQUENTIAL:
        return "sequential"
    return "rounding" if relaxed else "mcmc"
