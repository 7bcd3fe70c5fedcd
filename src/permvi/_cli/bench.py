"""``permvi bench``: the side-by-side timings of the source checkout."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from permvi._cli import terminal
from permvi._files import write_json


def bench(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the rows as JSON.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Run this group of benchmarks alone.")] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes: does it run, not how fast.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")] = False,
) -> None:
    """Time permvi against plain references in the same run.

    A ratio is how much better permvi is than its reference, so larger is better everywhere.
    """
    benchmarks = load_benchmarks()
    with terminal.progress(quiet=quiet) as report:
        rows = benchmarks.run(only=only, quick=quick, report=report)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(json_file, rows)
    if not quiet:
        wanted = benchmarks.wanted()
        terminal.table(
            f"{benchmarks.machine()}; ratio = reference / value, larger is better",
            ["benchmark", ">value", ">reference", "unit", ">ratio", ">wanted", "device"],
            [_cells(row, wanted.get(row["name"])) for row in rows],
        )


def _cells(row: dict[str, Any], wanted: float | None) -> list[str]:
    numbers = [f"{row[name]:.4g}" for name in ("value", "reference")]
    target = "" if wanted is None else f"{wanted:.2g}"
    return [row["name"], *numbers, row["unit"], f"{row['ratio']:.3g}", target, row["device"]]


def load_benchmarks() -> ModuleType:
    """The module ``benchmarks.run`` of the checkout that this package was installed from."""
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "benchmarks" / "run.py").is_file():
        raise ValueError(
            "permvi bench needs the benchmarks folder of the source checkout, which an installed "
            "wheel lacks; clone the repository and run make bench."
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module("benchmarks.run")
