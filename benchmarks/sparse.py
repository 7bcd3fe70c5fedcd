"""Marginals of thousands of items with few candidates each: seconds, peak memory and error.

``python -m benchmarks.sparse`` runs every case in a process of its own, so that peaks are its own.
Errors are mean and largest total variation of a row, against exact marginals where all blocks are
small, and else those that the fit states of itself.
"""

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
# What is asked for, in seconds and GiB, with 5,000 items.
_TARGETS = {"s": 60.0, "GiB": 4.0}
_CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "random candidates, unmatched allowed": ("random", _UNMATCHED, {}),
    "random candidates, all matched": ("random", {}, {}),
    "blocks of 8 to 12, exact": ("blocks", _UNMATCHED, {}),
    "blocks of 8 to 12, sampled": ("blocks", _UNMATCHED, {"max_size": 0}),
}


def random_candidates(n: int, rng: np.random.Generator, degree: int = 10) -> np.ndarray:
    """Codes ``row * n + col`` of random pairs, a perfect matching among them."""
    rows, cols = np.repeat(np.arange(n), degree), rng.integers(n, size=n * degree)
    cols[::degree] = rng.permutation(n)
    return np.unique(rows * n + cols)


def blocks(n: int, rng: np.random.Generator) -> np.ndarray:
    """Codes of all pairs within blocks of 8 to 12 items."""
    parts, start = [], 0
    while start < n:
        members = np.arange(start, min(n, start + int(rng.integers(8, 13))))
        parts.append((members[:, None] * n + members).ravel())
        start += len(members)
    return np.concatenate(parts)


def measure(name: str, n: int) -> dict[str, Any]:
    """Fit one case and say what it took."""
    kind, weights, options = _CASES[name]
    rng = np.random.default_rng(0)
    codes = (random_candidates if kind == "random" else blocks)(n, rng)
    scores = 2.0 * rng.normal(size=len(codes))
    model = pv.models.SparseMatching(codes // n, codes % n, scores, (n, n), **weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        start = time.perf_counter()
        posterior = pv.fit(model, "sparse" if options else "auto", **options)
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    by_row = posterior.diagnostics.sampling_error_by_row
    if options:
        exact = pv.fit(model, "sparse")
        by_row = metrics.total_variation_per_row(
            posterior.marginals, exact.marginals, posterior.p_unmatched_rows, exact.p_unmatched_rows
        )
    errors = np.zeros(n) if by_row is None else by_row
    return {
        "seconds": seconds,
        "peak": peak,
        "method": posterior.method,
        "verdict": posterior.diagnostics.verdict,
        "mean_error": float(errors.mean()),
        "largest_error": float(errors.max()),
    }


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Two objects for each case, its seconds and its peak memory, with the error in the name."""
    n = 500 if quick else 5000
    results = []
    for name in _CASES:
        command = [sys.executable, "-m", "benchmarks.sparse", name, str(n)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        error = f"error {found['mean_error']:.2g} ({found['largest_error']:.2g})"
        for value, unit in ((found["seconds"], "s"), (found["peak"], "GiB")):
            results.append(
                {
                    "name": f"{n} items, {name}, {found['method']}, {found['verdict']}, {error}",
                    "value": value,
                    "unit": unit,
                    "reference": _TARGETS[unit],
                    "ratio": _TARGETS[unit] / value,
                    "device": "cpu",
                }
            )
    return results


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        for row in rows(quick="--quick" in sys.argv):
            print(row)
