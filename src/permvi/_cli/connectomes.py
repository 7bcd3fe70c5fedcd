"""The canonical neurons: who may be connected with whom, and where they are."""

import dataclasses
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np

from permvi._cli.csv_records import Records, read_records
from permvi._cli.csv_rows import read_rows
from permvi._cli.csv_tables import read_table
from permvi._cli.kinds import CELEGANS

_EDGE = ("from", "to")
_NEURON = "neuron"
_AXES = (1, 3)


@dataclasses.dataclass(frozen=True, eq=False)
class Canonical:
    """The canonical neurons.

    Attributes:
        source: Where they come from, in a word.
        names: (m,) their names.
        support: (m, m) booleans: ``support[a, b]`` if b may drive a.
        positions: (m, d) coordinates, or None.
        axes: (d,) names of the coordinates; empty if any name will do.
    """

    source: str
    names: tuple[str, ...]
    support: np.ndarray
    positions: np.ndarray | None = None
    axes: tuple[str, ...] = ()


def read_canonical(connectome: str, positions: Path | None, *, directed: bool) -> Canonical:
    """The canonical neurons by the name of the built-in connectome or from files.

    Args:
        connectome: "celegans", or the name of a CSV file: a square table with a row for each
            neuron that sends and a column for each that receives, or a list ``from,to`` with
            perhaps a number for each edge. Zeros and empty cells are no edges.
        positions: A CSV file ``neuron`` and one to three coordinates. To a list of edges it adds
            neurons that have none.
        directed: Whether signals follow edges one way only; else an edge serves both ways.

    Raises:
        ValueError: Something in a file is wrong.
        OSError: A file cannot be read.
    """
    given = None if positions is None else read_records(positions, (_NEURON,), numbers=_AXES)
    if connectome == CELEGANS:
        found = _celegans(directed=directed)
    else:
        others = () if given is None else [record.names[_NEURON] for record in given.rows]
        found = _from_file(Path(connectome), others, directed=directed)
    if given is None:
        return found
    return dataclasses.replace(found, positions=_positions(given, found), axes=given.columns)


def _celegans(*, directed: bool) -> Canonical:
    from permvi.datasets import celegans

    worm = celegans()
    support = worm.adjacency
    if directed:
        support = support & ((worm.chemical > 0) | (worm.gap > 0)).T
    return Canonical(CELEGANS, worm.names, support, worm.positions[:, None])


def _from_file(path: Path, others: Iterable[str], *, directed: bool) -> Canonical:
    header = next(read_rows(path).rows)
    listed = tuple(cell.strip().lower() for cell in header.cells[:2]) == _EDGE
    names, sends = _from_list(path, others) if listed else _from_table(path)
    if not sends.any():
        raise ValueError(f"{path}: expected at least one edge, got none.")
    support = sends.T if directed else sends | sends.T
    return Canonical(str(path), names, support)


def _from_list(path: Path, others: Iterable[str]) -> tuple[tuple[str, ...], np.ndarray]:
    records = read_records(path, _EDGE, numbers=(0, 1))
    named = chain(*(record.names.values() for record in records.rows), others)
    place = {name: k for k, name in enumerate(dict.fromkeys(named))}
    sends = np.zeros((len(place), len(place)), bool)
    for record in records.rows:
        sends[tuple(place[name] for name in record.names.values())] |= bool(record.values.all())
    return tuple(place), sends


def _from_table(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    table = read_table(path)
    table = table.aligned(table.cols, table.cols)
    return table.cols, np.nan_to_num(table.values) != 0


def _positions(given: Records, canonical: Canonical) -> np.ndarray:
    """(m, d) coordinates in the order of the canonical neurons."""
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
