"""Threads for independent work in NumPy, each with a single-threaded BLAS.

Otherwise the BLAS threads of several Python threads would wait for each other.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_lock = threading.Lock()
_num_open = 0
_limits: Any = None
# Whether the pools of a thread have one thread each.
_own = threading.local()


def num_cores() -> int:
    """Return the number of cores that the pools of this thread may use."""
    return 1 if getattr(_own, "one_core", False) else os.cpu_count() or 1


@contextlib.contextmanager
def pool(num_tasks: int) -> Iterator[ThreadPoolExecutor]:
    """Open threads for this many tasks, at most one per core; one task leaves BLAS as it is."""
    limited = single_threaded_blas() if num_tasks > 1 else contextlib.nullcontext()
    with limited, ThreadPoolExecutor(min(num_tasks, num_cores())) as threads:
        yield threads


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Give the pools that this thread opens one thread each: others use the other cores."""
    _own.one_core = True
    try:
        with single_threaded_blas():
            yield
    finally:
        _own.one_core = False


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit BLAS in the whole process from the first entry to the last exit.

    BLAS adds up in an order that depends on its threads. With one, a seed gives the same result on
    machines with any number of cores.
    """
    global _num_open, _limits
    # A BLAS that is loaded later would not be limited, and SciPy brings its own.
    import scipy.linalg  # noqa: F401

    # Imported here because it inspects all loaded libraries.
    from threadpoolctl import threadpool_limits

    with _lock:
        if _num_open == 0:
            _limits = threadpool_limits(1, user_api="blas")
        _num_open += 1
    try:
        yield
    finally:
        with _lock:
            _num_open -= 1
            if _num_open == 0:
                _limits.restore_original_limits()
