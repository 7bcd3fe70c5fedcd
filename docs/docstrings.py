"""MkDocs hook that converts the roles, tables and footnotes of docstrings to HTML.

Docstrings use Sphinx's roles and simple tables, which Markdown leaves unconverted; `mathml`
converts their formulas.
"""

import re
from typing import Any

_ROLE = re.compile(r":(?:func|class|meth|attr|mod|data):<code>([^<]+)</code>")
_TABLE = re.compile(r"<p>(={2,}(?: +={2,})+)\n(.*?)\n={2,}(?: +={2,})+</p>", re.DOTALL)
_BORDER = re.compile(r"\n={2,}(?: +={2,})+\n")
_FOOTNOTE = re.compile(r"<p>\.\. \[(\d)\] ")
_MARK = re.compile(r" \[(\d)\]_")


def _name(found: re.Match[str]) -> str:
    """Return the name that a role refers to; after a tilde, only its last part."""
    path = found[1]
    return f"<code>{path.rpartition('.')[2] if path.startswith('~') else path}</code>"


def _cells(text: str, num: int) -> list[list[str]]:
    """Return the rows of a simple table; an indented line continues the last cell."""
    rows: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith("  ") and rows:
            rows[-1][-1] += " " + line.strip()
        else:
            cells = re.split(r"\s{2,}", line.strip(), maxsplit=num - 1)
            rows.append(cells + [""] * (num - len(cells)))
    return rows


def _table(found: re.Match[str]) -> str:
    num = len(found[1].split())
    *head, body = _BORDER.split(found[2])

    def rendered(part: str, tag: str) -> str:
        return "".join(
            "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in row) + "</tr>"
            for row in _cells(part, num)
        )

    heading = f"<thead>{rendered(head[0], 'th')}</thead>" if head else ""
    return f"<table>{heading}<tbody>{rendered(body, 'td')}</tbody></table>"


def on_page_content(content: str, **_: Any) -> str:
    """Convert the remaining docstring markup in the HTML of a page."""
    content = _TABLE.sub(_table, _ROLE.sub(_name, content))
    content = _FOOTNOTE.sub(r"<p><sup>\1</sup> ", content)
    return _MARK.sub(r"<sup>\1</sup>", content)
