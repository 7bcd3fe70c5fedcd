"""MkDocs hook that converts formulas to MathML, which browsers show without scripts."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What Markdown makes of Sphinx's math role and directive in a docstring, and pymdownx of dollars on
# a page.
_INLINE = (
    re.compile(r":math:<code>(.*?)</code>", re.DOTALL),
    re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL),
)
_DISPLAY = (
    re.compile(
        r"<p>\.\. math::\s*(.*?)</p>(?:\s*<div class=\"highlight\"><pre>(.*?)</pre></div>)?",
        re.DOTALL,
    ),
    re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL),
)
_TAGS = re.compile(r"<[^>]+>")


def _formula(found: re.Match[str], display: str) -> str:
    source = " ".join(part or "" for part in found.groups())
    return convert(html.unescape(_TAGS.sub("", source)).strip(), display=display)


def on_page_content(content: str, **_: Any) -> str:
    """Convert all formulas in the HTML of a page."""
    for pattern in _INLINE:
        content = pattern.sub(lambda found: _formula(found, "inline"), content)
    for pattern in _DISPLAY:
        content = pattern.sub(lambda found: _formula(found, "block"), content)
    return content
