"""``permvi identify``: the identities of recorded neurons, from files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._checks import one_of
from permvi._cli import advice, options, results, terminal
from permvi._cli.options import CELEGANS
from permvi._cli.outputs import Outputs
from permvi.inference import registry as methods

if TYPE_CHECKING:
    from permvi._cli.identify_inputs import Positions

_COLLAPSED = "collapsed"
_ALIGNMENTS = ("none", "similarity", "affine")


def identify(
    recordings: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RECORDING",
            help="One file for each worm; none if only --atlas is used. CSV: a row for each time "
            "step, a column for each neuron with its name in the header. NPZ or NPY: array "
            "activity (time, neurons); in NPZ optionally labels.",
        ),
    ] = None,
    *,
    atlas: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Atlas of features such as position and colour: one saved by --save-atlas (npz), "
            "or labelled animals to learn it from (mat, csv). May be given several times.",
        ),
    ] = None,
    cells: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="With --atlas: features of the cells to identify (csv, mat). May be given several "
            "times.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="With --atlas: the features to use, separated by commas; all by default.",
        ),
    ] = None,
    align: Annotated[
        str,
        options.takes_name(
            help="With --atlas: none if the frame of the cells is that of the atlas; similarity or "
            "affine infer it.",
            autocompletion=options.starting(_ALIGNMENTS),
        ),
    ] = _ALIGNMENTS[0],
    save_atlas: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --atlas: save the atlas (npz).")
    ] = None,
    curate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a table with a column for decisions; filled in, it goes to --known.",
        ),
    ] = None,
    positions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV: worm (name of its file without the ending; may be left out if there is only "
            "one), neuron, one to three coordinates, the first along the body.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        options.takes_number(
            help="With --positions: identities further away than this along the body are "
            "impossible."
        ),
    ] = None,
    position_sd: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="With --positions: standard deviation of positions around the canonical ones: one "
            "number, or one for each coordinate, separated by commas.",
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV list of known identities: worm (may be left out if there is only one), "
            "neuron, identity; or a table of --curate with decisions.",
        ),
    ] = None,
    connectome: Annotated[
        str,
        typer.Option(
            metavar=f"{CELEGANS}|FILE",
            help="Possible connections: the built-in connectome, or a CSV file with a square table "
            "of canonical neurons (rows send, columns receive) or a list from,to.",
            autocompletion=options.starting([CELEGANS]),
        ),
    ] = CELEGANS,
    canonical_positions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV: neuron, the coordinates of --positions. Needed for --positions with your "
            "own connectome.",
        ),
    ] = None,
    directed: Annotated[
        bool,
        typer.Option(
            "--directed", help="Signals follow edges in one direction only; by default in both."
        ),
    ] = False,
    noise_sd: Annotated[
        float | None,
        options.takes_number(help="Standard deviation of the noise.", show_default="learned"),
    ] = None,
    weight_sd: Annotated[
        float | None,
        options.takes_number(help="Standard deviation of the weights.", show_default="learned"),
    ] = None,
    method: Annotated[
        str,
        options.takes_name(
            help=f"Method of inference: {_COLLAPSED}, or another method for shared dynamics, such "
            "as rounding.",
            autocompletion=options.starting(methods.NAMES),
        ),
    ] = _COLLAPSED,
    restarts: Annotated[
        int | None,
        options.takes_count(
            min=1,
            help="Number of searches from different starts.",
            show_default="default of the method",
        ),
    ] = None,
    option: options.Settings = None,
    seed: options.Seed = 0,
    level: options.Level = 0.95,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the table of neurons.")
    ] = None,
    probabilities: options.Probabilities = None,
    wide: options.Wide = False,
    raw_csv: options.RawCsv = False,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the weights of the dynamics: from,to,weight,sd."),
    ] = None,
    save: options.Save = None,
    plot: options.Plot = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write an HTML report. With several worms, one for each: FILE-WORM.html.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    json_file: options.JsonFile = None,
    everything: options.All = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Infer the identities of recorded neurons, with probabilities.

    With --atlas, features of cells are compared with those of labelled animals. With recordings,
    the activity of all worms follows one linear dynamical system on the connectome, whose weights
    are inferred together with the identities. With both, their log densities add.
    """
    one_of("method", method, methods.NAMES)
    one_of("align", align, _ALIGNMENTS)
    options.check_level(level)
    written = {"csv": csv_file, "weights": weights, "save": save, "plot": plot, "report": report}
    written |= {"probabilities": probabilities, "json": json_file, "curate": curate}
    written["save-atlas"] = save_atlas
    outputs = Outputs(written, as_json, raw_csv, wide, quiet, everything, strict)
    outputs.check()
    of_method = options.settings_of(option)
    _check_sources(recordings, atlas, cells, features, save_atlas, align)
    if not recordings:
        only = {
            "--positions": positions, "--tolerance": tolerance, "--position-sd": position_sd,
            "--canonical-positions": canonical_positions, "--noise-sd": noise_sd,
            "--weight-sd": weight_sd, "--restarts": restarts, "--weights": weights,
        }  # fmt: skip
        for name, value in only.items():
            if value is not None:
                raise ValueError(f"{name} must go with recordings, got it without.")
        _identify_cells(
            atlas or [],
            cells or [],
            features,
            align,
            known,
            method,
            seed,
            level,
            of_method,
            outputs,
        )
        return
    options.check_positive("--noise-sd", noise_sd)
    options.check_positive("--weight-sd", weight_sd)
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi._cli import identify_results
        from permvi._cli.identify_files import read_canonical, read_recordings
        from permvi._cli.identify_inputs import identification

        inputs = None
        if atlas:
            from permvi._cli import identify_atlas

            inputs = identify_atlas.read_inputs(atlas, cells or (), features)
            if save_atlas is not None:
                inputs.atlas.save(save_atlas)
        placed = _positions(positions, tolerance, position_sd)
        worms = read_recordings(recordings)
        canonical = read_canonical(connectome, canonical_positions, directed=directed)
        scores = None
        if inputs is not None:
            scores = identify_atlas.feature_scores(inputs, worms, canonical, align, seed)
        problem = identification(
            worms,
            canonical,
            positions=placed,
            known=known,
            weight_sd=weight_sd,
            noise_sd=noise_sd,
            features=scores,
        )
        progress("computing", 0, 1)
        asked = {
            "input": [str(path) for path in recordings],
            "worms": [worm.worm for worm in worms],
            "neurons": [worm.neurons for worm in worms],
            "positions": _text(positions),
            "tolerance": tolerance,
            "position_sd": position_sd,
            "known": _text(known),
            "connectome": connectome,
            "canonical_positions": _text(canonical_positions),
            "directed": directed,
            "noise_sd": noise_sd,
            "weight_sd": weight_sd,
        }
        if restarts is not None:
            of_method["num_restarts"] = restarts
        posterior = results.fit(problem.model, method, seed, progress, asked, **of_method)
        found = identify_results.by_worm(posterior, worms, problem.known)
        of_files = [note for worm in worms for note in worm.notes]
        outputs.note([*of_files, *(inputs.notes if inputs else ()), *problem.notes])
        progress("writing", 0, 1)
        outputs.write(
            {
                "save": posterior.save,
                "csv": outputs.table(lambda: identify_results.rows_of(found, level)),
                "curate": outputs.table(lambda: identify_results.curation_of(found, level)),
                "probabilities": outputs.table(lambda: identify_results.pairs_of(found, wide)),
                "weights": outputs.table(
                    lambda: identify_results.weights_of(posterior, problem.model)
                ),
                "plot": lambda path: results.save_figure(identify_results.draw(found), path),
                "report": lambda path: identify_results.write_reports(path, found),
            }
        )
    outputs.show(
        lambda: identify_results.as_object(posterior, problem.model, found, level),
        lambda: identify_results.show(
            posterior, problem.model, found, level, everything=everything
        ),
    )
    reason = advice.in_commands(posterior.diagnostics.reasons[0], posterior)
    outputs.judge(posterior.diagnostics.verdict, reason)


def _check_sources(
    recordings: list[Path] | None,
    atlas: list[Path] | None,
    cells: list[Path] | None,
    features: str | None,
    save_atlas: Path | None,
    align: str,
) -> None:
    """Raise ``ValueError`` unless there is something to identify neurons by."""
    if not recordings and not atlas:
        raise ValueError("identify must have recordings, or --atlas and --cells, got neither.")
    if atlas and not cells:
        raise ValueError("--atlas must go with --cells, the cells to identify, got it without.")
    changed = None if align == _ALIGNMENTS[0] else align
    given = {"cells": cells, "features": features, "save-atlas": save_atlas, "align": changed}
    for option, value in given.items():
        if value and not atlas:
            raise ValueError(f"--{option} must go with --atlas, got it without.")


def _identify_cells(
    atlas: list[Path],
    cells: list[Path],
    features: str | None,
    align: str,
    known: Path | None,
    method: str,
    seed: int,
    level: float,
    of_method: dict[str, Any],
    outputs: Outputs,
) -> None:
    """Identify cells by an atlas alone."""
    with terminal.progress(quiet=outputs.quiet or outputs.as_json) as progress:
        progress("reading", 0, 1)
        from permvi._cli import identify_atlas, identify_results

        inputs = identify_atlas.read_inputs(atlas, cells, features)
        progress("computing", 0, 1)
        asked = {
            "input": [str(path) for path in cells],
            "atlas": [str(path) for path in atlas],
            "cells": [str(path) for path in cells],
            "features": list(inputs.atlas.features),
            "align": align,
            "known": _text(known),
        }
        found = identify_atlas.identify_cells(
            inputs,
            align=align,
            known=known,
            method=methods.AUTO if method == _COLLAPSED else method,
            seed=seed,
            progress=progress,
            asked=asked,
            of_method=of_method,
        )
        worms = [one.worm for one in found]
        progress("writing", 0, 1)
        outputs.note(inputs.notes)
        outputs.write(
            {
                "save-atlas": inputs.atlas.save,
                "save": lambda path: identify_atlas.save(path, found),
                "csv": outputs.table(lambda: identify_results.rows_of(worms, level)),
                "curate": outputs.table(lambda: identify_results.curation_of(worms, level)),
                "probabilities": outputs.table(
                    lambda: identify_results.pairs_of(worms, outputs.wide)
                ),
                "plot": lambda path: results.save_figure(identify_results.draw(worms), path),
                "report": lambda path: identify_atlas.write_reports(path, found, level),
            }
        )
    outputs.show(
        lambda: identify_atlas.as_object(found, level), lambda: identify_atlas.show(found, level)
    )
    outputs.judge(*identify_atlas.worst_of(found))


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _positions(
    path: Path | None, tolerance: float | None, position_sd: str | None
) -> "Positions | None":
    from permvi._cli.identify_inputs import Positions

    if path is None:
        for option, value in (("tolerance", tolerance), ("position-sd", position_sd)):
            if value is not None:
                raise ValueError(f"--{option} must go with --positions, got it without.")
        return None
    if tolerance is None and position_sd is None:
        raise ValueError(
            "--positions must go with --tolerance or --position-sd, which say how far an identity "
            "may be, got neither."
        )
    options.check_positive("--tolerance", tolerance)
    spread = None
    if position_sd is not None:
        spread = tuple(options.numbers("--position-sd", position_sd))
        options.check_positive("--position-sd", *spread)
    return Positions(path, tolerance, spread)
