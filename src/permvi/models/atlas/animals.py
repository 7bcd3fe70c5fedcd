"""Animals with cells, features and names: from arrays and files, and brought into one frame."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from permvi._checks import one_of
from permvi._csv import Numbers, Row, at, check_header, check_width, read_rows
from permvi.models.atlas.frames import ALIGNMENTS, Align
from permvi.models.labels import is_frame

# Columns of CSV files that are not features.
_ANIMAL = ("animal", "worm")
_CELL = ("cell", "marker", "neuron", "item", "id", "")
_NAME = ("name", "label", "identity")
# A feature with such a name is a coordinate: x, y_px, Z (um).
_COORDINATE = re.compile(r"[xyz]([_ (\[].*)?", re.IGNORECASE)
# What the features of aligned worms in MATLAB files are.
_MATLAB = ("x", "y", "z", "red", "green", "blue")
# Of `align_animals`.
_ROUNDS, _WEIGHT_STEPS, _TAIL = 20, 5, 5.0


@dataclasses.dataclass(frozen=True, eq=False)
class Animal:
    """The cells of one animal.

    Attributes:
        cells: (n, d) features of each cell, NaN where one is missing.
        names: (n,) the label of each cell, None where it is unknown.
        features: (d,) names of the features.
        ids: (n,) names of the cells themselves.
        animal: The name of the animal.

    Raises:
        ValueError: Shapes do not fit, or two cells have the same label.
    """

    cells: np.ndarray
    names: tuple[str | None, ...]
    features: tuple[str, ...]
    ids: tuple[str, ...] = ()
    animal: str = ""

    def __post_init__(self) -> None:
        cells = np.asarray(self.cells, dtype=np.float64)
        if cells.ndim != 2 or cells.shape[1] != len(self.features):
            raise ValueError(
                f"cells must have shape (n, {len(self.features)}) for the features "
                f"{', '.join(self.features)!r:.60}, got shape {cells.shape}."
            )
        if np.isinf(cells).any():
            raise ValueError("cells must be finite, or NaN where a feature is missing, got inf.")
        names = tuple(None if name is None or name == "" else str(name) for name in self.names)
        given = [name for name in names if name is not None]
        twice = next((name for k, name in enumerate(given) if name in given[:k]), None)
        if twice is not None:
            raise ValueError(f"names must differ within an animal, got {twice!r:.60} twice.")
        ids = tuple(self.ids) or tuple(map(str, range(len(cells))))
        for field, values in (("names", names), ("ids", ids)):
            if len(values) != len(cells):
                raise ValueError(f"{field} must name {len(cells)} cells, got {len(values)}.")
        for field, value in (("cells", cells), ("names", names), ("ids", ids)):
            object.__setattr__(self, field, value)

    def __len__(self) -> int:
        return len(self.cells)

    def using(self, features: Sequence[str]) -> Animal:
        """Return the animal with these features only, in this order."""
        missing = [name for name in features if name not in self.features]
        if missing:
            raise ValueError(
                f"features must be among {', '.join(self.features)!r:.60}, got {missing[0]!r:.60}."
            )
        places = [self.features.index(name) for name in features]
        return dataclasses.replace(self, cells=self.cells[:, places], features=tuple(features))


def num_coordinates(features: Sequence[str]) -> int:
    """Return how many of the first features are coordinates, by their names: x, y_px, z."""
    flags = [_COORDINATE.fullmatch(name.strip()) is not None for name in features]
    return flags.index(False) if False in flags else len(flags)


def as_animals(animals: Any, labels: Sequence[str] | None) -> list[Animal]:
    """Return animals from a list of them, of DataFrames, or from an array (num, m, d).

    The index of a DataFrame names its cells and the columns are features. An array has a row for
    each of the ``labels``, NaN where a label was not seen.
    """
    if isinstance(animals, np.ndarray):
        if animals.ndim != 3:
            raise ValueError(f"animals must have shape (num, m, d), got shape {animals.shape}.")
        names = labels or tuple(map(str, range(animals.shape[1])))
        if len(names) != animals.shape[1]:
            raise ValueError(f"labels must name {animals.shape[1]} rows, got {len(names)}.")
        features = default_features(animals.shape[2])
        return [_seen(cells, names, features, str(k)) for k, cells in enumerate(animals)]
    if not isinstance(animals, Iterable):
        raise TypeError(f"animals must be a list of animals, got {type(animals).__name__}.")
    found = [_as_animal(one) for one in animals]
    if not found:
        raise ValueError("animals must hold at least one animal, got none.")
    return found


def default_features(num: int) -> tuple[str, ...]:
    """Return x, y, z, red, green, blue for up to six features."""
    return _MATLAB[:num] if num <= len(_MATLAB) else tuple(f"feature {k}" for k in range(num))


def _as_animal(value: Any) -> Animal:
    if is_frame(value):
        # An unnamed cell has no text in the index.
        names = [name if isinstance(name, str) else None for name in value.index]
        return Animal(value.to_numpy(float), tuple(names), tuple(map(str, value.columns)))
    if not isinstance(value, Animal):
        raise TypeError(f"animals must be Animal objects or frames, got {type(value).__name__}.")
    return value


def _seen(
    cells: np.ndarray, names: Sequence[str], features: tuple[str, ...], animal: str
) -> Animal:
    there = np.flatnonzero(np.isfinite(cells).all(axis=-1)).tolist()
    return Animal(cells[there], tuple(names[j] for j in there), features, animal=animal)


def cells_by_label(animals: Sequence[Animal], names: Sequence[str]) -> np.ndarray:
    """Return (num, m, d) features by label, NaN where a label was not seen."""
    place = {name: j for j, name in enumerate(names)}
    cells = np.full((len(animals), len(names), len(animals[0].features)), np.nan)
    for k, animal in enumerate(animals):
        for i, name in enumerate(animal.names):
            if name is not None:
                cells[k, place[name]] = animal.cells[i]
    return cells


def read_animals(*paths: str | PathLike[str]) -> list[Animal]:
    """Read animals from MATLAB and CSV files.

    A MATLAB file has an array ``M`` (labels, features, animals), NaN where a label was not seen,
    and a cell array ``N`` with the labels; features are x, y, z, red, green, blue. A CSV file has a
    row for each cell. The column name, label or identity holds its label or nothing; cell, marker,
    neuron, item or id its own name; animal or worm the animal, else each file is one. All other
    columns are features, empty where one is missing.

    Raises:
        ValueError: A file holds something else.
    """
    found = []
    for path in map(Path, paths):
        found += _from_matlab(path) if path.suffix == ".mat" else _from_csv(path)
    return found


def _from_matlab(path: Path) -> list[Animal]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a MATLAB file, got no file of that name.")
    # Imported here because few users need it.
    from scipy.io import loadmat

    try:
        arrays = loadmat(path)
    except (ValueError, NotImplementedError, TypeError):
        raise ValueError(f"{path}: expected a MATLAB file of version 7.2 or before.") from None
    M, N = arrays.get("M"), arrays.get("N")
    if M is None or N is None or M.ndim != 3 or M.dtype.kind != "f" or N.size != len(M):
        names = ", ".join(name for name in arrays if not name.startswith("__"))
        raise ValueError(
            f"{path}: expected an array M (labels, features, animals) and as many names N, got "
            f"{names or 'nothing'!r:.60}."
        )
    labels = tuple(str(np.ravel(name)[0]).strip() for name in N.ravel())
    features = default_features(M.shape[1])
    return [_seen(M[..., k], labels, features, f"{path.stem}-{k + 1}") for k in range(M.shape[2])]


def _from_csv(path: Path) -> list[Animal]:
    separator, rows, _ = read_rows(path)
    header = next(rows)
    check_header(path, header)
    columns = [cell.strip() for cell in header.cells]
    places = {
        kind: next((k for k, name in enumerate(columns) if name.lower() in words), None)
        for kind, words in (("animal", _ANIMAL), ("cell", _CELL), ("name", _NAME))
    }
    taken = {place for place in places.values() if place is not None}
    numeric = [k for k in range(len(columns)) if k not in taken]
    if not numeric:
        raise ValueError(f"{path}: expected columns of features, got {', '.join(columns)!r:.60}.")
    features = tuple(columns[k] for k in numeric)
    numbers = Numbers(path, separator, features, skip=0)
    found: dict[str, list[tuple[str, str | None, np.ndarray]]] = {}
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path}: expected a row for each cell, got none.")
    for row in chain([first], rows):
        check_width(path, row, len(columns))
        values = numbers.of(Row(row.line, [row.cells[k] for k in numeric]))
        if np.isinf(values).any():
            raise ValueError(f"{at(path, row.line)}: expected finite numbers, got inf.")
        text = {k: "" if p is None else row.cells[p].strip() for k, p in places.items()}
        animal = found.setdefault(
            text["animal"] or (path.stem if path.stem != "-" else "stdin"), []
        )
        animal.append((text["cell"] or str(len(animal)), text["name"] or None, values))
    try:
        return [
            Animal(
                np.stack([values for _, _, values in cells]),
                tuple(name for _, name, _ in cells),
                features,
                tuple(cell for cell, _, _ in cells),
                name,
            )
            for name, cells in found.items()
        ]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def align_animals(animals: Any, align: Align = "affine") -> list[Animal]:
    """Bring labelled animals into the frame of the one with most names, to learn an atlas of them.

    Each animal is mapped onto the mean place of each label, and the means are taken anew
    (generalised Procrustes analysis, Gower 1975). Cells that are far off count less: a squared
    distance of q times the median has the weight :math:`1 / (1 + q / 5)`.

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
