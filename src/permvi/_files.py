"""Files that are written whole or not at all."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary name beside ``path``, moved onto it when the block ends without an error.

    After an error the temporary file is removed and what was at ``path`` is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> Path:
    """Write ``value`` as indented JSON; NaN and infinity, which JSON lacks, are refused."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return path
