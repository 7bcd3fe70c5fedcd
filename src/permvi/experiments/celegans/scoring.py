"""The one place that looks at the truth."""

from collections import Counter
from typing import Any

import numpy as np

from permvi.experiments._worms import Worms
from permvi.models import SharedDynamics
from permvi.posterior import Posterior

# Levels of confidence that rows tell apart.
_DIGITS = 3


def accuracies(posterior: Posterior, worms: Worms) -> dict[str, float]:
    """The fractions of all neurons, and of those that were not known, that have their own name.

    In the permutations of which a posterior expects the most names to be right, and ("mode") in
    the most probable ones that were found; and the fraction of unknown neurons that is expected to
    be right.
    """
    decided = posterior.expected_loss("hamming").perm
    right, right_in_mode = (
        perm.reshape(worms.truth.shape) == worms.truth for perm in (decided, posterior.mode)
    )
    unknown = worms.known < 0
    return {
        "accuracy": float(right.mean()),
        "accuracy_unknown": float(right[unknown].mean()),
        "accuracy_mode": float(right_in_mode.mean()),
        "expected_accuracy": float(_marginals(posterior).max(axis=-1)[unknown].mean()),
    }


def confidences(posterior: Posterior, worms: Worms) -> list[dict[str, Any]]:
    """How often the likeliest name was right and wrong, by its probability.

    Of neurons that were not known. Probabilities are rounded to keep rows few.
    """
    marginals = _marginals(posterior)
    unknown = worms.known < 0
    levels = np.round(marginals.max(axis=-1)[unknown], _DIGITS).tolist()
    right = (marginals.argmax(axis=-1) == worms.truth)[unknown].tolist()
    counts = Counter(zip(levels, right, strict=True))
    return [
        {"confidence": level, "right": counts[level, True], "wrong": counts[level, False]}
        for level in sorted(set(levels))
    ]


def fit_of_dynamics(
    posterior: Posterior, model: SharedDynamics, worms: Worms
) -> dict[str, float | None]:
    """Log likelihood and relative error of the weights, where the method has learned any.

    The likelihood is that of the best permutations and the mean weights, for each neuron and time
    step.
    """
    if "W" not in posterior.latents:
        return {"log_likelihood": None, "weight_error": None}
    found = posterior.latents["W"].mean
    true = worms.weights[tuple(np.asarray(model.edges).T)]
    value = float(model.log_density_of(posterior.mode, found))
    return {
        "log_likelihood": value / worms.recordings[:, 1:].size,
        "weight_error": float(np.linalg.norm(found - true) / np.linalg.norm(true)),
    }


def variance(posterior: Posterior) -> float:
    """The summed variance of all entries of X, for each neuron: 0 for one permutation."""
    p = _marginals(posterior)
    return float((p * (1 - p)).sum(axis=-1).mean())


def _marginals(posterior: Posterior) -> np.ndarray:
    """(J, n, m), also for one worm."""
    return posterior.marginals.reshape(-1, *posterior.shape)
