"""The rows of CSV files with their line numbers, and the numbers in their cells.

Files are read with any common separator and encoding, with decimal points or decimal commas, also
compressed; and so are spreadsheets and arrays. Errors name the file, the line and the column.
"""

import codecs
import csv
import io
import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi import _sources
from permvi._files import STANDARD

# Tried in this order if the first lines can be split in several ways.
_SEPARATORS = ("\t", ";", ",")
# The number of lines that have to agree on a separator.
_SAMPLE = 4
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# Names of the columns of items and labels in lists of pairs, in the order in which they are tried.
_SIDES = (
    ("unique_id_l", "unique_id_r"), ("id_l", "id_r"), ("id_left", "id_right"),
    ("left_id", "right_id"), ("id_1", "id_2"), ("id1", "id2"), ("rec_id_1", "rec_id_2"),
    ("record_id_1", "record_id_2"), ("item", "label"), ("left", "right"), ("l", "r"),
    ("source", "target"),
)  # fmt: skip
# All of these names.
NAMES_OF_SIDES = frozenset(name for pair in _SIDES for name in pair)

# What may be a thousand or a decimal: 1,200 but not 0,200 or 1,25.
_THOUSAND = re.compile(r"\s*[-+]?[1-9]\d{0,2}[,.]\d{3}\s*")
_THOUSANDS = re.compile(r"-?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")

# How other programs write that a number is missing.
_MISSING = frozenset({"na", "n/a", "nan", "null", "none", "nil", "missing", "?", "-", "."})
NO_WORDS: Mapping[str, float] = {}


class Row(NamedTuple):
    """The cells of a row, and the line of the file on which it starts."""

    line: int
    cells: list[str]


class Rows(NamedTuple):
    """The separator of a file, its rows without the blank ones, and what was left out of them."""

    separator: str
    rows: Iterator[Row]
    notes: Sequence[str] = ()


def at(path: Path, line: int, column: int | None = None, name: str | None = None) -> str:
    """Describe a place in a file for an error message; lines and columns count from 1."""
    place = f"{'standard input' if path == STANDARD else path}, line {line}"
    if column is not None:
        place += f", column {column}"
    return place if name is None else f"{place} ({name!r:.60})"


def check_width(path: Path, row: Row, width: int) -> None:
    """Raise ``ValueError`` if a row has more or fewer cells than the header."""
    if len(row.cells) != width:
        raise ValueError(
            f"{at(path, row.line)}: expected {width} cells as in the header, got {len(row.cells)}."
        )


def check_finite(path: Path, row: Row, header: Sequence[str], values: np.ndarray) -> None:
    """Raise ``ValueError`` if the numbers in the last cells of a row are not all finite."""
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        k = len(row.cells) - len(values) + int(bad[0])
        got = f"{row.cells[k].strip()!r:.60}" if row.cells[k].strip() else "an empty cell"
        place = at(path, row.line, k + 1, header[k].strip())
        raise ValueError(f"{place}: expected a finite number, got {got}.")


def check_header(path: Path, header: Row) -> None:
    """Raise ``ValueError`` if the header holds numbers: then the file has none."""
    corner, *names = header.cells
    if not names or not all(is_number(name) for name in names):
        return
    # Whole numbers below a text are columns that are named by counting.
    if is_number(corner) or not all(name.strip().lstrip("-").isdecimal() for name in names):
        raise ValueError(
            f"{at(path, header.line)}: expected a header with the names of the columns, got the "
            f"numbers {', '.join(header.cells)!r:.40}."
        )


def sides_of(names: Collection[str]) -> tuple[str, str] | None:
    """Return those of some names in lower case that are usual for items and labels."""
    return next((pair for pair in _SIDES if set(pair) <= set(names)), None)


def check_names(
    path: Path, cells: Sequence[tuple[int, int, str]], hint: str = ""
) -> tuple[str, ...]:
    """Return the names in cells (line, column, text); raise if one is missing or repeated.

    ``hint`` ends the error about a repeated one.
    """
    seen: dict[str, str] = {}
    for line, column, text in cells:
        name, place = text.strip(), at(path, line, column)
        if not name:
            raise ValueError(f"{place}: expected a name, got an empty cell.")
        if name in seen:
            # Numbers that repeat are rarely names.
            hint = hint or ("; names come first, then numbers" if is_number(name) else "")
            raise ValueError(
                f"{place}: expected a new name, got {name!r:.60} as in {seen[name]} before{hint}."
            )
        seen[name] = f"line {line}, column {column}"
    return tuple(seen)


def read_rows(path: Path, *, several: bool = False) -> Rows:
    """Open a CSV file and return its rows, which are read lazily.

    Cells are separated by tabs, semicolons or commas, whichever the first lines agree on, and may
    be quoted. The text is UTF-8, with or without a byte order mark, or UTF-16 with one. Rows
    without any text are skipped, and so are columns at the end that hold nothing, not even a name.
    Files of gzip, XLSX, Parquet, NPY and NPZ are read, too. One of ``several`` sheets or arrays is
    read only for callers who pass on the note that says so.

    Raises:
        ValueError: The file is empty or not text, or (while reading) a quote is not closed.
    """
    found = _sources.content(path)
    tabular = _sources.cells(path, found)
    if tabular is not None:
        if tabular.notes and not several:
            raise ValueError(f"{path}: expected one table, got several ({tabular.notes[0]}).")
        numbered = enumerate(tabular.rows, 1)
        rows = (Row(line, cells) for line, cells in numbered if any(map(str.strip, cells)))
        return Rows(",", rows, tabular.notes)
    text, content, encoding = _opened(path, found)
    try:
        sample = _first_lines(text)
    except UnicodeDecodeError:
        raise _not_text(path, content, encoding) from None
    if not sample:
        raise ValueError(f"{path}: expected a header and rows, got an empty file.")
    text.seek(0)
    separator = _separator(sample)
    return _without_empty_ends(separator, _rows(path, text, separator, content), noted=several)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, encoded as in `read_rows`, without their ends.

    Raises:
        ValueError: The file is not text.
    """
    text, content, encoding = _opened(path, _sources.content(path))
    try:
        # Other characters that Python takes for the end of a line may be part of a name.
        return re.split(r"\r\n|\r|\n", text.read())
    except UnicodeDecodeError:
        raise _not_text(path, content, encoding) from None


def _opened(path: Path, content: bytes) -> tuple[io.TextIOWrapper, bytes, str]:
    """Return the text of a file, its bytes without a byte order mark, and its encoding."""
    content = content.removeprefix(codecs.BOM_UTF8)
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8"
    if content.startswith(codecs.BOM_UTF32_LE) or (encoding == "utf-8" and b"\0" in content):
        raise ValueError(
            f"{path}: expected UTF-8 text, got bytes of zero, as in UTF-16 without a mark or in a "
            "file that is no text; save the file as UTF-8."
        )
    text = io.TextIOWrapper(io.BytesIO(content), encoding=encoding, newline="")
    return text, content, encoding


def _rows(path: Path, text: io.TextIOWrapper, separator: str, content: bytes) -> Iterator[Row]:
    reader = csv.reader(text, delimiter=separator, skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{at(path, line)}: expected CSV cells, got {error}.") from None
        except UnicodeDecodeError:
            raise _not_text(path, content, text.encoding) from None
        if cells is None:
            return
        if any(cell and not cell.isspace() for cell in cells):
            yield Row(line, cells)


def _without_empty_ends(separator: str, rows: Iterator[Row], *, noted: bool) -> Rows:
    """Leave out columns at the end without a name and a cell, which spreadsheets write.

    Separators at the end of all rows but the header, which may lack a name for the first column
    instead, are left out for callers who pass on the note that says so.
    """
    start = list(itertools.islice(rows, 2))
    header, first = (start[0].cells, start[-1].cells) if start else ([], [])
    longer = noted and len(first) == len(header) + 1 and not first[-1].strip()
    notes = []
    if longer or (len(header) > 1 and not header[-1].strip()):
        # Whether they hold nothing is known at the end only.
        start += rows
        width = max(_filled(row.cells) for row in start)
        if longer and width <= len(header):
            notes = ["separators at the ends of rows are left out"]
        start = [row._replace(cells=row.cells[:width]) for row in start]
    return Rows(separator, itertools.chain(start, rows), notes)


def _filled(cells: Sequence[str]) -> int:
    """Return the number of cells up to the last one that holds anything."""
    return max((k for k, cell in enumerate(cells, 1) if cell and not cell.isspace()), default=0)


def _first_lines(text: io.TextIOWrapper) -> list[str]:
    """Return the first few lines that are not blank."""
    return list(itertools.islice((line for line in text if line.strip()), _SAMPLE))


def _not_text(path: Path, content: bytes, encoding: str) -> ValueError:
    """Return the error for bytes that cannot be decoded; it names the line of the first one."""
    # In UTF-16 a byte of a letter may look like the end of a line.
    for line, part in enumerate(content.splitlines() if encoding == "utf-8" else (), 1):
        try:
            part.decode(encoding)
        except UnicodeDecodeError as error:
            return ValueError(
                f"{at(path, line)}: expected UTF-8 text, got byte 0x{part[error.start]:02x}; save "
                "the file as UTF-8."
            )
    return ValueError(f"{path}: expected UTF-16 text, as its first bytes say, got something else.")


def _separator(lines: list[str]) -> str:
    """Return the separator that the lines agree on, else the most frequent one in the header.

    Lines before the others that begin with # say nothing.
    """
    lines = [*itertools.dropwhile(lambda line: line.lstrip().startswith("#"), lines)] or lines
    widths = {separator: _widths(lines, separator) for separator in _SEPARATORS}
    for separator, (header, *others) in widths.items():
        width = others[0] if others else header
        # The header may lack a name for the first column.
        if width > 1 and width - header in (0, 1) and set(others) <= {width}:
            return separator
    return max(_SEPARATORS, key=lambda separator: widths[separator][0])


def _widths(lines: list[str], separator: str) -> list[int]:
    return [len(cells) for cells in csv.reader(lines, delimiter=separator, skipinitialspace=True)]


def is_number(text: str) -> bool:
    """Return whether a text is a number, with a decimal point or a decimal comma."""
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _hint(text: str) -> str:
    """Say how to write what a text that is no number seems to mean; empty without a guess."""
    if is_missing(text):
        return " (leave a cell without a number empty)"
    if text.endswith("%") and is_number(text[:-1]):
        return " (write 0.9 for 90%)"
    if _THOUSANDS.fullmatch(text):
        plain = text.replace(",", "")
        # One comma may be a decimal mark, too.
        either = f" or {text.replace(',', '.')}" if _THOUSAND.fullmatch(text) else ""
        return f" (write {plain}{either})"
    return ""


def is_missing(text: str) -> bool:
    """Return whether a text stands for a number that is missing, such as NA."""
    return text.strip().lower() in _MISSING


class Numbers:
    """Parses the numbers of a file row by row, with one decimal mark in the whole file.

    A decimal comma is possible if commas do not separate the cells. ``words`` gives the numbers of
    words such as "true", in lower case; ``skip`` cells of a row come before its numbers.
    """

    def __init__(
        self,
        path: Path,
        separator: str,
        header: Sequence[str],
        words: Mapping[str, float] = NO_WORDS,
        skip: int = 1,
    ) -> None:
        self._path = path
        self._separator = separator
        self._header = header
        self._words = words
        self._skip = skip
        # Decimal mark -> the place where it was first seen.
        self._marks: dict[str, str] = {}
        # A number that may have a mark between thousands, None if another shows that it has not.
        self._thousand: str | None = ""

    def of(self, row: Row) -> np.ndarray:
        """Parse the numbers of a row; empty cells are NaN, and others raise ``ValueError``."""
        cells = row.cells[self._skip :]
        joined = " ".join(cells)
        if self._separator != ",":
            for mark in ",.":
                if mark in joined and mark not in self._marks:
                    self._note(mark, row)
            if "," in joined:
                self._look_for_thousands(cells, ",")
                cells = [cell.replace(",", ".") for cell in cells]
            elif "." in joined and self._separator == ";":
                self._look_for_thousands(cells, ".")
        # Python would read 1_000 as a thousand.
        if "_" not in joined:
            try:
                values = np.array([float(cell) if cell else math.nan for cell in cells])
            except ValueError:
                pass
            else:
                if np.count_nonzero(np.isnan(values)) == cells.count(""):
                    return values
        return np.array([self._number(row, k, cell) for k, cell in enumerate(cells, self._skip)])

    @property
    def notes(self) -> list[str]:
        """What was assumed of the numbers so far, and could have been meant differently."""
        if not self._thousand:
            return []
        text, what = self._thousand, "commas" if "," in self._thousand else "points"
        return [
            f"{what} are taken for decimal marks, so that {text} is {text.replace(',', '.')}, not "
            f"{re.sub('[,.]', '', text)}; leave them out if they separate thousands"
        ]

    def _look_for_thousands(self, cells: Sequence[str], mark: str) -> None:
        """Keep a number whose mark may separate thousands, as long as all marks may."""
        if self._thousand is None:
            return
        marked = [cell for cell in cells if mark in cell]
        doubtful = all(map(_THOUSAND.fullmatch, marked))
        self._thousand = (self._thousand or marked[0].strip()) if doubtful else None

    def last(self, row: Row) -> float:
        """Parse the last cell of a row that has one number, as `of` does."""
        text = row.cells[-1]
        # Other marks have to be noted, and words looked up.
        known = "." in self._marks and (self._separator != ";" or self._thousand is None)
        if self._separator == "," or ("," not in text and ("." not in text or known)):
            try:
                value = math.nan if "_" in text else float(text)
            except ValueError:
                value = math.nan
            if value == value:
                return value
        return float(self.of(row)[-1])

    def _number(self, row: Row, k: int, text: str) -> float:
        """Parse cell k; raise an error that names its line and column."""
        text = text.strip()
        if not text:
            return math.nan
        if text.lower() in self._words:
            return self._words[text.lower()]
        try:
            value = math.nan if "_" in text else float(text)
        except ValueError:
            value = math.nan
        if math.isnan(value):
            place = at(self._path, row.line, k + 1, self._header[k].strip())
            hint = _hint(text)
            raise ValueError(f"{place}: expected a number, got {row.cells[k]!r:.60}{hint}.")
        return value

    def _note(self, mark: str, row: Row) -> None:
        """Remember a decimal mark; raise if the file has used the other one."""
        k = next(k for k, cell in enumerate(row.cells) if k >= self._skip and mark in cell)
        place = f"{row.cells[k]!r:.60} in line {row.line}, column {k + 1}"
        for other in self._marks.values():
            seen = f"two in {place}" if other == place else f"{other} and {place}"
            raise ValueError(f"{self._path}: expected one decimal mark, got {seen}.")
        self._marks[mark] = place
