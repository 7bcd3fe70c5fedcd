"""What a method has after a part of its work, for Figures 4a and 4d.

A task is a fit with a smaller budget. Its time is that of the fit alone: what has to be compiled is
fitted twice.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from permvi.experiments.celegans import scoring
from permvi.experiments.celegans.methods import METHODS, fit
from permvi.experiments.celegans.problems import draw
from permvi.experiments.celegans.settings import GRIDS
from permvi.experiments.runner import Row, Task


def tasks(size: str, method: str, seed: int) -> Iterator[Task]:
    """From the smallest budget to the largest, on one simulation."""
    found, setting = METHODS[size][method], GRIDS[size].convergence
    for steps in found.checkpoints:
        config = {"method": method, "setting": setting.public(), "repetition": 0, "steps": steps}
        yield Task(
            f"{method}, convergence, {found.budget} {steps}",
            {"part": "convergence", "size": size, "seed": seed, **config},
        )


def run_task(config: Mapping[str, Any]) -> list[Row]:
    """One row."""
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
