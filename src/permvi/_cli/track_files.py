"""Read the points of frames from a CSV file."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi._cli.csv_cells import is_number
from permvi._cli.csv_tables import read_records
from permvi.models.tracks import COLUMNS

_FRAME, _ID = "frame", "id"
_AXES = (1, 3)


class Frames(NamedTuple):
    """Points in frames, as `permvi.models.Tracks` takes them."""

    points: list[np.ndarray]  # for each frame an (n, d) array
    ids: list[tuple[str, ...]]  # for each frame the names of its points
    names: list[str]
    axes: tuple[str, ...]  # (d,) names of the coordinates


def read_frames(path: Path) -> Frames:
    """Read frames from a CSV file with ``frame``, optionally ``id``, and one to three coordinates.

    Frames whose names are all numbers come in numerical order, others in the order of the file.
    Points without an id are counted from 1 in each frame.
    """
    records = read_records(path, (_FRAME, _ID), optional=(_ID,), numbers=_AXES)
    for column in records.columns:
        if column in COLUMNS:
            raise ValueError(
                f"{path}: expected coordinates with other names than the output has, got "
                f"{column!r}."
            )
    found: dict[str, dict[str, np.ndarray]] = {}
    for record in records.rows:
        points = found.setdefault(record.names[_FRAME], {})
        name = record.names.get(_ID, str(len(points) + 1))
        if name in points:
            raise ValueError(
                f"{records.at(record)}: expected each point of a frame once, got {name!r:.60} "
                "again."
            )
        points[name] = record.values
    if len(found) < 2:
        raise ValueError(f"{path}: expected two frames or more, got one.")
    names = list(found)
    if all(map(is_number, names)):
        names.sort(key=lambda name: float(name.replace(",", ".")))
    points_of = [np.stack([*found[name].values()]) for name in names]
    return Frames(points_of, [tuple(found[name]) for name in names], names, records.columns)
