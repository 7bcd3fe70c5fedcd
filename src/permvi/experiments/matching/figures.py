"""Figures beyond the paper's: error against cost, and the order of rows and columns."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from permvi import _figures
from permvi._figures import INK, PALETTE
from permvi.experiments.matching import beyond, ordering
from permvi.experiments.matching.problems import NUM_POINTS
from permvi.experiments.runner import Row

_COLOURS = {
    "stick_breaking": PALETTE[0],
    "rounding": PALETTE[1],
    "sequential": PALETTE[3],
    "mcmc": PALETTE[4],
    "sinkhorn": PALETTE[5],
    "bethe": PALETTE[6],
    "gumbel_sinkhorn": PALETTE[7],
    "naive": "#7A7A7A",
    "map": "#8C6D31",
}
_MARKERS = ("o", "s", "^", "D")
# Errors below this are drawn here: the axis is logarithmic.
_LEAST = 1e-5


def error_against_cost(summary: list[dict[str, Any]]) -> Figure:
    """Error of the marginals against log-density evaluations and against time, by method."""
    found: dict[tuple[str, int, float], dict[str, Any]] = defaultdict(dict)
    for row in summary:
        setting = row["setting"]
        if "orders" not in setting and setting["n"] != NUM_POINTS:
            found[row["method"], setting["n"], setting["sigma"]][row["metric"]] = row
    sizes = sorted({n for _, n, _ in found})
    with _figures.styled():
        figure = Figure(figsize=(8.4, 3.6 * len(beyond.SIGMAS)), layout="constrained")
        axes = figure.subplots(len(beyond.SIGMAS), 2, sharey=True, squeeze=False)
        for line, sigma in zip(axes, beyond.SIGMAS, strict=True):
            for ax, cost in zip(line, (_evaluations, _seconds), strict=True):
                for method in _COLOURS:
                    of_method = {n: found[method, n, sigma] for n in sizes}
                    _trail(ax, method, {n: rows for n, rows in of_method.items() if rows}, cost)
                ax.set(xscale="log", yscale="log")
            line[0].set_ylabel(f"total variation per item,  $\\sigma$ = {sigma}")
        axes[-1, 0].set_xlabel("log densities evaluated, the verdict's included")
        axes[-1, 1].set_xlabel("seconds a fit, compilation shared by all")
        _legend(axes[0, 1], sizes)
    return figure


def _trail(
    ax: Axes, method: str, rows: dict[int, dict[str, Any]], cost: Callable[[dict[str, Any]], float]
) -> None:
    """A method's points, from few items to many."""
    points = [(cost(of_size), _error(of_size)) for of_size in rows.values()]
    if points:
        ax.plot(*zip(*points, strict=True), color=_COLOURS[method], lw=0.8, alpha=0.6)
    for place, marker in zip(points, _MARKERS, strict=False):
        ax.plot(*place, marker, color=_COLOURS[method], ms=5, mec="white", mew=0.5)


def _legend(ax: Axes, sizes: list[int]) -> None:
    for method, colour in _COLOURS.items():
        ax.plot([], [], "-", color=colour, lw=2, label=method)
    for n, marker in zip(sizes, _MARKERS, strict=False):
        ax.plot([], [], marker, color=INK, ms=4, label=f"{n} points")
    ax.legend(frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left", borderaxespad=0)


def _error(rows: dict[str, Any]) -> float:
    return max(rows["tv_per_row"]["mean"], _LEAST)


def _evaluations(rows: dict[str, Any]) -> float:
    return rows["evaluations"]["mean"]


def _seconds(rows: dict[str, Any]) -> float:
    row = rows["tv_per_row"]
    return row["seconds"] / row["n"]


def orders(rows: Iterable[Row]) -> Figure:
    """Hellinger distances of each problem in several orders of its rows and columns."""
    found: dict[str, dict[int, list[float]]] = {
        method: defaultdict(list) for method in ordering.METHODS
    }
    for row in rows:
        if row["part"] == "ordering":
            found[row["method"]][row["repetition"]].append(row["value"])
    by_method = {
        method: np.array([values[k] for k in sorted(values)]) for method, values in found.items()
    }
    # Problems from easy to hard, the same sequence in both panels.
    sequence = np.argsort(np.median(by_method[ordering.METHODS[0]], axis=1), kind="stable")
    titles = {
        "stick_breaking": "stick-breaking, rows and columns in other orders",
        "rounding": "rounding, with other random numbers",
    }
    with _figures.styled():
        figure = Figure(figsize=(7.2, 2.9), layout="constrained")
        axes = figure.subplots(1, len(by_method), sharey=True)
        for ax, (method, values) in zip(axes, by_method.items(), strict=True):
            for place, own in enumerate(values[sequence]):
                ax.plot([place, place], [own.min(), own.max()], color=_COLOURS[method], lw=0.7)
                ax.plot(np.full(len(own), place), own, ".", color=_COLOURS[method], ms=3, alpha=0.6)
                ax.plot(place, own[0], "_", color=INK, ms=6)
            spread = np.mean(values.max(axis=1) - values.min(axis=1))
            ax.set_title(f"{titles[method]}\nmean range of a problem {spread:.2f}", loc="left")
            ax.set(xlabel="problem", xticks=[], ylim=(0, 1))
        axes[0].set_ylabel(f"Hellinger distance, $\\sigma$ = {ordering.SIGMA}")
    return figure
