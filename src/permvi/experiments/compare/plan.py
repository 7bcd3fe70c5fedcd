"""One task for each kind of problem and method.

A row has ``target``, ``method``, ``repetition``, the errors of `permvi.compare`, the verdict, and
why the method refused the problem if it did.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from permvi._compare import compare
from permvi.experiments.compare.targets import targets
from permvi.experiments.runner import Row, Task
from permvi.inference import registry
from permvi.posterior import Posterior

METRICS = (
    "tv_mean", "tv_max", "hellinger", "hellinger_of_draws", "log_evidence_error", "ess_per_draw",
    "evaluations",
)  # fmt: skip
"""What is measured; ``hellinger_of_draws`` is that of weighted draws, where ``hellinger`` is that
of the family they were drawn from."""

REPETITIONS = {"smoke": 1, "paper": 3}
# What takes hardly any time to compile, to see that everything runs.
_QUICK = ("exact", "map", "sinkhorn", "bethe")


def tasks(size: str, seed: int) -> list[Task]:
    """All methods at paper size, a few at smoke size."""
    names = _QUICK if size == "smoke" else tuple(registry.names_for())
    return [
        Task(
            f"{target.name} {method}",
            {"size": size, "seed": seed, "target": target.name, "method": method},
        )
        for method in names
        for target in targets(size)
    ]


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """A method on the repetitions of a kind of problem."""
    del scratch
    kinds = targets(config["size"])
    index = [target.name for target in kinds].index(config["target"])
    return [
        {"target": config["target"], "repetition": repetition}
        | _row(
            kinds[index].build(np.random.default_rng([config["seed"], index, repetition])),
            config["method"],
            repetition,
        )
        for repetition in range(REPETITIONS[config["size"]])
    ]


def _row(model: Any, method: str, seed: int) -> Row:
    comparison = compare(model, [method], seed=seed)
    (row,) = comparison
    found = comparison.posteriors.get(method)
    distance = None
    if found is not None and comparison.exact is not None and row.hellinger is not None:
        distance = _hellinger_of_draws(found, comparison.exact)
    measured = {name: getattr(row, name, None) for name in METRICS} | {
        "hellinger_of_draws": distance
    }
    return {"method": method, "verdict": row.verdict, "refused": row.refused, **measured}


def _hellinger_of_draws(found: Posterior, exact: Posterior) -> float | None:
    """Hellinger distance between weighted draws and the exact posterior, for fitted families."""
    if found.law.kind != "family":
        return None
    matchings = found.top(1_000_000)
    q = np.array([matching.probability for matching in matchings])
    p = np.exp(exact.log_prob(np.array([matching.perm for matching in matchings])))
    return float(np.sqrt(max(0.0, 1.0 - np.sqrt(p * q).sum())))
