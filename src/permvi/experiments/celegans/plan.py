"""The tasks, one fit each, and their rows.

Rows of part "fit" have the accuracy of a fit and its verdict, rows of part "confidence" how often
the likeliest name was right and wrong, by its probability. `convergence` has the others.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from permvi.experiments.celegans import convergence, samples, scoring
from permvi.experiments.celegans.methods import METHODS, OURS, fit
from permvi.experiments.celegans.problems import draw
from permvi.experiments.celegans.settings import GRIDS, Grid, Setting
from permvi.experiments.runner import Row, Task


def tasks(size: str, seed: int) -> list[Task]:
    """Quick methods first; those of one method by shape, so that each is compiled once."""
    return [
        task
        for method in METHODS[size]
        for listed in (_tasks, convergence.tasks, samples.tasks)
        for task in listed(size, method, seed)
    ]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """The rows of a task."""
    del scratch
    parts = {"fit": _run, "convergence": convergence.run_task, "samples": samples.run_task}
    return parts[config["part"]](config)


def _tasks(size: str, method: str, seed: int) -> Iterator[Task]:
    wanted = _repetitions(GRIDS[size], method)
    for setting in sorted(wanted, key=lambda each: (each.worms, each.known)):
        for repetition in range(wanted[setting]):
            config = {"method": method, "setting": setting.public(), "repetition": repetition}
            yield Task(
                f"{method}, {setting}, simulation {repetition + 1}",
                {"part": "fit", "size": size, "seed": seed, **config},
            )


def _repetitions(grid: Grid, method: str) -> dict[Setting, int]:
    """How many simulations each setting of a method has."""
    paper = [*grid.candidates, *grid.known]
    if method != OURS:
        return dict.fromkeys(paper, grid.repetitions)
    many = dict.fromkeys([*paper, *grid.further], grid.more_repetitions)
    return many | dict.fromkeys(grid.hard, grid.repetitions)


def _run(config: Mapping[str, Any]) -> list[Row]:
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
