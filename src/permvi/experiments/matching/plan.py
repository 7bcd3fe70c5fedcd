"""The tasks of the matching study, and their rows.

A row has ``part``, ``method``, ``n``, ``sigma``, ``repetition``, ``metric`` and ``value``. The part
is one of these:

* "table": Table 1 and Figure 2, against the enumerated posterior.
* "beyond": 10 to 18 points, against the exact dynamic programme.
* "ordering": the effect of the order of rows and columns on stick-breaking, which fills the matrix
  from its first entry to its last, so that the family depends on which item comes first. The paper
  says so without showing it. Here the same problems are fitted in several random orders of rows and
  columns. Rounding, which has no order, shows the effect of other random numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi import metrics
from permvi.experiments.matching.methods import OPTIONS, RUNNERS, Answer, fit_quietly
from permvi.experiments.matching.problems import NUM_POINTS, SIGMAS, Exact, Problem, draw
from permvi.experiments.runner import Row, Task
from permvi.models import PointMatching
from permvi.posterior import Posterior

NUM_SHOWN = 10
"""Matchings whose probabilities Figure 2b shows; the others are shown together."""

FIGURE_REPETITION = 0
"""The repetition that Figure 2 shows as an example."""

BEYOND_SIGMAS = (0.25, 0.5)
_BEYOND_METHODS = (
    "rounding", "stick_breaking", "sequential", "mcmc", "sinkhorn", "bethe", "gumbel_sinkhorn",
    "naive", "map",
)  # fmt: skip

ORDERING_SIGMA = 0.5
ORDERING_METHODS = ("stick_breaking", "rounding")


class _Size(NamedTuple):
    """The amount of work of a size."""

    table: tuple[str, ...]  # runners of the table
    repetitions: int  # problems for each noise in the table
    chunk: int  # problems in a task
    points: tuple[int, ...]  # numbers of points beyond the paper's
    beyond: int  # problems for each of these numbers and each noise
    methods: tuple[str, ...]  # methods for these problems
    ordering: tuple[int, int]  # number of problems, and of orders of each


# The smoke size leaves out some methods that take long to compile.
_QUICK = tuple(name for name in RUNNERS if name not in ("mcmc", "gumbel_sinkhorn"))
SIZES = {
    "smoke": _Size(_QUICK, 4, 4, (10,), 2, ("sinkhorn", "bethe", "naive", "map"), (2, 2)),
    "paper": _Size(tuple(RUNNERS), 200, 50, (10, 14, 18), 20, _BEYOND_METHODS, (20, 20)),
}
_Planned = Iterator[tuple[str, dict[str, Any]]]


def tasks(size: str, seed: int) -> list[Task]:
    """Return the tasks method by method, so that each compiles once in a process."""
    return [
        Task(name, {"part": part, "seed": seed, **config})
        for part, planned in (("table", _table), ("beyond", _beyond), ("ordering", _ordering))
        for name, config in planned(SIZES[size])
    ]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """Return the rows of a task."""
    del scratch
    parts = {"table": _run_table, "beyond": _run_beyond, "ordering": _run_ordering}
    return parts[config["part"]](config)


def _table(size: _Size) -> _Planned:
    for name in size.table:
        for sigma in SIGMAS:
            for first in range(0, size.repetitions, size.chunk):
                last = min(first + size.chunk, size.repetitions)
                config = {"method": name, "sigma": sigma, "repetitions": [first, last]}
                yield f"{name} sigma {sigma} repetitions {first + 1} to {last}", config


def _run_table(config: Mapping[str, Any]) -> list[Row]:
    sigma, repetitions = config["sigma"], range(*config["repetitions"])
    problems = [draw(NUM_POINTS, sigma, config["seed"], k) for k in repetitions]
    exact = [Exact(problem) for problem in problems]
    # Every chunk of problems has its own random numbers.
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
            found = _measure_table(answer, reference)
            if repetition == FIGURE_REPETITION:
                found |= _masses(answer.distribution, reference.probabilities)
            rows += [{**common, "metric": name, "value": value} for name, value in found.items()]
    return rows


def _measure_table(answer: Answer, reference: Exact) -> dict[str, float]:
    p, q = reference.probabilities, answer.distribution
    by_row = metrics.total_variation_per_row(answer.marginals, reference.marginals)
    found = {"hellinger": float(metrics.hellinger(p, q)), "tv_per_row": float(by_row.mean())}
    if answer.evaluations is not None:
        found["evaluations"] = float(answer.evaluations)
    return found


def _masses(q: np.ndarray, p: np.ndarray) -> dict[str, float]:
    """Return true and inferred probabilities of the likeliest matchings, and of all others."""
    likeliest: Sequence[int] = np.argsort(-p, kind="stable")[:NUM_SHOWN].tolist()
    found: dict[str, float] = {}
    for rank, place in enumerate(likeliest, start=1):
        found[f"true_mass_{rank}"] = float(p[place])
        found[f"mass_{rank}"] = float(q[place])
    found["true_mass_rest"] = max(0.0, 1.0 - float(p[likeliest].sum()))
    found["mass_rest"] = max(0.0, 1.0 - float(q[likeliest].sum()))
    return found


def _beyond(size: _Size) -> _Planned:
    for name in size.methods:
        for n in size.points:
            for sigma in BEYOND_SIGMAS:
                config = {"method": name, "n": n, "sigma": sigma, "repetitions": size.beyond}
                yield f"{name} of {n} points sigma {sigma}", config


def _run_beyond(config: Mapping[str, Any]) -> list[Row]:
    """Return errors of marginals and evidence, calibration, and the number of evaluations.

    Calibration pools the items of all problems into one number, whose repetition is None.
    """
    n, sigma, seed = config["n"], config["sigma"], config["seed"]
    problems = [draw(n, sigma, seed, k) for k in range(config["repetitions"])]
    method, options = OPTIONS.get(config["method"], (config["method"], {}))
    fits = fit_quietly(problems, method, seed, options)
    exact = fit_quietly(problems, "exact", seed)
    common = {"part": "beyond", "method": config["method"], "n": n, "sigma": sigma}
    rows: list[Row] = []
    for repetition, (fit, reference) in enumerate(zip(fits, exact, strict=True)):
        for metric, value in _measure_beyond(fit, reference).items():
            rows.append(
                {**common, "repetition": repetition, "metric": metric, "value": float(value)}
            )
    best = [fit.marginals.argmax(axis=1) for fit in fits]
    confidence = np.array([fit.marginals.max(axis=1) for fit in fits])
    correct = np.array(
        [label == problem.truth for label, problem in zip(best, problems, strict=True)]
    )
    pooled = {
        "calibration_error": metrics.calibration_error(confidence, correct),
        "accuracy": correct.mean(),
    }
    for metric, value in pooled.items():
        rows.append({**common, "repetition": None, "metric": metric, "value": float(value)})
    return rows


def _measure_beyond(fit: Posterior, reference: Posterior) -> dict[str, float]:
    by_row = metrics.total_variation_per_row(fit.marginals, reference.marginals)
    found = {"tv_per_row": by_row.mean()}
    if fit.log_evidence is not None and reference.log_evidence is not None:
        found["log_evidence_error"] = abs(fit.log_evidence - reference.log_evidence)
    if fit.num_evaluations is not None:
        found["evaluations"] = fit.num_evaluations
    return found


def _ordering(size: _Size) -> _Planned:
    """Plan chunks of problems in all their orders, for each method."""
    num_problems, num_orders = size.ordering
    for name in ORDERING_METHODS:
        for first in range(0, num_problems * num_orders, size.chunk):
            last = min(first + size.chunk, num_problems * num_orders)
            config = {"method": name, "orders": num_orders, "fits": [first, last]}
            yield f"{name} in other orders {first + 1} to {last}", config


def _run_ordering(config: Mapping[str, Any]) -> list[Row]:
    """Return Hellinger distances. Order 0 is that of the problem itself."""
    seed = config["seed"]
    places = [divmod(index, config["orders"]) for index in range(*config["fits"])]
    problems = [
        _reordered(draw(NUM_POINTS, ORDERING_SIGMA, seed, repetition), seed, repetition, order)
        for repetition, order in places
    ]
    ((method, answers),) = RUNNERS[config["method"]](problems, seed + config["fits"][0])
    return [
        {
            "part": "ordering",
            "method": method,
            "n": NUM_POINTS,
            "sigma": ORDERING_SIGMA,
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
