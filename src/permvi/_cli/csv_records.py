"""Records from CSV files: columns of names in a fixed order, then perhaps columns of numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi._cli.csv_numbers import Numbers
from permvi._cli.csv_rows import Row, at, check_width, read_rows
from permvi._cli.csv_tables import check_names


class Record(NamedTuple):
    """One row of a file.

    Attributes:
        line: The line that it starts on.
        names: Its names by column, as far as the file has these columns.
        values: Its numbers, all finite.
    """

    line: int
    names: Mapping[str, str]
    values: np.ndarray


class Records(NamedTuple):
    """The rows of a file.

    Attributes:
        path: The file.
        columns: The names of the columns of numbers.
        rows: Its records.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[Record]

    def at(self, record: Record) -> str:
        """Where a record is, in words."""
        return at(self.path, record.line)


def read_records(
    path: Path,
    names: Sequence[str],
    *,
    optional: Sequence[str] = (),
    numbers: tuple[int, int] = (0, 0),
) -> Records:
    """The records of a file whose header says, in this order and any case, which columns it has.

    Args:
        path: The file.
        names: The columns of names.
        optional: Those of them that may be missing.
        numbers: How many columns of numbers follow, at least and at most.

    Raises:
        ValueError: The header is another one, a row has too many or too few cells, a name is
            missing, or a cell is no finite number; the message has the line.
        OSError: The file cannot be read.
    """
    separator, rows = read_rows(path)
    header = next(rows)
    cells = [cell.strip() for cell in header.cells]
    given = _columns_of_names(cells, names, optional)
    least, most = numbers
    if given is None or not least <= len(cells) - len(given) <= most:
        raise ValueError(
            f"{at(path, header.line)}: expected the columns {_wanted(names, optional, numbers)}, "
            f"got {', '.join(cells)!r:.60}."
        )
    numbered = enumerate(cells[len(given) :], len(given) + 1)
    columns = check_names(path, [(header.line, k, cell) for k, cell in numbered])
    reader = Numbers(path, separator, header.cells, skip=len(given))
    found = [_record(path, row, cells, given, reader) for row in rows]
    if not found:
        raise ValueError(f"{path}: expected a header and rows, got one line only.")
    return Records(path, columns, found)


def _columns_of_names(
    header: Sequence[str], names: Sequence[str], optional: Sequence[str]
) -> list[str] | None:
    """The columns of names that a header begins with, None if one is missing."""
    given: list[str] = []
    for name in names:
        if len(given) < len(header) and header[len(given)].lower() == name:
            given.append(name)
        elif name not in optional:
            return None
    return given


def _wanted(names: Sequence[str], optional: Sequence[str], numbers: tuple[int, int]) -> str:
    words = [f"{name} (may be left out)" if name in optional else name for name in names]
    least, most = numbers
    if most:
        count = f"{least}" if least == most else f"{least} to {most}"
        words.append(f"{count} of numbers")
    return ", ".join(words)


def _record(
    path: Path, row: Row, header: Sequence[str], given: Sequence[str], reader: Numbers
) -> Record:
    check_width(path, row, len(header))
    names = dict(zip(given, (cell.strip() for cell in row.cells), strict=False))
    for k, (column, name) in enumerate(names.items(), 1):
        if not name:
            raise ValueError(
                f"{at(path, row.line, k, column)}: expected a name, got an empty cell."
            )
    values = reader.of(row)
    check_finite(path, row, header, values)
    return Record(row.line, names, values)


def check_finite(path: Path, row: Row, header: Sequence[str], values: np.ndarray) -> None:
    """Refuse a row whose last cells, of which these are the numbers, are not all finite."""
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        k = len(row.cells) - len(values) + int(bad[0])
        got = f"{row.cells[k].strip()!r:.60}" if row.cells[k].strip() else "an empty cell"
        place = at(path, row.line, k + 1, header[k].strip())
        raise ValueError(f"{place}: expected a finite number, got {got}.")
