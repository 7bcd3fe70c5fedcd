"""Tails matched with one standard deviation for each feature, as without labelled animals.

Centres are means over the other animals, scales the standard deviations of their residuals.
"Assigned" is the best matching of the same scores in which no cell is left out, as certain.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import permvi as pv
from benchmarks.atlas_scores import Answer
from permvi.models import Animal, Atlas, AtlasMatching, PointMatching
from permvi.models.atlas.animals import cells_by_label
from permvi.models.rarity import log_density_as_rare


def left_out(animals: Sequence[Animal], k: int) -> Iterator[tuple[str, Answer]]:
    """Yield the answers of each setting for one animal; the last label is "none"."""
    others = [animal for j, animal in enumerate(animals) if j != k]
    names = tuple(sorted({str(name) for animal in others for name in animal.names}))
    table = cells_by_label(others, names)
    centers = np.nanmean(table, axis=0)
    sd = np.sqrt(np.nanmean((table - centers) ** 2, axis=(0, 1)))
    cells = animals[k].cells
    truth = np.array([names.index(str(name)) for name in animals[k].names])
    kinds = ("gaussian", sd), ("student_t", sd / np.sqrt(2))
    atlas = Atlas.from_moments(centers, np.diag(sd**2), labels=names, features=animals[k].features)
    models: dict[str, Any] = {"moments": AtlasMatching(cells, atlas)}
    for noise, scale in kinds:
        models[noise] = PointMatching(cells, centers, scale, noise)
    for noise, model in list(models.items()):
        best = linear_sum_assignment(model.scores, maximize=True)[1]
        certain = np.eye(len(names) + 1)[best]
        yield f"{noise}, assigned", Answer(certain, best, truth, "", "", 0.0)
    models["student_t of scale sd"] = PointMatching(cells, centers, sd, "student_t")
    models["scale inferred"] = PointMatching(cells / sd, centers / sd, None)
    for distance in (3.0, 4.0):
        for noise, scale in kinds:
            alone = log_density_as_rare(noise, distance, scale, 4.0)
            models[f"{noise}, unmatched {distance:g}"] = PointMatching(
                cells, centers, scale, noise, row_unmatched=alone
            )
    for method, model in models.items():
        yield method, _answer(model, truth)


def _answer(model: Any, truth: np.ndarray) -> Answer:
    posterior = pv.fit(model)
    m = model.shape[1]
    table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
    mode = np.where(posterior.mode < 0, m, posterior.mode)
    words = posterior.diagnostics.verdict, posterior.check(model).verdict
    return Answer(table, mode, truth, *words, 0.0)
