"""Lists of pairs from CSV files: certain ones, and tables of pairs in long form."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi._cli.csv_numbers import Numbers
from permvi._cli.csv_rows import Row, at, read_rows
from permvi._cli.csv_tables import Table, check_header


class Pair(NamedTuple):
    """An item and a label, and the line that names them."""

    line: int
    item: str
    label: str


def read_pairs(path: Path) -> list[Pair]:
    """Pairs of an item and a label below a header of two columns, whatever it says.

    Raises:
        ValueError: A row has other than two cells, or one of them is empty.
        OSError: The file cannot be read.
    """
    rows = _rows(path, read_rows(path).rows, 2, "an item and a label")
    next(rows)
    return [Pair(line, *(cell.strip() for cell in cells)) for line, cells in rows]


def read_list(path: Path) -> Table:
    """A table of pairs in long form: rows of an item, a label and a number below a header.

    Items and labels come in the order in which they are first named. Pairs that are not listed are
    NaN in the result, as an empty cell would be.

    Raises:
        ValueError: A row has other than three cells, a cell is no number, or a pair comes twice;
            the message has the line.
        OSError: The file cannot be read.
    """
    separator, rows = read_rows(path)
    rows = _rows(path, rows, 3, "an item, a label and a number")
    header = next(rows)
    check_header(path, header)
    numbers = Numbers(path, separator, header.cells, skip=2)
    items: dict[str, int] = {}
    labels: dict[str, int] = {}
    found: dict[tuple[int, int], float] = {}
    for row in rows:
        item, label, _ = (cell.strip() for cell in row.cells)
        pair = items.setdefault(item, len(items)), labels.setdefault(label, len(labels))
        if pair in found:
            raise ValueError(
                f"{at(path, row.line)}: expected a new pair, got {item!r:.60} and {label!r:.60} "
                "again."
            )
        found[pair] = float(numbers.of(row)[0])
    if not found:
        raise ValueError(f"{path}: expected a header and rows, got one line only.")
    values = np.full((len(items), len(labels)), np.nan)
    values[tuple(np.transpose(list(found)))] = list(found.values())
    return Table(path, tuple(items), tuple(labels), values)


def _rows(path: Path, rows: Iterator[Row], width: int, expected: str) -> Iterator[Row]:
    """The rows, refused unless all have so many cells and names in the first two of them."""
    for row in rows:
        named = all(cell.strip() for cell in row.cells[:2])
        if len(row.cells) != width or not named:
            raise ValueError(
                f"{at(path, row.line)}: expected {expected}, got {len(row.cells)} cells: "
                f"{', '.join(row.cells)!r:.60}."
            )
        yield row
