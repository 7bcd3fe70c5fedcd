"""``permvi cache``: the folder of compiled programmes."""

import contextlib
import sys
from typing import Annotated

import typer

from permvi._cache import COMPILED, cached_files, enable_cache


def cache(
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Delete the compiled programmes.")] = False,
) -> None:
    """Show or clear the folder of compiled programmes.

    Commands keep there what they have compiled, so that the next run starts at once. The
    environment variable PERMVI_CACHE names another folder; if it is empty, nothing is kept.
    """
    folder = enable_cache()
    files = cached_files(folder)
    size = sum(path.stat().st_size for path in files) / 1e6
    if clear:
        for path in files:
            # Beside a programme JAX notes when it was last used.
            access = path.with_name(path.name.removesuffix(COMPILED) + "-atime")
            for each in (path, access):
                with contextlib.suppress(FileNotFoundError):
                    each.unlink()
    done = "deleted " if clear else ""
    sys.stdout.write(f"{folder}: {done}{len(files)} compiled programmes, {size:.1f} MB\n")
