"""``permvi demo``, ``permvi reproduce`` and ``permvi bench``: commands about permvi itself."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._cli import options, terminal
from permvi._files import write_json
from permvi.experiments import registry
from permvi.experiments.results import Table

if TYPE_CHECKING:
    from permvi.experiments.demo import Comparison, Demonstration

_STUDIES = "; ".join(f"{name}: {what}" for name, what in registry.STUDIES.items())

_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no tables.")]


def demo(
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="Folder for figures, report.html and fit.nc; it is created if it does not exist.",
        ),
    ],
    seed: options.Seed = 0,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON instead of tables.")
    ] = False,
    quiet: _Quiet = False,
) -> None:
    """Match two surveys of seven towns with several methods."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, got the file {str(out)!r}.")
    out.mkdir(parents=True, exist_ok=True)
    with terminal.progress(quiet=quiet or as_json) as progress:
        from permvi.experiments import demo as demonstration

        found = demonstration.run(out, seed=seed, progress=progress)
    if as_json:
        rows = [_comparison(comparison) for comparison in found.comparisons]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    elif not quiet:
        _show_demo(found)


def _comparison(comparison: "Comparison") -> dict[str, Any]:
    posterior = comparison.posterior
    return {
        "method": comparison.method,
        "total_variation": comparison.total_variation,
        "log_evidence": posterior.log_evidence,
        "log_evidence_kind": posterior.log_evidence_kind,
        "verdict": posterior.diagnostics.verdict,
        "seconds": posterior.seconds,
    }


def _show_demo(found: "Demonstration") -> None:
    exact = found.exact
    names = exact.labels[1] or ()
    terminal.table(
        "Which town is it? The exact posterior",
        ["item", "best label", ">p", "runner-up", ">p", "95 % set", "truth"],
        [
            [
                str(item.item),
                str(item.best),
                f"{item.probability:.3f}",
                str(item.runner_up),
                f"{item.runner_up_probability:.3f}",
                ", ".join(map(str, item.credible_set)),
                names[found.truth[item.row]],
            ]
            for item in exact.item_summaries()
        ],
    )
    terminal.table(
        "Several methods; error = mean total variation per item from the exact posterior",
        ["method", ">error", ">log evidence", "", "verdict", ">seconds"],
        [_comparison_cells(comparison) for comparison in found.comparisons],
    )
    terminal.paths(found.files)


def _comparison_cells(comparison: "Comparison") -> list[str]:
    row = _comparison(comparison)
    evidence = row["log_evidence"]
    return [
        row["method"],
        f"{row['total_variation']:.4f}",
        "" if evidence is None else f"{evidence:.3f}",
        row["log_evidence_kind"] or "",
        row["verdict"],
        f"{row['seconds']:.2f}",
    ]


def reproduce(
    study: Annotated[str, typer.Argument(help=f"{_STUDIES}.")],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", help="Folder for the results; it is created if it does not exist."
        ),
    ],
    size: Annotated[
        str, options.takes_name(help="smoke (a quick check) or paper (full size).")
    ] = "smoke",
    seed: options.Seed = 0,
    workers: Annotated[
        int | None,
        options.takes_count(
            min=1,
            help="Number of processes of a local Dask cluster (threads for vae); 1: no cluster. "
            "Default: 1; at size paper one per core if Dask is installed.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None, options.takes_name(help="Address of a running Dask scheduler to use instead.")
    ] = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON instead of a table.")
    ] = False,
    quiet: _Quiet = False,
) -> None:
    """Run a study and write its rows.csv, summary.json and figures to a folder.

    Finished tasks are kept: run the same command again to continue an interrupted study.
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
        everything = Table("", columns, [_summary_cells(row) for row in result.summary])
        for table in result.tables or [everything]:
            title = ", ".join(filter(None, (table.title, study, size, f"seed {seed}")))
            terminal.table(title, table.columns, table.rows)
        terminal.paths(result.files)


def _summary_cells(row: dict[str, Any]) -> list[str]:
    setting = ", ".join(f"{name} {value}" for name, value in row["setting"].items())
    numbers = ["" if row[name] is None else f"{row[name]:.4g}" for name in ("mean", "sem")]
    paper = "" if row["paper"] is None else f"{row['paper']:g}"
    return [row["method"], setting, row["metric"], *numbers, str(row["n"]), paper]


def bench(
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Also write the rows as JSON.")
    ] = None,
    only: Annotated[
        str | None, options.takes_name(help="Run only this group of benchmarks.")
    ] = None,
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Use tiny sizes, to check that the benchmarks run.")
    ] = False,
    quiet: _Quiet = False,
) -> None:
    """Time permvi against reference implementations in the same run.

    The ratio says how much better permvi is than its reference: larger is better.
    """
    if json_file is not None:
        options.check_ending("json", json_file)
    benchmarks = load_benchmarks()
    with terminal.progress(quiet=quiet) as progress:
        rows = benchmarks.run(only=only, quick=quick, report=progress)
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        write_json(json_file, rows)
    if not quiet:
        wanted = benchmarks.wanted()
        terminal.table(
            f"{benchmarks.machine()}; ratio = reference / value, larger is better",
            ["benchmark", ">value", ">reference", "unit", ">ratio", ">wanted", "device"],
            [_benchmark_cells(row, wanted.get(row["name"])) for row in rows],
        )


def _benchmark_cells(row: dict[str, Any], wanted: float | None) -> list[str]:
    numbers = [f"{row[name]:.4g}" for name in ("value", "reference")]
    target = "" if wanted is None else f"{wanted:.2g}"
    return [row["name"], *numbers, row["unit"], f"{row['ratio']:.3g}", target, row["device"]]


def load_benchmarks() -> ModuleType:
    """Import ``benchmarks.run`` from the source checkout that holds this package."""
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "benchmarks" / "run.py").is_file():
        raise ValueError(
            "permvi bench needs the benchmarks folder of the source checkout, which an installed "
            "wheel lacks; clone the repository and run make bench."
        )
    if str(checkout) not in sys.path:
        sys.path.insert(0, str(checkout))
    return importlib.import_module("benchmarks.run")
