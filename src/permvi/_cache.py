"""Compiled programmes on disk: what one process has compiled, the next one need not."""

import os
from os import PathLike
from pathlib import Path

from permvi._jax import jax, once_loaded

# The environment variable that names the folder; empty for no cache.
FOLDER = "PERMVI_CACHE"
# The names of files end like this: those of JAX, and those of `permvi._programmes`.
COMPILED, PROGRAMME = "-cache", "-programme"
# Where programmes are kept, None until `enable_cache` is called.
folder_in_use: Path | None = None
# Programmes that took less than this to compile, in seconds, are small.
_SMALL = 0.2


def enable_cache(folder: str | PathLike[str] | None = None, *, small: bool = False) -> Path:
    """Keep what JAX compiles in a folder, so that later processes start at once.

    The command line does this by itself. On a CPU later processes need not even trace the functions
    of permvi; those of your own they do. Code that is changed while it runs is not noticed. On an
    accelerator programmes that call back to Python, as those of "rounding" do, cannot be kept.

    Args:
        folder: The folder, which is made if need be. By default the one that the environment
            variable PERMVI_CACHE names, else "compiled" in the user's cache folder for permvi.
        small: Also keep small programmes, dozens of which are part of a fit and take a second or
            two together. Commands do. It is meant for processes with few fits: two with thousands
            of fits ended inside XLA, perhaps because they had no memory maps left.

    Returns:
        The folder.

    Raises:
        OSError: The folder cannot be made.
    """
    path = Path(folder or os.environ.get(FOLDER) or _default())
    path.mkdir(parents=True, exist_ok=True)

    global folder_in_use
    folder_in_use = path

    def configure() -> None:
        jax.config.update("jax_compilation_cache_dir", str(path))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0 if small else _SMALL)

    once_loaded(configure)
    return path


def is_wanted() -> bool:
    """Return whether the command line should keep what it compiles.

    It does not if PERMVI_CACHE is empty, or if the user has set up a cache of JAX.
    """
    return os.environ.get(FOLDER) != "" and "JAX_COMPILATION_CACHE_DIR" not in os.environ


def cached_files(folder: Path) -> list[Path]:
    """Return the files of a cache, and nothing else that may be there."""
    found = (path for ending in (COMPILED, PROGRAMME) for path in folder.glob(f"*{ending}"))
    return sorted(path for path in found if path.is_file())


def _default() -> Path:
    import pooch

    return Path(pooch.os_cache("permvi")) / "compiled"
