r"""Labelled animals in one frame of reference, by the labels that they share.

Each animal is mapped onto the mean place of each label, and the means are taken anew (generalised
Procrustes analysis, Gower 1975). Cells that are far off count less: a squared distance of q times
the median has the weight :math:`1 / (1 + q / 5)`.
"""

import dataclasses
from typing import Any

import numpy as np

from permvi._checks import one_of
from permvi.models.atlas.animals import Animal, as_animals, num_coordinates
from permvi.models.atlas.atlas import cells_by_label
from permvi.models.atlas.frames import ALIGNMENTS, Align

_ROUNDS, _WEIGHT_STEPS, _TAIL = 20, 5, 5.0


def align_animals(animals: Any, align: Align = "affine") -> list[Animal]:
    """Bring labelled animals into the frame of the one with most names, to learn an atlas of them.

    Coordinates are mapped by a similarity or an affine map; other features by a gain and an offset,
    which give the labels that animals share one median and one median absolute deviation.

    Args:
        animals: As in `Atlas.fit`. Cells without a name are mapped as well.
        align: "similarity" or "affine".

    Raises:
        ValueError: An animal shares too few labels with the others.
    """
    one_of("align", align, ALIGNMENTS)
    found = as_animals(animals, None)
    found = [animal.using(found[0].features) for animal in found]
    q = num_coordinates(found[0].features)
    names = tuple(sorted({name for one in found for name in one.names if name is not None}))
    tables = cells_by_label(found, names)
    first = tables[int(np.argmax(np.isfinite(tables).all(axis=-1).sum(axis=1)))]
    center = first
    for _ in range(_ROUNDS):
        maps = [_map(table, center, q, align) for table in tables]
        moved = np.stack([t @ linear.T + b for t, (linear, b) in zip(tables, maps, strict=True)])
        seen = np.isfinite(moved).all(axis=-1)[..., None]
        sums = np.where(seen, moved, 0.0).sum(axis=0)
        mean = np.where(seen.any(axis=0), sums / np.maximum(seen.sum(axis=0), 1), np.nan)
        # Means shrink, so they are brought back to the size of the first animal.
        linear, shift = _map(mean, first, q, "similarity")
        center = mean @ linear.T + shift
    return [
        dataclasses.replace(one, cells=one.cells @ linear.T + shift)
        for one, (linear, shift) in zip(found, maps, strict=True)
    ]


def _map(
    source: np.ndarray, target: np.ndarray, q: int, align: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the map (d, d), (d,) of labels (m, d), NaN where unseen, whose first q are places."""
    both = np.isfinite(source).all(axis=1) & np.isfinite(target).all(axis=1)
    if both.sum() < q + 2:
        raise ValueError(f"animals must share at least {q + 2} labels, got {both.sum()} in one.")
    x, y, d = source[both], target[both], source.shape[1]
    linear, shift = np.zeros((d, d)), np.zeros(d)
    middle = np.median(x, axis=0), np.median(y, axis=0)
    spread = [np.median(np.abs(a - m), axis=0) for a, m in zip((x, y), middle, strict=True)]
    gain = spread[1][q:] / np.where(spread[0][q:] > 0, spread[0][q:], 1.0)
    linear[range(q, d), range(q, d)], shift[q:] = gain, middle[1][q:] - gain * middle[0][q:]
    weights = np.ones(len(x))
    for _ in range(_WEIGHT_STEPS if q else 0):
        A, b = _linear_map(x[:, :q], y[:, :q], weights, align)
        linear[:q, :q], shift[:q] = A, b
        squares = ((x[:, :q] @ A.T + b - y[:, :q]) ** 2).sum(axis=1)
        weights = 1.0 / (1.0 + squares / (_TAIL * max(float(np.median(squares)), 1e-300)))
    return linear, shift


def _linear_map(
    x: np.ndarray, y: np.ndarray, weights: np.ndarray, align: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the map A, b with least weighted squares; a similarity as by Umeyama (1991)."""
    from_, to = (np.average(a, axis=0, weights=weights) for a in (x, y))
    root = np.sqrt(weights)[:, None]
    u, v = root * (x - from_), root * (y - to)
    if align == "affine":
        A = np.linalg.lstsq(u, v, rcond=None)[0].T
    else:
        left, values, right = np.linalg.svd(v.T @ u)
        values[-1] *= (sign := np.sign(np.linalg.det(left @ right)))
        left[:, -1] *= sign
        A = values.sum() / (u**2).sum() * left @ right
    return A, to - A @ from_
