"""The report as one HTML file."""

import base64
import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from html import escape
from importlib import resources
from os import PathLike
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from permvi._files import check_target, write_text
from permvi._version import __version__
from permvi.report import content, matchings, sections
from permvi.report.words import CERTAIN

if TYPE_CHECKING:
    from permvi.posterior import Posterior

# Concatenated into one module, in this order.
_SCRIPTS = (
    "data.js", "table.js", "colours.js", "heatmap.js", "cursor.js", "save.js", "report.js",
)  # fmt: skip
_STYLE = "report.css"
_PAGE = "template.html"
_PLAIN = "plain.html"


def write(
    posterior: "Posterior",
    path: str | PathLike[str],
    *,
    title: str | None = None,
    level: float = 0.95,
) -> Path:
    """Write a report of a posterior; no incomplete file is ever left.

    Args:
        posterior: The posterior to show.
        path: The HTML file; an existing one is replaced.
        title: The heading; by default the numbers of items and labels.
        level: Level of the credible sets.

    Returns:
        The path.

    Raises:
        ValueError: ``path`` is a folder, or ``level`` is not in (0, 1].
        FileNotFoundError: The folder of ``path`` does not exist.
    """
    # Before the work is done.
    target = check_target(Path(path))
    text = render(posterior, title=title, level=level, written=datetime.now().astimezone())
    return write_text(target, text)


def render(
    posterior: "Posterior",
    *,
    title: str | None = None,
    level: float = 0.95,
    written: datetime | None = None,
) -> str:
    """Return the report as text; the same arguments give the same text.

    Args:
        posterior: The posterior to show.
        title: The heading; by default the numbers of items and labels.
        level: Level of the credible sets.
        written: The time that the head of the page shows.
    """
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    choice = posterior.expected_loss("hamming")
    return Template(_asset(_PAGE)).substitute(
        policy=_policy(script),
        version=__version__,
        title=escape(sections.title(posterior) if title is None else title),
        style=_asset(_STYLE),
        certain=f"{CERTAIN:.0%}",
        lead=sections.lead(posterior, choice.expected_loss),
        source=sections.source(posterior.settings, posterior.method, written),
        verdict=sections.verdict(posterior),
        certainty=sections.certainty(posterior),
        matchings=matchings.section(posterior),
        diagnostics=sections.diagnostics(posterior),
        latents=sections.latents(posterior),
        settings=sections.settings(posterior),
        data=script_json(content.tables(posterior, choice.perm, level)),
        script=script,
    )


def render_plain(title: str, lead: str, verdict: str, body: Iterable[str], source: str = "") -> str:
    """Return a page without scripts of parts that are HTML already, but for the title."""
    return Template(_asset(_PLAIN)).substitute(
        policy=_policy(None),
        version=__version__,
        title=escape(title),
        style=_asset(_STYLE),
        lead=lead,
        source=source,
        verdict=verdict,
        body="\n".join(body),
    )


def script_json(value: Any) -> str:
    """Return JSON that is safe inside HTML: ``<``, ``>`` and ``&`` are escaped in strings."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _asset(name: str) -> str:
    """The text of a file of the page."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str | None) -> str:
    """The content security policy: the browser runs this script, if any, and loads nothing."""
    runs = ""
    if script is not None:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        runs = f"script-src 'sha256-{digest}'; "
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; {runs}"
        "base-uri 'none'; form-action 'none'"
    )
