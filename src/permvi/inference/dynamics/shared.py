"""Statistics and permutations of a model with shared dynamics, as its methods take them.

Such a model has the hook ``shared_regression``, which returns statistics of recordings that share a
sparse regression. The weights of the regression are its latent ``W``. Known neurons are kept as
entries of the mask, and there are as many rows as labels.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from permvi.inference.dynamics.measurement import Filter
from permvi.inference.dynamics.regression import Observe, Scales, SharedRegression
from permvi.problem.prepare import Prepared

LATENT = "W"


class Dynamics(NamedTuple):
    """The dynamics that the subjects of a model share.

    Attributes:
        problem: Statistics of the recordings.
        scales: The model's variances of weights and noise.
        learn_weight: Whether to learn the variance of the weights.
        learn_noise: Whether to learn the variance of the noise.
        degrees: Degrees of freedom of the innovations if they have heavy tails.
        filtered: Returns statistics of inputs without measurement noise, if they may have some.
    """

    problem: SharedRegression
    scales: Scales
    learn_weight: bool
    learn_noise: bool
    degrees: float | None = None
    filtered: Filter | None = None


def dynamics_of(prepared: Prepared, method: str, *, forgive: bool = False) -> Dynamics:
    """Return the dynamics that the subjects of a model share.

    To ``forgive`` is to ask the hook ``forgiving_regression``, if the model has it, for statistics
    that allow for heavy tails.

    Raises:
        ValueError: The model has no shared dynamics.
    """
    hook = getattr(prepared.model, "shared_regression", None)
    if hook is None:
        raise ValueError(
            f"model must have shared dynamics for method {method!r}, e.g. a "
            f"models.SharedDynamics, got a {type(prepared.model).__name__}."
        )
    given: dict[str, Any] = (
        getattr(prepared.model, "forgiving_regression", hook)() if forgive else hook()
    )
    fields = (field.name for field in dataclasses.fields(SharedRegression))
    return Dynamics(
        SharedRegression(**{name: given[name] for name in fields}),
        Scales(given["weight_scale"] ** 2, given["noise_scale"] ** 2),
        given["learn_weight"],
        given["learn_noise"],
        given.get("degrees"),
        given.get("filtered"),
    )


def unknown_rows(prepared: Prepared, problem: SharedRegression) -> np.ndarray:
    """Return (n,) or (J, n) booleans, True for recorded rows whose label is not known."""
    recorded = problem.recorded[:, : prepared.model.shape[0]]
    recorded = recorded[0] if prepared.model.num_sites == 1 else recorded
    known = getattr(prepared.model, "known", None)
    return recorded if known is None else recorded & (np.asarray(known) < 0)


def outer(prepared: Prepared, perms: np.ndarray) -> np.ndarray:
    """Cut permutations (..., J, m) to those of the model: (..., n), or (..., J, n) if J > 1."""
    rows = perms[..., : prepared.model.shape[0]]
    return rows[..., 0, :] if prepared.model.num_sites == 1 else rows


def inner(mask: np.ndarray, perms: np.ndarray) -> np.ndarray:
    """Extend permutations (k, n) or (k, J, n) to (k, J, m); new rows take the unused labels.

    Raises:
        ValueError: A label is used twice, or the mask (J, m, m) forbids a pair.
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
        raise ValueError("start must respect the mask of the model, got a forbidden pair.")
    return filled


def observer(prepared: Prepared, observe: Any) -> Observe | None:
    """Wrap the user's function so that it is called with the permutations of the model."""
    if observe is None:
        return None
    if not callable(observe):
        raise TypeError(f"observe must be a function of permutations and W, got {observe!r:.60}.")
    return lambda perms, W: observe(outer(prepared, perms), W)
