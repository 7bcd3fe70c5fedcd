"""From rows to the summary, the tables and the figures, next to the paper's values.

The paper's Table 1 prints the mean "BD" at sigma .1, .25, .5 and .75, of 200 repetitions. Its row
theta = 0.5 is closest to a footrule Mallows model with theta = 1, so it is shown beside both.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any

from permvi.experiments.matching import figures
from permvi.experiments.matching.plan import ORDERING_METHODS, ORDERING_SIGMA
from permvi.experiments.matching.problems import NUM_POINTS, SIGMAS
from permvi.experiments.results import Result, Table, mean_text, summary_row, write_result
from permvi.experiments.runner import Finished, Row

_MASS = ("mass_", "true_mass_")

_MISLABELLED = (0.51, 0.53, 0.61, 0.71)
_MEANS = {
    "stick_breaking": (0.09, 0.23, 0.41, 0.55),
    "rounding": (0.06, 0.21, 0.32, 0.38),
    "mallows_0.1": (0.93, 0.92, 0.89, 0.85),
    "mallows_0.5": _MISLABELLED,
    "mallows_1": _MISLABELLED,
    "mallows_2": (0.23, 0.33, 0.53, 0.69),
    "mallows_5": (0.08, 0.27, 0.54, 0.72),
    "mallows_10": (0.08, 0.27, 0.54, 0.72),
}


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Write the rows, the summary, the tables and the figures."""
    del size
    rows = [row for task in finished for row in task.rows]
    summary = _summary(finished)
    tables = [_table1(summary), _beyond_table(summary), _ordering_table(summary)]
    drawn = {
        "figure2": figures.figure2(rows, seed),
        "error_cost": figures.error_against_cost(summary),
        "ordering": figures.orders(rows),
    }
    return write_result(folder, rows, summary, drawn, tables)


def _summary(finished: list[Finished]) -> list[dict[str, Any]]:
    """Average over repetitions. The seconds of a row are those of the tasks that measured it."""
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
        paper = reported(method, sigma) if (part, metric) == ("table", "hellinger") else None
        summary.append(
            summary_row(
                "matching", method, setting, metric, measured, seconds=seconds[key], paper=paper
            )
        )
    return summary


def reported(method: str, sigma: float) -> float | None:
    """Return the paper's mean for a row of the table, the same for its bounds and for ours."""
    means = _MEANS.get(method.removesuffix("_paper").removesuffix("_exact"))
    return None if means is None else means[SIGMAS.index(sigma)]


def _is_summed(row: Row) -> bool:
    return not row["metric"].startswith(_MASS)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("part", "method", "n", "sigma", "metric"))


def _found(summary: list[dict[str, Any]], metric: str) -> dict[tuple[str, int, float], Any]:
    """Find rows of a metric by method, number of points and noise, without those of orders."""
    return {
        (row["method"], row["setting"]["n"], row["setting"]["sigma"]): row
        for row in summary
        if row["metric"] == metric and "orders" not in row["setting"]
    }


def _mean(row: dict[str, Any] | None) -> str:
    return "" if row is None else mean_text(row, 4)


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
        if row["setting"].get("orders") and row["method"] in ORDERING_METHODS
    ]
    title = f"Random orders of rows and columns, sigma {ORDERING_SIGMA}"
    return Table(title, ["method", ">Hellinger distance"], rows)
