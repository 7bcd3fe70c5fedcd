"""Whether confidence keeps its promises: over neurons of one-worm fits, by method."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy import stats

from permvi import metrics
from permvi.experiments.celegans.settings import Setting
from permvi.experiments.runner import Row


class Promises(NamedTuple):
    """Neurons that were not known.

    Attributes:
        confidence: (k,) probability of the likeliest name.
        correct: (k,) whether it was right.
    """

    confidence: np.ndarray
    correct: np.ndarray

    @property
    def error(self) -> float:
        """The calibration error, with ten bins of equal mass."""
        return metrics.calibration_error(self.confidence, self.correct)

    @property
    def auc(self) -> float | None:
        """The probability that a right name has more confidence than a wrong one; ties count half.

        None where all are right, or all wrong.
        """
        right, wrong = self.confidence[self.correct], self.confidence[~self.correct]
        if not (len(right) and len(wrong)):
            return None
        return float(stats.mannwhitneyu(right, wrong).statistic / (len(right) * len(wrong)))


def by_setting(rows: Iterable[Row]) -> dict[tuple[str, Setting], Promises]:
    """Those of each method in each setting."""
    found: dict[tuple[str, Setting], list[Row]] = defaultdict(list)
    for row in rows:
        if row["part"] == "confidence":
            found[row["method"], Setting.of(row)].append(row)
    return {key: _of_levels(own) for key, own in found.items()}


def pooled(
    found: dict[tuple[str, Setting], Promises], settings: Iterable[Setting]
) -> dict[str, Promises]:
    """Those of each method in all of the settings together."""
    wanted = set(settings)
    parts: dict[str, list[Promises]] = defaultdict(list)
    for (method, setting), own in found.items():
        if setting in wanted:
            parts[method].append(own)
    return {
        method: Promises(*map(np.concatenate, zip(*own, strict=True)))
        for method, own in parts.items()
    }


def _of_levels(rows: list[Row]) -> Promises:
    counts = np.array([[row["right"], row["wrong"]] for row in rows]).ravel()
    levels = np.repeat([row["confidence"] for row in rows], 2)
    return Promises(np.repeat(levels, counts), np.repeat(np.tile([True, False], len(rows)), counts))
