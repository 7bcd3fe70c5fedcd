"""The tasks: which methods on which problems, and the rows that come out.

A row has ``part`` ("table", "beyond" or "ordering"), ``method``, ``n``, ``sigma``, ``repetition``,
``metric`` and ``value``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi import metrics
from permvi.experiments.matching import beyond, ordering
from permvi.experiments.matching.methods import RUNNERS, Answer
from permvi.experiments.matching.problems import NUM_POINTS, SIGMAS, Exact, draw
from permvi.experiments.runner import Row, Task

NUM_SHOWN = 10
"""Matchings whose probabilities Figure 2b shows; the others are shown together."""

FIGURE_REPETITION = 0
"""The repetition that Figure 2 shows as an example."""


class _Size(NamedTuple):
    """How much is done.

    Attributes:
        table: The runners of the table.
        repetitions: Problems for each noise there.
        chunk: Problems in a task.
        points: Numbers of points beyond the paper's.
        beyond: Problems for each of them and each noise.
        methods: The methods there.
        ordering: Problems, and orders of each.
    """

    table: tuple[str, ...]
    repetitions: int
    chunk: int
    points: tuple[int, ...]
    beyond: int
    methods: tuple[str, ...]
    ordering: tuple[int, int]


# The smoke size leaves out some of what takes long to compile.
_QUICK = tuple(name for name in RUNNERS if name not in ("mcmc", "gumbel_sinkhorn"))
SIZES = {
    "smoke": _Size(_QUICK, 4, 4, (10,), 2, ("sinkhorn", "bethe", "naive", "map"), (2, 2)),
    "paper": _Size(tuple(RUNNERS), 200, 50, (10, 14, 18), 20, beyond.METHODS, (20, 20)),
}


def tasks(size: str, seed: int) -> list[Task]:
    """Method by method, so that each is compiled once in a process."""
    wanted = SIZES[size]
    return [
        *_table(wanted, seed),
        *beyond.tasks(wanted.methods, wanted.points, wanted.beyond, seed),
        *ordering.tasks(*wanted.ordering, wanted.chunk, seed),
    ]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """The rows of a task."""
    del scratch
    parts = {"table": _run_table, "beyond": beyond.run_task, "ordering": ordering.run_task}
    return parts[config["part"]](config)


def _table(size: _Size, seed: int) -> Iterator[Task]:
    for name in size.table:
        for sigma in SIGMAS:
            for first in range(0, size.repetitions, size.chunk):
                last = min(first + size.chunk, size.repetitions)
                config = {"method": name, "sigma": sigma, "repetitions": [first, last]}
                yield Task(
                    f"{name} sigma {sigma} repetitions {first + 1} to {last}",
                    {"part": "table", "seed": seed, **config},
                )


def _run_table(config: Mapping[str, Any]) -> list[Row]:
    sigma, repetitions = config["sigma"], range(*config["repetitions"])
    problems = [draw(NUM_POINTS, sigma, config["seed"], k) for k in repetitions]
    exact = [Exact(problem) for problem in problems]
    # Fits of other problems have other random numbers.
    fit_seed = np.random.default_rng([config["seed"], *config["repetitions"]]).integers(2**32)
    rows: list[Row] = []
    for method, answers in RUNNERS[config["method"]](problems, int(fit_seed)):
        for repetition, answer, reference in zip(repetitions, answers, exact, strict=True):
            common = {
                "part": "table",
                "method": method,
                "n": NUM_POINTS,
                "sigma": sigma,
                "repetition": repetition,
            }
            found = _measure(answer, reference)
            if repetition == FIGURE_REPETITION:
                found |= _masses(answer.distribution, reference.probabilities)
            rows += [{**common, "metric": name, "value": value} for name, value in found.items()]
    return rows


def _measure(answer: Answer, reference: Exact) -> dict[str, float]:
    p, q = reference.probabilities, answer.distribution
    by_row = metrics.total_variation_per_row(answer.marginals, reference.marginals)
    found = {"hellinger": float(metrics.hellinger(p, q)), "tv_per_row": float(by_row.mean())}
    if answer.evaluations is not None:
        found["evaluations"] = float(answer.evaluations)
    return found


def _masses(q: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """True and inferred probabilities of the likeliest matchings, and of all others together."""
    likeliest: Sequence[int] = np.argsort(-p, kind="stable")[:NUM_SHOWN].tolist()
    found: dict[str, float] = {}
    for rank, place in enumerate(likeliest, start=1):
        found[f"true_mass_{rank}"] = float(p[place])
        found[f"mass_{rank}"] = float(q[place])
    found["true_mass_rest"] = max(0.0, 1.0 - float(p[likeliest].sum()))
    found["mass_rest"] = max(0.0, 1.0 - float(q[likeliest].sum()))
    return found
