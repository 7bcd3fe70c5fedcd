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


@contextlib.contextmanager
def pool(num_tasks: int) -> Iterator[ThreadPoolExecutor]:
    """Open threads for this many tasks, at most one per core; one task leaves BLAS as it is."""
    num_threads = min(num_tasks, os.cpu_count() or 1)
    limited = _single_threaded_blas() if num_threads > 1 else contextlib.nullcontext()
    with limited, ThreadPoolExecutor(num_threads) as threads:
        yield threads


@contextlib.contextmanager
def _single_threaded_blas() -> Iterator[None]:
    """Limit BLAS in the whole process from the first entry to the last exit."""
    global _num_open, _limits
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
