"""Beyond the paper: 10 to 18 points, against the exact dynamic programme."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from permvi import metrics
from permvi.experiments.matching.methods import fit_quietly
from permvi.experiments.matching.problems import draw
from permvi.experiments.matching.settings import FITTED, RELAXED
from permvi.experiments.runner import Row, Task
from permvi.posterior import Posterior

SIGMAS = (0.25, 0.5)

METHODS = (
    "rounding", "stick_breaking", "sequential", "mcmc", "sinkhorn", "bethe", "gumbel_sinkhorn",
    "naive", "map",
)  # fmt: skip


def tasks(
    methods: Sequence[str], points: Sequence[int], repetitions: int, seed: int
) -> Iterator[Task]:
    """One for each method, number of points and noise."""
    for name in methods:
        for n in points:
            for sigma in SIGMAS:
                yield Task(
                    f"{name} of {n} points sigma {sigma}",
                    {
                        "part": "beyond",
                        "seed": seed,
                        "method": name,
                        "n": n,
                        "sigma": sigma,
                        "repetitions": repetitions,
                    },
                )


def run_task(config: Mapping[str, Any]) -> list[Row]:
    """Errors of marginals and evidence, calibration, and how many densities it took.

    Calibration is over the items of all problems, so it is one number; its repetition is None.
    """
    n, sigma, seed = config["n"], config["sigma"], config["seed"]
    problems = [draw(n, sigma, seed, k) for k in range(config["repetitions"])]
    method, options = (FITTED | RELAXED).get(config["method"], (config["method"], {}))
    fits = fit_quietly(problems, method, seed, options)
    exact = fit_quietly(problems, "exact", seed)
    common = {"part": "beyond", "method": config["method"], "n": n, "sigma": sigma}
    rows: list[Row] = []
    for repetition, (fit, reference) in enumerate(zip(fits, exact, strict=True)):
        for metric, value in _measure(fit, reference).items():
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


def _measure(fit: Posterior, reference: Posterior) -> dict[str, float]:
    by_row = metrics.total_variation_per_row(fit.marginals, reference.marginals)
    found = {"tv_per_row": by_row.mean()}
    if fit.log_evidence is not None and reference.log_evidence is not None:
        found["log_evidence_error"] = abs(fit.log_evidence - reference.log_evidence)
    if fit.num_evaluations is not None:
        found["evaluations"] = fit.num_evaluations
    return found
