"""From rows to the summary, the tables and the figures."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from permvi import _figures
from permvi.experiments.celegans import calibration, figure3, figure4, figures, tables
from permvi.experiments.celegans.calibration import Promises
from permvi.experiments.celegans.network import network
from permvi.experiments.celegans.paper import reported
from permvi.experiments.celegans.settings import GRIDS, Grid, Setting
from permvi.experiments.results import (
    Measurement,
    Result,
    summary_row,
    write_rows,
    write_summary,
    write_tables,
)
from permvi.experiments.runner import Finished, Row

_STUDY = "celegans"
_MEASURED = ("accuracy", "accuracy_unknown", "accuracy_mode", "expected_accuracy")
# Fits that have fewer neurons right should not have the verdict "trust".
_TRUSTWORTHY = 0.7
_TRACED = ("log_likelihood", "weight_error", "accuracy", "variance")


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Sum up, draw, write."""
    grid = GRIDS[size]
    rows = [row for task in finished for row in task.rows]
    promises = calibration.by_setting(rows)
    usual = calibration.pooled(promises, [*grid.candidates, *grid.further])
    summary = [
        *_fits(finished),
        *_calibration(promises, usual, grid, finished),
        *_convergence(finished, grid),
    ]
    shown = tables.of(summary, grid)
    drawn = {
        "figure3": figure3.draw(network(grid.network), seed),
        "figure4a": figure4.convergence(summary),
        "figure4bc": figure4.accuracy(summary, grid),
        "figure4de": figure4.variance_and_samples(summary, rows),
        "calibration": figures.calibration(usual),
        "hard": figures.hard(summary, grid),
    }
    files = [
        write_rows(folder, [_repeatable(row) for row in rows]),
        write_summary(folder, summary),
        write_tables(folder, shown),
        *(path for name, figure in drawn.items() for path in _figures.save(figure, folder, name)),
    ]
    return Result(summary, files, shown)


def _repeatable(row: Row) -> Row:
    """A row without the time that it took, so that the same seed gives the same file."""
    return {name: value for name, value in row.items() if name != "fit_seconds"}


def _fits(finished: list[Finished]) -> Iterator[dict[str, Any]]:
    """Means over simulations."""
    groups: dict[tuple[str, Setting], list[Finished]] = defaultdict(list)
    for task in finished:
        if task.task.config["part"] == "fit":
            groups[_key(task)].append(task)
    for (method, setting), tasks in groups.items():
        fits = [row for task in tasks for row in task.rows if row["part"] == "fit"]
        seconds = sum(task.seconds for task in tasks)
        measured = {metric: [fit[metric] for fit in fits] for metric in _MEASURED}
        measured["trusted"] = [float(fit["verdict"] == "trust") for fit in fits]
        measured["wrongly_trusted"] = [
            float(fit["verdict"] == "trust" and fit["accuracy"] < _TRUSTWORTHY) for fit in fits
        ]
        for metric, values in measured.items():
            yield summary_row(
                _STUDY,
                method,
                setting.public(),
                metric,
                values,
                seconds=seconds,
                paper=reported(method, setting) if metric == "accuracy" else None,
            )


def _calibration(
    promises: dict[tuple[str, Setting], Promises],
    usual: dict[str, Promises],
    grid: Grid,
    finished: list[Finished],
) -> Iterator[dict[str, Any]]:
    """Of each setting with one worm, and of those together that are not hard."""
    seconds: dict[tuple[str, Setting], float] = defaultdict(float)
    for task in finished:
        if task.task.config["part"] == "fit":
            seconds[_key(task)] += task.seconds
    pool = {"worms": 1, "variant": "pooled"}
    measured: list[tuple[str, dict[str, Any], Promises, float]] = [
        (method, setting.public(), own, seconds[method, setting])
        for (method, setting), own in promises.items()
    ]
    together = [setting for setting in (*grid.candidates, *grid.further) if setting.worms == 1]
    measured += [
        (method, pool, own, sum(seconds[method, setting] for setting in together))
        for method, own in usual.items()
    ]
    for method, setting, own, spent in measured:
        for metric, value in (("calibration_error", own.error), ("auc", own.auc)):
            if value is not None:
                count = Measurement(value, None, len(own.correct))
                yield summary_row(_STUDY, method, setting, metric, count, seconds=spent)


def _convergence(finished: list[Finished], grid: Grid) -> Iterator[dict[str, Any]]:
    for task in finished:
        if task.task.config["part"] == "convergence":
            for row in task.rows:
                setting = {**grid.convergence.public(), "steps": row["steps"]}
                for metric in _TRACED:
                    if row[metric] is not None:
                        yield summary_row(
                            _STUDY,
                            row["method"],
                            setting,
                            f"convergence_{metric}",
                            [row[metric]],
                            seconds=row["fit_seconds"],
                        )


def _key(task: Finished) -> tuple[str, Setting]:
    return task.task.config["method"], Setting.of(task.task.config["setting"])
