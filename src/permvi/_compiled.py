"""The one way to compile a function with numba; importing this module imports numba.

Modules of compiled functions are imported where they are first used, since numba takes its time. A
compiled function should call only compiled functions of its own module: numba's disk cache looks
at no other file to tell whether it is stale.
"""

from collections.abc import Callable
from typing import Any

import numba

# Sums may be reordered, which lets them use vector instructions; floating point is exact otherwise.
REORDERED_SUMS = frozenset({"reassoc", "contract"})


def compiled(*, fastmath: frozenset[str] | None = None) -> Callable[..., Any]:
    """Return a decorator that compiles a function and keeps the machine code on disk.

    The function runs without the interpreter's lock. Where neither the package's folder nor the
    user's cache can be written to, it is compiled anew in every process.

    Args:
        fastmath: LLVM's flags of what may be done to floating point, e.g. `REORDERED_SUMS`.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": set(fastmath) if fastmath else False}

    def compile_function(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(**options)(function)

    return compile_function
