"""Plots of a posterior. Every function draws on the given axes, or on those of a new figure.

Nothing here touches pyplot or any global state: save with ``ax.figure.savefig("marginals.png")``.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.sparse import issparse

from permvi import _figures
from permvi.posterior.items import UNMATCHED
from permvi.posterior.marginals import TOLERANCE

if TYPE_CHECKING:
    from permvi._rank import RankedItem, Ranking
    from permvi.posterior import Posterior

_INK, _FAINT, _BLUE = _figures.INK, _figures.FAINT, "#1B4F8A"
# Numbers fit into cells up to this many rows and columns.
_MAX_NUMBERED = 12
_MAX_TICKS = 25
# Sparse marginals are drawn with at most this many pixels on each side.
_MAX_PIXELS = 500
_MAX_LABEL_LENGTH = 14
# Lines fainter than this are not drawn.
_LEAST_PROBABILITY = 0.01


def marginals(posterior: "Posterior", ax: Axes | None = None, *, site: int = 0) -> Axes:
    """Plot the marginals P(item i is label j) as a heatmap.

    Small heatmaps show the numbers, large ones fewer ticks. If items may stay unmatched or labels
    unused, a last column and row show the probabilities. If the marginals are sparse, each pixel
    shows the largest probability among its many pairs.

    Args:
        posterior: The posterior to plot.
        ax: Axes to draw on; those of a new figure by default.
        site: Index of the permutation, if there are several.

    Returns:
        The axes; ``ax.figure`` is the figure.
    """
    table, alone_rows, alone_cols = (
        _of_site(array, site, posterior.num_sites)
        for array in (posterior.marginals, posterior.p_unmatched_rows, posterior.p_unmatched_cols)
    )
    n, m = table.shape
    if issparse(table):
        return _draw_heatmap(_axes(ax, _heatmap_size(n, m)), _pixels(table), (n, m))
    row_names, col_names = (list(names) if names else None for names in posterior.labels)
    # A surplus is unmatched as well; zeros up to rounding do not need a column.
    if alone_rows.max() > TOLERANCE:
        table = np.column_stack([table, alone_rows])
        col_names = [*(col_names or map(str, range(m))), UNMATCHED]
    if alone_cols.max() > TOLERANCE:
        table = np.vstack([table, np.append(alone_cols, np.zeros(table.shape[1] - m))])
        table[n, m:] = np.nan
        row_names = [*(row_names or map(str, range(n))), UNMATCHED]
    with _figures.styled():
        ax = _draw_heatmap(_axes(ax, _heatmap_size(*table.shape)), table, table.shape)
        if max(table.shape) <= _MAX_NUMBERED:
            _write_numbers(ax, table)
        _separate_unmatched(ax, table.shape, (n, m))
        _name_ticks(ax, "y", table.shape[0], row_names)
        _name_ticks(ax, "x", table.shape[1], col_names)
    return ax


def _pixels(table: Any) -> np.ndarray:
    """Return the largest probability in each of at most 500 by 500 parts of a sparse table."""
    pairs = table.tocoo()
    sides = [min(size, _MAX_PIXELS) for size in table.shape]
    places = tuple(
        index * side // size
        for index, side, size in zip((pairs.row, pairs.col), sides, table.shape, strict=True)
    )
    image = np.zeros(sides)
    np.maximum.at(image, places, pairs.data)
    return image


def _draw_heatmap(ax: Axes, table: np.ndarray, shape: tuple[int, ...]) -> Axes:
    """Draw probabilities on axes that count ``shape`` rows and columns, with a colour bar."""
    with _figures.styled():
        n, m = shape
        image = ax.imshow(
            table,
            cmap=_figures.PROBABILITY,
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(-0.5, m - 0.5, n - 0.5, -0.5),
        )
        ax.set(xlabel="label", ylabel="item")
        ax.spines[:].set_visible(True)
        ax.spines[:].set(color=_FAINT, linewidth=0.6)
        bar = ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
        bar.outline.set(edgecolor=_FAINT, linewidth=0.6)
        bar.ax.tick_params(length=2, width=0.6)
        bar.set_label("probability")
    return ax


def elbo_trace(posterior: "Posterior", ax: Axes | None = None) -> Axes:
    """Plot the evidence lower bound over the steps of the fit, with a line for each restart.

    Args:
        posterior: A posterior with ``diagnostics.elbo_trace``.
        ax: Axes to draw on.

    Raises:
        ValueError: The method has no such trace.
    """
    trace = posterior.diagnostics.elbo_trace
    if trace is None:
        raise ValueError(
            "posterior must come from a method with an ELBO (see pv.methods()), got "
            f"{posterior.method!r}."
        )
    trace = np.atleast_2d(trace)
    best = int(np.argmax(_smooth(trace)[:, -1]))
    with _figures.styled():
        ax = _axes(ax, (4.2, 2.6))
        for index in [*(i for i in range(len(trace)) if i != best), best]:
            color, width = (_BLUE, 1.4) if index == best else (_FAINT, 1.0)
            label = "best restart" if index == best and len(trace) > 1 else None
            smooth = _smooth(trace[index : index + 1])[0]
            ax.plot(np.arange(len(smooth)), smooth, color=color, linewidth=width, label=label)
        low, high = _focus(_smooth(trace))
        ax.set(xlabel="step", ylabel="ELBO (nats)", ylim=(low, high), xlim=(0, trace.shape[1] - 1))
        if len(trace) > 1:
            ax.legend(frameon=False, loc="lower right")
    return ax


def top_matchings(posterior: "Posterior", k: int = 10, ax: Axes | None = None) -> Axes:
    """Plot the k most probable matchings as bars.

    The first is written out; the others show the items in which they differ from it.

    Args:
        posterior: The posterior to plot.
        k: Largest number of matchings.
        ax: Axes to draw on.
    """
    top = posterior.top(k)
    probabilities = np.array([matching.probability for matching in top])
    names = [_first(posterior, top[0].perm)]
    names += [_difference(posterior, matching.perm, top[0].perm) for matching in top[1:]]
    with _figures.styled():
        ax = _axes(ax, (5.2, 0.7 + 0.26 * len(top)))
        places = np.arange(len(top))
        colors = [_BLUE] + ["#9DC0E0"] * (len(top) - 1)
        ax.barh(places, probabilities, color=colors, height=0.7)
        for place, probability in zip(places, probabilities, strict=True):
            ax.annotate(
                f"{probability:.3f}" if probability >= 5e-4 else f"{probability:.0e}",
                (probability, place),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
            )
        ax.set_yticks(places, names)
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        ax.set(xlabel="probability", xlim=(0, min(1.0, 1.15 * probabilities.max()) or 1.0))
        ax.set_title(f"together {probabilities.sum():.1%}", loc="right", fontsize=7.5)
    return ax


def point_matching(
    posterior: "Posterior",
    observations: ArrayLike,
    centers: ArrayLike,
    ax: Axes | None = None,
    *,
    site: int = 0,
) -> Axes:
    """Plot observations and centres in the plane; the opacity of a line is its probability.

    Args:
        posterior: The posterior over their matching.
        observations: (n, 2) points.
        centers: (m, 2) points.
        ax: Axes to draw on.
        site: Index of the permutation, if there are several.

    Raises:
        ValueError: The points are not in the plane, or their number differs from the posterior's.
    """
    n, m = posterior.shape
    y, c = _plane("observations", observations, n), _plane("centers", centers, m)
    p = _of_site(posterior.marginals, site, posterior.num_sites)
    mode = _of_site(posterior.mode, site, posterior.num_sites)
    i, j = (p >= _LEAST_PROBABILITY).nonzero()
    order = np.argsort(p[i, j])
    i, j = i[order], j[order]
    colors = [_BLUE if mode[a] == b else _figures.PALETTE[0] for a, b in zip(i, j, strict=True)]
    small = max(n, m) <= 20
    with _figures.styled():
        ax = _axes(ax, (4.2, 3.8) if small else (5.6, 5.2))
        lines = [np.stack(ends) for ends in zip(y[i], c[j], strict=True)]
        width = 1.6 if small else 1.2
        ax.add_collection(
            LineCollection(lines, colors=colors, alpha=p[i, j], linewidths=width, zorder=1)
        )
        size = 26 if small else 9
        hollow: dict[str, Any] = {"marker": "s", "facecolor": "white", "edgecolor": _INK}
        hollow["linewidth"] = 0.9 if small else 0.6
        ax.scatter(c[:, 0], c[:, 1], s=size, zorder=2, label="centre", **hollow)
        ax.scatter(y[:, 0], y[:, 1], s=size * 0.7, color=_INK, zorder=3, label="observation")
        if small:
            _name_points(ax, c, posterior.labels[1])
        # Proxies, since the lines themselves differ in opacity.
        ax.plot([], [], color=_BLUE, linewidth=width, label="most probable matching")
        ax.plot([], [], color=_figures.PALETTE[0], linewidth=width, label="alternatives")
        ax.set_aspect("equal", adjustable="datalim")
        ax.margins(0.12)
        ax.tick_params(length=2, width=0.6)
        ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=2)
    return ax


def ranking(rows: "Sequence[RankedItem]", ax: Axes | None = None) -> Axes:
    """Plot the mean rank of each item with its interval, the best item on top.

    Args:
        rows: The items in their order, from ``permvi.rank(...).table()``.
        ax: Axes to draw on; those of a new figure by default.
    """
    with _figures.styled():
        ax = _axes(ax, (5.0, 0.9 + 0.24 * len(rows)))
        places = np.arange(len(rows))
        ax.hlines(
            places, [row.low for row in rows], [row.high for row in rows], color=_BLUE, linewidth=2
        )
        ax.plot([row.mean for row in rows], places, "o", color=_BLUE, markersize=4)
        ax.set(xlabel="rank", xlim=(0.5, len(rows) + 0.5))
        ax.locator_params(axis="x", integer=True)
        ax.set_yticks(places, [_short(row.item) for row in rows])
        ax.invert_yaxis()
        ax.tick_params(length=2, width=0.6)
    return ax


def before(found: "Ranking", ax: Axes | None = None) -> Axes:
    """Plot P(item i is better than item j) as a heatmap, both in the order of a ranking.

    Args:
        found: What ``permvi.rank`` returned.
        ax: Axes to draw on; those of a new figure by default.
    """
    order = found.order
    table = found.before[np.ix_(order, order)]
    names = [found.items[i] for i in order]
    with _figures.styled():
        ax = _draw_heatmap(_axes(ax, _heatmap_size(*table.shape)), table, table.shape)
        if len(order) <= _MAX_NUMBERED:
            _write_numbers(ax, table)
        ax.set(xlabel="is better than", ylabel="item")
        _name_ticks(ax, "y", len(order), names)
        _name_ticks(ax, "x", len(order), names)
    return ax


def _axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    return Figure(figsize=size, layout="constrained").add_subplot() if ax is None else ax


def _of_site(array: np.ndarray, site: int, num_sites: int) -> np.ndarray:
    if not 0 <= site < num_sites:
        raise ValueError(f"site must be between 0 and {num_sites - 1}, got {site}.")
    return array if num_sites == 1 else array[site]


def _heatmap_size(rows: int, cols: int) -> tuple[float, float]:
    """Size in inches that fits the table, within limits."""
    side = float(np.clip(0.42 * max(rows, cols), 2.4, 5.2))
    return 1.9 + side * min(1.0, cols / rows), 0.8 + side * min(1.0, rows / cols)


def _write_numbers(ax: Axes, table: np.ndarray) -> None:
    for (i, j), p in np.ndenumerate(table):
        # Numbers that round to zero would be clutter.
        if p >= 0.005:
            text = "1" if p > 0.995 else f"{p:.2f}".lstrip("0")
            color = "white" if p > 0.5 else _INK
            ax.text(j, i, text, ha="center", va="center", color=color, fontsize=7)


def _separate_unmatched(ax: Axes, drawn: tuple[int, ...], shape: tuple[int, int]) -> None:
    n, m = shape
    if drawn[1] > m:
        ax.axvline(m - 0.5, color=_INK, linewidth=0.8)
    if drawn[0] > n:
        ax.axhline(n - 0.5, color=_INK, linewidth=0.8)


def _name_ticks(ax: Axes, axis: Literal["x", "y"], size: int, names: Sequence[str] | None) -> None:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, size) if size / s <= _MAX_TICKS)
    places = np.arange(0, size, step)
    if names is not None and names[-1] == UNMATCHED:
        # Always show this tick: it cannot be inferred from its neighbours.
        places = np.append(places[places < size - max(1, step // 2)], size - 1)
    texts = [_short(names[k]) if names else str(k) for k in places.tolist()]
    # Long names, and many of them, do not fit side by side.
    upright = axis == "x" and names is not None and max(map(len, texts)) * len(texts) > 40
    getattr(ax, f"set_{axis}ticks")(places, texts, rotation=90 if upright else 0)
    ax.tick_params(axis=axis, length=2 if step > 1 else 0, width=0.6)


def _short(name: str) -> str:
    shown = name if len(name) <= _MAX_LABEL_LENGTH else f"{name[: _MAX_LABEL_LENGTH - 1]}…"
    return _figures.plain(shown)


def _smooth(trace: np.ndarray) -> np.ndarray:
    """A moving average over a fiftieth of the steps."""
    window = max(1, trace.shape[-1] // 50)
    kernel = np.full(window, 1.0 / window)
    return np.stack([np.convolve(row, kernel, mode="valid") for row in trace])


def _focus(smooth: np.ndarray) -> tuple[float, float]:
    """Limits that show how the fit settles, without its first steps."""
    values = smooth[np.isfinite(smooth)]
    if values.size == 0:
        return 0.0, 1.0
    high, low = float(values.max()), float(np.quantile(values, 0.05))
    margin = 0.08 * max(high - low, 1e-3 * max(1.0, abs(high)))
    return low - margin, high + margin


def _first(posterior: "Posterior", perm: np.ndarray) -> str:
    if perm.ndim > 1 or len(perm) > _MAX_NUMBERED:
        return "most probable"
    names = posterior.labels[1]
    texts = [_label(names, column) for column in perm.tolist()]
    line = " ".join(texts)
    return line if len(line) <= 40 else "most probable"


def _difference(posterior: "Posterior", perm: np.ndarray, first: np.ndarray) -> str:
    """The items in which ``perm`` differs from ``first``, with their labels in ``perm``."""
    rows, cols = posterior.labels
    places = np.argwhere(perm != first)
    shown = [
        f"{_label(rows, int(place[-1]))}→{_label(cols, int(perm[tuple(place)]))}"
        for place in places[:3]
    ]
    more = f" +{len(places) - 3}" if len(places) > 3 else ""
    return ", ".join(shown) + more


def _label(names: Any, index: int) -> str:
    if index < 0:
        return "–"
    return str(index) if names is None else _short(names[index])


def _plane(name: str, value: ArrayLike, size: int) -> np.ndarray:
    points = np.asarray(value, dtype=np.float64)
    if points.shape != (size, 2):
        raise ValueError(f"{name} must have shape ({size}, 2), got shape {points.shape}.")
    return points


def _name_points(ax: Axes, points: np.ndarray, names: Sequence[str] | None) -> None:
    for index, point in enumerate(points):
        ax.annotate(
            _label(names, index), point, xytext=(4, 4), textcoords="offset points", color=_INK
        )
