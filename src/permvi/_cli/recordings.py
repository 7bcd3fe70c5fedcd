"""Recordings of neurons from files: activity in time, one column for each neuron."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from permvi._cli.csv_numbers import Numbers
from permvi._cli.csv_records import check_finite
from permvi._cli.csv_rows import check_width, read_rows
from permvi._cli.csv_tables import check_header, check_names

# A first column of this name counts the time steps; pandas leaves the name of its index empty.
_TIMES = ("", "time", "t", "step", "frame")
_ARRAYS = (".npz", ".npy")
_ACTIVITY, _LABELS = "activity", "labels"


class Recording(NamedTuple):
    """The recording of one worm.

    Attributes:
        path: The file.
        worm: Its name without the ending.
        neurons: (n,) names of the recorded neurons, all different.
        activity: (T, n) finite numbers, T at least 2.
    """

    path: Path
    worm: str
    neurons: tuple[str, ...]
    activity: np.ndarray


def read_recordings(paths: Sequence[Path]) -> list[Recording]:
    """One recording from each file, CSV, NPZ or NPY.

    Raises:
        ValueError: Something is wrong in a file, or two worms would have the same name.
        OSError: A file cannot be read.
    """
    found: dict[str, Recording] = {}
    for path in paths:
        recording = read_recording(path)
        if recording.worm in found:
            raise ValueError(
                f"{path}: expected a file name of its own for each worm, got "
                f"{recording.worm!r:.60} again after {found[recording.worm].path}."
            )
        found[recording.worm] = recording
    return list(found.values())


def read_recording(path: Path) -> Recording:
    """The recording in a file.

    A CSV file has a header with the names of the neurons and a row for each time step; a first
    column named time, t, step, frame or nothing is left out. An NPZ file has the array
    ``activity`` (T, n) and perhaps ``labels`` (n,); an NPY file is that array alone. Neurons
    without names are counted from 0.

    Raises:
        ValueError: Something in the file is wrong.
        OSError: It cannot be read.
    """
    neurons, activity = _from_arrays(path) if path.suffix in _ARRAYS else _from_csv(path)
    if len(activity) < 2:
        raise ValueError(f"{path}: expected at least two time steps, got {len(activity)}.")
    constant = np.flatnonzero((activity == activity[0]).all(axis=0))
    if constant.size:
        raise ValueError(
            f"{path}: expected activity that changes, got a constant neuron "
            f"{neurons[constant[0]]!r:.60}; leave it out."
        )
    return Recording(path, path.stem, neurons, activity)


def _from_csv(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    separator, rows = read_rows(path)
    header = next(rows)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path}: expected at least two time steps, got none.")
    # R writes no name above its row names.
    if len(header.cells) == len(first.cells) - 1:
        header = header._replace(cells=["", *header.cells])
    check_header(path, header)
    skip = int(header.cells[0].strip().lower() in _TIMES)
    columns = enumerate(header.cells[skip:], skip + 1)
    neurons = check_names(path, [(header.line, k, cell) for k, cell in columns])
    numbers = Numbers(path, separator, header.cells, skip=skip)
    values = []
    for row in chain([first], rows):
        check_width(path, row, len(header.cells))
        values.append(numbers.of(row))
        check_finite(path, row, header.cells, values[-1])
    return neurons, np.stack(values)


def _from_arrays(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: expected a file, got none of that name.")
    arrays = _load(path)
    if _ACTIVITY not in arrays:
        raise ValueError(
            f"{path}: expected an array {_ACTIVITY!r}, got {', '.join(arrays) or 'none':.60}."
        )
    activity, labels = arrays[_ACTIVITY], arrays.get(_LABELS)
    if activity.ndim != 2 or 0 in activity.shape or activity.dtype.kind not in "iuf":
        raise ValueError(
            f"{path}: expected real numbers of shape (time, neurons), got dtype {activity.dtype} "
            f"and shape {activity.shape}."
        )
    bad = np.argwhere(~np.isfinite(activity))
    if len(bad):
        t, i = bad[0].tolist()
        raise ValueError(
            f"{path}: expected finite numbers, got {activity[t, i]} at time step {t}, neuron {i}."
        )
    return _array_names(path, labels, activity.shape[1]), activity.astype(np.float64)


def _load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {_ACTIVITY: loaded}
        with loaded:
            return dict(loaded)
    except (BadZipFile, EOFError, ValueError):
        raise ValueError(
            f"{path}: expected NumPy arrays of numbers or text, got something else."
        ) from None


def _array_names(path: Path, labels: np.ndarray | None, num: int) -> tuple[str, ...]:
    if labels is None:
        return tuple(map(str, range(num)))
    if labels.shape != (num,):
        raise ValueError(f"{path}: expected {num} labels, got shape {labels.shape}.")
    names = tuple(str(label).strip() for label in labels.tolist())
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ValueError(f"{path}: expected labels that differ, got {twice!r:.60} twice.")
    return names
