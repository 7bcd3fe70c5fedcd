"""Small tables for terminals and notebooks."""

from collections.abc import Sequence
from html import escape


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
