"""What to show of the summary as tables."""

from collections.abc import Iterable
from typing import Any

from permvi.experiments.celegans.methods import OURS
from permvi.experiments.celegans.settings import NO_POSITIONS, Grid, Setting
from permvi.experiments.results import Table

Found = dict[tuple[str, Setting], dict[str, Any]]


def of(summary: list[dict[str, Any]], grid: Grid) -> list[Table]:
    """Figures 4b and 4c as tables, what lies beyond, and calibration."""
    return [
        _accuracy(
            found(summary, "accuracy"),
            grid.candidates,
            "Accuracy by tolerance of positions (the paper's in brackets)",
            ("worms", "tolerance"),
        ),
        _accuracy(
            found(summary, "accuracy"),
            grid.known,
            "Accuracy by known neurons (the paper's in brackets)",
            ("tolerance", "known"),
        ),
        _beyond(summary, [*grid.further, *grid.hard]),
        _calibration(summary),
    ]


def found(summary: Iterable[dict[str, Any]], metric: str) -> Found:
    """Rows of a metric by method and setting."""
    return {
        (row["method"], Setting.of(row["setting"])): row
        for row in summary
        if row["metric"] == metric and row["setting"].get("variant") != "pooled"
    }


def _accuracy(rows: Found, settings: Iterable[Setting], title: str, axes: tuple[str, str]) -> Table:
    """A line for each method and value of the first axis, a column for each of the second."""
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


def _beyond(summary: list[dict[str, Any]], settings: list[Setting]) -> Table:
    """What the method of ours does elsewhere, for few and for many worms."""
    accuracy, trusted = found(summary, "accuracy"), found(summary, "trusted")
    expected = found(summary, "expected_accuracy")
    lines = []
    for setting in settings:
        row = accuracy[OURS, setting]
        spread = "" if row["sem"] is None else f" ± {row['sem']:.3f}"
        lines.append(
            [
                describe(setting),
                str(setting.worms),
                f"{row['mean']:.3f}{spread}",
                f"{expected[OURS, setting]['mean']:.3f}",
                f"{trusted[OURS, setting]['mean']:.0%}",
                f"{row['seconds'] / row['n']:.1f}",
            ]
        )
    columns = [
        "setting", ">worms", ">accuracy", ">expected, unknown ones", ">trusted", ">seconds a fit",
    ]  # fmt: skip
    return Table("Beyond the paper, method collapsed", columns, lines)


def describe(setting: Setting) -> str:
    """What is special about a setting beyond the paper."""
    if setting.variant:
        return setting.variant.replace("_", " ")
    if setting.tolerance >= NO_POSITIONS:
        return f"no positions, {setting.known} known"
    return f"T = {setting.T}"


def _calibration(summary: list[dict[str, Any]]) -> Table:
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
