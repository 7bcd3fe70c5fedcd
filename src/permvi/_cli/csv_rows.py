"""CSV files as people have them: any usual separator and encoding, rows with their line numbers."""

import codecs
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# In this order where the first lines can be read in several ways.
_SEPARATORS = ("\t", ";", ",")
# So many lines have to agree on a separator.
_SAMPLE = 4
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Row(NamedTuple):
    """The cells of a row, and the line of the file on which it starts."""

    line: int
    cells: list[str]


class Rows(NamedTuple):
    """The rows of a file that are not blank, and what separates their cells."""

    separator: str
    rows: Iterator[Row]


def at(path: Path, line: int, column: int | None = None, name: str | None = None) -> str:
    """A place in a file, in words; lines and columns count from 1."""
    place = f"{path}, line {line}"
    if column is not None:
        place += f", column {column}"
    return place if name is None else f"{place} ({name!r:.60})"


def check_width(path: Path, row: Row, width: int) -> None:
    """Refuse a row with more or fewer cells than its header."""
    if len(row.cells) != width:
        raise ValueError(
            f"{at(path, row.line)}: expected {width} cells as in the header, got {len(row.cells)}."
        )


def read_rows(path: Path) -> Rows:
    """The rows of a CSV file, read as they are asked for.

    Cells are separated by tabs, semicolons or commas, whichever the first lines agree on, and may
    be quoted. The text is UTF-8, with or without a byte order mark, or UTF-16 with one. Rows
    without any text are skipped.

    Raises:
        ValueError: The file is empty or no text, or (while reading) a quote is not closed.
        OSError: It cannot be read.
    """
    if path.is_dir():
        raise ValueError(f"{path}: expected a CSV file, got a folder.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a CSV file, got no file of that name.")
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8"
    text = io.TextIOWrapper(io.BytesIO(content), encoding=encoding, newline="")
    try:
        sample = _first_lines(text)
    except UnicodeDecodeError:
        raise _not_text(path, content, encoding) from None
    if not sample:
        raise ValueError(f"{path}: expected a header and rows, got an empty file.")
    text.seek(0)
    separator = _separator(sample)
    return Rows(separator, _rows(path, text, separator, content))


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


def _first_lines(text: io.TextIOWrapper) -> list[str]:
    """The first few lines that are not blank."""
    lines: list[str] = []
    for line in text:
        if line.strip():
            lines.append(line)
        if len(lines) == _SAMPLE:
            break
    return lines


def _not_text(path: Path, content: bytes, encoding: str) -> ValueError:
    """The answer to bytes that are no text, with the line that has the first of them."""
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
    """The separator that the lines agree on, else the one that their header has most often."""
    widths = {separator: _widths(lines, separator) for separator in _SEPARATORS}
    for separator, (header, *others) in widths.items():
        width = others[0] if others else header
        # The header may lack a name for the first column.
        if width > 1 and width - header in (0, 1) and set(others) <= {width}:
            return separator
    return max(_SEPARATORS, key=lambda separator: widths[separator][0])


def _widths(lines: list[str], separator: str) -> list[int]:
    return [len(cells) for cells in csv.reader(lines, delimiter=separator, skipinitialspace=True)]
