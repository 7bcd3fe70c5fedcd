"""Figure 2: examples, probabilities of the likeliest matchings, densities of the distances.

A row for each noise. (a) The example's centres and observations, joined where they belong together;
(b) true (grey) and inferred (colour) probabilities of its ten likeliest matchings and of all others
together; (c) how the Hellinger distance varies over the problems of the table.
"""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from permvi import _figures
from permvi._figures import FAINT, INK, PALETTE
from permvi.experiments.matching.plan import FIGURE_REPETITION, NUM_SHOWN
from permvi.experiments.matching.problems import NUM_POINTS, SIGMAS
from permvi.experiments.matching.problems import draw as draw_problem
from permvi.experiments.runner import Row

SHOWN = {
    "stick_breaking": ("stick-breaking", PALETTE[0]),
    "rounding": ("rounding", PALETTE[1]),
    "mallows_1": (r"Mallows $\theta = 1$", PALETTE[4]),
    "sequential": ("sequential", PALETTE[3]),
}
"""The methods shown: name and colour."""

_OTHERS = {
    "stick_breaking_paper": ("stick-breaking, paper's bounds", PALETTE[0]),
    "rounding_paper": ("rounding, paper's bounds", PALETTE[1]),
}
_WIDTH, _ROW = 10.0, 1.75
# The kernel's width for densities of distances, which lie between 0 and 1.
_BANDWIDTH = 0.025


def draw(rows: Iterable[Row], seed: int) -> Figure:
    """The figure."""
    table = [row for row in rows if row["part"] == "table"]
    with _figures.styled():
        figure = Figure(figsize=(_WIDTH, _ROW * len(SIGMAS) + 0.6), layout="constrained")
        widths = [1.15, *[1.0] * len(SHOWN), 1.55]
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
    for index, (ax, (name, _)) in enumerate(zip(axes[0, 1:-1], SHOWN.values(), strict=True)):
        ax.set_title(f"b   {name}" if index == 0 else name, loc="left", fontweight="bold")
    for ax in axes[-1, 1:-1]:
        ax.set_xlabel("matching, likeliest first")
    axes[-1, -1].set_xlabel("Hellinger distance")
    for ax in axes[:, 1]:
        ax.set_ylabel("probability")
    axes[0, -1].legend(frameon=False, fontsize=6, handlelength=1.6, labelspacing=0.3)


def _example(ax: Axes, sigma: float, seed: int) -> None:
    problem = draw_problem(NUM_POINTS, sigma, seed, FIGURE_REPETITION)
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
    for ax, (method, (_, colour)) in zip(line, SHOWN.items(), strict=True):
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
    for styles, dashes in ((SHOWN, "-"), (_OTHERS, (0, (2, 1.5)))):
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
