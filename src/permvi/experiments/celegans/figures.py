"""Figures 3 and 4 of the paper, calibration, and the settings where identification is hard."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from permvi import _figures, metrics
from permvi._figures import CLOUD, FAINT, INK, PALETTE
from permvi.experiments._worms import simulate_worms
from permvi.experiments.celegans.plan import NUM_NEURONS, NUM_SHOWN, SAMPLE_STEPS
from permvi.experiments.celegans.problems import Network
from permvi.experiments.celegans.scoring import Confidence
from permvi.experiments.celegans.settings import OURS, Grid, Setting, describe
from permvi.experiments.runner import Row

Found = dict[tuple[str, Setting], dict[str, Any]]

_COLOURS = {
    "collapsed": PALETTE[3],
    "rounding": PALETTE[1],
    "rounding_temperature_1": PALETTE[5],
    "map": PALETTE[6],
    "mcmc": PALETTE[4],
    "naive": "#7A7A7A",
}
_LABELS = {
    "rounding": "rounding, temperature below 1",
    "rounding_temperature_1": "rounding, temperature 1",
}
_PREFIX = "convergence_"
_PANELS = {
    "log_likelihood": "log likelihood of a neuron and step",
    "weight_error": "relative error of W",
    "accuracy": "proportion correct",
}
_NUM_WEIGHTS = 14
_NUM_TRACES = 8
_STEPS_SHOWN = 200
_BAR_WIDTH = 0.38
_BARS = (PALETTE[5], PALETTE[1])


def find_rows(summary: Iterable[dict[str, Any]], metric: str) -> Found:
    """Find the rows of a metric by method and setting."""
    return {
        (row["method"], Setting.of(row["setting"])): row
        for row in summary
        if row["metric"] == metric and row["setting"].get("variant") != "pooled"
    }


def figure3(graph: Network, seed: int) -> Figure:
    """Figure 3: connectome, some of the weights, positions and activity of one simulation."""
    worms = simulate_worms(
        graph.adjacency,
        graph.positions,
        np.random.default_rng(seed),
        num_steps=_STEPS_SHOWN,
        num_known=0,
    )
    with _figures.styled():
        figure = Figure(figsize=(7.6, 6.4), layout="constrained")
        axes = figure.subplots(2, 2)
        _connectome(axes[0, 0], graph)
        _weights(figure, axes[0, 1], graph, worms.weights)
        _positions(axes[1, 0], graph.positions)
        _activity(axes[1, 1], worms.recordings[0], graph, worms.truth[0])
    return figure


def _connectome(ax: Axes, graph: Network) -> None:
    place = np.argsort(np.argsort(graph.positions, kind="stable"))
    rows, columns = np.nonzero(graph.adjacency)
    ax.plot(place[columns], place[rows], ".", color=INK, ms=max(1.2, 200 / len(place)), mew=0)
    edges = int(graph.adjacency.sum()) // 2
    ax.set_title(f"(a) {len(place)} neurons, {edges} edges", loc="left")
    ax.set(xlabel="neuron, from head to tail", ylabel="neuron, from head to tail")
    ax.set(xlim=(-1, len(place)), ylim=(len(place), -1), aspect="equal")


def _weights(figure: Figure, ax: Axes, graph: Network, weights: np.ndarray) -> None:
    """Draw the weights of the neuron with most partners and of its best connected partners."""
    degrees = graph.adjacency.sum(axis=1)
    hub = int(np.argmax(degrees))
    partners = np.flatnonzero(graph.adjacency[hub])
    ranked = partners[np.argsort(-degrees[partners], kind="stable")]
    chosen = np.sort(np.append(ranked[: _NUM_WEIGHTS - 1], hub))
    part = weights[np.ix_(chosen, chosen)]
    limit = np.abs(part).max()
    image = ax.imshow(part, cmap="RdBu_r", vmin=-limit, vmax=limit)
    names = [graph.names[index] for index in chosen]
    ax.set_xticks(range(len(chosen)), names, rotation=90, fontsize=6)
    ax.set_yticks(range(len(chosen)), names, fontsize=6)
    ax.set_title(f"(b) weights W of {len(chosen)} neurons", loc="left")
    figure.colorbar(image, ax=ax, shrink=0.8)


def _positions(ax: Axes, positions: np.ndarray) -> None:
    ax.hist(positions, bins=50, range=(0, 1), color=CLOUD)
    ax.set(xlabel="position along the body, 0: head, 1: tail", ylabel="neurons", xlim=(0, 1))
    ax.set_title("(c) positions", loc="left")


def _activity(ax: Axes, recording: np.ndarray, graph: Network, truth: np.ndarray) -> None:
    """Draw the activity of the neurons with most partners."""
    order = np.argsort(-graph.adjacency.sum(axis=1)[truth], kind="stable")[:_NUM_TRACES]
    step = 4 * recording[:, order].std()
    for place, neuron in enumerate(order):
        colour = PALETTE[place % 2]
        ax.plot(recording[:, neuron] - place * step, color=colour, lw=0.7)
    names = [graph.names[truth[neuron]] for neuron in order]
    ax.set_yticks(-step * np.arange(len(order)), names, fontsize=6)
    ax.set(xlabel="time step", xlim=(0, len(recording)))
    ax.set_title("(d) simulated activity", loc="left")


def convergence(summary: Iterable[dict[str, Any]]) -> Figure:
    """Figure 4a: progress of each method with time, on one simulation."""
    traces = _checkpoints(summary)
    with _figures.styled():
        figure = Figure(figsize=(8.4, 2.9), layout="constrained")
        axes = figure.subplots(1, len(_PANELS))
        for ax, (metric, label) in zip(axes, _PANELS.items(), strict=True):
            for method, colour in _COLOURS.items():
                points = traces.get((method, metric))
                if points:
                    _, seconds, values = zip(*points, strict=True)
                    ax.plot(
                        seconds, values, "o-", color=colour, ms=3, label=_LABELS.get(method, method)
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


def _checkpoints(
    summary: Iterable[dict[str, Any]],
) -> dict[tuple[str, str], list[tuple[int, float, float]]]:
    """Find steps, seconds and value of each checkpoint, by method and metric."""
    traces: dict[tuple[str, str], list[tuple[int, float, float]]] = defaultdict(list)
    for row in summary:
        if row["metric"].startswith(_PREFIX):
            key = row["method"], row["metric"].removeprefix(_PREFIX)
            traces[key].append((row["setting"]["steps"], row["seconds"], row["mean"]))
    return {key: sorted(points) for key, points in traces.items()}


def accuracy(summary: Iterable[dict[str, Any]], grid: Grid) -> Figure:
    """Figures 4b and 4c: a panel for each number of worms, and one for each tolerance."""
    rows = find_rows(summary, "accuracy")
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
    for method, colour in _COLOURS.items():
        own = [rows.get((method, setting)) for setting in settings]
        drawn = [(x, row) for x, row in zip(places, own, strict=True) if row is not None]
        if not drawn:
            continue
        x = [place for place, _ in drawn]
        means = [row["mean"] for _, row in drawn]
        spread = [row["sem"] or 0.0 for _, row in drawn]
        label = _LABELS.get(method, method)
        ax.errorbar(x, means, spread, fmt="o-", color=colour, ms=3, capsize=2, label=label)
        paper = [(place, row["paper"]) for place, row in drawn if row["paper"] is not None]
        if paper and method != "rounding_temperature_1":
            ax.plot(*zip(*paper, strict=True), "x:", color=colour, lw=0.8, ms=4)


def variance_and_samples(summary: Iterable[dict[str, Any]], rows: Iterable[Row]) -> Figure:
    """Figures 4d and 4e: variance by steps, and samples with and without rounding."""
    traces = _checkpoints(summary)
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
                    steps, values, "o-", color=_COLOURS[method], ms=3,
                    label=_LABELS.get(method, method),
                )  # fmt: skip
        ax.set(xscale="log", xlabel="steps", ylabel="variance of a neuron's row of X")
        # A variance is at most one; the space above is for the legend.
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
    figure.suptitle(
        f"(e) after {SAMPLE_STEPS} steps, a part of X", x=0.02, ha="left", fontsize="medium"
    )


def calibration(confidence: dict[str, Confidence]) -> Figure:
    """Accuracy by confidence in ten bins of equal mass, and the distribution of confidence."""
    with _figures.styled():
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=FAINT, lw=1)
        for method, own in confidence.items():
            colour, name = _COLOURS[method], _LABELS.get(method, method)
            curve = metrics.reliability_curve(own.levels, own.correct)
            label = f"{name}: error {own.error:.3f}"
            left.plot(curve.confidence, curve.accuracy, "o-", color=colour, ms=3, label=label)
            for chosen, style in ((own.correct, "-"), (~own.correct, ":")):
                if chosen.any():
                    levels = np.sort(own.levels[chosen])
                    share = np.arange(1, len(levels) + 1) / len(levels)
                    right.step(levels, share, style, color=colour, where="post")
        left.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
        left.set_title("one-worm fits, neurons that were not known", loc="left")
        left.legend(frameon=False, fontsize=6)
        right.set(xlabel="confidence", ylabel="share of neurons with at most this", xlim=(0, 1.02))
        right.set_title("right (lines) and wrong (dotted) names", loc="left")
    return figure


def hard(summary: Iterable[dict[str, Any]], grid: Grid) -> Figure:
    """Accuracy of our method beyond the paper, its own expectation, and its verdicts."""
    listed = list(summary)
    accuracy, expected, trusted = (
        find_rows(listed, metric) for metric in ("accuracy_unknown", "expected_accuracy", "trusted")
    )
    settings = [*grid.further, *grid.hard]
    names = list(dict.fromkeys(describe(setting) for setting in settings))
    counts = sorted({setting.worms for setting in settings})
    with _figures.styled():
        figure = Figure(figsize=(8.4, 3.4), layout="constrained")
        ax = figure.subplots()
        for shift, count in enumerate(counts):
            own = [setting for setting in settings if setting.worms == count]
            places = [names.index(describe(each)) + (shift - 0.5) * _BAR_WIDTH for each in own]
            rows = [accuracy[OURS, setting] for setting in own]
            means, spread = [row["mean"] for row in rows], [row["sem"] or 0.0 for row in rows]
            label = "one worm" if count == 1 else f"{count} worms"
            ax.bar(places, means, _BAR_WIDTH * 0.94, color=_BARS[shift % len(_BARS)], label=label)
            ax.errorbar(places, means, spread, fmt="none", ecolor=INK, capsize=2)
            promised = [expected[OURS, setting]["mean"] for setting in own]
            ax.plot(places, promised, "D", color="white", mec=INK, ms=4)
            for place, setting in zip(places, own, strict=True):
                share = trusted[OURS, setting]["mean"]
                ax.text(place, 1.04, f"{share:.0%}", ha="center", fontsize=6.5)
        ax.plot([], [], "D", color="white", mec=INK, ms=4, label="what the method expected")
        ax.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
        ax.set(ylim=(0, 1.12), yticks=np.linspace(0, 1, 6), xlim=(-0.6, len(names) - 0.4))
        ax.set_ylabel("proportion correct of unknown neurons")
        ax.set_title("above the bars: share of fits with the verdict trust", loc="left")
        figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure
