"""Run all benchmarks: each row is a measurement and its reference from the same run.

Each group in ``GROUPS`` is a module of this folder with a function ``rows()``. If that function
takes ``quick``, it can run with tiny sizes. The optional ``WANTED`` of a module gives the ratio
that a row should reach.

``ratio`` is ``reference / value``: how many times better permvi is, so larger is always better.
"""

import importlib
import inspect
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from permvi._checks import one_of

GROUPS = ("stick_breaking", "assignment", "exact", "sparse", "qaplib", "imports")


def run(
    only: str | None = None,
    quick: bool = False,
    report: Callable[[str, int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Run one group or all of them, and return their rows.

    Args:
        only: Name of the group.
        quick: Use tiny sizes where a group has them, to check that everything runs.
        report: Called with the name of the group, the number done and the total number.
    """
    groups = GROUPS if only is None else (one_of("only", only, GROUPS),)
    rows: list[dict[str, Any]] = []
    for index, group in enumerate(groups):
        if report is not None:
            report(group, index, len(groups))
        function = importlib.import_module(f"benchmarks.{group}").rows
        has_quick = "quick" in inspect.signature(function).parameters
        rows += function(quick=quick) if has_quick else function()
    return rows


def wanted() -> dict[str, float]:
    """Return the smallest ratio that a row should reach, by its name."""
    targets: dict[str, float] = {}
    for group in GROUPS:
        targets |= getattr(importlib.import_module(f"benchmarks.{group}"), "WANTED", {})
    return targets


def machine() -> str:
    """Describe the machine and the versions of the packages."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("permvi", "jax", "numpy", "numba"))
    return f"{os.cpu_count()} cores, {platform.platform()}, {platform.python_version()}, {packages}"
