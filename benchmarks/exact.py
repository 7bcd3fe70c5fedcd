"""Time exact evidence and marginals of dense N x N problems, compiled and in NumPy."""

import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from permvi.inference.exact import solve_exact


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Time permvi and plain NumPy; ``ratio`` is how many times longer NumPy takes."""
    solve_exact(np.zeros((8, 8)), method="dp")
    rng = np.random.default_rng(0)
    results = []
    for size in (6,) if quick else (16, 20):
        scores = 2.0 * rng.normal(size=(size, size))
        seconds, result = _best_time(lambda s=scores: solve_exact(s, method="dp"), repeats=3)
        reference, (log_evidence, marginals) = _best_time(
            lambda s=scores: numpy_subset_dp(s), repeats=3
        )
        np.testing.assert_allclose(result.log_evidence, log_evidence, rtol=1e-9)
        np.testing.assert_allclose(result.marginals, marginals, atol=1e-9)
        results.append(
            {
                "name": f"exact subset DP, N={size}",
                "value": seconds,
                "unit": "s",
                "reference": reference,
                "ratio": reference / seconds,
                "device": f"cpu ({platform.machine()})",
            }
        )
    return results


def numpy_subset_dp(scores: np.ndarray) -> tuple[float, np.ndarray]:
    """Return log evidence and (n, n) marginals by the subset recursion, in NumPy operations."""
    n = len(scores)
    shifts = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - shifts)
    sets = np.arange(1 << n)
    layers = [sets[np.bitwise_count(sets) == t] for t in range(n + 1)]
    forward, backward = np.zeros(1 << n), np.zeros(1 << n)
    forward[0] = backward[-1] = 1.0
    for t in reversed(range(n)):
        for j in range(n):
            free = layers[t][layers[t] >> j & 1 == 0]
            backward[free] += weights[t, j] * backward[free | 1 << j]
    marginals = np.zeros((n, n))
    for t in range(n):
        for j in range(n):
            free = layers[t][layers[t] >> j & 1 == 0]
            flow = weights[t, j] * forward[free]
            forward[free | 1 << j] += flow
            marginals[t, j] = flow @ backward[free | 1 << j]
    return float(np.log(backward[0]) + shifts.sum()), marginals / backward[0]


def _best_time(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return min(times), result


if __name__ == "__main__":
    for row in rows():
        print(row)
