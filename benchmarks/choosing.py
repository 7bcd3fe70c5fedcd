"""Write the tables of docs/choosing.md from the results of the study of all methods.

``python -m benchmarks.choosing`` rewrites the blocks of the page between the comments
``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` from ``results/linear``, the output of
`benchmarks.linear`, and ``results/compare``, that of ``permvi reproduce compare --size paper``.
"""

import argparse
import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import permvi as pv
from permvi._files import write_text
from permvi._tables import markdown_table
from permvi.experiments.compare import METRICS, Target, format_number, refusals, table, targets

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "choosing.md"
RESULTS = ROOT / "results" / "compare"
LINEAR = ROOT / "results" / "linear"
COMMAND = "python -m benchmarks.choosing"
_REFUSED = "refused"
SIZES = (12, 24, 40, 100, 300, 1000)
# The families of `benchmarks.linear` that the page shows, with their headings and descriptions.
SHOWN = {
    "space-0.3": ("Dense", "Points in space and noisy copies of them with sigma .3."),
    "banded-3": (
        "Banded",
        "Normal scores times 2 for seven labels of each item.",
    ),
    "partial": (
        "Partial",
        "Points in space with sigma .2. A sixth of the items has no label, and 41 % of the labels "
        "have no item.",
    ),
    "cycle-5": ("Two modes", "Two matchings that differ in every item; one is 5 times as likely."),
}


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


def sizes_section(family: str, rows: list[dict[str, Any]]) -> str:
    """Return a family's heading, and a table with a line for each method and a column for each N.

    A cell has the mean error of a row, the verdict and the CPU seconds of a fresh process.
    """
    name, text = SHOWN[family]
    found: dict[str, dict[int, str]] = {}
    for row in rows:
        if row["part"] == "accuracy" and row["family"] == family and row["seed"] == "0":
            found.setdefault(row["method"], {})[int(row["n"])] = _cell(row)
    order = ["auto", *(info.name for info in pv.methods())]
    methods = [method for method in order if method in found]
    refused = [method for method in methods if set(found[method].values()) == {_REFUSED}]
    cells = [
        [
            "default" if method == "auto" else f"`{method}`",
            *(found[method].get(n, "") for n in SIZES),
        ]
        for method in methods
        if method not in refused
    ]
    lines = [f"### {name}", "", text, "", markdown_table(["method", *map(str, SIZES)], cells)]
    if refused:
        lines += ["", f"Refused by {', '.join(f'`{method}`' for method in refused)}."]
    return "\n".join(lines)


def _cell(row: dict[str, str]) -> str:
    verdict = row["verdict"]
    if verdict.startswith("failed"):
        return _REFUSED if "ValueError" in verdict else "failed"
    if verdict.startswith("over"):
        return verdict
    error = format_number(float(row["error"]), 4) if row["error"] else "?"
    return f"{error}, {verdict}, {float(row['cpu_s']):.0f} s"


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


def sizes_block(folder: Path = LINEAR) -> str:
    """Return the tables of all methods by size, from the rows of `benchmarks.linear`."""
    with (folder / "rows.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return "\n\n".join(sizes_section(family, rows) for family in SHOWN)


def rewritten(text: str, results: Path, size: str = "paper") -> str:
    """Return the page with its blocks rewritten from the results."""
    rows, seconds = read_rows(results), read_seconds(results)
    text = replace_block(text, "sizes", sizes_block())
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
    write_text(given.page, text)


if __name__ == "__main__":
    main()
