"""Figure 4: convergence, accuracy by candidates and known neurons, variance, samples."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from permvi import _figures
from permvi._figures import INK, PALETTE
from permvi.experiments.celegans.samples import NUM_NEURONS, NUM_SHOWN, STEPS
from permvi.experiments.celegans.settings import Grid, Setting
from permvi.experiments.celegans.tables import Found, found
from permvi.experiments.runner import Row

COLOURS = {
    "collapsed": PALETTE[3],
    "rounding": PALETTE[1],
    "rounding_temperature_1": PALETTE[5],
    "map": PALETTE[6],
    "mcmc": PALETTE[4],
    "naive": "#7A7A7A",
}
LABELS = {
    "rounding": "rounding, temperature below 1",
    "rounding_temperature_1": "rounding, temperature 1",
}
_PREFIX = "convergence_"
_PANELS = {
    "log_likelihood": "log likelihood of a neuron and step",
    "weight_error": "relative error of W",
    "accuracy": "proportion correct",
}


def convergence(summary: Iterable[dict[str, Any]]) -> Figure:
    """Figure 4a: what each method has reached after some time, on one simulation."""
    traces = _traces(summary)
    with _figures.styled():
        figure = Figure(figsize=(8.4, 2.9), layout="constrained")
        axes = figure.subplots(1, len(_PANELS))
        for ax, (metric, label) in zip(axes, _PANELS.items(), strict=True):
            for method, colour in COLOURS.items():
                points = traces.get((method, metric))
                if points:
                    _, seconds, values = zip(*points, strict=True)
                    ax.plot(
                        seconds, values, "o-", color=colour, ms=3, label=LABELS.get(method, method)
                    )
            ax.set(xscale="log", xlabel="seconds", ylabel=label)
            ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
            ax.xaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_minor_formatter(NullFormatter())
        axes[-1].set_ylim(0, 1.02)
        figure.legend(
            *axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=6,
            frameon=False,
        )  # fmt: skip
    return figure


def _traces(
    summary: Iterable[dict[str, Any]],
) -> dict[tuple[str, str], list[tuple[int, float, float]]]:
    """Steps, seconds and value of each checkpoint, by method and metric."""
    traces: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    for row in summary:
        if row["metric"].startswith(_PREFIX):
            key = row["method"], row["metric"].removeprefix(_PREFIX)
            traces[key].append((row["setting"]["steps"], row["seconds"], row["mean"]))
    return {key: sorted(points) for key, points in traces.items()}


def accuracy(summary: Iterable[dict[str, Any]], grid: Grid) -> Figure:
    """Figures 4b and 4c: a panel for each number of worms, then one for each tolerance."""
    rows = found(summary, "accuracy")
    worms = sorted({setting.worms for setting in grid.candidates})
    tolerances = sorted({setting.tolerance for setting in grid.known})
    with _figures.styled():
        figure = Figure(figsize=(8.4, 5.4), layout="constrained")
        halves: Any = figure.subfigures(2, 1)
        upper, lower = halves
        tops = upper.subplots(1, len(worms), sharey=True, squeeze=False)[0]
        for ax, count in zip(tops, worms, strict=True):
            own = [setting for setting in grid.candidates if setting.worms == count]
            _curves(ax, rows, own, "tolerance")
            name = "one worm" if count == 1 else f"{count} worms"
            ax.set_title(f"(b) {name}, {own[0].known} known", loc="left")
            ax.set(xlabel="tolerance of positions", ylim=(0, 1.02))
        bottoms = lower.subplots(1, len(tolerances), sharey=True, squeeze=False)[0]
        for ax, tolerance in zip(bottoms, tolerances, strict=True):
            own = [setting for setting in grid.known if setting.tolerance == tolerance]
            _curves(ax, rows, own, "known")
            title = f"(c) {own[0].worms} worms, tolerance {tolerance:g}"
            ax.set_title(title, loc="left")
            ax.set(xlabel="known neurons", ylim=(0, 1.02))
        for ax in (tops[0], bottoms[0]):
            ax.set_ylabel("proportion correct")
        tops[0].plot([], [], "x:", color=INK, lw=0.8, ms=4, label="dotted: the paper's")
        figure.legend(
            *tops[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
        )
    return figure


def _curves(ax: Axes, rows: Found, settings: Sequence[Setting], axis: str) -> None:
    places = [getattr(setting, axis) for setting in settings]
    for method, colour in COLOURS.items():
        own = [rows.get((method, setting)) for setting in settings]
        drawn = [(x, row) for x, row in zip(places, own, strict=True) if row is not None]
        if not drawn:
            continue
        x = [place for place, _ in drawn]
        means = [row["mean"] for _, row in drawn]
        spread = [row["sem"] or 0.0 for _, row in drawn]
        label = LABELS.get(method, method)
        ax.errorbar(x, means, spread, fmt="o-", color=colour, ms=3, capsize=2, label=label)
        paper = [(place, row["paper"]) for place, row in drawn if row["paper"] is not None]
        if paper and method != "rounding_temperature_1":
            ax.plot(*zip(*paper, strict=True), "x:", color=colour, lw=0.8, ms=4)


def variance_and_samples(summary: Iterable[dict[str, Any]], rows: Iterable[Row]) -> Figure:
    """Figures 4d and 4e: variance by steps; samples with and without rounding, their average."""
    traces = _traces(summary)
    with _figures.styled():
        figure = Figure(figsize=(8.4, 3.8), layout="constrained")
        halves: Any = figure.subfigures(1, 2, width_ratios=(1, 1.6))
        left, right = halves
        ax = left.subplots()
        for method in ("rounding", "rounding_temperature_1", "naive"):
            points = traces.get((method, "variance"))
            if points:
                steps, _, values = zip(*points, strict=True)
                ax.plot(
                    steps, values, "o-", color=COLOURS[method], ms=3,
                    label=LABELS.get(method, method),
                )  # fmt: skip
        ax.set(xscale="log", xlabel="steps", ylabel="variance of a neuron's row of X")
        # A variance is at most one; what is above is for the legend.
        ax.set_ylim(0, 1.2)
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.set_title("(d)", loc="left")
        ax.legend(frameon=False, loc="upper right")
        _samples(right, [row for row in rows if row["part"] == "samples"])
    return figure


def _samples(figure: Any, rows: list[Row]) -> None:
    titles = {
        f"{name}_{k}": f"{text}, sample {k + 1}"
        for name, text in (("psi", r"$\Psi$"), ("rounded", r"round$(\Psi)$"))
        for k in range(NUM_SHOWN)
    }
    titles["mean"] = r"average of round$(\Psi)$"
    axes = figure.subplots(2, 3)
    places = [axes[0, 0], axes[1, 0], axes[0, 1], axes[1, 1], axes[0, 2]]
    for ax, (name, title) in zip(places, titles.items(), strict=True):
        image = np.zeros((NUM_NEURONS, NUM_NEURONS))
        for row in rows:
            image[row["row"], row["column"]] = row[name]
        ax.imshow(image, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, loc="left")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(True)
    axes[1, 2].set_axis_off()
    figure.suptitle(f"(e) after {STEPS} steps, a part of X", x=0.02, ha="left", fontsize="medium")
