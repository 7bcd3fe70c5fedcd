"""Write files whole or not at all.

Every file of permvi is made in memory and then goes through `write_bytes`, so that no library
meets a full disk in the middle of its own format.
"""

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

# The name of standard input and output in place of a file.
STANDARD = Path("-")


def write_bytes(path: Path, content: bytes | memoryview) -> Path:
    """Write a file under a temporary name, sync it and rename it to ``path``.

    At any moment ``path`` is the old file or the new one, also if the disk is full or the process
    is killed. After an error the temporary file is removed; only a kill leaves it behind. The
    content may be no view of a ``BytesIO``: an error would hold both, and Python up to 3.12.1
    crashes when it collects them.

    Raises:
        ValueError: ``path`` is a folder.
        FileNotFoundError: The folder of ``path`` does not exist.
        OSError: The file cannot be written; the message says why, and ``errno`` is set.
    """
    check_target(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            # Without this, a power cut could leave the new name with an empty file.
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        failure = type(error)(f"{path} cannot be written: {reason}; nothing was changed.")
        failure.errno = error.errno
        raise failure from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return path


def check_target(path: Path) -> Path:
    """Return a path that can be that of a file; raise an error for others."""
    if path.is_dir():
        raise ValueError(f"path must be a file, got the folder {path}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path must lie in an existing folder, got {path}.")
    return path


def write_text(path: Path, text: str) -> Path:
    """Write text in UTF-8, with line ends as they are; ``-`` is standard output."""
    if path == STANDARD:
        sys.stdout.write(text)
        return path
    return write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> Path:
    """Write ``value`` as indented JSON; refuse NaN and infinity, which JSON lacks."""
    return write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut, on systems that can open folders."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
