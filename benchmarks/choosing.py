"""Write the tables of docs/choosing.md from the results of the study of all methods.

``python -m benchmarks.choosing`` rewrites the blocks of the page between the comments
``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` from ``results/compare``, the
output of ``permvi reproduce compare --size paper``.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import permvi as pv
from permvi._files import atomic
from permvi._tables import markdown_table
from permvi.experiments.compare import METRICS, Target, refusals, table, targets

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "choosing.md"
RESULTS = ROOT / "results" / "compare"
COMMAND = "python -m benchmarks.choosing"


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """Read ``rows.csv``, with metrics as numbers and empty cells as None."""
    with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
        return [
            row | {name: float(row[name]) if row[name] else None for name in METRICS}
            for row in csv.DictReader(file)
        ]


def read_seconds(folder: Path) -> dict[tuple[str, str], float]:
    """Read the mean seconds of a fit by problem and method."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return {(row["setting"]["target"], row["method"]): row["seconds"] / row["n"] for row in summary}


def method_table() -> str:
    """Return the table of `permvi.methods` in Markdown."""
    header = ["method", "needs", "gives", "masks", "partial", "cost"]
    return markdown_table(
        header,
        [
            [
                f"`{info.name}`",
                info.needs,
                info.gives,
                "yes" if info.masks else "no",
                "yes" if info.partial else "no",
                info.cost,
            ]
            for info in pv.methods()
        ],
    )


def section(
    target: Target, rows: list[dict[str, Any]], seconds: dict[tuple[str, str], float]
) -> str:
    """Return a problem's heading, description, table and the methods that refused it."""
    found = table(target.name, rows, seconds)
    header = [column.removeprefix(">") for column in found.columns]
    cells = [[f"`{method}`", *rest] for method, *rest in found.rows]
    lines = [f"### {target.name}", "", target.text, "", markdown_table(header, cells)]
    refused = [f"`{method}`" for method in refusals(target.name, rows)]
    if refused:
        lines += ["", f"Refused by {', '.join(refused)}."]
    return "\n".join(lines)


def replace_block(text: str, name: str, content: str) -> str:
    """Return the text with new content between the two comments of a block.

    Raises:
        ValueError: A comment is missing or occurs more than once.
    """
    marks = [f"<!-- {name}:{end} -->" for end in ("begin", "end")]
    if any(text.count(mark) != 1 for mark in marks):
        raise ValueError(f"page must have {marks[0]} and {marks[1]} exactly once each.")
    before, rest = text.split(marks[0])
    after = rest.split(marks[1])[1]
    return f"{before}{marks[0]}\n\n{content}\n\n{marks[1]}{after}"


def rewritten(text: str, results: Path, size: str = "paper") -> str:
    """Return the page with its blocks rewritten from the results."""
    rows, seconds = read_rows(results), read_seconds(results)
    blocks = [section(target, rows, seconds) for target in targets(size)]
    text = replace_block(text, "methods", method_table())
    return replace_block(text, "tables", "\n\n".join(blocks))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder with the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="page with the tables")
    parser.add_argument("--size", default="paper", help="size of the study")
    given = parser.parse_args(arguments)
    text = rewritten(given.page.read_text(encoding="utf-8"), given.results, given.size)
    with atomic(given.page) as temporary:
        temporary.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
