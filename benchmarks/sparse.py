"""Measure time, peak memory and error of marginals for many items with few candidates each.

Every case runs in a separate process, so that its peak memory is its own. The error is the mean
total variation of a row: against exact marginals if all blocks are small, and otherwise the error
that the fit itself reports.
"""

import functools
import json
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

import permvi as pv
from permvi import metrics

_UNMATCHED = {"row_unmatched": -1.0, "col_unmatched": -1.0}
# Targets with 5,000 items; TV is the mean total variation of a row.
_TARGETS = {"s": 60.0, "GiB": 4.0, "TV": 0.02}
_CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "random candidates, unmatched allowed": ("random", _UNMATCHED, {}),
    "random candidates, all matched": ("random", {}, {}),
    "blocks of 8 to 12, exact": ("blocks", _UNMATCHED, {}),
    "blocks of 8 to 12, sampled": ("blocks", _UNMATCHED, {"max_size": 0}),
}


def random_candidates(n: int, rng: np.random.Generator, degree: int = 10) -> np.ndarray:
    """Draw codes ``row * n + col`` of random pairs that contain a perfect matching."""
    rows, cols = np.repeat(np.arange(n), degree), rng.integers(n, size=n * degree)
    cols[::degree] = rng.permutation(n)
    return np.unique(rows * n + cols)


def blocks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Return the codes ``row * n + col`` of all pairs within blocks of 8 to 12 items."""
    parts, start = [], 0
    while start < n:
        members = np.arange(start, min(n, start + int(rng.integers(8, 13))))
        parts.append((members[:, None] * n + members).ravel())
        start += len(members)
    return np.concatenate(parts)


def measure(name: str, n: int, num_steps: int | None = None) -> dict[str, Any]:
    """Fit one case and return its seconds, peak memory and mean error."""
    kind, weights, options = _CASES[name]
    rng = np.random.default_rng(0)
    codes = (random_candidates if kind == "random" else blocks)(n, rng)
    scores = 2.0 * rng.normal(size=len(codes))
    model = pv.models.SparseMatching(codes // n, codes % n, scores, (n, n), **weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        start = time.perf_counter()
        posterior = pv.fit(model, "linear", num_steps=num_steps, **options)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    by_row = posterior.diagnostics.sampling_error_by_row
    if options:
        exact = pv.fit(model, "linear")
        by_row = metrics.total_variation_per_row(
            posterior.marginals, exact.marginals, posterior.p_unmatched_rows, exact.p_unmatched_rows
        )
    errors = np.zeros(n) if by_row is None else by_row
    return {
        "seconds": seconds,
        "peak": peak,
        "mean_error": float(errors.mean()),
    }


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Measure the seconds, memory and error of each case.

    Five times as many items should take five times as long. So the reference of the first row is
    five times the seconds of a fifth of the items. The references of the other rows are targets.
    """
    quickly = functools.partial(measure, num_steps=20_000)
    n, of_case = (250, quickly) if quick else (5000, _measure_apart)
    results = []
    for case in list(_CASES)[: 1 if quick else None]:
        small, found = of_case(case, n // 5), of_case(case, n)
        measured = [
            (f"beside 5 x {n // 5} items", found["seconds"], "s", 5 * small["seconds"]),
            ("seconds", found["seconds"], "s", _TARGETS["s"]),
            ("peak memory", found["peak"], "GiB", _TARGETS["GiB"]),
        ]
        if found["mean_error"] > 0:
            error = ("error of a row", found["mean_error"], "TV", _TARGETS["TV"])
            measured.append(error)
        results += [
            {
                "name": f"sparse, {n} items, {case}, {what}",
                "value": value,
                "unit": unit,
                "reference": reference,
                "ratio": reference / value,
                "device": "cpu",
            }
            for what, value, unit, reference in measured
        ]
    return results


def _measure_apart(case: str, n: int) -> dict[str, Any]:
    """Run `measure` in a separate process."""
    command = [sys.executable, "-m", "benchmarks.sparse", case, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        for row in rows(quick="--quick" in sys.argv):
            print(row)
