"""What the order of rows and columns does to stick-breaking.

Stick-breaking fills the matrix from its first entry to its last, so the family depends on which
item comes first; the paper says so and does not show it. Here the same problems are fitted in
several random orders of rows and of columns.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from permvi import metrics
from permvi.experiments.matching.methods import RUNNERS
from permvi.experiments.matching.problems import NUM_POINTS, Exact, Problem, draw
from permvi.experiments.runner import Row, Task
from permvi.models import PointMatching

SIGMA = 0.5
METHODS = ("stick_breaking", "rounding")


def tasks(num_problems: int, num_orders: int, chunk: int, seed: int) -> Iterator[Task]:
    """Chunks of problems in all their orders, for each method.

    Rounding, which has no order, shows what other random numbers do.
    """
    for name in METHODS:
        for first in range(0, num_problems * num_orders, chunk):
            last = min(first + chunk, num_problems * num_orders)
            config = {"method": name, "orders": num_orders, "fits": [first, last]}
            yield Task(
                f"{name} in other orders {first + 1} to {last}",
                {"part": "ordering", "seed": seed, **config},
            )


def run_task(config: Mapping[str, Any]) -> list[Row]:
    """Hellinger distances; order 0 is that of the problem itself."""
    seed = config["seed"]
    places = [divmod(index, config["orders"]) for index in range(*config["fits"])]
    problems = [
        _reordered(draw(NUM_POINTS, SIGMA, seed, repetition), seed, repetition, order)
        for repetition, order in places
    ]
    ((method, answers),) = RUNNERS[config["method"]](problems, seed + config["fits"][0])
    return [
        {
            "part": "ordering",
            "method": method,
            "n": NUM_POINTS,
            "sigma": SIGMA,
            "repetition": repetition,
            "metric": "hellinger",
            "value": float(metrics.hellinger(Exact(problem).probabilities, answer.distribution)),
            "order": order,
        }
        for (repetition, order), problem, answer in zip(places, problems, answers, strict=True)
    ]


def _reordered(problem: Problem, seed: int, repetition: int, order: int) -> Problem:
    if order == 0:
        return problem
    rng = np.random.default_rng([seed, repetition, order])
    n = len(problem.truth)
    rows, cols = rng.permutation(n), rng.permutation(n)
    model = problem.model
    shuffled = PointMatching(
        np.asarray(model.observations)[rows],
        np.asarray(model.centers)[cols],
        float(np.asarray(model.scale)),
        relaxation="mean",
    )
    return Problem(shuffled, np.argsort(cols)[problem.truth[rows]])
