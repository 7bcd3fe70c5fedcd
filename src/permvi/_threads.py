"""Threads for independent work in NumPy, each with a BLAS that starts no threads of its own.

BLAS threads of several Python threads would wait for each other.
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
    """Threads for so many tasks, no more than there are cores; one task leaves BLAS as it is."""
    num_threads = min(num_tasks, os.cpu_count() or 1)
    limited = _single_threaded_blas() if num_threads > 1 else contextlib.nullcontext()
    with limited, ThreadPoolExecutor(num_threads) as threads:
        yield threads


@contextlib.contextmanager
def _single_threaded_blas() -> Iterator[None]:
    """The limit is that of the process: who comes first sets it, who goes last takes it back."""
    global _num_open, _limits
    # Only now: it looks at all libraries that are loaded.
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
