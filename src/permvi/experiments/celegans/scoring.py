"""Scores of fits: the one module that reads the true identities, and the calibration of fits."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from permvi import metrics
from permvi.experiments._worms import Worms
from permvi.experiments.celegans.settings import Setting
from permvi.experiments.runner import Row
from permvi.models import SharedDynamics
from permvi.posterior import Posterior

# Digits of a confidence in the rows.
_DIGITS = 3


def accuracies(posterior: Posterior, worms: Worms) -> dict[str, float]:
    """Return the fractions of neurons that have their true name.

    "accuracy" counts all neurons and "accuracy_unknown" those that were not known, in the
    permutations with the largest expected number of right names. "accuracy_mode" counts all
    neurons in the most probable permutations found. "expected_accuracy" is the fraction of unknown
    neurons that the posterior expects to be right.
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
    """Count right and wrong likeliest names of unknown neurons, by their probability.

    Probabilities are rounded to keep the rows few.
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
    """Return the log likelihood and the relative error of the weights, if the method learns W.

    The log likelihood is that of the mode and the mean weights, per neuron and time step.
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
    """Return the summed variance of a row of X, averaged over neurons: 0 for one permutation."""
    p = _marginals(posterior)
    return float((p * (1 - p)).sum(axis=-1).mean())


def _marginals(posterior: Posterior) -> np.ndarray:
    """Return the marginals as (J, n, m), also for one worm."""
    return posterior.marginals.reshape(-1, *posterior.shape)


class Confidence(NamedTuple):
    """Confidence in k neurons that were not known."""

    levels: np.ndarray  # (k,) probability of the likeliest name
    correct: np.ndarray  # (k,) whether the name was right

    @property
    def error(self) -> float:
        """The calibration error with ten bins of equal mass."""
        return metrics.calibration_error(self.levels, self.correct)

    @property
    def auc(self) -> float | None:
        """The probability that a right name has more confidence than a wrong one.

        Ties count half. None if all names are right, or all wrong.
        """
        right, wrong = self.levels[self.correct], self.levels[~self.correct]
        if not (len(right) and len(wrong)):
            return None
        return float(stats.mannwhitneyu(right, wrong).statistic / (len(right) * len(wrong)))


def confidence_by_setting(rows: Iterable[Row]) -> dict[tuple[str, Setting], Confidence]:
    """Return the confidence of each method in each setting."""
    found: dict[tuple[str, Setting], list[Row]] = defaultdict(list)
    for row in rows:
        if row["part"] == "confidence":
            found[row["method"], Setting.of(row)].append(row)
    return {key: _of_levels(own) for key, own in found.items()}


def pooled_confidence(
    found: dict[tuple[str, Setting], Confidence], settings: Iterable[Setting]
) -> dict[str, Confidence]:
    """Pool the confidence of each method over settings."""
    wanted = set(settings)
    parts: dict[str, list[Confidence]] = defaultdict(list)
    for (method, setting), own in found.items():
        if setting in wanted:
            parts[method].append(own)
    return {
        method: Confidence(*map(np.concatenate, zip(*own, strict=True)))
        for method, own in parts.items()
    }


def _of_levels(rows: list[Row]) -> Confidence:
    counts = np.array([[row["right"], row["wrong"]] for row in rows]).ravel()
    levels = np.repeat([row["confidence"] for row in rows], 2)
    return Confidence(
        np.repeat(levels, counts), np.repeat(np.tile([True, False], len(rows)), counts)
    )
