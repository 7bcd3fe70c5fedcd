"""``permvi report``: a saved posterior as a page to look at."""

from pathlib import Path
from typing import Annotated

import typer

from permvi._cli import terminal


def report(
    fit: Annotated[
        Path, typer.Argument(metavar="FIT", help="What permvi match --save or save() wrote.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write it.", show_default="FIT with .html"),
    ] = None,
    level: Annotated[
        float, typer.Option(help="With --json: probability of the credible sets.")
    ] = 0.95,
    top: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="With --json: how many of the most probable matchings.",
            show_default="3, none above 500 items or labels",
        ),
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also print what permvi match --json prints.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no path.")] = False,
) -> None:
    """Write a report of a saved posterior, one HTML file that needs no network."""
    with terminal.progress(quiet=quiet or as_json) as bar:
        bar("reading", 0, 1)
        from permvi._cli import results
        from permvi.posterior import load

        posterior = load(fit)
        bar("writing", 0, 1)
        path = fit.with_suffix(".html") if out is None else out
        posterior.report(path)
    if as_json:
        results.print_json(posterior, level=level, top=top)
    elif not quiet:
        terminal.paths([path])
