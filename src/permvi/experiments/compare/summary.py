"""The summary, a table for each kind of problem, and a figure."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from permvi import _figures
from permvi._figures import FAINT, INK
from permvi.experiments.compare.plan import METRICS
from permvi.experiments.compare.targets import targets
from permvi.experiments.results import Result, Table, summary_row, write_rows, write_summary
from permvi.experiments.runner import Finished, Row

COLUMNS = (
    "method", ">error of a row", ">worst row", ">Hellinger", ">log evidence", "verdict", ">ESS",
    ">evaluations", ">seconds",
)  # fmt: skip

_VERDICTS = {"trust": "#009E73", "check": "#F5B700", "do not trust": "#B2182B"}
_LEAST = 1e-5


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Sum up, draw, write."""
    del seed
    rows = [row for task in finished for row in task.rows]
    summary = [entry for task in finished for entry in _summary(task)]
    seconds = {
        (row["target"], row["method"]): task.seconds / len(task.rows)
        for task in finished
        for row in task.rows
    }
    tables = [table(target.name, rows, seconds) for target in targets(size)]
    files = [
        write_rows(folder, rows),
        write_summary(folder, summary),
        *_figures.save(_figure(rows, [target.name for target in targets(size)]), folder, "compare"),
    ]
    return Result(summary, files, tables)


def table(target: str, rows: list[Row], seconds: dict[tuple[str, str], float]) -> Table:
    """The methods that took a kind of problem: means over its repetitions, the worst verdict."""
    by_method: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["target"] == target and not row["refused"]:
            by_method[row["method"]].append(row)
    cells = [
        [method, *_cells(own), f"{seconds[target, method]:.1f}"]
        for method, own in by_method.items()
    ]
    return Table(target, COLUMNS, cells)


def refusals(target: str, rows: list[Row]) -> list[str]:
    """The methods that refused a kind of problem."""
    named = (row["method"] for row in rows if row["target"] == target and row["refused"])
    return list(dict.fromkeys(named))


def _cells(rows: list[Row]) -> list[str]:
    mean = {name: _mean(rows, name) for name in METRICS}
    hellinger = _number(mean["hellinger"], 3)
    if mean["hellinger_of_draws"] is not None:
        hellinger += f" / {_number(mean['hellinger_of_draws'], 3)}"
    evaluations = mean["evaluations"]
    verdict = max((row["verdict"] for row in rows), key=list(_VERDICTS).index)
    return [
        _number(mean["tv_mean"], 4),
        _number(mean["tv_max"], 4),
        hellinger,
        _number(mean["log_evidence_error"], 3, sign="+"),
        verdict,
        _number(mean["ess_per_draw"], 2),
        "" if evaluations is None else f"{evaluations:,.0f}",
    ]


def _mean(rows: list[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return float(np.mean(values)) if values else None


def _number(value: float | None, digits: int, sign: str = "") -> str:
    """A number with so many digits; nothing for None, and "<" for what would round to zero."""
    if value is None:
        return ""
    if round(value, digits) == 0:
        return "0" if abs(value) < 1e-6 else f"< {10.0**-digits:.{digits}f}"
    return f"{value:{sign}.{digits}f}"


def _summary(task: Finished) -> list[dict[str, Any]]:
    entries = []
    for metric in METRICS:
        values = [row[metric] for row in task.rows if row[metric] is not None]
        if values:
            first = task.rows[0]
            setting = {"target": first["target"]}
            entries.append(
                summary_row(
                    "compare", first["method"], setting, metric, values, seconds=task.seconds
                )
            )
    return entries


def _figure(rows: list[Row], names: list[str]) -> Figure:
    """Errors of the marginals by method, a panel for each kind of problem, coloured by verdict."""
    methods = list(dict.fromkeys(row["method"] for row in rows))[::-1]
    with _figures.styled():
        figure = Figure(figsize=(2.0 * len(names) + 1.2, 0.24 * len(methods) + 1.1))
        figure.set_layout_engine("constrained")
        axes = figure.subplots(1, len(names), sharey=True, sharex=True)
        for ax, name in zip(axes, names, strict=True):
            for place, method in enumerate(methods):
                own = [r for r in rows if (r["target"], r["method"]) == (name, method)]
                if own[0]["refused"]:
                    ax.text(0.5, place, "refused", transform=ax.get_yaxis_transform(),
                            ha="center", va="center", fontsize=6, color=INK, alpha=0.5)  # fmt: skip
                    continue
                for row in own:
                    error = max(row["tv_mean"] or 0.0, _LEAST)
                    ax.plot(error, place, "o", ms=4, color=_VERDICTS[row["verdict"]], alpha=0.8)
            ax.set_title(name, loc="left")
            ax.grid(axis="y", color=FAINT, lw=0.4)
            ax.set_xscale("log")
            ax.set_xlim(_LEAST / 2, 1)
        axes[0].set_yticks(range(len(methods)), methods)
        axes[len(names) // 2].set_xlabel("mean total variation of a row from the exact marginals")
        for verdict, colour in _VERDICTS.items():
            axes[-1].plot([], [], "o", ms=4, color=colour, label=verdict)
        axes[-1].legend(frameon=False, bbox_to_anchor=(1.02, 1), loc="upper left")
    return figure
