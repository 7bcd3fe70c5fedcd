"""What every study returns and writes."""

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from permvi._files import atomic, write_json

Report = Callable[[str, int, int], None]


class Result(NamedTuple):
    """The rows of ``summary.json`` and the paths of all files of a study."""

    summary: list[dict[str, Any]]
    files: list[Path]


def summary_row(
    study: str,
    method: str,
    setting: Mapping[str, Any],
    metric: str,
    values: Iterable[float],
    *,
    seconds: float,
    paper: float | None = None,
) -> dict[str, Any]:
    """One object of ``summary.json``: the mean of repeated measurements and its standard error.

    Args:
        study: Name of the study.
        method: Name of the method.
        setting: What else identifies the measurement.
        metric: What was measured.
        values: The measurements; a single one has no standard error, which is then None.
        seconds: Time for all of them together.
        paper: The paper's value, if it has one.
    """
    measured = [float(value) for value in values]
    n = len(measured)
    mean = math.fsum(measured) / n
    squares = math.fsum((value - mean) ** 2 for value in measured)
    return {
        "study": study,
        "method": method,
        "setting": dict(setting),
        "metric": metric,
        "mean": mean,
        "sem": math.sqrt(squares / (n - 1) / n) if n > 1 else None,
        "n": n,
        "paper": paper,
        "seconds": seconds,
    }


def write_summary(folder: Path, summary: list[dict[str, Any]]) -> Path:
    """Write ``summary.json``."""
    return write_json(folder / "summary.json", summary)


def write_rows(folder: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """Write ``rows.csv``, the measurements behind the summary."""
    path = folder / "rows.csv"
    with (
        atomic(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    return path
