"""``permvi demo``: a small matching problem, a few methods, the exact answer beside them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from permvi._cli import terminal

if TYPE_CHECKING:
    from permvi.experiments.demo import Comparison, Demonstration


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for figures, report.html and fit.nc, created if need be.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same results.")] = 0,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON instead of tables.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress and no tables.")
    ] = False,
) -> None:
    """Match two surveys of seven towns, by several methods."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, got the file {str(out)!r}.")
    out.mkdir(parents=True, exist_ok=True)
    with terminal.progress(quiet=quiet or as_json) as progress:
        from permvi.experiments import demo as demonstration

        found = demonstration.run(out, seed=seed, progress=progress)
    if as_json:
        rows = [_row(comparison) for comparison in found.comparisons]
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    elif not quiet:
        _show(found)


def _row(comparison: "Comparison") -> dict[str, Any]:
    posterior = comparison.posterior
    return {
        "method": comparison.method,
        "total_variation": comparison.total_variation,
        "log_evidence": posterior.log_evidence,
        "log_evidence_kind": posterior.log_evidence_kind,
        "verdict": posterior.diagnostics.verdict,
        "seconds": posterior.seconds,
    }


def _show(found: "Demonstration") -> None:
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
        "Several methods on it; error = mean total variation per item from the exact answer",
        ["method", ">error", ">log evidence", "", "verdict", ">seconds"],
        [_cells(comparison) for comparison in found.comparisons],
    )
    terminal.paths(found.files)


def _cells(comparison: "Comparison") -> list[str]:
    row = _row(comparison)
    evidence = row["log_evidence"]
    return [
        row["method"],
        f"{row['total_variation']:.4f}",
        "" if evidence is None else f"{evidence:.3f}",
        row["log_evidence_kind"] or "",
        row["verdict"],
        f"{row['seconds']:.2f}",
    ]
