"""From rows to the summary, the tables and the figures, next to the paper's values.

The paper's accuracies are read off its Figures 4b and 4c, means of five simulations. Caption and
supplement disagree on whether many worms are 5 or 4, so both have the same values. The figures have
one curve for MCMC and one for naive inference, used here for many worms.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from permvi.experiments.celegans import figures, scoring
from permvi.experiments.celegans.figures import Found, find_rows
from permvi.experiments.celegans.problems import network
from permvi.experiments.celegans.scoring import Confidence
from permvi.experiments.celegans.settings import (
    GRIDS,
    KNOWN,
    OURS,
    TOLERANCES,
    Grid,
    Setting,
    describe,
)
from permvi.experiments.results import (
    Measurement,
    Result,
    Table,
    mean_text,
    summary_row,
    write_result,
)
from permvi.experiments.runner import Finished, Row

_Fits = dict[tuple[str, Setting], list[Finished]]
_Seconds = dict[tuple[str, Setting], float]

_STUDY = "celegans"
_MEASURED = ("accuracy", "accuracy_unknown", "accuracy_mode", "expected_accuracy")
# A fit with fewer right neurons should not have the verdict "trust".
_TRUSTWORTHY = 0.7
_TRACED = ("log_likelihood", "weight_error", "accuracy", "variance")

# The paper's accuracies by tolerance, for many worms and for one.
_MANY = {
    "rounding": (0.93, 0.88, 0.70, 0.47, 0.39),
    "map": (0.65, 0.47, 0.29, 0.21, 0.16),
    "mcmc": (0.34, 0.34, 0.16, 0.13, 0.11),
    "naive": (0.33, 0.28, 0.16, 0.13, 0.11),
}
_ONE = {"rounding": (0.77, 0.65, 0.33, 0.18, 0.16), "map": (0.34, 0.30, 0.18, 0.16, 0.12)}
# The paper's accuracies by the number of known neurons.
_BASELINES = (0.11, 0.22, 0.32, 0.42)
_KNOWN = {
    ("rounding", 0.05): (0.39, 0.71, 0.86, 0.96),
    ("rounding", 0.1): (0.18, 0.55, 0.83, 0.92),
    ("map", 0.05): (0.16, 0.28, 0.57, 0.85),
    ("map", 0.1): (0.11, 0.24, 0.48, 0.89),
    ("mcmc", 0.05): _BASELINES,
    ("mcmc", 0.1): _BASELINES,
    ("naive", 0.05): _BASELINES,
    ("naive", 0.1): _BASELINES,
}


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Write the rows, the summary, the tables and the figures."""
    grid = GRIDS[size]
    rows = [row for task in finished for row in task.rows]
    confidence = scoring.confidence_by_setting(rows)
    usual = scoring.pooled_confidence(confidence, [*grid.candidates, *grid.further])
    fits = _fits_by_setting(finished)
    seconds = {key: sum(task.seconds for task in tasks) for key, tasks in fits.items()}
    summary = [
        *_accuracies(fits, seconds),
        *_calibration(confidence, usual, grid, seconds),
        *_convergence(finished, grid),
    ]
    drawn = {
        "figure3": figures.figure3(network(grid.network), seed),
        "figure4a": figures.convergence(summary),
        "figure4bc": figures.accuracy(summary, grid),
        "figure4de": figures.variance_and_samples(summary, rows),
        "calibration": figures.calibration(usual),
        "hard": figures.hard(summary, grid),
    }
    return write_result(folder, map(_repeatable, rows), summary, drawn, _tables(summary, grid))


def _repeatable(row: Row) -> Row:
    """Drop the time from a row, so that the same seed gives the same file."""
    return {name: value for name, value in row.items() if name != "fit_seconds"}


def _fits_by_setting(finished: list[Finished]) -> _Fits:
    fits: _Fits = defaultdict(list)
    for task in finished:
        config = task.task.config
        if config["part"] == "fit":
            fits[config["method"], Setting.of(config["setting"])].append(task)
    return fits


def _accuracies(fits: _Fits, seconds: _Seconds) -> Iterator[dict[str, Any]]:
    """Average over simulations."""
    for (method, setting), tasks in fits.items():
        rows = [row for task in tasks for row in task.rows if row["part"] == "fit"]
        measured = {metric: [row[metric] for row in rows] for metric in _MEASURED}
        measured["trusted"] = [float(row["verdict"] == "trust") for row in rows]
        measured["wrongly_trusted"] = [
            float(row["verdict"] == "trust" and row["accuracy"] < _TRUSTWORTHY) for row in rows
        ]
        for metric, values in measured.items():
            yield summary_row(
                _STUDY,
                method,
                setting.public(),
                metric,
                values,
                seconds=seconds[method, setting],
                paper=reported(method, setting) if metric == "accuracy" else None,
            )


def _calibration(
    confidence: dict[tuple[str, Setting], Confidence],
    usual: dict[str, Confidence],
    grid: Grid,
    seconds: _Seconds,
) -> Iterator[dict[str, Any]]:
    """Summarise each setting with one worm, and the settings that are not hard together."""
    pool = {"worms": 1, "variant": "pooled"}
    measured: list[tuple[str, dict[str, Any], Confidence, float]] = [
        (method, setting.public(), own, seconds[method, setting])
        for (method, setting), own in confidence.items()
    ]
    together = [setting for setting in (*grid.candidates, *grid.further) if setting.worms == 1]
    measured += [
        (method, pool, own, sum(seconds.get((method, setting), 0.0) for setting in together))
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


def reported(method: str, setting: Setting) -> float | None:
    """Return the paper's mean accuracy, the same for both temperatures of rounding."""
    name = method.removesuffix("_temperature_1")
    if setting.variant or setting.T != 1000:
        return None
    if setting.known == KNOWN[0] and setting.tolerance in TOLERANCES:
        means = (_ONE if setting.worms == 1 else _MANY).get(name)
        return None if means is None else means[TOLERANCES.index(setting.tolerance)]
    if setting.known in KNOWN and setting.worms == 4 and (name, setting.tolerance) in _KNOWN:
        return _KNOWN[name, setting.tolerance][KNOWN.index(setting.known)]
    return None


def _tables(summary: list[dict[str, Any]], grid: Grid) -> list[Table]:
    """Tabulate Figures 4b and 4c, the settings beyond the paper, and calibration."""
    return [
        _accuracy_table(
            find_rows(summary, "accuracy"),
            grid.candidates,
            "Accuracy by tolerance of positions (the paper's in brackets)",
            ("worms", "tolerance"),
        ),
        _accuracy_table(
            find_rows(summary, "accuracy"),
            grid.known,
            "Accuracy by known neurons (the paper's in brackets)",
            ("tolerance", "known"),
        ),
        _beyond_table(summary, [*grid.further, *grid.hard]),
        _calibration_table(summary),
    ]


def _accuracy_table(
    rows: Found, settings: Iterable[Setting], title: str, axes: tuple[str, str]
) -> Table:
    """Tabulate methods and values of the first axis by values of the second."""
    listed = list(settings)
    firsts, seconds = (sorted({getattr(each, name) for each in listed}) for name in axes)
    lines = []
    for first in firsts:
        for method in dict.fromkeys(method for method, _ in rows):
            cells = []
            for second in seconds:
                wanted = dict(zip(axes, (first, second), strict=True))
                setting = next(each for each in listed if wanted.items() <= each._asdict().items())
                cells.append(_with_paper(rows.get((method, setting))))
            lines.append([f"{first:g}", method, *cells])
    columns = [f">{axes[0]}", "method", *(f">{axes[1]} {value:g}" for value in seconds)]
    return Table(title, columns, lines)


def _with_paper(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    paper = "" if row["paper"] is None else f" ({row['paper']:.2f})"
    return f"{row['mean']:.3f}{paper}"


def _beyond_table(summary: list[dict[str, Any]], settings: list[Setting]) -> Table:
    """Tabulate our method beyond the paper."""
    accuracy, trusted = find_rows(summary, "accuracy"), find_rows(summary, "trusted")
    expected = find_rows(summary, "expected_accuracy")
    lines = []
    for setting in settings:
        row = accuracy[OURS, setting]
        lines.append(
            [
                describe(setting),
                str(setting.worms),
                mean_text(row, 3),
                f"{expected[OURS, setting]['mean']:.3f}",
                f"{trusted[OURS, setting]['mean']:.0%}",
                f"{row['seconds'] / row['n']:.1f}",
            ]
        )
    columns = [
        "setting", ">worms", ">accuracy", ">expected, unknown ones", ">trusted", ">seconds a fit",
    ]  # fmt: skip
    return Table("Beyond the paper, method collapsed", columns, lines)


def _calibration_table(summary: list[dict[str, Any]]) -> Table:
    pooled = {
        (row["method"], row["metric"]): row
        for row in summary
        if row["setting"].get("variant") == "pooled"
    }
    lines = []
    for method in dict.fromkeys(method for method, _ in pooled):
        error, auc = pooled[method, "calibration_error"], pooled.get((method, "auc"))
        ranked = "" if auc is None else f"{auc['mean']:.3f}"
        lines.append([method, f"{error['mean']:.3f}", ranked, str(error["n"])])
    columns = ["method", ">calibration error", ">AUC of confidence", ">neurons"]
    return Table("Confidence in one-worm fits", columns, lines)
