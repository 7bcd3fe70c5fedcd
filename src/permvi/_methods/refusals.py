"""What a method cannot treat, each answered in one sentence before any work is done."""

from typing import Any

import numpy as np

from permvi._task import Task


def refuse_mask(task: Task, method: str) -> None:
    """For methods that would break a mask."""
    if task.problem.mask is not None:
        raise ValueError(
            f"model must have no mask for method {method!r}, got one; pv.methods() says which "
            "methods honour masks."
        )


def refuse_partial(task: Task, method: str) -> None:
    """For methods that match as many pairs as there can be."""
    problem = task.problem
    if problem.row_unmatched is not None or problem.col_unmatched is not None:
        raise ValueError(
            f"model must match every item for method {method!r}, got a partial matching problem; "
            "pv.methods() says which methods take those."
        )


def refuse_latents(task: Task, method: str) -> None:
    """For methods that know of permutations only."""
    if task.problem.latents:
        raise ValueError(
            f"model must have no other latents for method {method!r}, got "
            f"{', '.join(map(repr, task.problem.latents))}; try method='rounding'."
        )


def refuse_sites(task: Task, method: str) -> None:
    """For methods of one permutation."""
    if task.problem.num_sites > 1:
        raise ValueError(
            f"model must have one site for method {method!r}, got {task.problem.num_sites}."
        )


def refuse_rectangular(task: Task, method: str) -> None:
    """For methods of square problems."""
    n, m = task.problem.shape
    if n != m:
        raise ValueError(
            f"model must have as many items as labels for method {method!r}, got {n} and {m}."
        )


def linear_scores(task: Task, method: str) -> np.ndarray:
    """The (n, m) or (S, n, m) scores of a linear model, for methods that need them."""
    scores: Any = task.problem.scores
    if scores is None:
        raise ValueError(
            f"model must be linear (have scores) for method {method!r}, got a "
            f"{type(task.model).__name__} that is not."
        )
    return np.asarray(scores, dtype=np.float64)
