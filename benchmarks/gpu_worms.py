"""Time fits of worms on an accelerator: ``python -m benchmarks.gpu_worms [--quick] [--out FILE]``.

Times ten five-worm fits by softassign in one batch, and rounding VI of five worms, after
compilation. Prints rows as ``permvi bench`` does: ``reference`` is the target time on an H200 and
``ratio`` is ``reference / value``. The connectome is read from the folder that ``PERMVI_DATA``
names.
"""

import argparse
import functools
import importlib.util
import json
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

import permvi as pv
from permvi._assignment import host
from permvi.datasets import celegans
from permvi.experiments._worms import ROUNDING, ROUNDING_ONE, Worms, candidates, simulate_worms
from permvi.inference.collapsed import Scales, SharedRegression, SoftassignOptions
from permvi.inference.dynamics import softassign
from permvi.models import SharedDynamics

_TOLERANCE = 0.05
_VI_STEPS = 2000
_COMPILED = importlib.util.find_spec("numba") is not None
_WANTED = {
    "softassign, steps": 0.5,
    "softassign, whole fits": 0.5,
    "rounding, temperature 1": 4.0,
    "rounding, temperature 0.5": 8.0,
}


def _solve_with_scipy(
    scores: np.ndarray, mask: np.ndarray | None, sign: float, perm: np.ndarray, status: np.ndarray
) -> None:
    """Solve square problems with SciPy in threads, in place of the compiled solver."""

    def solve(b: int) -> None:
        cost = sign * scores[b].astype(np.float64)
        if mask is not None:
            cost = np.where(mask[min(b, len(mask) - 1)], cost, np.inf)
        perm[b], status[b] = linear_sum_assignment(cost)[1], host.SOLVED

    with ThreadPoolExecutor() as pool:
        list(pool.map(solve, range(len(scores))))


class _Case(NamedTuple):
    worms: Worms
    model: SharedDynamics


def _cases(num: int, size: int | None, num_steps: int) -> list[_Case]:
    """Simulate groups of five worms with ``size`` neurons of the connectome, or all of them."""
    network = celegans()
    graph, positions = network.adjacency[:size, :size], network.positions[:size]
    found = []
    for seed in range(num):
        worms = simulate_worms(
            graph,
            positions,
            np.random.default_rng(seed),
            num_worms=5,
            num_steps=num_steps,
            num_known=25 * len(graph) // 279,
        )
        mask = candidates(worms.positions, positions, _TOLERANCE)
        model = SharedDynamics(list(worms.recordings), graph, mask=mask, known=worms.known)
        found.append(_Case(worms, model))
    return found


def _timed(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median seconds of a call after one that compiles, and the last result."""
    found = jax.block_until_ready(function())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = jax.block_until_ready(function())
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), found


def _steps(cases: list[_Case]) -> Callable[[], Any]:
    """Return a function that runs the compiled steps alone, on arrays already on the device."""
    parts = []
    for case in cases:
        given = case.model.shared_regression()
        names = SharedRegression.__dataclass_fields__
        problem = SharedRegression(**{name: given[name] for name in names})
        scales = Scales(given["weight_scale"] ** 2, given["noise_scale"] ** 2)
        parts.append(softassign.soft_problem(problem, scales))
    batch = jax.device_put(
        softassign.SoftProblem(*(np.stack(arrays) for arrays in zip(*parts, strict=True)))
    )
    options = SoftassignOptions()
    return lambda: softassign.iterate(
        batch, options.temperature, num_steps=options.num_steps, complete=True
    )


def rows(*, quick: bool = False) -> list[dict[str, Any]]:
    """Run all measurements; ``quick`` uses 40 neurons and few steps, to check that all run."""
    size, num_steps, repeats = (40, 100, 1) if quick else (None, 1000, 5)
    cases = _cases(2 if quick else 10, size, num_steps)
    models = [case.model for case in cases]
    measured = []

    def add(name: str, function: Callable[[], Any], calls: int) -> Any:
        seconds, found = _timed(function, calls)
        measured.append((name, seconds))
        return found

    add("softassign, steps", _steps(cases), repeats)
    fits = add(
        "softassign, whole fits",
        lambda: pv.fit_many(models, "collapsed", search="softassign"),
        repeats,
    )
    accuracy = np.mean(
        [(fit.mode == case.worms.truth).mean() for fit, case in zip(fits, cases, strict=True)]
    )
    for name, options in (
        ("rounding, temperature 1", ROUNDING_ONE),
        ("rounding, temperature 0.5", ROUNDING),
    ):
        chosen = {**options, "num_steps": 100 if quick else _VI_STEPS}
        add(name, functools.partial(pv.fit, models[0], "rounding", **chosen), 1)
    device = jax.devices()[0].device_kind
    if not _COMPILED:
        device += ", no numba"
    found = [
        {
            "name": name,
            "value": seconds,
            "unit": "s",
            "reference": _WANTED[name],
            "ratio": _WANTED[name] / seconds,
            "device": device,
        }
        for name, seconds in measured
    ]
    return [
        *found,
        {
            "name": "softassign, accuracy",
            "value": float(accuracy),
            "unit": "share",
            "reference": None,
            "ratio": None,
            "device": device,
        },
    ]


def main() -> None:
    """Run the measurements, print them, and write them to ``--out`` if given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", pv.FitWarning)
    if not _COMPILED:
        host._solve_compiled = _solve_with_scipy
    text = json.dumps(rows(quick=arguments.quick), indent=2)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
