"""Tracks as a picture, and as one HTML file for all frames."""

from datetime import datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from permvi._files import check_target, write_text
from permvi.report import page, sections
from permvi.report.words import count, number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from permvi.posterior.tracks import TrackPosterior

# Links below these probabilities are drawn thicker, in these colours, above the others.
_BANDS = (
    (0.5, "#d1344a", 2.4),
    (0.8, "#ef8a62", 1.9),
    (0.95, "#fdb863", 1.5),
    (0.99, "#92c5de", 1.1),
)
_SURE = ("#2166ac", 0.8)
# The width of the picture, and how many certain links are drawn at most.
_WIDTH, _MARGIN = 900.0, 12.0
_MAX_SURE = 12_000
# The numbers of doubtful links and of tracks that are listed.
_MAX_DOUBTS, _MAX_TRACKS = 60, 2000
# The number of links in the file that the page offers; --links writes all of them.
_MAX_SAVED = 2000
_DOUBT = 0.99


def write(found: "TrackPosterior", path: str | PathLike[str], *, title: str | None = None) -> Path:
    """Write a report of tracks; no incomplete file is ever left.

    Args:
        found: The tracks.
        path: The HTML file; an existing one is replaced.
        title: The heading; by default the number of tracks.

    Returns:
        The path.
    """
    # Before the work is done.
    target = check_target(Path(path))
    return write_text(target, render(found, title=title, written=datetime.now().astimezone()))


def render(
    found: "TrackPosterior", *, title: str | None = None, written: datetime | None = None
) -> str:
    """Return the report of tracks as text; the same arguments give the same text."""
    scene = found.scene
    alone = int((found.track_of == 0).sum())
    lead = (
        f"{count(len(found.tracks), 'track')} of {count(len(scene.points), 'point')} in "
        f"{count(len(scene.times), 'frame')}; {number(found.expected_switches)} of "
        f"{count(int((found.previous >= 0).sum()), 'link')} are expected to be wrong"
        + (f", and {count(alone, 'point')} belong to no track." if alone else ".")
    )
    keys = [
        f'<span class="swatch" style="background:{colour}"></span> below {limit:.0%}'
        for limit, colour, _ in _BANDS
    ]
    sure = f'<span class="swatch sure"></span> {_BANDS[-1][0]:.0%} or more'
    legend = f"Links by their probability: {', '.join(keys)}, {sure}."
    body = [
        sections.section(
            "Tracks",
            f'<p class="note">{legend}</p>{_picture(found)}',
            sections.save_picture("tracks.png", draw(found)),
        ),
        _doubts(found),
        _tracks(found),
        sections.section("Motion and rates", _parameters(found)),
    ]
    heading = f"{len(found.tracks)} tracks" if title is None else title
    source = sections.source(found.settings, found.method, written)
    badge = sections.badge(found.verdict, [found.reason])
    return page.render_plain(heading, lead, badge, body, source)


def plane(found: "TrackPosterior") -> tuple[np.ndarray, tuple[str, str]]:
    """(N, 2) where points are drawn: two coordinates, or time and the only one; their names."""
    scene = found.scene
    if len(scene.axes) > 1:
        return scene.points[:, :2], (scene.axes[0], scene.axes[1])
    time = scene.times[scene.frame]
    return np.column_stack([time, scene.points[:, 0]]), ("frame", scene.axes[0])


def _picture(found: "TrackPosterior") -> str:
    """The tracks as an SVG, the doubtful links on top."""
    places, names = plane(found)
    low, size = places.min(axis=0), np.ptp(places, axis=0)
    size = np.where(size > 0, size, 1.0)
    if len(found.scene.axes) > 1:
        scale = np.full(2, _WIDTH / max(size[0], 0.5 * size[1]))
    else:
        scale = np.array([_WIDTH, 0.5 * _WIDTH]) / size
    at = (places - low) * scale
    height = float(size[1] * scale[1])
    # Downwards is up.
    at[:, 1] = height - at[:, 1]
    at += _MARGIN
    later = np.flatnonzero(found.previous >= 0)
    later = later[np.argsort(-found.p_previous[later], kind="stable")]
    sure = int((found.p_previous[later] >= _BANDS[-1][0]).sum())
    later = later[max(0, sure - _MAX_SURE) :]
    parts = []
    for i in later:
        j, p = found.previous[i], found.p_previous[i]
        (x, y), (u, v) = at[j], at[i]
        colour, width = next(((c, w) for limit, c, w in _BANDS if p < limit), (None, _SURE[1]))
        # A certain link has the colour of the page, light or dark.
        look = 'class="sure"' if colour is None else f'stroke="{colour}"'
        parts.append(f'<path d="M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}" {look} stroke-width="{width}"/>')
    dots = "".join(
        f'<circle cx="{at[i, 0]:.1f}" cy="{at[i, 1]:.1f}" r="2.4"/>'
        for i in np.flatnonzero(found.track_of == 0)[:_MAX_SURE]
    )
    frame = f"0 0 {_WIDTH + 2 * _MARGIN:.0f} {height + 2 * _MARGIN:.0f}"
    label = f"{names[0]} to the right, {names[1]} upwards"
    return (
        f'<svg viewBox="{frame}" role="img" aria-label="{escape(label)}" '
        f'style="width:100%;height:auto;max-height:75vh">'
        f'<g class="paths" fill="none" stroke-linecap="round">'
        f'{"".join(parts)}</g><g fill="currentColor" opacity="0.6">{dots}</g></svg>'
        f'<p class="note">{escape(label)}; grey dots are points of no track.</p>'
    )


def _table(header: list[str], rows: list[list[str]]) -> str:
    return sections.scrolled(header, [[escape(cell) for cell in row] for row in rows], "links")


def _doubts(found: "TrackPosterior") -> str:
    """The links that are most in doubt; the two of a crossing come together."""
    rows = found.rows()
    title = "Doubtful links, the worst first"
    doubtful = [i for i in found.doubtful() if found.p_previous[i] < _DOUBT]
    if not doubtful:
        return sections.section(title, f"<p>Every link has at least {_DOUBT:.0%} probability.</p>")

    def named(row: dict[str, Any], key: str) -> str:
        return "new" if row[key] is None else f"{row[key]} of frame {row[f'{key}_frame']}"

    cells = [
        [
            *(str(row["frame"]), str(row["id"]), str(row["track"] or "none")),
            *(named(row, "previous"), percent(row["probability"])),
            *(named(row, "runner_up"), percent(row["runner_up_probability"])),
            percent(row["p_false"]),
        ]
        for row in (rows[i] for i in doubtful[:_MAX_DOUBTS])
    ]
    header = ["Frame", "Point", "Track", "Was", "Probability", "Or", "Probability", "False"]
    rest = len(doubtful) - _MAX_DOUBTS
    more = f"<p class='note'>And {rest:,} more below {_DOUBT:.0%}.</p>" if rest > 0 else ""
    columns = [*rows[0]]
    saved = sections.save_table(
        "links.csv", columns, ([rows[i][name] for name in columns] for i in doubtful[:_MAX_SAVED])
    )
    return sections.section(title, _table(header, cells) + more, saved)


def _tracks(found: "TrackPosterior") -> str:
    names = found.scene.names
    ordered = sorted(found.tracks, key=lambda track: track.probability)[:_MAX_TRACKS]
    cells = [
        [
            *(str(track.track), names[track.points[0][0]], names[track.points[-1][0]]),
            *(str(len(track.points)), percent(track.probability), percent(track.weakest)),
        ]
        for track in ordered
    ]
    header = ["Track", "First frame", "Last frame", "Points", "All links right", "Weakest link"]
    rest = len(found.tracks) - _MAX_TRACKS
    more = f"<p class='note'>The {rest:,} most certain are left out.</p>" if rest > 0 else ""
    columns = ["track", "first_frame", "last_frame", "points", "probability", "weakest_link"]
    saved = sections.save_table(
        "tracks.csv",
        columns,
        (
            [*row[:4], track.probability, track.weakest]
            for row, track in zip(cells, ordered, strict=True)
        ),
    )
    return sections.section("All tracks", _table(header, cells) + more, saved)


def _parameters(found: "TrackPosterior") -> str:
    cells = [
        [name, number(mean), number(spread, 2)] for name, (mean, spread) in found.summary().items()
    ]
    settings = ", ".join(f"{name} {value}" for name, value in found.settings.items())
    return (
        _table(["Parameter", "Mean", "Standard deviation"], cells)
        + f"<p class='note'>{escape(settings)}</p>"
    )


def draw(found: "TrackPosterior") -> "Figure":
    """Plot the tracks in the first two coordinates, or one over time; uncertain links in red."""
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    from permvi import _figures

    places, (xlabel, ylabel) = plane(found)
    later = np.flatnonzero(found.previous >= 0)
    later = later[np.argsort(-found.p_previous[later], kind="stable")]
    styles = [
        next(((c, w) for limit, c, w in _BANDS if p < limit), _SURE)
        for p in found.p_previous[later]
    ]
    with _figures.styled():
        figure = Figure(figsize=(5.6, 4.8), layout="constrained")
        ax = figure.add_subplot()
        segments = np.stack([places[found.previous[later]], places[later]], axis=1)
        colours, widths = [c for c, _ in styles], [w for _, w in styles]
        ax.add_collection(LineCollection(list(segments), colors=colours, linewidths=widths))
        alone = found.track_of == 0
        ax.scatter(places[~alone, 0], places[~alone, 1], s=3, c=_figures.INK, zorder=2)
        ax.scatter(places[alone, 0], places[alone, 1], s=9, c=_figures.FAINT, zorder=1)
        ax.set(xlabel=_figures.plain(xlabel), ylabel=_figures.plain(ylabel))
        if len(found.scene.axes) > 1:
            ax.set_aspect("equal", adjustable="datalim")
    return figure
