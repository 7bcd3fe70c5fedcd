"""Tables, lists of pairs and records from CSV files, with names for rows and columns."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from permvi._csv import (
    NO_WORDS,
    Numbers,
    Row,
    at,
    check_finite,
    check_header,
    check_names,
    check_width,
    is_missing,
    is_number,
    read_rows,
    sides_of,
)

LIST_OF_PAIRS = "use --pairs if this is a list with columns item,label,number"
TRUTH: Mapping[str, float] = {"true": 1.0, "yes": 1.0, "false": 0.0, "no": 0.0}


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """Numbers with names for their rows and columns."""

    path: Path  # the file they came from
    rows: tuple[str, ...]  # (n,) distinct names
    cols: tuple[str, ...]  # (m,) distinct names
    values: np.ndarray  # (n, m), NaN for empty cells
    lines: tuple[int, ...]  # (n,) the line of the file on which each row starts
    fields: tuple[int, ...]  # (m,) the position of each column in the file, from 1
    corner: str = ""  # the header of the column of names
    notes: Sequence[str] = ()  # what was assumed of the file and its numbers

    def place(self, row: int, col: int) -> str:
        """Describe where in the file a value is, for an error message."""
        return at(self.path, self.lines[row], self.fields[col], self.cols[col])

    def row_place(self, row: int) -> str:
        """Describe where in the file a row is, for an error message."""
        return at(self.path, self.lines[row])

    def row_sums(self) -> np.ndarray:
        """Return the sum (n,) of each row, without its empty cells."""
        return np.nansum(self.values, axis=1)

    def take(self, rows: Sequence[int], cols: Sequence[int]) -> Self:
        """Select rows and columns, in the given order."""
        return dataclasses.replace(
            self,
            rows=tuple(self.rows[i] for i in rows),
            cols=tuple(self.cols[j] for j in cols),
            values=self.values[np.ix_(rows, cols)],
            lines=tuple(self.lines[i] for i in rows),
            fields=tuple(self.fields[j] for j in cols),
        )

    def aligned(self, rows: Sequence[str], cols: Sequence[str]) -> Self:
        """Sort rows and columns into the order of the given names, which must be the table's."""
        return self.take(
            self._positions("row", self.rows, rows), self._positions("column", self.cols, cols)
        )

    def _positions(self, side: str, mine: Sequence[str], wanted: Sequence[str]) -> list[int]:
        place = {name: k for k, name in enumerate(mine)}
        for name in wanted:
            if name not in place:
                raise ValueError(f"{self.path}: expected a {side} {name!r:.60}, got none.")
        if len(mine) > len(wanted):
            known = set(wanted)
            other = next(name for name in mine if name not in known)
            raise ValueError(
                f"{self.path}: expected the same {side}s as in the input, got {other!r:.60} too."
            )
        return [place[name] for name in wanted]


def read_table(
    path: Path, words: Mapping[str, float] = NO_WORDS, *, of_pairs: bool = False
) -> Table:
    """Read a table with names in its header and first column.

    Decimal commas are read if commas do not separate the cells. Infinities are numbers and empty
    cells are NaN in the result; the text "nan" is refused because its meaning is not clear. The
    first cell of the header may hold anything or be left out. ``words`` gives the numbers of words
    such as "true", in lower case. A table ``of_pairs`` may turn out to be a list of them.

    Raises:
        ValueError: There is no header, a name is repeated or missing, a row has too many or too few
            cells, or a cell is not a number; the message names the line and the column.
    """
    separator, rows, notes = read_rows(path, several=True)
    header = next(rows)
    first = next(rows, None)
    if first is None:
        raise _no_rows(path)
    width = len(first.cells)
    if len(header.cells) == width - 1:
        header = header._replace(cells=["", *header.cells])
    check_header(path, header)
    cols = check_names(path, [(header.line, k, c) for k, c in enumerate(header.cells[1:], 2)])
    if not cols:
        raise ValueError(
            f"{at(path, header.line)}: expected a header with a name for each column, separated by "
            f"commas, semicolons or tabs, got {header.cells[0]!r:.60} only{_hint(header)}."
        )
    if of_pairs and _is_pair(first):
        raise ValueError(
            f"{at(path, first.line, 2, cols[0])}: expected a number, got {first.cells[1]!r:.60}; "
            f"{LIST_OF_PAIRS}."
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
        check_names(path, names, f"; {LIST_OF_PAIRS}" if of_pairs and _is_numbered(first) else ""),
        cols,
        np.stack(values),
        tuple(line for line, _, _ in names),
        tuple(range(2, len(cols) + 2)),
        header.cells[0],
        [*notes, *numbers.notes],
    )


class Pair(NamedTuple):
    """An item and a label, and the line that names them."""

    line: int
    item: str
    label: str


def read_pairs(path: Path, items: Collection[str], labels: Collection[str]) -> list[Pair]:
    """Read pairs of an item and a label, no cell empty, below a header.

    Names such as "label" and "item" in the header say which column holds what, else items come
    first. A header that names one of the ``items`` and one of the ``labels`` is refused.
    """
    (i, j), rows = _named_rows(path, read_rows(path).rows, 2, "an item and a label")
    header, *pairs = [Pair(line, cells[i].strip(), cells[j].strip()) for line, cells in rows]
    if header.item in items and header.label in labels:
        raise _no_header(path, header.line, header[1:], "item,label")
    return pairs


@dataclasses.dataclass(frozen=True, eq=False)
class PairList:
    """Numbers of listed pairs, with names for their rows and columns."""

    path: Path  # the file they came from
    rows: tuple[str, ...]  # (n,) distinct names
    cols: tuple[str, ...]  # (m,) distinct names
    pairs: np.ndarray  # (E, 2) the row and the column of each pair
    values: np.ndarray  # (E,), NaN for empty cells
    notes: Sequence[str] = ()  # what was assumed of the file and its numbers
    what: str = ""  # the header of the numbers

    def place(self, pair: int) -> str:
        """Describe where in the file a value is, for an error message."""
        row, col = self.pairs[pair]
        return f"{self.row_place(row)} and {self.cols[col]!r:.60}"

    def row_place(self, row: int) -> str:
        """Describe where in the file a row is, for an error message."""
        return f"{self.path}, {self.rows[row]!r:.60}"

    def row_sums(self) -> np.ndarray:
        """Return the sum (n,) of each row, without its empty cells."""
        numbers = np.where(np.isnan(self.values), 0.0, self.values)
        return np.bincount(self.pairs[:, 0], numbers, minlength=len(self.rows))


def read_list(path: Path) -> PairList:
    """Read a table in long form: a header, then rows of an item, a label and a number.

    Names such as "score", "label" and "item" say which column holds what, else they come in the
    order item, label, number. Items and labels are numbered in the order in which they are first
    named.

    Raises:
        ValueError: There is no header, a row does not have three cells, a cell is not a number, or
            a pair is repeated; the message names the line.
    """
    separator, rows, notes = read_rows(path, several=True)
    (i, j, k), rows = _named_rows(path, rows, 3, "an item, a label and a number")
    header = next(rows)
    check_header(path, header)
    if is_number(header.cells[k]):
        raise _no_header(path, header.line, header.cells, "item,label,score")
    numbers = Numbers(path, separator, header.cells, skip=k)
    items: dict[str, int] = {}
    labels: dict[str, int] = {}
    found: dict[tuple[int, int], float] = {}
    for row in rows:
        item, label = row.cells[i].strip(), row.cells[j].strip()
        pair = items.setdefault(item, len(items)), labels.setdefault(label, len(labels))
        if pair in found:
            raise ValueError(
                f"{at(path, row.line)}: expected a new pair, got {item!r:.60} and {label!r:.60} "
                "again."
            )
        found[pair] = numbers.last(row if k == 2 else row._replace(cells=row.cells[: k + 1]))
    if not found:
        raise _no_rows(path)
    pairs = np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)
    values = np.fromiter(found.values(), np.float64, len(found))
    found_notes, what = [*notes, *numbers.notes], header.cells[k].strip()
    return PairList(path, tuple(items), tuple(labels), pairs, values, found_notes, what)


def _named_rows(
    path: Path, rows: Iterator[Row], width: int, expected: str
) -> tuple[list[int], Iterator[Row]]:
    """Return the columns of items, labels and others, and the rows, the header first.

    Reading raises ``ValueError`` if a row has not ``width`` cells, or no item or no label.
    """
    header = next(rows)
    names = [cell.strip().lower() for cell in header.cells]
    named = (sides_of(names) or ()) if len(names) == width else ()
    order = [names.index(name) for name in named]
    order += [k for k in range(width) if k not in order]

    def checked() -> Iterator[Row]:
        for row in chain([header], rows):
            cells = row.cells
            if len(cells) != width or not (cells[order[0]].strip() and cells[order[1]].strip()):
                raise ValueError(
                    f"{at(path, row.line)}: expected {expected}, got {len(cells)} cells: "
                    f"{', '.join(cells)!r:.60}."
                )
            yield row

    return order, checked()


def _no_header(path: Path, line: int, cells: Sequence[str], wanted: str) -> ValueError:
    return ValueError(
        f"{at(path, line)}: expected a header such as {wanted}, got the pair "
        f"{', '.join(cells)!r:.60}."
    )


class Record(NamedTuple):
    """One row of a file of records."""

    line: int  # the line on which it starts
    names: Mapping[str, str]  # its names by column; optional columns may be missing
    values: np.ndarray  # its numbers, all finite


class Records(NamedTuple):
    """The rows of a file of records."""

    path: Path
    columns: tuple[str, ...]  # the names of the columns of numbers
    rows: list[Record]

    def at(self, record: Record) -> str:
        """Describe where a record is, for an error message."""
        return at(self.path, record.line)


def read_records(
    path: Path,
    names: Sequence[str],
    *,
    optional: Sequence[str] = (),
    numbers: tuple[int, int] = (0, 0),
) -> Records:
    """Read records: columns of names in a fixed order, then columns of numbers.

    The header has to name the columns of names, in upper or lower case, except that those in
    ``optional`` may be missing. ``numbers`` is the range of the number of columns of numbers.

    Raises:
        ValueError: The header is another one, a row has too many or too few cells, a name is
            missing, or a cell is not a finite number; the message names the line.
    """
    separator, rows, _ = read_rows(path)
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
        raise _no_rows(path)
    return Records(path, columns, found)


def _columns_of_names(
    header: Sequence[str], names: Sequence[str], optional: Sequence[str]
) -> list[str] | None:
    """Return the columns of names that a header starts with, None if a required one is missing."""
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


def _no_rows(path: Path) -> ValueError:
    return ValueError(f"{path}: expected a header and rows, got one line only.")


def _hint(header: Row) -> str:
    """Say what a comment in the place of a header means; empty if it is none."""
    comment = header.cells[0].lstrip().startswith("#")
    return "; permvi rank reads files of PrefLib" if comment else ""


def _is_numbered(row: Row) -> bool:
    """Return whether a row may hold the numbers of an item and of a label, and another number."""
    return len(row.cells) == 3 and all(cell.strip().isdecimal() for cell in row.cells[:2])


def _is_pair(row: Row) -> bool:
    """Return whether a row seems to hold an item, a label and their number."""
    cells = [cell.strip() for cell in row.cells]
    if len(cells) != 3:
        return False
    is_name = cells[1][:1].isalpha() and not is_number(cells[1]) and not is_missing(cells[1])
    return is_name and is_number(cells[2])
