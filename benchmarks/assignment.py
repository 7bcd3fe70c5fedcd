"""Time batched assignment against a Python loop over SciPy's solver."""

from collections.abc import Callable

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.timing import side_by_side
from permvi import assignment

SIZES = [(20, 10_000), (100, 400)]
WANTED = {
    f"assignment N={n} batch={batch} host {kind} vs SciPy loop": ratio
    for (n, batch), ratio in zip(SIZES, (1.0, 1.5), strict=True)
    for kind in ("jit", "no jit")
}


def rows(*, quick: bool = False) -> list[dict[str, object]]:
    """Time the host backend, inside and outside ``jit``, and the loop, for each size."""
    rng = np.random.default_rng(0)
    solve = jax.jit(lambda scores: assignment.solve(scores, backend="host"))
    found: list[dict[str, object]] = []
    for n, batch in [(5, 20)] if quick else SIZES:
        scores = rng.normal(size=(batch, n, n)).astype(np.float32)
        on_device = jax.numpy.asarray(scores)
        candidates: dict[str, Callable[[], object]] = {
            "loop": lambda s=scores: [linear_sum_assignment(one, maximize=True)[1] for one in s],
            "jit": lambda s=on_device: solve(s),
            "no jit": lambda s=scores: assignment.solve(s, backend="host"),
        }
        seconds = side_by_side(candidates)
        found += [
            {
                "name": f"assignment N={n} batch={batch} host {kind} vs SciPy loop",
                "value": seconds[kind],
                "unit": "s",
                "reference": seconds["loop"],
                "ratio": seconds["loop"] / seconds[kind],
                "device": "cpu",
            }
            for kind in ("jit", "no jit")
        ]
    return found
