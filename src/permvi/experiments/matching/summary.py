"""From rows to the summary, the tables and the figures."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from permvi import _figures
from permvi.experiments.matching import figure2, figures, ordering
from permvi.experiments.matching.paper import reported
from permvi.experiments.matching.problems import NUM_POINTS, SIGMAS
from permvi.experiments.results import (
    Result,
    Table,
    summary_row,
    write_rows,
    write_summary,
    write_tables,
)
from permvi.experiments.runner import Finished, Row

_MASS = ("mass_", "true_mass_")


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Sum up, draw, write."""
    del size
    rows = [row for task in finished for row in task.rows]
    summary = _summary(finished)
    tables = [_table1(summary), _beyond_table(summary), _ordering_table(summary)]
    files = [
        write_rows(folder, rows),
        write_summary(folder, summary),
        write_tables(folder, tables),
        *_figures.save(figure2.draw(rows, seed), folder, "figure2"),
        *_figures.save(figures.error_against_cost(summary), folder, "error_cost"),
        *_figures.save(figures.orders(rows), folder, "ordering"),
    ]
    return Result(summary, files, tables)


def _summary(finished: list[Finished]) -> list[dict[str, Any]]:
    """Means over repetitions. The seconds of a row are those of the tasks that measured it."""
    values: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    seconds: dict[tuple[Any, ...], float] = defaultdict(float)
    for task in finished:
        keys = dict.fromkeys(_key(row) for row in task.rows if _is_summed(row))
        for key in keys:
            seconds[key] += task.seconds
        for row in task.rows:
            if _is_summed(row):
                values[_key(row)].append(row["value"])
    summary = []
    for key, measured in values.items():
        part, method, n, sigma, metric = key
        setting = {"n": n, "sigma": sigma}
        if part == "ordering":
            setting["orders"] = "random"
        paper = None
        if part == "table" and metric == "hellinger":
            paper = reported(method, sigma)
        summary.append(
            summary_row(
                "matching", method, setting, metric, measured, seconds=seconds[key], paper=paper
            )
        )
    return summary


def _is_summed(row: Row) -> bool:
    return not row["metric"].startswith(_MASS)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("part", "method", "n", "sigma", "metric"))


def _found(summary: list[dict[str, Any]], metric: str) -> dict[tuple[str, int, float], Any]:
    """Rows of a metric by method, number of points and noise; those of the orders apart."""
    return {
        (row["method"], row["setting"]["n"], row["setting"]["sigma"]): row
        for row in summary
        if row["metric"] == metric and "orders" not in row["setting"]
    }


def _mean(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    spread = "" if row["sem"] is None else f" ± {row['sem']:.4f}"
    return f"{row['mean']:.4f}{spread}"


def _table1(summary: list[dict[str, Any]]) -> Table:
    found = _found(summary, "hellinger")
    rows = []
    for method in dict.fromkeys(method for method, n, _ in found if n == NUM_POINTS):
        cells = [method]
        for sigma in SIGMAS:
            row = found.get((method, NUM_POINTS, sigma))
            cells += [_mean(row), "" if row is None or row["paper"] is None else f"{row['paper']}"]
        rows.append(cells)
    columns = ["method", *(c for sigma in SIGMAS for c in (f">sigma {sigma}", ">paper"))]
    return Table("Table 1: Hellinger distance to the exact posterior", columns, rows)


def _beyond_table(summary: list[dict[str, Any]]) -> Table:
    metrics = ("tv_per_row", "log_evidence_error", "calibration_error", "evaluations")
    found = {metric: _found(summary, metric) for metric in metrics}
    rows = []
    for key, errors in found["tv_per_row"].items():
        method, n, sigma = key
        if n == NUM_POINTS:
            continue
        others = [found[metric].get(key) for metric in metrics[1:]]
        rows.append(
            [method, str(n), f"{sigma:g}", _mean(errors), *map(_mean, others[:2]),
             "" if others[2] is None else f"{others[2]['mean']:,.0f}",
             f"{errors['seconds'] / errors['n']:.2f}"]
        )  # fmt: skip
    columns = [
        "method", ">points", ">sigma", ">total variation per item", ">log evidence error",
        ">calibration error", ">evaluations", ">seconds a fit",
    ]  # fmt: skip
    return Table("More points, against the exact programme", columns, rows)


def _ordering_table(summary: list[dict[str, Any]]) -> Table:
    rows = [
        [row["method"], _mean(row)]
        for row in summary
        if row["setting"].get("orders") and row["method"] in ordering.METHODS
    ]
    title = f"Random orders of rows and columns, sigma {ordering.SIGMA}"
    return Table(title, ["method", ">Hellinger distance"], rows)
