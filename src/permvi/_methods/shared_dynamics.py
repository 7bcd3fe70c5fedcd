"""What the methods of permutations and weights have in common for models of shared dynamics.

Such a model has the hook ``shared_regression``: statistics of recordings that share a sparse
regression, whose weights are its latent ``W``. Known neurons are kept as entries of the mask, and
there are as many rows as labels.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from permvi._task import Task
from permvi.models.protocol import optional

if TYPE_CHECKING:
    from permvi.inference.collapsed import Scales, SharedRegression

LATENT = "W"
OBSERVE = "observe"

Observe = Callable[[np.ndarray, np.ndarray], None]


class Dynamics(NamedTuple):
    """The statistics of a model, and its variances as they are: nothing is learned on the way."""

    problem: "SharedRegression"
    scales: "Scales"


def has_dynamics(task: Task) -> bool:
    """Whether the subjects of a model share dynamics."""
    return optional(task.model, "shared_regression") is not None


def dynamics_of(task: Task) -> Dynamics:
    """The dynamics that the subjects of a model share; this imports numba."""
    from permvi.inference.collapsed import Scales, SharedRegression

    given = task.model.shared_regression()
    fields = (field.name for field in dataclasses.fields(SharedRegression))
    problem = SharedRegression(**{name: given[name] for name in fields})
    return Dynamics(problem, Scales(given["weight_scale"] ** 2, given["noise_scale"] ** 2))


def refuse_observer(options: Mapping[str, Any]) -> None:
    """For other models, whose fits cannot be observed."""
    if OBSERVE in options:
        raise ValueError("observe must be left out for models without shared dynamics, got one.")


def outer(task: Task, perms: np.ndarray) -> np.ndarray:
    """Permutations (..., J, m) as the model has them: (..., n), or (..., J, n) if J > 1."""
    rows = perms[..., : task.model.shape[0]]
    return rows[..., 0, :] if task.model.num_sites == 1 else rows


def inner(mask: np.ndarray, perms: np.ndarray) -> np.ndarray:
    """(k, n) or (k, J, n) -> (k, J, m): the rows that follow take the labels that are left.

    Raises:
        ValueError: They are no permutations, or the mask (J, m, m) forbids them.
    """
    J, m, _ = mask.shape
    rows = [
        np.append(perm, np.setdiff1d(np.arange(m), perm))
        for perm in perms.reshape(-1, perms.shape[-1])
    ]
    if any(len(row) != m for row in rows):
        raise ValueError("start must give every row a label of its own, got one twice or none.")
    filled = np.stack(rows).reshape(-1, J, m)
    if not np.take_along_axis(mask[None], filled[..., None], axis=-1).all():
        raise ValueError("start must keep to the mask of the model, got a forbidden pair.")
    return filled


def observer(task: Task, observe: Any) -> Observe | None:
    """A function that is to be shown permutations as the model has them."""
    if observe is None:
        return None
    if not callable(observe):
        raise TypeError(f"observe must be a function of permutations and W, got {observe!r:.60}.")
    return lambda perms, W: observe(outer(task, perms), W)
