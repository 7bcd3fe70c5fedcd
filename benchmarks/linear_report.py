"""The summary and the Markdown tables of `benchmarks.linear`."""

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.linear_problems import FAMILIES
from permvi.experiments.results import Table, summary_row

Row = dict[str, Any]
PARTS = ("accuracy", "modes", "evidence", "bounds", "large")
_WRONG = 0.05  # an error above this counts as a wrong answer


def _numbers(rows: Iterable[Row], name: str) -> list[float]:
    """Return the finite numbers of a column; rows read from a file hold strings."""
    found = [float(row[name]) for row in rows if row.get(name) not in (None, "")]
    return [value for value in found if math.isfinite(value)]


def _groups(rows: Iterable[Row], part: str) -> dict[tuple[str, int, str], list[Row]]:
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        if row["part"] == part:
            groups.setdefault((row["family"], int(row["n"]), row["method"]), []).append(row)
    order = {name: k for k, name in enumerate(FAMILIES)}
    return dict(sorted(groups.items(), key=lambda item: (order.get(item[0][0], 99), *item[0])))


def findings(part: str, rows: list[Row]) -> dict[str, list[float]]:
    """Return the measurements of a group of rows that the summary keeps, by metric."""
    error, z = _numbers(rows, "error"), _numbers(rows, "z")
    trusted = [
        float(row["error"])
        for row in rows
        if row["verdict"] == "trust" and row.get("error") not in (None, "")
    ]
    found = {"tv_per_row": error, "cpu_seconds": _numbers(rows, "cpu_s")}
    if part in ("accuracy", "large"):
        found |= {
            "tv_worst_row": _numbers(rows, "worst_row"),
            "peak_gib": _numbers(rows, "peak_gib"),
        }
        found["trusted"] = [float(row["verdict"] == "trust") for row in rows]
        found["log_evidence_error"] = [abs(e) for e in _numbers(rows, "evidence_error")]
    if part == "modes":
        found["trusted_and_wrong"] = [float(value > _WRONG) for value in trusted]
        found["right"] = [float(value <= _WRONG) for value in error]
        found["evidence_beyond_3_errors"] = [float(abs(value) > 3) for value in z]
    if part == "evidence":
        found |= {"z": z, "z_squared": [value**2 for value in z]}
        found["z_beyond_2"] = [float(abs(value) > 2) for value in z]
        alone = [row for row in rows if not row.get("z")]
        found["log_evidence_error_without_se"] = [abs(e) for e in _numbers(alone, "evidence_error")]
    if part == "bounds":
        stated = [row for row in rows if row.get("proven") not in (None, "")]
        found["states_a_bound"] = [float(row in stated) for row in rows]
        found["error_above_bound"] = [
            float(float(row["worst_row"]) > float(row["proven"]) + 1e-9) for row in stated
        ]
    return {metric: values for metric, values in found.items() if values}


def summarise(rows: list[Row]) -> list[Row]:
    """Return the rows of ``summary.json``; parts of single small problems are taken together."""
    summary = []
    for part in PARTS:
        groups = _groups(rows, part)
        if part in ("evidence", "bounds") and groups:
            together = [row for group in groups.values() for row in group]
            groups = {("all", 0, "linear"): together}
        for (family, n, method), group in groups.items():
            setting = {"part": part, "family": family, **({"n": n} if n else {})}
            seconds = sum(_numbers(group, "cpu_s"))
            summary += [
                summary_row("linear", method, setting, metric, values, seconds=seconds)
                for metric, values in findings(part, group).items()
            ]
    return summary


def tables(rows: list[Row]) -> list[Table]:
    """Return the Markdown tables."""
    found = []
    for part, title in (("accuracy", "Accuracy"), ("modes", "Far modes"), ("large", "Large files")):
        header = ["problem", ">N", "method", ">error", ">worst row", "verdict", ">CPU s", ">GiB"]
        header += [">evidence error", ">largest z"]
        lines = []
        for (family, n, method), group in _groups(rows, part).items():
            verdicts = Counter(row["verdict"] for row in group)
            told = [f"{v} {k}" if len(group) > 1 else v for v, k in verdicts.items()]
            if part == "accuracy" and not _numbers(group, "error"):
                told += sorted({row["truth"] for row in group if row.get("truth")})
            used = sorted({row["used"] for row in group if row.get("used")} - {method})
            evidence_errors = [abs(e) for e in _numbers(group, "evidence_error")]
            z = [abs(value) for value in _numbers(group, "z")]
            name = f"{method} ({', '.join(used)})" if used else method
            lines.append([
                family, str(n), name, _mean(_numbers(group, "error"), 4),
                _mean([max(_numbers(group, "worst_row"), default=math.nan)], 3), ", ".join(told),
                _mean(_numbers(group, "cpu_s"), 1), _mean(_numbers(group, "peak_gib"), 2),
                _mean(evidence_errors, 3), _mean([max(z, default=math.nan)], 1),
            ])  # fmt: skip
        if lines:
            found.append(Table(title, header, lines))
    wide = [row for row in summarise(rows) if row["setting"]["family"] == "all"]
    wide += [row for row in summarise(rows) if row["metric"] in ("trusted_and_wrong", "right")]
    lines = [
        [", ".join(str(v) for v in row["setting"].values()), row["method"], row["metric"],
         f"{row['mean']:.4g}", str(row["n"])]
        for row in wide
    ]  # fmt: skip
    if lines:
        columns = ["problems", "method", "metric", ">mean", ">problems with it"]
        found.append(Table("Far modes, evidence and bounds", columns, lines))
    return found


def _mean(values: list[float], digits: int) -> str:
    mean = np.mean(values) if values else math.nan
    return "" if math.isnan(mean) else f"{mean:.{digits}f}"
