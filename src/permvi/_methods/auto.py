"""Method "auto": exact where that is affordable, else the best general method there is."""

from permvi._methods import exact
from permvi._task import Task


def choose(task: Task) -> str:
    """The name of the method for a task.

    Raises:
        ValueError: There is none yet.
    """
    if exact.affordable(task):
        return "exact"
    problem = task.problem
    if problem.row_unmatched is not None or problem.col_unmatched is not None:
        raise ValueError(
            "model must be small enough for method 'exact' (see max_size) if items may stay "
            "unmatched, got one that is too large; no approximate method takes it yet."
        )
    if problem.log_density is None:
        raise ValueError(
            "model must be a JAX function of matrices, or have few enough matchings to list them "
            f"all, got another one of shape {problem.shape}; no method takes it yet."
        )
    return "rounding"
