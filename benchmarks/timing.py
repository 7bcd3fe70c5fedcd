"""Fair timings: candidates take turns, so that a busy machine slows all of them alike."""

import time
from collections.abc import Callable

import jax
import numpy as np

_CALLS_PER_TURN = 3


def side_by_side(candidates: dict[str, Callable[[], object]], repeats: int = 7) -> dict[str, float]:
    """Return the median seconds of each candidate over ``repeats`` rounds, after a warm-up round.

    In each round every candidate is called three times and the fastest call counts: the first
    calls after another candidate has used much memory pay for refilling the caches. Each call is
    timed until its results are ready, since JAX's calls are asynchronous.
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
