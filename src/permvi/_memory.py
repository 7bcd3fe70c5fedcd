"""Memory that is asked for before it is taken: what is free, and whether a fit needs more."""

import os
from pathlib import Path

_GB = 1e9
# Containers may have less than the machine, by version 2 or 1 of control groups.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def available() -> float:
    """Return how many bytes are free, in the container if there is one; inf if nobody knows."""
    free = [limit - used for limit, used in map(_of_group, _LIMITS)]
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":") for line in lines)
        free.append(1024.0 * int(sizes["MemAvailable"].split()[0]))
    except (OSError, ValueError, KeyError):
        free.append(_of_machine())
    return min(free)


def check(what: str, needed: float, advice: str) -> None:
    """Raise ``ValueError`` if more bytes are needed than are free.

    Args:
        what: Who needs them, e.g. "method 'rounding'".
        needed: The estimate, in bytes.
        advice: What to try instead.
    """
    free = available()
    if needed > free:
        raise ValueError(
            f"{what} needs about {needed / _GB:.3g} GB of memory, and {free / _GB:.3g} GB are "
            f"free; {advice}."
        )


def maps_used() -> float:
    """Return the share of the memory maps that Linux gives a process; 0 elsewhere."""
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
        return Path("/proc/self/maps").read_bytes().count(b"\n") / most
    except (OSError, ValueError):
        return 0.0


def _of_group(files: tuple[str, str]) -> tuple[float, float]:
    """Return the limit of a control group and what it uses, inf and 0 if there is no limit."""
    try:
        limit, used = (Path(file).read_text(encoding="ascii").strip() for file in files)
        return float("inf" if limit == "max" else limit), float(used)
    except (OSError, ValueError):
        return float("inf"), 0.0


def _of_machine() -> float:
    """Return all of the machine's memory, on systems that tell no more."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return float("inf")
