"""All benchmarks: each row is a measurement and its reference from the same run.

A module of this folder with a function ``rows()`` is a group of benchmarks; it is listed in
``GROUPS``. If the function takes ``quick``, tiny sizes come with it. The optional ``WANTED`` of a
module says which ratio a row should reach.

``ratio`` is ``reference / value``: how many times better permvi is, so larger is better everywhere.
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
    """The rows of one group, or of all of them.

    Args:
        only: Name of the group.
        quick: Tiny sizes where a group has them, to see that everything runs.
        report: Called with the name of the group, how many are done and how many there are.
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
    """The least ratio wanted of a row, by its name."""
    targets: dict[str, float] = {}
    for group in GROUPS:
        targets |= getattr(importlib.import_module(f"benchmarks.{group}"), "WANTED", {})
    return targets


def machine() -> str:
    """What the numbers were measured on."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("permvi", "jax", "numpy", "numba"))
    return f"{os.cpu_count()} cores, {platform.platform()}, {platform.python_version()}, {packages}"
