"""Tails matched as points with one standard deviation for each feature, without an atlas.

Centres are means over the other animals, scales the standard deviations of their residuals.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import permvi as pv
from benchmarks.atlas_scores import Answer
from permvi.models import Animal, PointMatching
from permvi.models.atlas.animals import cells_by_label
from permvi.models.points import log_density

# The distance of --unmatched, and the one beyond which 1 % of right labels are.
DISTANCES = (3.0, {3: 3.37, 6: 4.10})


def left_out(animals: Sequence[Animal], k: int) -> Iterator[tuple[str, Answer]]:
    """Yield the answers of each setting for one animal; the last label is "none"."""
    others = [animal for j, animal in enumerate(animals) if j != k]
    names = tuple(sorted({str(name) for animal in others for name in animal.names}))
    table = cells_by_label(others, names)
    centers = np.nanmean(table, axis=0)
    sd = np.sqrt(np.nanmean((table - centers) ** 2, axis=(0, 1)))
    cells, d = animals[k].cells, len(sd)
    truth = np.array([names.index(str(name)) for name in animals[k].names])
    near, far = DISTANCES[0], DISTANCES[1][d]
    models = {
        "points": PointMatching(cells, centers, sd),
        "points, student_t": PointMatching(cells, centers, sd / np.sqrt(2), "student_t"),
        "points, student_t of scale sd": PointMatching(cells, centers, sd, "student_t"),
        "points, scale inferred": PointMatching(cells / sd, centers / sd, None),
        "points, unmatched 3": PointMatching(cells, centers, sd, row_unmatched=_alone(near, sd)),
        "points, unmatched 1 %": PointMatching(cells, centers, sd, row_unmatched=_alone(far, sd)),
    }
    for method, model in models.items():
        yield method, _answer(model, truth)


def _alone(distance: float, sd: np.ndarray) -> float:
    """Return the weight of a label so many standard deviations away, as `permvi match` does."""
    away = np.zeros(len(sd))
    away[0] = distance * sd[0]
    return float(log_density("gaussian", away, sd, 4.0))


def _answer(model: Any, truth: np.ndarray) -> Answer:
    posterior = pv.fit(model)
    m = model.shape[1]
    table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
    mode = np.where(posterior.mode < 0, m, posterior.mode)
    words = posterior.diagnostics.verdict, posterior.check(model).verdict
    return Answer(table, mode, truth, *words, 0.0)
