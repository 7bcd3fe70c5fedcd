"""Read recordings of neurons, connectomes and canonical positions from files."""

import dataclasses
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np

from permvi._cli.csv_tables import Records, read_records, read_table
from permvi._cli.options import CELEGANS
from permvi._csv import (
    Numbers,
    check_finite,
    check_header,
    check_names,
    check_width,
    is_number,
    read_rows,
)

# A first column with one of these names holds the time; pandas leaves the name of its index empty.
_TIMES = ("", "time", "t", "step", "frame")
_ARRAYS = (".npz", ".npy")
_ACTIVITY, _LABELS = "activity", "labels"
_EDGE = ("from", "to")
_NEURON = "neuron"
_AXES = (1, 3)


class Recording(NamedTuple):
    """The recording of one worm."""

    path: Path
    worm: str  # the file's name without its ending
    neurons: tuple[str, ...]  # (n,) distinct names of the recorded neurons
    activity: np.ndarray  # (T, n) finite numbers, T at least 2
    notes: tuple[str, ...] = ()  # what its file looks like if rows are no time steps


def read_recordings(paths: Sequence[Path]) -> list[Recording]:
    """Read one recording from each CSV, NPZ or NPY file; refuse two worms of the same name."""
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
    """Read the recording in a file.

    A CSV file has a header with the names of the neurons and a row for each time step; a first
    column named time, t, step, frame or nothing is ignored. An NPZ file has the array ``activity``
    (T, n) and optionally ``labels`` (n,); an NPY file holds only the activity. Neurons without
    names are counted from 0.
    """
    neurons, activity, notes = (
        _recording_from_arrays(path) if path.suffix in _ARRAYS else _recording_from_csv(path)
    )
    if len(activity) < 2:
        raise ValueError(f"{path}: expected at least two time steps, got {len(activity)}.")
    constant = np.flatnonzero((activity == activity[0]).all(axis=0))
    if constant.size:
        raise ValueError(
            f"{path}: expected activity that changes, got a constant neuron "
            f"{neurons[constant[0]]!r:.60}; leave it out."
        )
    if activity.shape[0] < activity.shape[1]:
        notes.append("rows are taken for time steps, of which there are fewer than neurons")
    notes += [
        f"column {name!r} is taken for a neuron" for name in neurons if name.lower() in _TIMES
    ]
    told = tuple(f"{path}: {note}." for note in notes)
    return Recording(path, path.stem if path.stem != "-" else "stdin", neurons, activity, told)


def _recording_from_csv(path: Path) -> tuple[tuple[str, ...], np.ndarray, list[str]]:
    separator, rows, _ = read_rows(path)
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
    values, named = [], False
    for row in chain([first], rows):
        check_width(path, row, len(header.cells))
        named |= not header.cells[0].strip() and not is_number(row.cells[0])
        values.append(numbers.of(row))
        check_finite(path, row, header.cells, values[-1])
    notes = ["the first column has neither name nor numbers, and is ignored"] if named else []
    return neurons, np.stack(values), notes


def _recording_from_arrays(path: Path) -> tuple[tuple[str, ...], np.ndarray, list[str]]:
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
    return _array_names(path, labels, activity.shape[1]), activity.astype(np.float64), []


def _load(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file by name."""
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


@dataclasses.dataclass(frozen=True, eq=False)
class Canonical:
    """The canonical neurons: their names, possible connections and positions."""

    source: str  # the file or the name of the built-in connectome, for messages
    names: tuple[str, ...]  # (m,) their names
    support: np.ndarray  # (m, m) booleans: ``support[a, b]`` if b may drive a
    positions: np.ndarray | None = None  # (m, d) coordinates, or None
    axes: tuple[str, ...] = ()  # (d,) names of the coordinates; empty if they may have any names


def read_canonical(connectome: str, positions: Path | None, *, directed: bool) -> Canonical:
    """Return the canonical neurons of the built-in connectome, or read them from files.

    The connectome is "celegans" or the name of a CSV file: a square table with a row for each
    sending and a column for each receiving neuron, or a list ``from,to`` with an optional number
    for each edge. Zeros and empty cells are not edges. ``directed`` edges carry signals in one
    direction only. ``positions`` is a CSV file with ``neuron`` and one to three coordinates, whose
    neurons are added to those of a list of edges.
    """
    given = None if positions is None else read_records(positions, (_NEURON,), numbers=_AXES)
    if connectome == CELEGANS:
        found = _celegans(directed=directed)
    else:
        others = () if given is None else [record.names[_NEURON] for record in given.rows]
        found = _connectome_from_file(Path(connectome), others, directed=directed)
    if given is None:
        return found
    return dataclasses.replace(
        found, positions=_canonical_positions(given, found), axes=given.columns
    )


def _celegans(*, directed: bool) -> Canonical:
    from permvi.datasets import celegans

    worm = celegans()
    support = worm.adjacency
    if directed:
        support = support & ((worm.chemical > 0) | (worm.gap > 0)).T
    return Canonical(CELEGANS, worm.names, support, worm.positions[:, None])


def _connectome_from_file(path: Path, others: Iterable[str], *, directed: bool) -> Canonical:
    header = next(read_rows(path).rows)
    listed = tuple(cell.strip().lower() for cell in header.cells[:2]) == _EDGE
    names, sends = _edges_from_list(path, others) if listed else _edges_from_table(path)
    if not sends.any():
        raise ValueError(f"{path}: expected at least one edge, got none.")
    support = sends.T if directed else sends | sends.T
    return Canonical(str(path), names, support)


def _edges_from_list(path: Path, others: Iterable[str]) -> tuple[tuple[str, ...], np.ndarray]:
    records = read_records(path, _EDGE, numbers=(0, 1))
    named = chain(*(record.names.values() for record in records.rows), others)
    place = {name: k for k, name in enumerate(dict.fromkeys(named))}
    sends = np.zeros((len(place), len(place)), bool)
    for record in records.rows:
        sends[tuple(place[name] for name in record.names.values())] |= bool(record.values.all())
    return tuple(place), sends


def _edges_from_table(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    table = read_table(path)
    table = table.aligned(table.cols, table.cols)
    return table.cols, np.nan_to_num(table.values) != 0


def _canonical_positions(given: Records, canonical: Canonical) -> np.ndarray:
    """Return the (m, d) coordinates in the order of the canonical neurons."""
    place = {name: k for k, name in enumerate(canonical.names)}
    found = np.full((len(place), len(given.columns)), np.nan)
    for record in given.rows:
        name = record.names[_NEURON]
        if name not in place:
            raise ValueError(
                f"{given.at(record)}: expected a neuron of {canonical.source}, got {name!r:.60}."
            )
        if np.isfinite(found[place[name]]).any():
            raise ValueError(
                f"{given.at(record)}: expected each neuron once, got {name!r:.60} again."
            )
        found[place[name]] = record.values
    missing = np.flatnonzero(np.isnan(found).any(axis=1))
    if missing.size:
        raise ValueError(
            f"{given.path}: expected a position of each neuron of {canonical.source}, got none of "
            f"{canonical.names[missing[0]]!r:.60}."
        )
    return found
