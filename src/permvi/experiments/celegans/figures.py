"""Figures beyond the paper's: calibration, and settings where identification is hard."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from permvi import _figures, metrics
from permvi._figures import FAINT, INK, PALETTE
from permvi.experiments.celegans.calibration import Promises
from permvi.experiments.celegans.figure4 import COLOURS, LABELS
from permvi.experiments.celegans.methods import OURS
from permvi.experiments.celegans.settings import Grid
from permvi.experiments.celegans.tables import describe, found

_WIDTH = 0.38
_BARS = (PALETTE[5], PALETTE[1])


def calibration(promises: dict[str, Promises]) -> Figure:
    """Confidence against accuracy in ten bins of equal mass, and how confidence is spread."""
    with _figures.styled():
        figure = Figure(figsize=(7.2, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], color=FAINT, lw=1)
        for method, own in promises.items():
            colour, name = COLOURS[method], LABELS.get(method, method)
            curve = metrics.reliability_curve(own.confidence, own.correct)
            label = f"{name}: error {own.error:.3f}"
            left.plot(curve.confidence, curve.accuracy, "o-", color=colour, ms=3, label=label)
            for chosen, style in ((own.correct, "-"), (~own.correct, ":")):
                if chosen.any():
                    levels = np.sort(own.confidence[chosen])
                    share = np.arange(1, len(levels) + 1) / len(levels)
                    right.step(levels, share, style, color=colour, where="post")
        left.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
        left.set_title("one-worm fits, neurons that were not known", loc="left")
        left.legend(frameon=False, fontsize=6)
        right.set(xlabel="confidence", ylabel="share of neurons with at most this", xlim=(0, 1.02))
        right.set_title("right (lines) and wrong (dotted) names", loc="left")
    return figure


def hard(summary: Iterable[dict[str, Any]], grid: Grid) -> Figure:
    """Accuracy of the method of ours beyond the paper, what it expected, and its verdicts."""
    listed = list(summary)
    accuracy, expected, trusted = (
        found(listed, metric) for metric in ("accuracy_unknown", "expected_accuracy", "trusted")
    )
    settings = [*grid.further, *grid.hard]
    names = list(dict.fromkeys(describe(setting) for setting in settings))
    counts = sorted({setting.worms for setting in settings})
    with _figures.styled():
        figure = Figure(figsize=(8.4, 3.4), layout="constrained")
        ax = figure.subplots()
        for shift, count in enumerate(counts):
            own = [setting for setting in settings if setting.worms == count]
            places = [names.index(describe(each)) + (shift - 0.5) * _WIDTH for each in own]
            rows = [accuracy[OURS, setting] for setting in own]
            means, spread = [row["mean"] for row in rows], [row["sem"] or 0.0 for row in rows]
            label = "one worm" if count == 1 else f"{count} worms"
            ax.bar(places, means, _WIDTH * 0.94, color=_BARS[shift % len(_BARS)], label=label)
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
