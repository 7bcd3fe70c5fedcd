"""Figure 5, training curves, and decoded draws from the prior."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from permvi import _figures
from permvi.experiments.runner import Row
from permvi.experiments.vae.images import SHAPES
from permvi.experiments.vae.settings import BEST, METHODS

_NAMES = {
    "gumbel_softmax": "Gumbel-softmax",
    "concrete": "Concrete",
    "rounding": "rounding",
    "stick_breaking": "stick-breaking",
    "relaxed_elbo": "relaxed ELBO",
    "concrete_elbo": "ELBO, Concrete prior",
    "categorical_kl": "categorical KL",
    "straight_through": "straight-through",
    "reinforce": "REINFORCE",
}
_COLORS = dict(zip(METHODS, (_figures.PALETTE[k] for k in (0, 1, 3, 4)), strict=True))
_FRAME: dict[str, Any] = {"edgecolor": _figures.FAINT, "linewidth": 0.5, "clip_on": False}


@_figures.styled()
def reconstructions(rows: Sequence[Row]) -> Figure:
    """Draw Figure 5: true digits on the left, and for each method draws below their codes."""
    shown = _best(rows, "reconstruction")
    methods = list(dict.fromkeys(row["method"] for row in shown))
    digits = list(dict.fromkeys(row["digit"] for row in shown))
    draws = len(shown) // (len(methods) * len(digits))
    num_categories = 1 + max(int(value) for row in shown for value in row["code"])
    # A column for the truth, then a gap and the draws of each method.
    widths = [1.0] + ([0.25] + [1.0] * draws) * len(methods)
    figure = Figure(figsize=(0.45 * sum(widths), 0.72 * len(digits) + 0.3))
    grid = figure.add_gridspec(
        2 * len(digits),
        len(widths),
        width_ratios=widths,
        height_ratios=[0.5, 1.0] * len(digits),
        wspace=0.08,
        hspace=0.08,
        left=0.01,
        right=0.99,
        bottom=0.01,
        top=0.92,
    )
    for line, digit in enumerate(digits):
        for column, method in enumerate(methods):
            same = [row for row in shown if (row["method"], row["digit"]) == (method, digit)]
            for draw, row in enumerate(same):
                place = 2 + column * (draws + 1) + draw
                code = np.eye(num_categories)[[int(value) for value in row["code"]]].T
                axes = figure.add_subplot(grid[2 * line, place])
                _show(axes, code)
                axes.add_patch(
                    Rectangle((0, 0), 1, 1, fill=False, **_FRAME, transform=axes.transAxes)
                )
                if line == 0 and draw == 0:
                    axes.set_title(_NAMES[method], loc="left")
                _show(figure.add_subplot(grid[2 * line + 1, place]), _image(row["image"]))
        truth = figure.add_subplot(grid[2 * line + 1, 0])
        _show(truth, _image(same[0]["truth"]))
    return figure


@_figures.styled()
def training_curves(rows: Sequence[Row]) -> Figure:
    """Draw the training objectives in separate panels, since relaxed ELBOs are not comparable."""
    curves = [
        row
        for row in rows
        if row["kind"] == "curve" and (row["schedule"], row["pixels"]) == ("tuned", "grey")
    ]
    objectives = list(dict.fromkeys(row["objective"] for row in curves))
    figure = Figure(figsize=(2.0 * len(objectives) + 0.6, 2.3), layout="constrained")
    panels = figure.subplots(1, len(objectives), squeeze=False)
    lines: dict[str, Any] = {}
    for axes, objective in zip(panels[0], objectives, strict=True):
        for method in METHODS:
            same = [
                row for row in curves if (row["method"], row["objective"]) == (method, objective)
            ]
            for seed in dict.fromkeys(row["seed"] for row in same):
                own = [row for row in same if row["seed"] == seed]
                steps = [row["step"] / 1000 for row in own]
                losses = [-row["value"] for row in own]
                (lines[method],) = axes.plot(steps, losses, color=_COLORS[method])
        axes.set_title(_NAMES[objective])
        axes.set_xlabel("thousand steps")
    panels[0, 0].set_ylabel("training loss (nats per image)")
    figure.legend(
        lines.values(),
        [_NAMES[method] for method in lines],
        loc="outside lower center",
        ncols=len(lines),
        frameon=False,
    )
    return figure


@_figures.styled()
def prior_samples(rows: Sequence[Row]) -> Figure:
    """Draw decoded uniform codes, a block for each method."""
    shown = _best(rows, "prior")
    methods = list(dict.fromkeys(row["method"] for row in shown))
    figure = Figure(figsize=(1.7 * len(methods), 2.0))
    panels = figure.subplots(1, len(methods), squeeze=False)
    for axes, method in zip(panels[0], methods, strict=True):
        tiles = [_image(row["image"]) for row in shown if row["method"] == method]
        across = math.isqrt(len(tiles))
        lines = [np.hstack(tiles[k : k + across]) for k in range(0, len(tiles), across)]
        _show(axes, np.vstack(lines))
        axes.set_title(_NAMES[method])
    figure.tight_layout()
    return figure


def _best(rows: Sequence[Row], kind: str) -> list[Row]:
    """Return the rows of the best objective of each method, or of the only one that was run."""
    found = [row for row in rows if row["kind"] == kind]
    best = [row for row in found if BEST[row["method"]] == row["objective"]]
    others = {row["method"] for row in found} - {row["method"] for row in best}
    kept = [*best, *(row for row in found if row["method"] in others)]
    return sorted(kept, key=lambda row: list(METHODS).index(row["method"]))


def _image(text: str) -> np.ndarray:
    """Decode the image that a row keeps as text."""
    pixels = np.frombuffer(base64.b64decode(text), np.uint8)
    shape = next(shape for shape in SHAPES.values() if math.prod(shape) == pixels.size)
    return pixels.reshape(shape)


def _show(axes: Any, image: np.ndarray) -> None:
    axes.imshow(image, cmap="gray_r", interpolation="nearest", aspect="equal")
    axes.set_axis_off()
