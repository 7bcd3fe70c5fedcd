"""What every study returns and writes."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from permvi._files import write_json, write_text
from permvi._tables import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Progress = Callable[[str, int, int], None]
"""Called as ``progress(what, done, total)``."""

# A number and its error stay on one line, even on a phone.
_PLUS_MINUS = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"


class Table(NamedTuple):
    """A table for people. Columns that start with ">" hold numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class Result(NamedTuple):
    """What a study found."""

    summary: list[dict[str, Any]]  # the rows of ``summary.json``
    files: list[Path]  # the paths of all files that were written
    tables: Sequence[Table] = ()  # the tables to show, by default the whole summary


class Measurement(NamedTuple):
    """The mean of n repeated measurements, and its standard error (None for a single one)."""

    mean: float
    sem: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Measurement":
        """Summarise the measurements."""
        measured = [float(value) for value in values]
        n = len(measured)
        mean = math.fsum(measured) / n
        squares = math.fsum((value - mean) ** 2 for value in measured)
        return cls(mean, math.sqrt(squares / (n - 1) / n) if n > 1 else None, n)


def summary_row(
    study: str,
    method: str,
    setting: Mapping[str, Any],
    metric: str,
    values: Iterable[float] | Measurement,
    *,
    seconds: float,
    paper: float | None = None,
) -> dict[str, Any]:
    """Return one object of ``summary.json``.

    ``setting`` is what else identifies the measurement, ``values`` are the measurements or their
    summary, ``seconds`` is the time for all of them together, ``paper`` the paper's value.
    """
    measured = values if isinstance(values, Measurement) else Measurement.of(values)
    return {
        "study": study,
        "method": method,
        "setting": dict(setting),
        "metric": metric,
        **measured._asdict(),
        "paper": paper,
        "seconds": seconds,
    }


def mean_text(row: Mapping[str, Any], digits: int) -> str:
    """Format the mean of a summary row, with its standard error where there is one."""
    spread = "" if row["sem"] is None else f" ± {row['sem']:.{digits}f}"
    return f"{row['mean']:.{digits}f}{spread}"


def write_result(
    folder: Path,
    rows: Iterable[Mapping[str, Any]],
    summary: list[dict[str, Any]],
    figures: Mapping[str, "Figure"],
    tables: Sequence[Table] = (),
) -> Result:
    """Write ``rows.csv``, ``summary.json``, ``tables.md`` if there are tables, and the figures.

    The rows are the measurements behind the summary. Figures are named without suffix.
    """
    # Not at the top: the command line imports this module before it knows that it will draw.
    from permvi import _figures

    files = [write_rows(folder, rows), write_summary(folder, summary)]
    if tables:
        files.append(write_tables(folder, tables))
    for name, figure in figures.items():
        files += _figures.save(figure, folder, name)
    return Result(summary, files, tables)


def write_summary(folder: Path, summary: list[dict[str, Any]]) -> Path:
    """Write ``summary.json``."""
    return write_json(folder / "summary.json", summary)


def write_rows(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write ``rows.csv``, the measurements behind the summary.

    The columns are the keys of all rows, in order of first appearance. A row without a key has an
    empty cell there. Numbers are written with all their digits.
    """
    listed = list(rows)
    header = list(dict.fromkeys(key for row in listed for key in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return write_text(folder / "rows.csv", file.getvalue())


def write_tables(folder: Path, tables: Iterable[Table]) -> Path:
    """Write ``tables.md``, the tables for people."""
    blocks = []
    for table in tables:
        header = [column.removeprefix(">") for column in table.columns]
        rows = [[cell.replace(" ± ", _PLUS_MINUS) for cell in row] for row in table.rows]
        blocks.append(f"## {table.title}\n\n{markdown_table(header, rows)}\n")
    return write_text(folder / "tables.md", "\n".join(blocks))
