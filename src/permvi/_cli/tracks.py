"""Tracks through all frames, as ``permvi track`` gives them out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from permvi import _figures
from permvi._cli import results, terminal
from permvi._cli.tracking import Frames, Step

_SEVERITY = ("trust", "check", "do not trust")
# Of a table for people.
_MAX_LINKS = 20
_MAX_POINTS = 8
_CERTAIN = 0.9995
# Links that are left out may have been right once in less than this many times.
_WORTH_SAYING = 1e6


class Point(NamedTuple):
    """A point and where it comes from.

    Attributes:
        frame: The number of its frame, from 0.
        row: Its number in the frame.
        track: The number of its track, from 1.
        previous: The point of the frame before that is taken for the same, None if it is new.
        probability: That this is right; None in the first frame.
        runner_up: The most probable other point, None if that is "new".
        runner_up_probability: Its probability; None in the first frame.
        p_new: The probability that it was not in the frame before; None in the first frame.
        p_lost: The probability that it is not in the next frame; None in the last one.
    """

    frame: int
    row: int
    track: int
    previous: int | None
    probability: float | None
    runner_up: int | None
    runner_up_probability: float | None
    p_new: float | None
    p_lost: float | None


def chain(frames: Frames, steps: Sequence[Step]) -> list[Point]:
    """All points, frame by frame, in tracks of the links that are right most often on average."""
    found: list[Point] = []
    tracks: list[int] = []
    num_tracks = 0
    for k, frame in enumerate(frames.frames):
        lost = None if k == len(steps) else steps[k].posterior.p_unmatched_cols
        links = [_Link()] * len(frame.ids) if k == 0 else _links(steps[k - 1])
        before, tracks = tracks, []
        for row, link in enumerate(links):
            if link.previous is None:
                num_tracks += 1
                tracks.append(num_tracks)
            else:
                tracks.append(before[link.previous])
            left = None if lost is None else float(lost[row])
            found.append(Point(k, row, tracks[-1], *link, left))
    return found


class _Link(NamedTuple):
    """Fields of `Point` that one step is about."""

    previous: int | None = None
    probability: float | None = None
    runner_up: int | None = None
    runner_up_probability: float | None = None
    p_new: float | None = None


def _links(step: Step) -> list[_Link]:
    posterior = step.posterior
    m = posterior.shape[1]
    table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
    chosen = posterior.expected_loss("hamming").perm
    links = []
    for p, column in zip(table, np.where(chosen < 0, m, chosen).tolist(), strict=True):
        others = np.where(np.arange(m + 1) == column, -1.0, p)
        other = int(np.argmax(others))
        links.append(
            _Link(
                None if column == m else column,
                float(p[column]),
                None if other == m else other,
                float(p[other]),
                float(p[m]),
            )
        )
    return links


def rows_of(frames: Frames, points: Sequence[Point]) -> list[dict[str, Any]]:
    """The points as JSON and CSV have them."""
    rows = []
    for point in points:
        frame = frames.frames[point.frame]
        before = frames.frames[point.frame - 1].ids if point.frame else ()
        rows.append(
            {
                "frame": frame.name,
                "id": frame.ids[point.row],
                **dict(zip(frames.axes, frame.points[point.row].tolist(), strict=True)),
                "track": point.track,
                "previous": None if point.previous is None else before[point.previous],
                "probability": point.probability,
                "runner_up": None if point.runner_up is None else before[point.runner_up],
                "runner_up_probability": point.runner_up_probability,
                "p_new": point.p_new,
                "p_lost": point.p_lost,
            }
        )
    return rows


def tracks_of(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each track with its points and the probability that all of its links are right.

    Given the points, what happens between two frames says nothing about what happens between two
    others, so that probabilities multiply.
    """
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        track = found.setdefault(
            row["track"], {"track": row["track"], "points": [], "probability": 1.0}
        )
        if track["points"]:
            track["probability"] *= row["probability"]
        track["points"].append({"frame": row["frame"], "id": row["id"]})
    return [found[track] for track in sorted(found)]


def verdict_of(steps: Sequence[Step]) -> dict[str, Any]:
    """The worst verdict of all steps with its reasons, and their methods and evidence."""
    severity = [_SEVERITY.index(step.posterior.diagnostics.verdict) for step in steps]
    worst = max(severity)
    reasons: dict[str, list[str]] = {}
    for step, grade in zip(steps, severity, strict=True):
        if grade == worst:
            place = f"{step.before.name} to {step.after.name}"
            reasons.setdefault(step.posterior.diagnostics.reasons[0], []).append(place)
    everywhere = len(reasons) == 1 and severity.count(worst) == len(steps)
    said = [
        reason if everywhere else f"frames {', '.join(places)}: {reason}"
        for reason, places in reasons.items()
    ]
    ratio = min(step.left_out for step in steps)
    if ratio < _WORTH_SAYING:
        said.append(f"links that lower the probability of a matching {ratio:g} times are left out")
    evidence = [step.posterior.log_evidence for step in steps]
    kinds = {str(step.posterior.log_evidence_kind) for step in steps}
    known = len(kinds) == 1 and None not in evidence
    return {
        "methods": sorted({step.posterior.method for step in steps}),
        "verdict": _SEVERITY[worst],
        "reasons": said,
        "log_evidence": sum(value for value in evidence if value is not None) if known else None,
        "log_evidence_kind": kinds.pop() if known else None,
    }


def show(rows: Sequence[dict[str, Any]], verdict: dict[str, Any]) -> None:
    """Print the tracks, the least certain links, and what to think of it."""
    terminal.table(
        "Tracks; p is the probability that all of its links are right",
        [">track", "frames", ">points", ">p", "points"],
        [
            [
                str(track["track"]),
                f"{track['points'][0]['frame']} to {track['points'][-1]['frame']}",
                str(len(track["points"])),
                f"{track['probability']:.3f}",
                results.short([point["id"] for point in track["points"]], _MAX_POINTS),
            ]
            for track in tracks_of(rows)
        ],
        fold=False,
    )
    links = [row for row in rows if row["probability"] is not None]
    doubtful = sorted(
        (row for row in links if row["probability"] < _CERTAIN), key=lambda row: row["probability"]
    )
    if doubtful:
        terminal.table(
            f"The least certain of {len(links)} links",
            ["frame", "point", "was", ">p", "or", ">p", ">p new"],
            [
                [
                    row["frame"],
                    row["id"],
                    row["previous"] or "new",
                    f"{row['probability']:.3f}",
                    row["runner_up"] or "new",
                    f"{row['runner_up_probability']:.3f}",
                    f"{row['p_new']:.3f}",
                ]
                for row in doubtful[:_MAX_LINKS]
            ],
            fold=False,
        )
    evidence = ""
    if verdict["log_evidence"] is not None:
        evidence = f", log evidence {verdict['log_evidence']:.6g} ({verdict['log_evidence_kind']})"
    terminal.lines(
        [
            f"verdict: {verdict['verdict']} ({'; '.join(verdict['reasons'])})",
            f"method: {', '.join(verdict['methods'])}{evidence}",
        ]
    )


def draw(frames: Frames, points: Sequence[Point]) -> Figure:
    """The tracks in the first two coordinates, or one over the frames; doubtful links are faint."""
    plane = len(frames.axes) > 1

    def place(frame: int, row: int) -> np.ndarray:
        point = frames.frames[frame].points[row]
        return point[:2] if plane else np.array([frame, point[0]])

    with _figures.styled():
        figure = Figure(figsize=(5.6, 4.8), layout="constrained")
        ax = figure.add_subplot()
        palette = _figures.PALETTE
        colors = [palette[point.track % len(palette)] for point in points]
        links = [
            (place(point.frame - 1, point.previous), place(point.frame, point.row))
            for point in points
            if point.previous is not None
        ]
        linked = [k for k, point in enumerate(points) if point.previous is not None]
        ax.add_collection(
            LineCollection(
                links,
                colors=[colors[k] for k in linked],
                alpha=[points[k].probability for k in linked],
                zorder=1,
            )
        )
        x, y = np.transpose([place(point.frame, point.row) for point in points])
        ax.scatter(x, y, s=9, c=colors, zorder=2)
        xlabel, ylabel = frames.axes[:2] if plane else ("frame", frames.axes[0])
        ax.set(xlabel=xlabel, ylabel=ylabel)
        if plane:
            ax.set_aspect("equal", adjustable="datalim")
        else:
            names = [frame.name for frame in frames.frames]
            every = max(1, len(names) // 10)
            ax.set_xticks(range(0, len(names), every), names[::every])
    return figure
