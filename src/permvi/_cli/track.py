"""``permvi track``: which points are the same particle, from a file."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._checks import one_of
from permvi._cli import advice, commands, options, results, terminal
from permvi._cli.outputs import Outputs

if TYPE_CHECKING:
    from permvi.posterior.tracks import TrackPosterior

_MOTIONS = ("auto", "walk", "velocity")
_WALLS = ("auto", "box", "none")
_LAYOUTS = ("permvi", "trackpy", "trackmate", "napari")
# What --option sets.
_SETTINGS = ("num_moves", "num_draws")
# The most points of a track that are printed.
_MAX_POINTS = 8
# Links above this probability are not listed as uncertain.
_CERTAIN = 0.9995


def track(
    points: Annotated[
        Path,
        typer.Argument(
            metavar="POINTS",
            help="CSV with columns frame (or t, POSITION_T), x, y, z (or POSITION_X, ...), and "
            "perhaps id, in any order; other columns are ignored.",
        ),
    ],
    *,
    sd: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS",
            help="Standard deviation of a random step from one frame to the next: infer, one "
            "number, or one for each coordinate, separated by commas.",
        ),
    ] = options.INFER,
    motion: Annotated[
        str,
        options.takes_name(
            help="walk (random steps), velocity (particles go on in their direction), or auto.",
            autocompletion=options.starting(_MOTIONS),
        ),
    ] = "auto",
    walls: Annotated[
        str,
        options.takes_name(
            help="box (with a velocity, particles are reflected at the sides of the box around all "
            "points), none, or auto.",
            autocompletion=options.starting(_WALLS),
        ),
    ] = "auto",
    memory: Annotated[
        int,
        options.takes_count(min=0, help="In how many frames in a row a particle may be missed."),
    ] = 2,
    first: Annotated[
        float | None,
        options.takes_number(help="Mean number of particles in the first frame; inferred."),
    ] = None,
    births: Annotated[
        float | None,
        options.takes_number(help="Mean number of new particles in a frame; inferred."),
    ] = None,
    deaths: Annotated[
        float | None,
        options.takes_number(help="Probability of a particle to vanish between frames; inferred."),
    ] = None,
    missed: Annotated[
        float | None,
        options.takes_number(help="Probability of a particle to be missed in a frame; inferred."),
    ] = None,
    false: Annotated[
        float | None, options.takes_number(help="Mean number of false points in a frame; inferred.")
    ] = None,
    volume: Annotated[
        float | None,
        options.takes_number(
            help="Area or volume of the scene; by default of the box around all points."
        ),
    ] = None,
    frame_col: Annotated[str | None, options.takes_name(help="The column of frames.")] = None,
    coords: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="The columns of coordinates, separated by commas."),
    ] = None,
    option: Annotated[
        list[str] | None, options.settings_option("num_moves=5000000 or num_draws=1000")
    ] = None,
    seed: options.Seed = 0,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write the points with their tracks (csv, tsv, parquet or xlsx by its ending; - "
            "prints CSV).",
        ),
    ] = None,
    layout: Annotated[
        str,
        options.takes_name(
            help="Columns of --csv: permvi (all), trackpy, trackmate or napari (id,t,y,x).",
            autocompletion=options.starting(_LAYOUTS),
        ),
    ] = "permvi",
    links: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all links of probability 0.001 or more as CSV."),
    ] = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what each point may be, in the formats of --csv: a point before it, new or "
            "false, with probabilities.",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="--probabilities as a table: a row for each point, a column for each point that "
            "comes before others, and for new and false ones.",
        ),
    ] = False,
    raw_csv: options.RawCsv = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plot the tracks (png, pdf, svg).")
    ] = None,
    report: options.Report = None,
    as_json: options.AsJson = False,
    json_file: options.JsonFile = None,
    everything: options.All = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Follow points through frames, with probabilities.

    Particles move, appear, vanish, and are missed in some frames; some points are false. All frames
    are looked at together. What is not given of this is inferred.
    """
    one_of("--motion", motion, _MOTIONS)
    one_of("--walls", walls, _WALLS)
    one_of("--layout", layout, _LAYOUTS)
    of_method = options.settings_of(option, _SETTINGS)
    files = {
        "csv": csv_file,
        "links": links,
        "probabilities": probabilities,
        "plot": plot,
        "report": report,
        "json": json_file,
    }
    outputs = Outputs(files, as_json, raw_csv, wide, quiet, everything, strict)
    outputs.check()
    steps = None if sd == options.INFER else options.numbers("--sd", sd, " or infer")
    options.check_positive("--sd", *(steps or ()))
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi._cli import input_notes, track_files
        from permvi.inference.tracks import track as follow

        axes = None if coords is None else [name.strip() for name in coords.split(",")]
        scene, notes = track_files.read_scene(points, frame_col, axes)
        outputs.note(input_notes.of_scene(points, scene.axes, notes))
        if steps is not None and len(steps) not in (1, len(scene.axes)):
            raise ValueError(
                f"--sd must be one number or one for each of {len(scene.axes)} coordinates, got "
                f"{len(steps)} numbers."
            )
        found = follow(
            scene,
            None if steps is None else steps[0] if len(steps) == 1 else steps,
            motion=motion,
            walls=walls,
            memory=memory,
            first=first,
            births=births,
            deaths=deaths,
            missed=missed,
            false=false,
            volume=volume,
            seed=seed,
            progress=progress,
            **of_method,
        )
        asked = {"input": str(points), "command": commands.as_typed(), **of_method}
        found = dataclasses.replace(
            found,
            settings={**found.settings, **asked},
            reason=advice.in_commands(found.reason),
        )
        progress("writing", 0, 1)
        outputs.write(
            {
                "csv": outputs.table(lambda: track_files.laid_out(found, layout)),
                "links": outputs.table(lambda: track_files.link_rows(found)),
                "probabilities": outputs.table(lambda: track_files.origin_rows(found, wide=wide)),
                "plot": lambda path: results.save_figure(found.plot(), path),
                "report": lambda path: found.report(path, title=f"Tracks of {points.name}"),
            }
        )
    outputs.show(lambda: _object(found, notes), lambda: _show(found, everything))
    outputs.judge(found.verdict, found.reason)


def _object(found: "TrackPosterior", notes: list[str]) -> dict[str, Any]:
    """All results for JSON."""
    scene = found.scene
    return {
        "method": found.method,
        "verdict": found.verdict,
        "reasons": [found.reason],
        "log_evidence": found.log_evidence,
        "parameters": {
            name: {"mean": mean, "sd": spread} for name, (mean, spread) in found.summary().items()
        },
        "expected_switches": found.expected_switches,
        "tracks": [
            {
                "track": track.track,
                "points": [
                    {"frame": scene.names[frame], "id": scene.ids[scene.starts[frame] + row]}
                    for frame, row in track.points
                ],
                "probability": track.probability,
                "weakest_link": track.weakest,
            }
            for track in found.tracks
        ],
        "points": found.rows(),
        "settings": dict(found.settings),
        "notes": notes,
        "seconds": found.seconds,
        "versions": results.versions(),
    }


def _show(found: "TrackPosterior", everything: bool) -> None:  # noqa: FBT001 (a private helper)
    """Print the tracks, the least certain links, the parameters and the verdict."""
    scene = found.scene
    starts = scene.starts
    tracks = sorted(found.tracks, key=lambda track: track.probability)
    title = "Tracks; p is the probability that all of its links are right"
    most = len(tracks) if everything else results.MAX_ROWS
    if len(tracks) > most:
        title = (
            f"The {most} least certain of {len(tracks):,} tracks (--all shows the others); p is "
            "the probability that all of its links are right"
        )
    else:
        tracks = list(found.tracks)
    terminal.table(
        title,
        [">track", "frames", ">points", ">p", "points"],
        [
            [
                str(track.track),
                f"{scene.names[track.points[0][0]]} to {scene.names[track.points[-1][0]]}",
                str(len(track.points)),
                f"{track.probability:.3f}",
                results.short([scene.ids[starts[t] + row] for t, row in track.points], _MAX_POINTS),
            ]
            for track in tracks[:most]
        ],
        fold=False,
    )
    rows = found.rows()
    doubtful = [rows[i] for i in found.doubtful() if rows[i]["probability"] < _CERTAIN]
    if doubtful:
        terminal.table(
            f"The least certain of {sum(scene.frame > 0):,} links",
            ["frame", "point", "was", ">p", "or", ">p", ">p new", ">p false"],
            [
                [
                    row["frame"],
                    row["id"],
                    _named(row, "previous"),
                    f"{row['probability']:.3f}",
                    _named(row, "runner_up"),
                    f"{row['runner_up_probability']:.3f}",
                    f"{row['p_new']:.3f}",
                    f"{row['p_false']:.3f}",
                ]
                for row in doubtful[: results.MAX_ROWS]
            ],
            fold=False,
        )
    given = [name for name in found.parameters if name in found.settings]
    inferred = [
        f"{name} {mean:.3g} ± {spread:.2g}"
        for name, (mean, spread) in found.summary().items()
        if name not in given and not (name.startswith("sd_") and "sd" in found.settings)
    ]
    alone = sum(found.track_of == 0)
    evidence = "" if found.log_evidence is None else f", log evidence {found.log_evidence:.6g}"
    at_walls = " between walls" if found.settings.get("walls") == "box" else ""
    lines = [
        f"{len(found.tracks):,} tracks, {alone:,} points likely false, "
        f"{found.expected_switches:.1f} links expected to be wrong",
        f"motion: {found.settings['motion']}{at_walls}, memory {found.settings['memory']}",
        f"inferred: {', '.join(inferred)}",
        f"verdict: {found.verdict} ({found.reason})",
        f"method: {found.method}{evidence}",
    ]
    terminal.lines(line for line in lines if line != "inferred: ")


def _named(row: dict[str, Any], key: str) -> str:
    return "new" if row[key] is None else f"{row[key]} ({row[f'{key}_frame']})"
