"""Tables as text, for terminals, notebooks and spreadsheets."""

import csv
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

# How spreadsheets recognise a formula, after white space; the last four are full-width.
_FORMULA_SIGNS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return columns of text under a ruled header."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(lines)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table; cells are escaped."""
    lines = [
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in [("th", header), *(("td", row) for row in rows)]
    ]
    return f"<table>{''.join(lines)}</table>"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def inert(cell: Any) -> Any:
    """Return a cell that a spreadsheet shows and does not run; numbers are harmless."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(_FORMULA_SIGNS):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def csv_text(header: Sequence[Any], rows: Iterable[Sequence[Any]], separator: str = ",") -> str:
    """Return a table as the text of a CSV file."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return file.getvalue()
