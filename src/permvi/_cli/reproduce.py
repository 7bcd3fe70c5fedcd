"""``permvi reproduce``: run a study and show what came out."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from permvi._cli import terminal
from permvi.experiments import registry
from permvi.experiments.results import Table

_STUDIES = "; ".join(f"{name}: {what}" for name, what in registry.STUDIES.items())


def reproduce(
    study: Annotated[str, typer.Argument(help=f"{_STUDIES}.")],
    out: Annotated[Path, typer.Option(help="Folder for the results, created if need be.")],
    size: Annotated[
        str, typer.Option(help="smoke (a quick look) or paper (numbers worth quoting).")
    ] = "smoke",
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same results.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes of a local Dask cluster (threads for vae); 1: no cluster. By default "
            "1, and at size paper one for each core if Dask is installed.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to use instead.")
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON instead of a table.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
) -> None:
    """Run a study and write its rows.csv, summary.json and figures to a folder.

    What is done is kept: the same command goes on where an interrupted one stopped.
    """
    with terminal.progress(quiet=quiet) as progress:
        result = registry.run(
            study,
            out,
            size=size,
            seed=seed,
            progress=progress,
            workers=workers,
            scheduler=scheduler,
        )
    if as_json:
        sys.stdout.write(json.dumps(result.summary, allow_nan=False) + "\n")
    elif not quiet:
        columns = ["method", "setting", "metric", ">mean", ">sem", ">n", ">paper"]
        everything = Table("", columns, [_cells(row) for row in result.summary])
        for table in result.tables or [everything]:
            title = ", ".join(filter(None, (table.title, study, size, f"seed {seed}")))
            terminal.table(title, table.columns, table.rows)
        terminal.paths(result.files)


def _cells(row: dict[str, Any]) -> list[str]:
    setting = ", ".join(f"{name} {value}" for name, value in row["setting"].items())
    numbers = ["" if row[name] is None else f"{row[name]:.4g}" for name in ("mean", "sem")]
    paper = "" if row["paper"] is None else f"{row['paper']:g}"
    return [row["method"], setting, row["metric"], *numbers, str(row["n"]), paper]
