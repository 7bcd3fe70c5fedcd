"""The contents of input files: plain or compressed text, spreadsheets and arrays.

What a file holds is told by its first bytes and not by its ending, so that standard input may hold
the same. Tables other than text become rows of cells, as if they had been written as CSV.
"""

import gzip
import io
import sys
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from permvi._files import STANDARD

_GZIP, _ZIP, _NPY, _PARQUET = b"\x1f\x8b", b"PK\x03\x04", b"\x93NUMPY", b"PAR1"
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
# Names of the arrays of an NPZ file: the table, and the names of its rows and columns.
_TABLES = ("scores", "values", "table", "data", "arr_0")
_ROWS = ("items", "rows", "index")
_COLS = ("labels", "cols", "columns")

# What was read from standard input, which gives it once only.
_READ: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()


class Cells(NamedTuple):
    """The rows of a spreadsheet or an array, the header first, and what was left out of them."""

    rows: Iterator[list[str]]
    notes: Sequence[str] = ()


def content(path: Path) -> bytes:
    """Return the bytes of a file, or of standard input for ``-``; gzip is unpacked.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: ``path`` is a folder, or the compressed data is damaged.
    """
    if path == STANDARD:
        if sys.stdin not in _READ:
            _READ[sys.stdin] = sys.stdin.buffer.read()
        found = _READ[sys.stdin]
    elif path.is_dir():
        raise ValueError(f"{path}: expected a CSV file, got a folder.")
    elif not path.exists():
        raise FileNotFoundError(f"{path}: expected a CSV file, got no file of that name.")
    else:
        found = path.read_bytes()
    if not found.startswith(_GZIP):
        return found
    try:
        return gzip.decompress(found)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: expected a whole gzip file, got a damaged one.") from error


def kind_of(path: Path) -> str:
    """Return the ending of a file's name in lower case, without that of gzip."""
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    return name.suffix.lower()


def cells(path: Path, found: bytes) -> Cells | None:
    """Return the cells of a spreadsheet or an array; None for text.

    Raises:
        ValueError: The file is of a kind that is not read, or damaged, or holds no table.
    """
    if found.startswith(_OLD_EXCEL):
        raise ValueError(
            f"{path}: expected CSV, XLSX, Parquet, NPY or NPZ, got an old Excel file; save it as "
            ".xlsx or .csv."
        )
    for start, read in ((_NPY, _npy), (_PARQUET, _parquet), (_ZIP, _zip)):
        if found.startswith(start):
            try:
                return read(path, found)
            except ValueError:
                raise
            # The kind of error depends on where the damage is.
            except Exception as error:
                raise ValueError(f"{path}: expected a whole file, got a damaged one.") from error
    return None


def _zip(path: Path, found: bytes) -> Cells:
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        names = archive.namelist()
    if "xl/workbook.xml" in names:
        return _xlsx(path, found)
    if names and all(name.endswith(".npy") for name in names):
        return _npz(path, found)
    raise ValueError(f"{path}: expected a table, got a zip archive of other files.")


def _xlsx(path: Path, found: bytes) -> Cells:
    try:
        import openpyxl
    except ImportError as error:
        raise ValueError(
            f"{path}: expected CSV, or openpyxl to read Excel files (pip install openpyxl), got "
            "none."
        ) from error
    book = openpyxl.load_workbook(io.BytesIO(found), read_only=True, data_only=True)
    for sheet in book.worksheets:
        # Some programs do not store the size of a sheet, or a wrong one.
        sheet.reset_dimensions()
    # Programs add sheets that stay empty.
    filled = [sheet for sheet in book.worksheets if _is_filled(sheet)]
    sheet, *others = filled or book.worksheets[:1]
    rows = [list(row) for row in sheet.iter_rows(values_only=True)]
    width = max(
        (k + 1 for row in rows for k, cell in enumerate(row) if cell is not None), default=0
    )
    notes = [_chosen("sheets", sheet.title, [other.title for other in others])] if others else []
    return Cells(([_text(cell) for cell in [*row, *[None] * width][:width]] for row in rows), notes)


def _is_filled(sheet: Any) -> bool:
    return any(cell is not None for row in sheet.iter_rows(values_only=True) for cell in row)


def _chosen(what: str, name: str, others: Sequence[str]) -> str:
    """Say which of several tables of a file is read."""
    listed = ", ".join(map(repr, others))
    return f"of {1 + len(others)} {what} {name!r:.40} is read, not {listed:.80}"


def _parquet(path: Path, found: bytes) -> Cells:
    try:
        import pandas as pd

        frame = pd.read_parquet(io.BytesIO(found))
    except ImportError as error:
        raise ValueError(
            f"{path}: expected CSV, or pandas and pyarrow to read Parquet (pip install pandas "
            "pyarrow), got none."
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: expected a whole Parquet file, got a damaged one.") from error
    # An index of counted rows is not part of the table.
    if not isinstance(frame.index, pd.RangeIndex):
        frame = frame.reset_index()
    header = ["" if name in ("index", "level_0") else str(name) for name in frame.columns]
    cells = frame.astype(object).where(frame.notna(), None)
    return _joined(header, [cells.iloc[:, k].tolist() for k in range(frame.shape[1])])


def _npy(path: Path, found: bytes) -> Cells:
    try:
        array = np.load(io.BytesIO(found), allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"{path}: expected an array of numbers, got {error}.") from error
    return _array(path, array)


def _npz(path: Path, found: bytes) -> Cells:
    with np.load(io.BytesIO(found), allow_pickle=False) as arrays:
        try:
            held = {name: arrays[name] for name in arrays.files}
        except ValueError as error:
            raise ValueError(f"{path}: expected arrays of numbers, got {error}.") from error
    tables = [name for name, array in held.items() if array.ndim == 2]
    chosen = next((name for name in _TABLES if name in tables), None)
    if chosen is None and len(tables) != 1:
        raise ValueError(
            f"{path}: expected one table, or one called {', '.join(_TABLES[:-1])}, got the arrays "
            f"{', '.join(held) or 'none'}."
        )
    named = [next((held[name] for name in names if name in held), None) for names in (_ROWS, _COLS)]
    name = chosen or tables[0]
    others = [other for other in tables if other != name]
    notes = [_chosen("tables", name, others)] if others else []
    return _array(path, held[name], *named)._replace(notes=notes)


def _array(
    path: Path, array: np.ndarray, rows: np.ndarray | None = None, cols: np.ndarray | None = None
) -> Cells:
    """Return the rows of a table of numbers with its names; rows and columns count from 0."""
    if array.dtype.names is not None:
        return _joined(array.dtype.names, [array[name].tolist() for name in array.dtype.names])
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"{path}: expected a table of real numbers, got an array of shape {array.shape} and "
            f"type {array.dtype}."
        )
    given = []
    for side, names, size in zip(("row", "column"), (rows, cols), array.shape, strict=True):
        if names is not None and names.shape != (size,):
            raise ValueError(
                f"{path}: expected a name for each of {size} {side}s, got shape {names.shape}."
            )
        given.append(range(size) if names is None else names.tolist())
    return _joined(["", *map(_text, given[1])], [given[0], *array.astype(np.float64).T.tolist()])


def _joined(header: Sequence[str], columns: Sequence[Sequence[Any]]) -> Cells:
    rows = ([_text(cell) for cell in row] for row in zip(*columns, strict=True))
    return Cells(chain([list(header)], rows))


def _text(cell: Any) -> str:
    """Return a cell as CSV has it: empty for none and NaN, and all digits of a number."""
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    return str(cell)
