"""The tasks of the worm study, and their rows.

The ``part`` of a task is one of these:

* "fit", a single fit. A row of part "fit" has its accuracy and verdict. For one worm, rows of part
  "confidence" count how often the likeliest name was right and wrong, by its probability.
* "convergence", a fit with a smaller budget, for Figures 4a and 4d. Its time is that of the fit
  alone, so methods that JAX compiles are fitted twice.
* "samples", samples of the rounding family early in the fit, with and without rounding, for
  Figure 4e.
"""

import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import permvi as pv
from permvi.experiments.celegans import scoring
from permvi.experiments.celegans.problems import draw
from permvi.experiments.celegans.settings import GRIDS, METHODS, OURS, Grid, Setting
from permvi.experiments.runner import Row, Task
from permvi.inference.vi import VIOptions, run_vi
from permvi.models import SharedDynamics
from permvi.posterior import Posterior
from permvi.problem.prepare import prepare

SAMPLE_STEPS = 20
"""Steps before the samples of Figure 4e, as in the paper."""
NUM_SHOWN = 2
"""Samples in the figure."""
NUM_NEURONS = 30
"""Neurons in the figure, neighbours along the body."""

_SAMPLED = "rounding_temperature_1"
_DIGITS = 3


def tasks(size: str, seed: int) -> list[Task]:
    """Return quick methods first; the tasks of a method by shape, so that each compiles once."""
    return [
        Task(name, {"part": part, "size": size, "seed": seed, **config})
        for method in METHODS[size]
        for part, planned in (("fit", _fits), ("convergence", _budgets), ("samples", _samples))
        for name, config in planned(size, method)
    ]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """Return the rows of a task."""
    del scratch
    parts = {"fit": _run_fit, "convergence": _run_convergence, "samples": _run_samples}
    return parts[config["part"]](config)


def fit(model: SharedDynamics, config: Mapping[str, Any], **options: Any) -> Posterior:
    """Fit a model by the method of a task. The verdict goes into the rows, not into a warning."""
    method = METHODS[config["size"]][config["method"]]
    # Every simulation has its own random numbers.
    seed = np.random.default_rng([config["seed"], config["repetition"]]).integers(2**32)
    with warnings.catch_warnings(action="ignore", category=pv.FitWarning):
        return pv.fit(model, method.name, int(seed), **{**method.options, **options})


_Planned = Iterator[tuple[str, dict[str, Any]]]


def _fits(size: str, method: str) -> _Planned:
    wanted = _repetitions(GRIDS[size], method)
    for setting in sorted(wanted, key=lambda each: (each.worms, each.known)):
        for repetition in range(wanted[setting]):
            config = {"method": method, "setting": setting.public(), "repetition": repetition}
            yield f"{method}, {setting}, simulation {repetition + 1}", config


def _repetitions(grid: Grid, method: str) -> dict[Setting, int]:
    """Return the number of simulations of each setting of a method."""
    paper = [*grid.candidates, *grid.known]
    if method != OURS:
        return dict.fromkeys(paper, grid.repetitions)
    many = dict.fromkeys([*paper, *grid.further], grid.more_repetitions)
    return many | dict.fromkeys(grid.hard, grid.repetitions)


def _run_fit(config: Mapping[str, Any]) -> list[Row]:
    setting = Setting.of(config["setting"])
    _, worms, model = draw(config)
    posterior = fit(model, config)
    common = {"method": config["method"], **setting._asdict(), "repetition": config["repetition"]}
    measured: Row = {
        "part": "fit",
        **common,
        **scoring.accuracies(posterior, worms),
        "verdict": posterior.diagnostics.verdict,
        "evaluations": posterior.num_evaluations,
    }
    levels = scoring.confidences(posterior, worms) if setting.worms == 1 else []
    return [measured, *({"part": "confidence", **common, **level} for level in levels)]


def _budgets(size: str, method: str) -> _Planned:
    """Plan fits from the smallest budget to the largest, on one simulation."""
    found, setting = METHODS[size][method], GRIDS[size].convergence
    for steps in found.checkpoints:
        config = {"method": method, "setting": setting.public(), "repetition": 0, "steps": steps}
        yield f"{method}, convergence, {found.budget} {steps}", config


def _run_convergence(config: Mapping[str, Any]) -> list[Row]:
    _, worms, model = draw(config)
    method = METHODS[config["size"]][config["method"]]
    budget = {method.budget: config["steps"]}
    if method.compiled:
        fit(model, config, **budget)
    start = time.perf_counter()
    posterior = fit(model, config, **budget)
    seconds = time.perf_counter() - start
    return [
        {
            "part": "convergence",
            "method": config["method"],
            "steps": config["steps"],
            "fit_seconds": seconds,
            "accuracy": scoring.accuracies(posterior, worms)["accuracy"],
            "variance": scoring.variance(posterior),
            **scoring.fit_of_dynamics(posterior, model, worms),
        }
    ]


def _samples(size: str, method: str) -> _Planned:
    if method == _SAMPLED:
        setting = GRIDS[size].convergence._replace(worms=1)
        config = {"setting": setting.public(), "repetition": 0}
        yield f"{method}, samples after {SAMPLE_STEPS} steps", config


def _run_samples(config: Mapping[str, Any]) -> list[Row]:
    r"""Return entries of samples :math:`\Psi`, of ``round(Psi)`` and of the average of the latter.

    Neurons of the worm and of the connectome are sorted by position, and neurons in the middle of
    the head are shown. Entries that are not allowed are left out.
    """
    graph, worms, model = draw(config)
    task = prepare(model)
    options = VIOptions.dynamics().replace(
        **{
            **METHODS[config["size"]][_SAMPLED].options,
            "num_steps": SAMPLE_STEPS,
            "keep_relaxed": True,
        }
    )
    result = run_vi(task.problem, jax.random.key(config["seed"]), "rounding", options)
    relaxed = jnp.asarray(result.relaxed_draws)
    psi = np.asarray(relaxed if task.reduction is None else task.reduction.embed(relaxed))
    rounded = task.restore(result.draws)[..., None] == np.arange(model.shape[1])
    first = max(0, len(graph.positions) // 3 - NUM_NEURONS // 2)
    rows, columns = (
        np.argsort(positions, kind="stable")[first : first + NUM_NEURONS]
        for positions in (worms.positions[0], graph.positions)
    )
    shown = {f"psi_{k}": psi[k] for k in range(NUM_SHOWN)}
    shown |= {f"rounded_{k}": rounded[k].astype(float) for k in range(NUM_SHOWN)}
    shown["mean"] = rounded.mean(axis=0)
    return [
        {
            "part": "samples",
            "row": row,
            "column": column,
            **{name: round(float(matrix[i, j]), _DIGITS) for name, matrix in shown.items()},
        }
        for row, i in enumerate(rows)
        for column, j in enumerate(columns)
        if any(matrix[i, j] != 0 for matrix in shown.values())
    ]
