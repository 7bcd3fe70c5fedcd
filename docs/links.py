"""MkDocs hook that turns links from notebooks to other pages into links of the website.

MkDocs does so for Markdown pages only. A link to a page that there is not ends the build.
"""

import posixpath
import re
from typing import Any

from mkdocs.exceptions import PluginError

_LINK = re.compile(r'href="([^":#]+\.(?:md|py))(#[^"]*)?"')


def on_page_content(content: str, page: Any, files: Any, **_: Any) -> str:
    """Convert the links of a notebook."""
    if not page.file.src_uri.startswith("notebooks/"):
        return content
    folder = posixpath.dirname(page.file.src_uri)

    def converted(found: re.Match[str]) -> str:
        target = files.get_file_from_path(posixpath.normpath(posixpath.join(folder, found[1])))
        if target is None:
            raise PluginError(f"{page.file.src_uri} links to {found[1]}, which is no page.")
        return f'href="{target.url_relative_to(page.file)}{found[2] or ""}"'

    return _LINK.sub(converted, content)
