"""``permvi track``: which point is which in the next frame, from a file."""

from pathlib import Path
from typing import Annotated

import typer

from permvi._cli import options, running, terminal
from permvi.inference import registry as methods


def track(
    points: Annotated[
        Path,
        typer.Argument(
            metavar="POINTS",
            help="CSV: frame, perhaps id (a name for the point in its frame), one to three "
            "coordinates.",
        ),
    ],
    *,
    sd: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS",
            help="Standard deviation of a step from one frame to the next, one number, or one for "
            "each coordinate with commas between them.",
        ),
    ],
    new: Annotated[
        float,
        typer.Option(help="A new point counts as much as a step of so many standard deviations."),
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
            help="Save the posterior as netCDF; of more than two frames one for each step, "
            "FILE-1.nc and so on.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the tracks (png, pdf, svg).")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a report to look at, as HTML; likewise for each step."
        ),
    ] = None,
    as_json: options.AsJson = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Follow points through frames, with probabilities.

    Each point of a frame is a point of the frame before, some steps away, or new; points may be
    lost. Frames are matched two by two, and the most probable links make the tracks.
    """
    methods.check_method(method)
    written = {"csv": csv_file, "save": save, "plot": plot, "report": report}
    options.check_outputs(written)
    sds = options.numbers("--sd", sd)
    options.check_positive("--sd", *sds)
    options.check_positive("--new", new)
    if not 0 < lost < 1:
        raise ValueError(f"--lost must be a probability between 0 and 1, got {lost:g}.")
    with terminal.progress(quiet=quiet or as_json) as bar:
        bar("reading", 0, 1)
        from permvi._cli import results, tracks
        from permvi._cli.tracking import Motion, Step, model_of, read_frames

        frames = read_frames(points)
        if len(sds) not in (1, len(frames.axes)):
            raise ValueError(
                f"--sd must be one number or one for each of {len(frames.axes)} coordinates, got "
                f"{len(sds)} numbers."
            )
        motion = Motion(tuple(sds), new, lost)
        asked = {"input": str(points), "sd": sds, "new": new, "lost": lost}
        pairs = list(zip(frames.frames[:-1], frames.frames[1:], strict=True))
        steps = []
        for k, (before, after) in enumerate(pairs):
            bar("computing", k, len(pairs))
            between = {**asked, "frames": [before.name, after.name]}
            model, left_out = model_of(before, after, motion)
            posterior = running.fit(model, method, seed, lambda *progress: None, between)
            steps.append(Step(before, after, posterior, left_out))
        followed = tracks.chain(frames, steps)
        rows, verdict = tracks.rows_of(frames, followed), tracks.verdict_of(steps)
        bar("writing", 0, 1)
        for k, step in enumerate(steps, 1):
            part = None if len(steps) == 1 else str(k)
            if save is not None:
                step.posterior.save(running.part_of(save, part))
            if report is not None:
                title = f"Points of frame {step.after.name} in frame {step.before.name}"
                step.posterior.report(running.part_of(report, part), title=title)
        if csv_file is not None:
            results.write_csv(csv_file, rows)
        if plot is not None:
            running.save_figure(tracks.draw(frames, followed), plot)
    if as_json:
        results.print_object(
            {
                **verdict,
                "tracks": tracks.tracks_of(rows),
                "points": rows,
                "settings": {"seed": seed, "requested": method, **asked},
                "seconds": sum(step.posterior.seconds or 0.0 for step in steps),
                "versions": results.versions(),
            }
        )
    elif not quiet:
        tracks.show(rows, verdict)
    if strict:
        running.exit_unless_trusted(verdict["verdict"], verdict["reasons"][0])
