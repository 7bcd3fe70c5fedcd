"""``permvi identify``: which recorded neuron is which, from files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permvi._cli import options, running, terminal
from permvi._cli.kinds import CELEGANS
from permvi.inference import registry as methods

if TYPE_CHECKING:
    from permvi._cli.identification import Positions

_COLLAPSED = "collapsed"


def identify(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORDING",
            help="One file for each worm. CSV: time down, neurons across, their names in the "
            "header; NPZ or NPY: array activity (time, neurons), in NPZ perhaps labels.",
        ),
    ],
    *,
    positions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV: worm (name of its file without the ending; may be left out if there is one "
            "worm), neuron, one to three coordinates, the first along the body.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="NU",
            help="With --positions: identities are closer than this along the body, or impossible.",
        ),
    ] = None,
    position_sd: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="With --positions: standard deviation of positions around the canonical ones, one "
            "number, or one for each coordinate with commas between them.",
        ),
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV of neurons that are known: worm (may be left out if there is one), neuron, "
            "identity.",
        ),
    ] = None,
    connectome: Annotated[
        str,
        typer.Option(
            metavar=f"{CELEGANS}|FILE",
            help="Who may be connected: the built-in connectome, or CSV: a square table of "
            "canonical neurons (from down, to across), or a list from,to.",
            autocompletion=options.starting([CELEGANS]),
        ),
    ] = CELEGANS,
    canonical_positions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV: neuron, the coordinates of --positions; needed with a connectome of your "
            "own.",
        ),
    ] = None,
    directed: Annotated[
        bool,
        typer.Option("--directed", help="Signals follow edges one way only; by default both ways."),
    ] = False,
    noise_sd: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise.", show_default="learned"),
    ] = None,
    weight_sd: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the weights.", show_default="learned"),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help=f"{_COLLAPSED}, or another method that permvi.fit has for shared dynamics, such "
            "as rounding.",
            autocompletion=options.starting(methods.names()),
        ),
    ] = _COLLAPSED,
    restarts: Annotated[
        int | None,
        typer.Option(
            min=1, help="Searches from different starts.", show_default="as the method has it"
        ),
    ] = None,
    seed: options.Seed = 0,
    level: options.Level = 0.95,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write the table of neurons.")
    ] = None,
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
            help="Write a report to look at, as HTML; of several worms one each, FILE-WORM.html.",
        ),
    ] = None,
    as_json: options.AsJson = False,
    strict: options.Strict = False,
    quiet: options.Quiet = False,
) -> None:
    """Say which recorded neuron is which, with probabilities.

    The activity of all worms follows one linear system on the connectome, whose weights are
    inferred together with who is who.
    """
    methods.check_method(method)
    options.check_level(level)
    written = {"csv": csv_file, "weights": weights, "save": save, "plot": plot, "report": report}
    options.check_outputs(written)
    options.check_positive("--noise-sd", noise_sd)
    options.check_positive("--weight-sd", weight_sd)
    with terminal.progress(quiet=quiet or as_json) as bar:
        bar("reading", 0, 1)
        from permvi._cli import identities, results
        from permvi._cli.connectomes import read_canonical
        from permvi._cli.identification import identification
        from permvi._cli.recordings import read_recordings

        placed = _positions(positions, tolerance, position_sd)
        worms = read_recordings(recordings)
        canonical = read_canonical(connectome, canonical_positions, directed=directed)
        problem = identification(
            worms,
            canonical,
            positions=placed,
            known=known,
            weight_sd=weight_sd,
            noise_sd=noise_sd,
        )
        bar("computing", 0, 1)
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
        of_method = {} if restarts is None else {"num_restarts": restarts}
        posterior = running.fit(problem.model, method, seed, bar, asked, **of_method)
        found = identities.by_worm(posterior, worms, problem.known)
        bar("writing", 0, 1)
        if save is not None:
            posterior.save(save)
        if csv_file is not None:
            identities.write_csv(csv_file, found, level)
        if weights is not None:
            identities.write_weights(weights, posterior, problem.model)
        if plot is not None:
            running.save_figure(identities.draw(found), plot)
        if report is not None:
            identities.write_reports(report, found)
    for note in () if quiet else problem.notes:
        terminal.note(note)
    if as_json:
        results.print_object(identities.as_object(posterior, problem.model, found, level))
    elif not quiet:
        identities.show(posterior, problem.model, found, level)
    if strict:
        running.exit_unless_trusted(posterior.diagnostics.verdict, posterior.diagnostics.reasons[0])


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _positions(
    path: Path | None, tolerance: float | None, position_sd: str | None
) -> "Positions | None":
    from permvi._cli.identification import Positions

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
