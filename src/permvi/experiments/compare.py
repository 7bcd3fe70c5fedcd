"""Every method on five kinds of problems, next to the exact answer.

The five kinds are one broad mode, near ties, several modes far apart, an order of jobs, and a mask.
Their sizes keep the exact answer affordable. Where a method does well shows only next to the other
methods. The page on choosing a method is written from this study.

A row has ``target``, ``method``, ``repetition``, the errors of `permvi.compare`, the verdict, and
the reason if the method refused the problem.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from permvi import _figures
from permvi._compare import compare
from permvi._figures import FAINT, INK
from permvi.experiments.results import Result, Table, summary_row, write_result
from permvi.experiments.runner import Finished, Row, Study, Task
from permvi.inference import registry
from permvi.models import CallableModel, GraphMatching, LinearMatching, PointMatching
from permvi.posterior import Posterior

METRICS = (
    "tv_mean", "tv_max", "hellinger", "hellinger_of_draws", "log_evidence_error", "ess_per_draw",
    "evaluations",
)  # fmt: skip
"""What is measured. For a fitted family, ``hellinger`` is the distance of the family from the exact
posterior, and ``hellinger_of_draws`` the distance of its weighted draws."""

COLUMNS = (
    "method", ">error of a row", ">worst row", ">Hellinger", ">log evidence", "verdict", ">ESS",
    ">evaluations", ">seconds",
)  # fmt: skip

_ITEMS = {"smoke": (4, 4, 4, 4, 4), "paper": (6, 16, 8, 7, 10)}
_REPETITIONS = {"smoke": 1, "paper": 3}
# Methods that compile in no time, to check that everything runs.
_QUICK = ("exact", "map", "sinkhorn", "bethe")
_VERDICTS = {"trust": "#009E73", "check": "#F5B700", "do not trust": "#B2182B"}
# Smaller errors are drawn here, since the axis is logarithmic.
_LEAST = 1e-5


class Target(NamedTuple):
    """A kind of problem."""

    name: str
    text: str
    build: Callable[[np.random.Generator], Any]  # draws a model from a random generator


def targets(size: str) -> list[Target]:
    """Return the five kinds of problems, tiny ones at smoke size."""
    points, ties, graphs, jobs, masked = _ITEMS[size]
    return [
        Target(
            f"Points, {points} items",
            f"{points} points in the plane, each observed once with noise .5: one broad mode.",
            lambda rng: _point_matching(points, 0.5, rng),
        ),
        Target(
            f"Near ties, {ties} items",
            f"{ties} points with noise .25: every pair is nearly settled or nearly a tie, so that "
            "many matchings are about as good as the best one.",
            lambda rng: _point_matching(ties, 0.25, rng),
        ),
        Target(
            f"Graphs, {graphs} items",
            f"A symmetric Gaussian {graphs} by {graphs} matrix and a shuffled copy of it with "
            "noise 1.5: a quadratic density with several modes far apart.",
            lambda rng: _graph_matching(graphs, 1.5, 0.3, rng),
        ),
        Target(
            f"Ranking, {jobs} items",
            f"The order of {jobs} jobs on one machine, weighted by their tardiness: a NumPy "
            "function of the permutation, neither linear nor differentiable.",
            lambda rng: _job_order(jobs, rng),
        ),
        Target(
            f"Masked, {masked} items",
            f"Normal scores for {masked} items, where a sparse mask allows at most four labels for "
            "each.",
            lambda rng: _masked_matching(masked, rng),
        ),
    ]


def _point_matching(n: int, noise: float, rng: np.random.Generator) -> PointMatching:
    centers = rng.normal(size=(n, 2))
    observations = centers[rng.permutation(n)] + noise * rng.normal(size=(n, 2))
    return PointMatching(observations, centers, scale=noise)


def _graph_matching(n: int, noise: float, scale: float, rng: np.random.Generator) -> GraphMatching:
    """Draw a graph and a noisy copy of it in an unknown order."""
    reference = _symmetric(rng, n)
    perm = rng.permutation(n)
    observed = reference[np.ix_(perm, perm)] + noise * _symmetric(rng, n)
    return GraphMatching(observed, reference, scale=scale)


def _symmetric(rng: np.random.Generator, n: int) -> np.ndarray:
    half = rng.normal(size=(n, n))
    return (half + half.T) / np.sqrt(2)


def _job_order(n: int, rng: np.random.Generator) -> CallableModel:
    """Draw jobs with lengths, weights and due dates; ``perm[i]`` is the place of job i."""
    lengths, weights = rng.integers(1, 10, n), rng.integers(1, 5, n)
    due = rng.uniform(0.2, 0.9, n) * lengths.sum()

    def log_density(perm: np.ndarray) -> float:
        order = np.argsort(perm)
        late = np.maximum(np.cumsum(lengths[order]) - due[order], 0.0)
        return -0.1 * float((weights[order] * late).sum())

    return CallableModel(log_density, n, "perm", jax=False)


def _masked_matching(n: int, rng: np.random.Generator) -> LinearMatching:
    """Draw scores, allowed where one of four random permutations has a pair."""
    mask = np.zeros((n, n), bool)
    for _ in range(4):
        mask[np.arange(n), rng.permutation(n)] = True
    return LinearMatching(1.5 * rng.normal(size=(n, n)), mask=mask)


def tasks(size: str, seed: int) -> list[Task]:
    """Return a task for each kind of problem and method: all methods at paper size."""
    names = _QUICK if size == "smoke" else tuple(registry.names_for())
    return [
        Task(
            f"{target.name} {method}",
            {"size": size, "seed": seed, "target": target.name, "method": method},
        )
        for method in names
        for target in targets(size)
    ]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """Run a method on the repetitions of a kind of problem."""
    del scratch
    kinds = targets(config["size"])
    index = [target.name for target in kinds].index(config["target"])
    return [
        {"target": config["target"], "repetition": repetition}
        | _row(
            kinds[index].build(np.random.default_rng([config["seed"], index, repetition])),
            config["method"],
            repetition,
        )
        for repetition in range(_REPETITIONS[config["size"]])
    ]


def _row(model: Any, method: str, seed: int) -> Row:
    comparison = compare(model, [method], seed=seed)
    (row,) = comparison
    found = comparison.posteriors.get(method)
    measured = {name: getattr(row, name, None) for name in METRICS}
    if found is not None and comparison.exact is not None and row.hellinger is not None:
        measured["hellinger_of_draws"] = _hellinger_of_draws(found, comparison.exact)
    return {"method": method, "verdict": row.verdict, "refused": row.refused, **measured}


def _hellinger_of_draws(found: Posterior, exact: Posterior) -> float | None:
    """Hellinger distance between weighted draws and the exact posterior, for fitted families."""
    if found.law.kind != "family":
        return None
    matchings = found.top(1_000_000)
    q = np.array([matching.probability for matching in matchings])
    p = np.exp(exact.log_prob(np.array([matching.perm for matching in matchings])))
    return float(np.sqrt(max(0.0, 1.0 - np.sqrt(p * q).sum())))


def finish(folder: Path, size: str, seed: int, finished: list[Finished]) -> Result:
    """Write the summary and the figure, and return a table for each kind of problem."""
    del seed
    rows = [row for task in finished for row in task.rows]
    seconds = {
        (row["target"], row["method"]): task.seconds / len(task.rows)
        for task in finished
        for row in task.rows
    }
    names = [target.name for target in targets(size)]
    summary = [entry for task in finished for entry in _summary(task)]
    written = write_result(folder, rows, summary, {"compare": _figure(rows, names)})
    return written._replace(tables=[table(name, rows, seconds) for name in names])


STUDY = Study("compare", tasks, run_task, finish)


def table(target: str, rows: list[Row], seconds: dict[tuple[str, str], float]) -> Table:
    """Tabulate the methods that accepted a kind of problem: mean errors and the worst verdict."""
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
    """Return the methods that refused a kind of problem."""
    named = (row["method"] for row in rows if row["target"] == target and row["refused"])
    return list(dict.fromkeys(named))


def _cells(rows: list[Row]) -> list[str]:
    mean = {name: _mean(rows, name) for name in METRICS}
    hellinger = format_number(mean["hellinger"], 3)
    if mean["hellinger_of_draws"] is not None:
        hellinger += f" / {format_number(mean['hellinger_of_draws'], 3)}"
    evaluations = mean["evaluations"]
    return [
        format_number(mean["tv_mean"], 4),
        format_number(mean["tv_max"], 4),
        hellinger,
        format_number(mean["log_evidence_error"], 3, sign="+"),
        max((row["verdict"] for row in rows), key=list(_VERDICTS).index),
        format_number(mean["ess_per_draw"], 2),
        "" if evaluations is None else f"{evaluations:,.0f}",
    ]


def _values(rows: list[Row], metric: str) -> list[float]:
    return [row[metric] for row in rows if row[metric] is not None]


def _mean(rows: list[Row], metric: str) -> float | None:
    values = _values(rows, metric)
    return float(np.mean(values)) if values else None


def format_number(value: float | None, digits: int, sign: str = "") -> str:
    """Format a number; nothing for None, and "<" for what would round to zero."""
    if value is None:
        return ""
    if round(value, digits) == 0:
        return "0" if abs(value) < 1e-6 else f"< {10.0**-digits:.{digits}f}"
    return f"{value:{sign}.{digits}f}"


def _summary(task: Finished) -> list[dict[str, Any]]:
    method, setting = task.rows[0]["method"], {"target": task.rows[0]["target"]}
    return [
        summary_row("compare", method, setting, metric, values, seconds=task.seconds)
        for metric in METRICS
        if (values := _values(task.rows, metric))
    ]


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
