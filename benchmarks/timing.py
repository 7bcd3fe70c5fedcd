"""Fair timings: the candidates take turns, so that a busy machine slows all of them alike."""

import time
from collections.abc import Callable

import jax
import numpy as np

_CALLS_PER_TURN = 3


def side_by_side(candidates: dict[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """The median seconds of each candidate over ``repeats`` rounds, after one round to warm up.

    In each round every candidate is called three times and the fastest call counts: after another
    candidate has gone through much memory, the first calls pay for getting their own back, which
    is no property of either. What a candidate returns is waited for, so that JAX's asynchronous
    calls are timed to their end.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for candidate in candidates.values():
        jax.block_until_ready(candidate())
    for _ in range(repeats):
        for name, candidate in candidates.items():
            seconds[name].append(min(_call(candidate) for _ in range(_CALLS_PER_TURN)))
    return {name: float(np.median(times)) for name, times in seconds.items()}


def _call(candidate: Callable[[], object]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(candidate())
    return time.perf_counter() - start
