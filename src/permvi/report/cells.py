"""The report of identified cells: where they are, seen from three sides, and a table to curate."""

import itertools
from collections.abc import Sequence
from datetime import datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from permvi._files import check_target, write_text
from permvi.posterior.items import UNMATCHED
from permvi.report import page, sections
from permvi.report.words import CERTAIN, count, name, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from permvi.posterior import Posterior
    from permvi.posterior.items import Item

# The most room for the dots of one side in pixels, and the margin around dots and names.
_WIDTH, _HEIGHT, _MARGIN = 820, 340, 20
# The radius of a dot, the height of a name and the mean width of a letter.
_DOT, _LINE, _LETTER = 6.0, 11.0, 6.6
# Where a name may be beside its dot, the best place first, and how often all are placed anew.
_BESIDE = np.array([(1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)])
_SWEEPS = 3


def write(
    posterior: "Posterior",
    path: str | PathLike[str],
    *,
    places: np.ndarray,
    axes: Sequence[str],
    title: str,
    level: float = 0.95,
    known: np.ndarray | None = None,
) -> Path:
    """Write the report as one HTML file without scripts; no incomplete file is ever left.

    Args:
        posterior: The posterior of one animal.
        path: The HTML file.
        places: (n, q) coordinates of the cells, NaN where they are unknown.
        axes: (q,) names of the coordinates.
        title: The heading.
        level: Level of the credible sets.
        known: (n,) whether the label of each cell was given.
    """
    target = check_target(Path(path))
    written = datetime.now().astimezone()
    return write_text(target, render(posterior, places, axes, title, level, known, written))


def render(
    posterior: "Posterior",
    places: np.ndarray,
    axes: Sequence[str],
    title: str,
    level: float = 0.95,
    known: np.ndarray | None = None,
    written: datetime | None = None,
) -> str:
    """Return the report as text; the same arguments give the same text. See `write`."""
    items = posterior.item_summaries(level)
    given = np.zeros(len(items), bool) if known is None else known
    choice = posterior.expected_loss("hamming")
    body = [
        sections.section(
            "Where the cells are",
            _pictures(items, places, axes),
            sections.save_picture("cells.png", draw(items, places, axes)),
        ),
        sections.section(
            "Cells, the most doubtful first", _table(items, level, given), _saved(items, given)
        ),
        sections.diagnostics(posterior),
        sections.latents(posterior),
        sections.settings(posterior),
    ]
    lead = sections.lead(posterior, choice.expected_loss)
    source = sections.source(posterior.settings, posterior.method, written)
    return page.render_plain(title, lead, sections.verdict(posterior), body, source)


def _is_certain(item: "Item") -> bool:
    return item.probability >= CERTAIN


def _pictures(items: Sequence["Item"], places: np.ndarray, axes: Sequence[str]) -> str:
    """Return the cells along each pair of axes; on a line there is only one picture."""
    certain = sum(map(_is_certain, items))
    note = (
        f"<p class='note'>{count(certain, 'cell')} with a probability of at least {CERTAIN:.0%} "
        f"are solid; the other {len(items) - certain} are rings, with their second name.</p>"
    )
    pictures = "".join(_picture(items, *side) for side in _sides(places, axes))
    return f'{note}<div class="pictures">{pictures}</div>'


def _sides(places: np.ndarray, axes: Sequence[str]) -> list[tuple[np.ndarray, list[str]]]:
    """Return places (n, 2) and names of each pair of axes from which a cell can be seen."""
    if len(axes) == 1:
        places, axes = np.column_stack([places, np.zeros(len(places))]), (*axes, "")
    pairs = map(list, itertools.combinations(range(len(axes)), 2))
    sides = [(places[:, pair], [axes[k] for k in pair]) for pair in pairs]
    return [side for side in sides if np.isfinite(side[0]).all(axis=1).any()]


def _words(item: "Item") -> str:
    """Return the name that a picture shows, with the second one if the first is doubtful."""
    return str(item.best) if _is_certain(item) else f"{item.best} or {item.runner_up}?"


def _beside(dots: np.ndarray, words: Sequence[str], size: float = 1.0) -> np.ndarray:
    """Return centres (n, 2) of names beside dots (n, 2) where they hide each other least.

    Lengths are in pixels of the page, times ``size``.
    """
    half = size / 2 * np.array([[_LETTER * len(word), _LINE] for word in words]).reshape(-1, 2)
    dot = np.full(2, size * _DOT)
    chosen = dots + _BESIDE[0] * (half + dot)
    for _ in range(_SWEEPS):
        for k in range(len(dots)):
            others = np.arange(len(dots)) != k
            centers = np.concatenate([chosen[others], dots[others]])
            reach = half[k] + np.concatenate([half[others], np.tile(dot, (others.sum(), 1))])
            tried = dots[k] + _BESIDE * (half[k] + dot)
            shared = np.maximum(reach - np.abs(tried[:, None] - centers), 0.0)
            chosen[k] = tried[np.argmin(shared.prod(axis=-1).sum(axis=1))]
    return chosen


def draw(items: Sequence["Item"], places: np.ndarray, axes: Sequence[str]) -> "Figure":
    """Plot the cells along each pair of axes; certain ones are solid, the others rings.

    Args:
        items: (n,) summaries of the cells.
        places: (n, q) coordinates, NaN where they are unknown.
        axes: (q,) names of the coordinates.
    """
    from matplotlib.figure import Figure

    from permvi import _figures

    sides = _sides(places, axes)
    certain = np.array([_is_certain(item) for item in items])
    extents = [np.nanmax(place, axis=0) - np.nanmin(place, axis=0) for place, _ in sides]
    heights = [float(np.clip(high / max(wide, 1e-12), 0.25, 0.6)) for wide, high in extents]
    with _figures.styled():
        figure = Figure(figsize=(9.0, 9.0 * max(sum(heights), 0.25)), layout="constrained")
        grid = figure.add_gridspec(max(len(sides), 1), 1, height_ratios=heights or None)
        for k, (place, names) in enumerate(sides):
            ax = figure.add_subplot(grid[k])
            seen = np.isfinite(place).all(axis=1)
            for chosen, face in ((seen & certain, _figures.INK), (seen & ~certain, "none")):
                x, y = place[chosen].T
                ax.scatter(x, y, s=16, facecolors=face, edgecolors=_figures.INK)
            ax.set(xlabel=_figures.plain(names[0]), ylabel=_figures.plain(names[1]))
            ax.set_aspect("equal", adjustable="datalim")
            # As on the page, and as images of animals are stored: the second axis points down.
            ax.invert_yaxis()
        figure.draw_without_rendering()
        for ax, (place, _) in zip(figure.axes, sides, strict=True):
            rows = np.flatnonzero(np.isfinite(place).all(axis=1))
            words = [_figures.plain(_words(items[i])) for i in rows.tolist()]
            # In points, for a font of six of them where the page has ten pixels.
            dots = ax.transData.transform(place[rows]) * 72.0 / figure.dpi
            for word, i, away in zip(words, rows, _beside(dots, words, 0.6) - dots, strict=True):
                ax.annotate(
                    word, place[i], away, textcoords="offset points", fontsize=6,
                    ha="center", va="center",
                )  # fmt: skip
    return figure


def _picture(items: Sequence["Item"], places: np.ndarray, axes: Sequence[str]) -> str:
    seen = np.isfinite(places).all(axis=1)
    low, high = places[seen].min(axis=0), places[seen].max(axis=0)
    # One scale for both axes, so that shapes are as they are.
    scale = float(([_WIDTH, _HEIGHT] / np.maximum(high - low, 1e-12)).min())
    rows = np.flatnonzero(seen)
    words = [_words(items[k]) for k in rows.tolist()]
    dots = (places[rows] - low) * scale
    names = _beside(dots, words)
    # The frame is as large as what it holds, so that narrow screens show no empty margins.
    half = np.array([[_LETTER * len(word), _LINE] for word in words]) / 2
    first = np.minimum(dots.min(axis=0), (names - half).min(axis=0)) - _MARGIN
    last = np.maximum(dots.max(axis=0), (names + half).max(axis=0)) + _MARGIN
    width, height = (round(size) + 21 for size in (last - first).tolist())
    dots, names = (centers - first + [20, 0] for centers in (dots, names))
    parts = [
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" font-size="10" '
        f'aria-label="Cells along {escape(axes[0])} and {escape(axes[1])}" fill="currentColor">'
        f'<rect class="frame" x="20" y="1" width="{width - 21}" height="{height - 22}"/>'
        f'<text x="{width // 2}" y="{height - 6}" text-anchor="middle">{escape(axes[0])} →</text>'
        f'<text transform="translate(12,{height // 2}) rotate(90)" text-anchor="middle">'
        f"{escape(axes[1])} →</text>"
    ]
    for k, (x, y), (u, v) in zip(rows.tolist(), dots, names, strict=True):
        item = items[k]
        solid = _is_certain(item)
        look = 'class="solid"' if solid else 'class="open"'
        about = f"{item.item}: {item.best} {percent(item.probability)}"
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {look}><title>{escape(about)}</title>'
            f'</circle><text x="{u:.1f}" y="{v + 3.5:.1f}" text-anchor="middle" '
            f'opacity="{1 if solid else 0.75}">'
            f"{escape(_words(item))}</text>"
        )
    return f"<div class='scrolled'>{''.join(parts)}</svg></div>"


def _saved(items: Sequence["Item"], known: np.ndarray) -> str:
    """Return the link that saves the cells as CSV."""
    fields = ("item", "best", "probability", "runner_up", "runner_up_probability", "p_unmatched")
    rows = (
        [*(getattr(item, field) for field in fields), bool(given)]
        for item, given in zip(items, known, strict=True)
    )
    return sections.save_table("cells.csv", [*fields, "known"], rows)


def _table(items: Sequence["Item"], level: float, known: np.ndarray) -> str:
    """Return the cells in the order in which a curator looks at them."""
    order = sorted(range(len(items)), key=lambda k: (known[k], items[k].probability))
    rows = [
        (
            name(str(items[k].item)),
            name(str(items[k].best)) + (" (given)" if known[k] else ""),
            percent(items[k].probability),
            name(str(items[k].runner_up)) if items[k].runner_up_probability else "",
            percent(items[k].runner_up_probability),
            ", ".join(name(str(label)) for label in items[k].credible_set),
        )
        for k in order
    ]
    header = ("Cell", "Name", "Probability", "Second name", "Probability", f"{100 * level:g}% set")
    note = f"<p class='note'>{escape(UNMATCHED.capitalize())} means a cell of no label.</p>"
    return note + sections.scrolled(header, rows, "links")
