"""What all methods for shared dynamics begin with: the statistics of a model, and its permutations.

A model of this kind has the hook ``shared_regression``, which gives statistics of recordings that
share a sparse regression; the weights of the regression are its latent ``W``. Known neurons are
kept as entries of the mask, and there are as many rows as labels.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from permvi.inference.dynamics.regression import Scales, SharedRegression
from permvi.models.protocol import optional
from permvi.problem.prepare import Prepared

LATENT = "W"

Observe = Callable[[np.ndarray, np.ndarray], None]


class Dynamics(NamedTuple):
    """The dynamics that the subjects of a model share.

    Attributes:
        problem: Statistics of the recordings.
        scales: Variances of weights and noise as the model has them.
        learn_weight: Whether the variance of the weights is to be learned.
        learn_noise: Whether the variance of the noise is.
    """

    problem: SharedRegression
    scales: Scales
    learn_weight: bool
    learn_noise: bool


def dynamics_of(prepared: Prepared, method: str) -> Dynamics:
    """Return the dynamics that the subjects of a model share.

    Raises:
        ValueError: The model has none.
    """
    hook = optional(prepared.model, "shared_regression")
    if hook is None:
        raise ValueError(
            f"model must have shared dynamics for method {method!r}, e.g. a "
            f"models.SharedDynamics, got a {type(prepared.model).__name__}."
        )
    given: dict[str, Any] = hook()
    fields = (field.name for field in dataclasses.fields(SharedRegression))
    return Dynamics(
        SharedRegression(**{name: given[name] for name in fields}),
        Scales(given["weight_scale"] ** 2, given["noise_scale"] ** 2),
        given["learn_weight"],
        given["learn_noise"],
    )


def unknown_rows(prepared: Prepared, problem: SharedRegression) -> np.ndarray:
    """Return (n,) or (J, n) which rows have a recording and are not known."""
    recorded = problem.recorded[:, : prepared.model.shape[0]]
    recorded = recorded[0] if prepared.model.num_sites == 1 else recorded
    known = optional(prepared.model, "known")
    return recorded if known is None else recorded & (np.asarray(known) < 0)


def outer(prepared: Prepared, perms: np.ndarray) -> np.ndarray:
    """Return permutations (..., J, m) as the model has them: (..., n), or (..., J, n) if J > 1."""
    rows = perms[..., : prepared.model.shape[0]]
    return rows[..., 0, :] if prepared.model.num_sites == 1 else rows


def inner(mask: np.ndarray, perms: np.ndarray) -> np.ndarray:
    """Fill (k, n) or (k, J, n) up to (k, J, m): rows that follow take the labels that are left.

    Raises:
        ValueError: They are not permutations, or the mask (J, m, m) forbids them.
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


def observer(prepared: Prepared, observe: Any) -> Observe | None:
    """Return the user's function, which is to be shown permutations as the model has them."""
    if observe is None:
        return None
    if not callable(observe):
        raise TypeError(f"observe must be a function of permutations and W, got {observe!r:.60}.")
    return lambda perms, W: observe(outer(prepared, perms), W)
