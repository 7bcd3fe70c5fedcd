"""Tables with names for rows and columns from CSV files; mistakes are answered with their place."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np

from permvi._cli.csv_numbers import NO_WORDS, Numbers, is_number
from permvi._cli.csv_rows import Row, at, check_width, read_rows

TRUTH: Mapping[str, float] = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Numbers with names for their rows and columns.

    Attributes:
        path: The file they came from.
        rows: (n,) names, all different.
        cols: (m,) likewise.
        values: (n, m), NaN where a cell is empty.
        lines: (n,) the line of the file that each row starts on, None if it is a list of pairs.
        fields: (m,) the position of each column in the file, from 1, likewise.
    """

    path: Path
    rows: tuple[str, ...]
    cols: tuple[str, ...]
    values: np.ndarray
    lines: tuple[int, ...] | None = None
    fields: tuple[int, ...] | None = None

    def place(self, row: int, col: int) -> str:
        """Where in the file a value is, in words."""
        if self.lines is None or self.fields is None:
            return f"{self.row_place(row)} and {self.cols[col]!r:.60}"
        return at(self.path, self.lines[row], self.fields[col], self.cols[col])

    def row_place(self, row: int) -> str:
        """Where in the file a row is, in words."""
        if self.lines is None:
            return f"{self.path}, {self.rows[row]!r:.60}"
        return at(self.path, self.lines[row])

    def take(self, rows: Sequence[int], cols: Sequence[int]) -> Self:
        """Some of the rows and columns, in this order."""
        return dataclasses.replace(
            self,
            rows=tuple(self.rows[i] for i in rows),
            cols=tuple(self.cols[j] for j in cols),
            values=self.values[np.ix_(rows, cols)],
            lines=self.lines and tuple(self.lines[i] for i in rows),
            fields=self.fields and tuple(self.fields[j] for j in cols),
        )

    def aligned(self, rows: Sequence[str], cols: Sequence[str]) -> Self:
        """The same table with its rows and columns in the order of these names.

        Raises:
            ValueError: Names are missing, or there are others.
        """
        return self.take(
            self._positions("row", self.rows, rows), self._positions("column", self.cols, cols)
        )

    def _positions(self, side: str, mine: Sequence[str], wanted: Sequence[str]) -> list[int]:
        place = {name: k for k, name in enumerate(mine)}
        for name in wanted:
            if name not in place:
                raise ValueError(f"{self.path}: expected a {side} {name!r:.60}, got none.")
        if len(mine) > len(wanted):
            other = next(name for name in mine if name not in set(wanted))
            raise ValueError(
                f"{self.path}: expected the same {side}s as in the input, got {other!r:.60} too."
            )
        return [place[name] for name in wanted]


def read_table(path: Path, words: Mapping[str, float] = NO_WORDS) -> Table:
    """A table with names in its header and first column.

    Decimal commas are read where another character separates the cells. Infinities are numbers,
    empty cells are NaN in the result, and "nan" itself is refused since nobody knows what it means.
    The first cell of the header may hold anything or be left out.

    Args:
        path: The file.
        words: Text that stands for a number, in lower case.

    Raises:
        ValueError: There is no header, names repeat or are missing, a row has too many or too few
            cells, or a cell is no number; the message has the line and the column.
        OSError: The file cannot be read.
    """
    separator, rows = read_rows(path)
    header = next(rows)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{path}: expected a header and rows, got one line only.")
    width = len(first.cells)
    if len(header.cells) == width - 1:
        header = header._replace(cells=["", *header.cells])
    check_header(path, header)
    cols = check_names(path, [(header.line, k, c) for k, c in enumerate(header.cells[1:], 2)])
    if not cols:
        raise ValueError(
            f"{at(path, header.line)}: expected a header with a name for each column, separated by "
            f"commas, semicolons or tabs, got {header.cells[0]!r:.60} only."
        )
    numbers = Numbers(path, separator, header.cells, words)
    names: list[tuple[int, int, str]] = []
    values: list[np.ndarray] = []
    for row in chain([first], rows):
        check_width(path, row, len(cols) + 1)
        names.append((row.line, 1, row.cells[0]))
        values.append(numbers.of(row))
    return Table(
        path,
        check_names(path, names),
        cols,
        np.stack(values),
        tuple(line for line, _, _ in names),
        tuple(range(2, len(cols) + 2)),
    )


def check_header(path: Path, header: Row) -> None:
    """Refuse what looks like a row of numbers: a table without a header would lose that row."""
    corner, *names = header.cells
    if not names or not all(is_number(name) for name in names):
        return
    # Whole numbers below a name are the names of columns that somebody counted.
    if is_number(corner) or not all(name.strip().lstrip("-").isdecimal() for name in names):
        raise ValueError(
            f"{at(path, header.line)}: expected a header with the names of the columns, got the "
            f"numbers {', '.join(header.cells)!r:.40}."
        )


def check_names(path: Path, cells: Sequence[tuple[int, int, str]]) -> tuple[str, ...]:
    """Names from (line, column, text), all there and all different."""
    seen: dict[str, str] = {}
    for line, column, text in cells:
        name, place = text.strip(), at(path, line, column)
        if not name:
            raise ValueError(f"{place}: expected a name, got an empty cell.")
        if name in seen:
            raise ValueError(
                f"{place}: expected a new name, got {name!r:.60} as in {seen[name]} before."
            )
        seen[name] = f"line {line}, column {column}"
    return tuple(seen)
