"""Fair timings: the candidates take turns, so that a busy machine slows all of them alike."""

import time
from collections.abc import Callable

import jax
import numpy as np


def side_by_side(candidates: dict[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """The median seconds of each candidate over ``repeats`` rounds, after one round to warm up.

    What a candidate returns is waited for, so that JAX's asynchronous calls are timed to their end.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for candidate in candidates.values():
        jax.block_until_ready(candidate())
    for _ in range(repeats):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            jax.block_until_ready(candidate())
            seconds[name].append(time.perf_counter() - start)
    return {name: float(np.median(times)) for name, times in seconds.items()}
