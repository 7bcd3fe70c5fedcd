"""``permvi report``: an HTML report of a saved posterior."""

from pathlib import Path
from typing import Annotated

import typer

from permvi._cli import results, terminal


def report(
    fit: Annotated[
        Path, typer.Argument(metavar="FIT", help="Posterior saved by --save or posterior.save.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The report.", show_default="FIT with the ending .html"),
    ] = None,
    level: Annotated[
        float, typer.Option(help="With --json: probability of the credible sets.")
    ] = 0.95,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --json: number of most probable matchings to list.",
            show_default="3, none above 500 items or labels",
        ),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also print the JSON object of permvi match --json.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print the path.")] = False,
) -> None:
    """Write an HTML report of a saved posterior, one file that needs no network."""
    with terminal.progress(quiet=quiet or as_json) as progress:
        progress("reading", 0, 1)
        from permvi.posterior import load

        posterior = load(fit)
        progress("writing", 0, 1)
        path = fit.with_suffix(".html") if out is None else out
        posterior.report(path)
    if as_json:
        results.print_json(posterior, level=level, top=top)
    elif not quiet:
        terminal.paths([path])
