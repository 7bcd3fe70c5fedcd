"""``permvi track``: which point is which in the next frame, from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._checks import one_of
from permvi._cli import options, results, terminal
from permvi.inference import registry as methods

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from permvi.models import LinkedTracks, Tracks
    from permvi.posterior import Posterior

_SEVERITY = ("trust", "check", "do not trust")
# Limits of the tables that are printed.
_MAX_LINKS = 20
_MAX_POINTS = 8
# Links above this probability are not listed as uncertain.
_CERTAIN = 0.9995
# Dropped links are mentioned if the best matching with one of them may be this probable, relative
# to the best overall.
_WORTH_SAYING = 1e6


def track(
    points: Annotated[
        Path,
        typer.Argument(
            metavar="POINTS",
            help="CSV: frame, optionally id (a name for the point in its frame), one to three "
            "coordinates.",
        ),
    ],
    *,
    sd: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS",
            help="Standard deviation of a step from one frame to the next: one number, or one for "
            "each coordinate, separated by commas.",
        ),
    ],
    new: Annotated[
        float,
        typer.Option(
            help="A point is new rather than take a step longer than about this many standard "
            "deviations."
        ),
    ] = 3.0,
    lost: Annotated[
        float, typer.Option(help="Probability that a point is not seen in the next frame.")
    ] = 0.05,
    method: options.Method = methods.AUTO,
    seed: options.Seed = 0,
    csv_file: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write the points with their tracks."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Save the posterior as netCDF. With more than two frames, one file for each step: "
            "FILE-1.nc, FILE-2.nc, ...",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the tracks (png, pdf, svg).")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML report. With more than two frames, one file for each step.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Follow points through frames, with probabilities.

    Each point of a frame is either a point of the previous frame that took a step, or new; points
    may be lost. Consecutive frames are matched two by two, and the most probable links make the
    tracks.
    """
    one_of("method", method, methods.NAMES)
    written = {"csv": csv_file, "save": save, "plot": plot, "report": report}
    options.check_outputs(written)
    sds = options.numbers("--sd", sd)
    options.check_positive("--sd", *sds)
    options.check_positive("--new", new)
    if not 0 < lost < 1:
        raise ValueError(f"--lost must be a probability between 0 and 1, got {lost:g}.")
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi._cli.track_files import read_frames
        from permvi.models import Tracks

        found = read_frames(points)
        if len(sds) not in (1, len(found.axes)):
            raise ValueError(
                f"--sd must be one number or one for each of {len(found.axes)} coordinates, got "
                f"{len(sds)} numbers."
            )
        model = Tracks(
            found.points,
            sds[0] if len(sds) == 1 else sds,
            new,
            lost,
            ids=found.ids,
            names=found.names,
            axes=found.axes,
        )
        asked = {"input": str(points), "sd": sds, "new": new, "lost": lost}
        posteriors = []
        for k, step in enumerate(model.steps):
            progress("computing", k, len(model.steps))
            between = {**asked, "frames": list(model.names[k : k + 2])}
            posteriors.append(results.fit(step, method, seed, terminal.silent, between))
        linked = model.link(posteriors)
        rows, verdict = linked.rows(), verdict_of(model, posteriors)
        progress("writing", 0, 1)
        _write_steps(model, posteriors, save, report)
        if csv_file is not None:
            results.write_csv(csv_file, rows)
        if plot is not None:
            results.save_figure(draw(linked), plot)
    if as_json:
        results.print_object(
            {
                **verdict,
                "tracks": tracks_of(linked),
                "points": rows,
                "settings": {"seed": seed, "requested": method, **asked},
                "seconds": sum(posterior.seconds or 0.0 for posterior in posteriors),
                "versions": results.versions(),
            }
        )
    elif not quiet:
        show(linked, verdict)
    if strict:
        results.exit_unless_trusted(verdict["verdict"], verdict["reasons"][0])


def _write_steps(
    model: "Tracks", posteriors: Sequence["Posterior"], save: Path | None, report: Path | None
) -> None:
    """Save each posterior and write its report, where there is a file name for them."""
    for k, posterior in enumerate(posteriors):
        part = None if len(posteriors) == 1 else str(k + 1)
        if save is not None:
            posterior.save(results.part_of(save, part))
        if report is not None:
            title = f"Points of frame {model.names[k + 1]} in frame {model.names[k]}"
            posterior.report(results.part_of(report, part), title=title)


def tracks_of(linked: "LinkedTracks") -> list[dict[str, Any]]:
    """The tracks as JSON has them."""
    model = linked.model
    return [
        {
            "track": track.track,
            "points": [
                {"frame": model.names[frame], "id": model.ids[frame][row]}
                for frame, row in track.points
            ],
            "probability": track.probability,
        }
        for track in linked.tracks
    ]


def verdict_of(model: "Tracks", posteriors: Sequence["Posterior"]) -> dict[str, Any]:
    """The worst verdict of all steps with its reasons, all methods and the total log evidence."""
    severity = [_SEVERITY.index(posterior.diagnostics.verdict) for posterior in posteriors]
    worst = max(severity)
    reasons: dict[str, list[str]] = {}
    for k, (posterior, grade) in enumerate(zip(posteriors, severity, strict=True)):
        if grade == worst:
            place = f"{model.names[k]} to {model.names[k + 1]}"
            reasons.setdefault(posterior.diagnostics.reasons[0], []).append(place)
    everywhere = len(reasons) == 1 and severity.count(worst) == len(posteriors)
    said = [
        reason if everywhere else f"frames {', '.join(places)}: {reason}"
        for reason, places in reasons.items()
    ]
    factor = min(model.left_out)
    if factor < _WORTH_SAYING:
        said.append(
            f"links are dropped if their best matching is {factor:g} times less probable than the "
            "best overall"
        )
    evidence = [posterior.log_evidence for posterior in posteriors]
    kinds = {str(posterior.log_evidence_kind) for posterior in posteriors}
    known = len(kinds) == 1 and None not in evidence
    return {
        "methods": sorted({posterior.method for posterior in posteriors}),
        "verdict": _SEVERITY[worst],
        "reasons": said,
        "log_evidence": sum(value for value in evidence if value is not None) if known else None,
        "log_evidence_kind": kinds.pop() if known else None,
    }


def show(linked: "LinkedTracks", verdict: dict[str, Any]) -> None:
    """Print the tracks, the least certain links and the verdict."""
    tracks = tracks_of(linked)
    title = "Tracks; p is the probability that all of its links are right"
    if len(tracks) > results.MAX_ROWS:
        title = (
            f"The {results.SHOWN_OF_MANY} least certain of {len(tracks):,} tracks (--csv and "
            "--json have all); p is the probability that all of its links are right"
        )
        tracks = sorted(tracks, key=lambda track: track["probability"])[: results.SHOWN_OF_MANY]
    terminal.table(
        title,
        [">track", "frames", ">points", ">p", "points"],
        [
            [
                str(track["track"]),
                f"{track['points'][0]['frame']} to {track['points'][-1]['frame']}",
                str(len(track["points"])),
                f"{track['probability']:.3f}",
                results.short([point["id"] for point in track["points"]], _MAX_POINTS),
            ]
            for track in tracks
        ],
        fold=False,
    )
    links = [row for row in linked.rows() if row["probability"] is not None]
    uncertain = sorted(
        (row for row in links if row["probability"] < _CERTAIN), key=lambda row: row["probability"]
    )
    if uncertain:
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
                for row in uncertain[:_MAX_LINKS]
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


def draw(linked: "LinkedTracks") -> "Figure":
    """Plot the tracks in the first two coordinates, or one over frames; uncertain links faintly."""
    import numpy as np
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure

    from permvi import _figures

    model, points = linked.model, linked.points
    plane = len(model.axes) > 1

    def place(frame: int, row: int) -> "np.ndarray":
        point = model.frames[frame][row]
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
        linked_points = [k for k, point in enumerate(points) if point.previous is not None]
        ax.add_collection(
            LineCollection(
                links,
                colors=[colors[k] for k in linked_points],
                alpha=[points[k].probability for k in linked_points],
                zorder=1,
            )
        )
        x, y = np.transpose([place(point.frame, point.row) for point in points])
        ax.scatter(x, y, s=9, c=colors, zorder=2)
        xlabel, ylabel = model.axes[:2] if plane else ("frame", model.axes[0])
        ax.set(xlabel=xlabel, ylabel=ylabel)
        if plane:
            ax.set_aspect("equal", adjustable="datalim")
        else:
            every = max(1, len(model.names) // 10)
            ax.set_xticks(range(0, len(model.names), every), model.names[::every])
    return figure
