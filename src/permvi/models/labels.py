"""Names of items and labels, given or taken from the index and columns of a DataFrame."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Names = tuple[str, ...] | None
Labels = tuple[Names, Names]

NO_LABELS: Labels = (None, None)
# What a first column is called that names the rows, as it is where a frame was read without them.
_OF_ROWS = ("unnamed: 0", "index", "id", "item", "name", "record", "row")


def is_frame(value: Any) -> bool:
    """Return whether a value looks like a pandas DataFrame; pandas is not imported."""
    return all(hasattr(value, name) for name in ("index", "columns", "to_numpy"))


def index_names(index: Any) -> Names:
    """Return the names in an index, or None if they only count from zero."""
    entries = list(index)
    counts = all(isinstance(entry, int | np.integer) for entry in entries)
    if counts and entries == list(range(len(entries))):
        return None
    return tuple(str(entry) for entry in entries)


def frame_labels(value: Any) -> Labels:
    """Return the names of the rows and columns of a table if it is a DataFrame."""
    return (index_names(value.index), index_names(value.columns)) if is_frame(value) else NO_LABELS


def frame_numbers(argument: str, frame: Any) -> np.ndarray:
    """Return the numbers of a DataFrame, and refuse one whose first column seems to name the rows.

    A frame that is read from a file without ``index_col`` has such a column.
    """
    columns = list(zip(frame.columns, frame.dtypes, strict=True))
    for k, (name, dtype) in enumerate(columns):
        if getattr(dtype, "kind", "O") not in "fiub":
            advice = f"; if it names the rows, use frame.set_index({name!r})" if k == 0 else ""
            raise TypeError(
                f"{argument} must have numbers in all columns, got {dtype} in {name!r:.60}{advice}."
            )
    array: np.ndarray = frame.to_numpy()
    if len(columns) > 1 and str(columns[0][0]).lower() in _OF_ROWS and not index_names(frame.index):
        first = array[:, 0]
        if len(set(first.tolist())) == len(first) and (first == np.round(first)).all():
            raise ValueError(
                f"{argument} must have numbers only, got what seems to name the rows in "
                f"{columns[0][0]!r}; use frame.set_index({columns[0][0]!r}), or rename it."
            )
    return array


def distinct(argument: str, names: Iterable[Any]) -> tuple[str, ...]:
    """Names as texts, refused with ``ValueError`` if two of them are the same."""
    texts = tuple(str(name) for name in names)
    if len(set(texts)) < len(texts):
        twice = next(text for k, text in enumerate(texts) if text in texts[:k])
        raise ValueError(f"{argument} must differ from each other, got {twice!r:.60} twice.")
    return texts


def check_labels(labels: Sequence[Any] | None, found: Labels, shape: tuple[int, int]) -> Labels:
    """Return the names of rows and columns: those given as a pair, else those found in the data."""
    if labels is None:
        labels = NO_LABELS
    if (
        isinstance(labels, str)
        or len(labels) != 2
        or any(isinstance(names, str) for names in labels)
    ):
        raise ValueError(
            f"labels must be a pair (names of rows, names of columns), got {labels!r:.60}."
        )
    checked: list[Names] = []
    sides = zip(("row", "column"), labels, found, shape, strict=True)
    for side, given, brought, size in sides:
        names = brought if given is None else tuple(str(name) for name in given)
        if names is not None and len(names) != size:
            raise ValueError(f"labels must name each of {size} {side}s, got {len(names)} names.")
        checked.append(names)
    return checked[0], checked[1]


def _position(name: str, entry: Any, places: Mapping[str, int] | None, size: int) -> int:
    """Return the index of a row or column that is given by its name or by its index."""
    if places is not None and str(entry) in places:
        return places[str(entry)]
    if isinstance(entry, int | np.integer) and 0 <= entry < size:
        return int(entry)
    wanted = f"0 to {size - 1}" if places is None else "a label or its index"
    raise ValueError(f"{name} must be {wanted}, got {entry!r}.")


def _places(names: Names) -> dict[str, int] | None:
    """Return the first index of each name."""
    if names is None:
        return None
    return {name: k for k, name in reversed(list(enumerate(names)))}


def known_from_pairs(
    pairs: Mapping[Any, Any], labels: Labels, shape: tuple[int, int]
) -> np.ndarray:
    """Turn known pairs {row: column}, by name or index, into (n,) columns, -1 for unknown."""
    known = np.full(shape[0], -1)
    rows, cols = _places(labels[0]), _places(labels[1])
    for names, entries in ((labels[0], pairs.keys()), (labels[1], pairs.values())):
        counts = Counter(names or ())
        for entry in entries:
            if counts[str(entry)] > 1:
                raise ValueError(
                    f"known must give the name of one item or label, got {entry!r:.60}, the name "
                    f"of {counts[str(entry)]}."
                )
    for row, column in pairs.items():
        i = _position("known rows", row, rows, shape[0])
        known[i] = _position("known columns", column, cols, shape[1])
    return known
