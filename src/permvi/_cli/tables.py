"""Tables and figures as files, in the format that the ending of the file says."""

import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from permvi._files import write_bytes, write_text
from permvi._tables import csv_text, inert

UNMATCHED = "unmatched"

# Longer lists in a cell are cut.
_MOST_IN_A_CELL = 20


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, raw: bool = False) -> None:
    """Write rows with the same keys as CSV, TSV, Parquet or XLSX, by the ending of the file.

    An empty cell in place of a label means "unmatched". Lists are joined, and cut if they are long.
    Text that a spreadsheet would run as a formula gets an apostrophe in front, unless ``raw``;
    Parquet keeps text as it is.
    """
    header = list(rows[0]) if rows else []
    columns = {name: [_cell(row[name]) for row in rows] for name in header}
    name = path.name.lower()
    if name.endswith(".parquet"):
        write_bytes(path, _parquet(columns))
        return
    if not raw:
        columns = {inert(key): [inert(cell) for cell in cells] for key, cells in columns.items()}
    if name.endswith(".xlsx"):
        write_bytes(path, _xlsx(columns))
        return
    plain = name.removesuffix(".gz")
    mark = "\t" if plain.endswith(".tsv") else ","
    text = csv_text(list(columns), zip(*columns.values(), strict=True), mark)
    if plain != name:
        # Without the time, so that equal tables give equal files.
        write_bytes(path, gzip.compress(text.encode(), mtime=0))
    else:
        write_text(path, text)


def _cell(value: Any) -> Any:
    """Return a value as one cell; "unmatched" is a word only in lists."""
    if not isinstance(value, list):
        return value
    texts = [UNMATCHED if one is None else one for one in value[:_MOST_IN_A_CELL]]
    more = len(value) - len(texts)
    return "; ".join([*texts, *[f"and {more} more"] * (more > 0)])


def _parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ValueError(
            "a file that ends in .parquet needs pyarrow (pip install pyarrow), got none."
        ) from error
    file = io.BytesIO()
    parquet.write_table(pa.table(dict(columns)), file)
    return file.getvalue()


def _xlsx(columns: Mapping[str, Sequence[Any]]) -> bytes:
    try:
        import openpyxl
    except ImportError as error:
        raise ValueError(
            "a file that ends in .xlsx needs openpyxl (pip install openpyxl), got none."
        ) from error
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("permvi")
    sheet.append(list(columns))
    for row in zip(*columns.values(), strict=True):
        sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def save_figure(figure: Any, path: Path) -> None:
    """Save a figure in the format of the file's ending."""
    from permvi import _figures

    _figures.save(figure, path.parent, path.stem, [path.suffix.lstrip(".").lower()])


def part_of(path: Path, part: str | None) -> Path:
    """Return the name of one of several files: ``fit-PART.html`` for ``fit.html``."""
    return path if part is None else path.with_stem(f"{path.stem}-{part}")
