"""Samples of the rounding family early in the fit, with and without rounding, for Figure 4e."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi.experiments.celegans.methods import METHODS
from permvi.experiments.celegans.problems import draw
from permvi.experiments.celegans.settings import GRIDS
from permvi.experiments.runner import Row, Task
from permvi.inference.vi import VIOptions, run_vi
from permvi.problem.prepare import prepare

METHOD = "rounding_temperature_1"
STEPS = 20
"""As in the paper."""
NUM_SHOWN = 2
"""Samples in the figure."""
NUM_NEURONS = 30
"""Neighbours along the body, whose part of the matrices is shown."""

_DIGITS = 3


def tasks(size: str, method: str, seed: int) -> Iterator[Task]:
    """One task, with the method that it belongs to."""
    if method == METHOD:
        config = {"setting": GRIDS[size].convergence._replace(worms=1).public(), "repetition": 0}
        yield Task(
            f"{method}, samples after {STEPS} steps",
            {"part": "samples", "size": size, "seed": seed, **config},
        )


def run_task(config: Mapping[str, Any]) -> list[Row]:
    r"""Entries of samples :math:`\Psi`, of ``round(Psi)`` and of the average of the latter.

    Neurons are sorted by their positions, those of the worm and those of the connectome, and those
    in the middle of the head are shown. Entries that are not allowed are left out.
    """
    graph, worms, model = draw(config)
    task = prepare(model)
    options = VIOptions.dynamics().replace(
        **{**METHODS[config["size"]][METHOD].options, "num_steps": STEPS, "keep_relaxed": True},
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
