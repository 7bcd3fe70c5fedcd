"""Figure 2 of the paper, error against cost, and the order of rows and columns.

Figure 2 has a row for each noise: (a) the centres and observations of an example, joined where
they belong together; (b) true (grey) and inferred (coloured) probabilities of its ten likeliest
matchings and of all others together; (c) the density of the Hellinger distance over the problems of
the table.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from permvi import _figures
from permvi._figures import FAINT, INK, PALETTE
from permvi.experiments.matching.plan import (
    BEYOND_SIGMAS,
    FIGURE_REPETITION,
    NUM_SHOWN,
    ORDERING_METHODS,
    ORDERING_SIGMA,
)
from permvi.experiments.matching.problems import NUM_POINTS, SIGMAS, draw
from permvi.experiments.runner import Row

# Methods of Figure 2: name and colour.
_SHOWN = {
    "stick_breaking": ("stick-breaking", PALETTE[0]),
    "rounding": ("rounding", PALETTE[1]),
    "mallows_1": (r"Mallows $\theta = 1$", PALETTE[4]),
    "sequential": ("sequential", PALETTE[3]),
}

_OTHERS = {
    "stick_breaking_paper": ("stick-breaking, paper's bounds", PALETTE[0]),
    "rounding_paper": ("rounding, paper's bounds", PALETTE[1]),
}
_WIDTH, _ROW = 10.0, 1.75
# Kernel width for the densities of distances, which lie between 0 and 1.
_BANDWIDTH = 0.025

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
# Smaller errors are drawn here, since the axis is logarithmic.
_LEAST = 1e-5


def figure2(rows: Iterable[Row], seed: int) -> Figure:
    """Draw Figure 2."""
    table = [row for row in rows if row["part"] == "table"]
    with _figures.styled():
        figure = Figure(figsize=(_WIDTH, _ROW * len(SIGMAS) + 0.6), layout="constrained")
        widths = [1.15, *[1.0] * len(_SHOWN), 1.55]
        axes = figure.subplots(len(SIGMAS), len(widths), width_ratios=widths)
        for line, sigma in zip(axes, SIGMAS, strict=True):
            of_sigma = [row for row in table if row["sigma"] == sigma]
            _example(line[0], sigma, seed)
            _masses(line[1:-1], of_sigma)
            _densities(line[-1], of_sigma)
        _label(axes)
    return figure


def _label(axes: np.ndarray) -> None:
    axes[0, 0].set_title("a   example", loc="left", fontweight="bold")
    axes[0, -1].set_title("c   all problems", loc="left", fontweight="bold")
    for index, (ax, (name, _)) in enumerate(zip(axes[0, 1:-1], _SHOWN.values(), strict=True)):
        ax.set_title(f"b   {name}" if index == 0 else name, loc="left", fontweight="bold")
    for ax in axes[-1, 1:-1]:
        ax.set_xlabel("matching, likeliest first")
    axes[-1, -1].set_xlabel("Hellinger distance")
    for ax in axes[:, 1]:
        ax.set_ylabel("probability")
    axes[0, -1].legend(frameon=False, fontsize=6, handlelength=1.6, labelspacing=0.3)


def _example(ax: Axes, sigma: float, seed: int) -> None:
    problem = draw(NUM_POINTS, sigma, seed, FIGURE_REPETITION)
    centers, observations = (
        np.asarray(points) for points in (problem.model.centers, problem.model.observations)
    )
    for observed, true in zip(observations, centers[problem.truth], strict=True):
        ax.plot(*zip(observed, true, strict=True), color=FAINT, lw=0.8, zorder=1)
    ax.scatter(
        centers[:, 0], centers[:, 1], marker="x", s=22, color=INK, lw=1.1, zorder=3, label="centre"
    )
    ax.scatter(
        observations[:, 0],
        observations[:, 1],
        s=14,
        color=PALETTE[0],
        zorder=2,
        label="observation",
    )
    ax.set_aspect("equal", "datalim")
    ax.set(xticks=[], yticks=[], ylabel=rf"$\sigma = {sigma}$")
    ax.yaxis.label.set_fontsize(10)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    if sigma == SIGMAS[0]:
        ax.legend(
            frameon=False, fontsize=6, loc="upper left", bbox_to_anchor=(-0.05, 1.0),
            borderpad=0, handletextpad=0.2,
        )  # fmt: skip


def _masses(line: Iterable[Axes], rows: list[Row]) -> None:
    names = [*(str(rank) for rank in range(1, NUM_SHOWN + 1)), "rest"]
    places = np.arange(len(names))
    top = max(row["value"] for row in rows if "mass_" in row["metric"])
    for ax, (method, (_, colour)) in zip(line, _SHOWN.items(), strict=True):
        found = {row["metric"]: row["value"] for row in rows if row["method"] == method}
        true = [found[f"true_mass_{name}"] for name in names]
        inferred = [found[f"mass_{name}"] for name in names]
        ax.bar(places, true, width=0.85, color=FAINT)
        ax.bar(places, inferred, width=0.4, color=colour)
        distance = next(
            row["value"]
            for row in rows
            if (row["method"], row["metric"], row["repetition"])
            == (method, "hellinger", FIGURE_REPETITION)
        )
        ax.text(0.97, 0.93, f"$H$ = {distance:.3f}", transform=ax.transAxes, ha="right", va="top")
        ax.set_ylim(0, 1.05 * top)
        ax.set_xticks([0, 4, 9, 10.4], ["1", "5", "10", "   rest"], fontsize=6)


def _densities(ax: Axes, rows: list[Row]) -> None:
    grid = np.linspace(0, 1, 401)
    for styles, dashes in ((_SHOWN, "-"), (_OTHERS, (0, (2, 1.5)))):
        for method, (name, colour) in styles.items():
            values = np.array(
                [
                    row["value"]
                    for row in rows
                    if row["method"] == method and row["metric"] == "hellinger"
                ]
            )
            # Reflected at both ends, where the density would otherwise leak out.
            both = np.concatenate([values, -values, 2 - values])
            density = stats.norm.pdf(grid[:, None], both, _BANDWIDTH).sum(axis=1) / len(values)
            ax.plot(grid, density, color=colour, ls=dashes, label=name)
    ax.set(xlim=(0, 1), yticks=[])
    ax.set_ylim(0, min(ax.get_ylim()[1], 12))
    ax.set_ylabel("density")


def error_against_cost(summary: list[dict[str, Any]]) -> Figure:
    """Draw the error of the marginals against evaluations and against time, by method."""
    found: dict[tuple[str, int, float], dict[str, Any]] = defaultdict(dict)
    for row in summary:
        setting = row["setting"]
        if "orders" not in setting and setting["n"] != NUM_POINTS:
            found[row["method"], setting["n"], setting["sigma"]][row["metric"]] = row
    sizes = sorted({n for _, n, _ in found})
    with _figures.styled():
        figure = Figure(figsize=(8.4, 3.6 * len(BEYOND_SIGMAS)), layout="constrained")
        axes = figure.subplots(len(BEYOND_SIGMAS), 2, sharey=True, squeeze=False)
        for line, sigma in zip(axes, BEYOND_SIGMAS, strict=True):
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
    """Draw the points of a method, from few items to many."""
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
    """Draw the Hellinger distances of each problem in several orders of rows and columns."""
    found: dict[str, dict[int, list[float]]] = {
        method: defaultdict(list) for method in ORDERING_METHODS
    }
    for row in rows:
        if row["part"] == "ordering":
            found[row["method"]][row["repetition"]].append(row["value"])
    by_method = {
        method: np.array([values[k] for k in sorted(values)]) for method, values in found.items()
    }
    # Problems from easy to hard, in the same sequence in both panels.
    sequence = np.argsort(np.median(by_method[ORDERING_METHODS[0]], axis=1), kind="stable")
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
        axes[0].set_ylabel(f"Hellinger distance, $\\sigma$ = {ORDERING_SIGMA}")
    return figure
