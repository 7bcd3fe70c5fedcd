"""The study: its tasks at each size, its summary and its files."""

import importlib.util
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from permvi.experiments.results import Result, summary_row, write_result
from permvi.experiments.runner import Finished, Row, Study, Task
from permvi.experiments.vae import figures, settings

_MAIN = ("relaxed_elbo", "categorical_kl")
_METRICS = ("negative_elbo", "iw_nll")
_SIZES: dict[str, dict[str, Any]] = {
    "smoke": {
        "images": "generated",
        "latents": 4,
        "categories": 5,
        "widths": [64, 32],
        "batch": 50,
        "steps": 400,
        "every": 100,
        "samples": 100,
    },
    "paper": {
        "images": "mnist",
        "latents": 20,
        "categories": 10,
        "widths": [512, 256],
        "batch": 100,
        "steps": 50_000,
        "every": 2500,
        "samples": 1000,
    },
}
_NUM_SEEDS = 3


def tasks(size: str, seed: int) -> list[Task]:
    """Return a task for each family and objective; at smoke size only for the best objectives.

    All runs of a task are trained side by side, those of Gumbel-softmax and Concrete together.
    """
    if importlib.util.find_spec("equinox") is None:
        raise ValueError(
            "study 'vae' needs Equinox, which is not installed; pip install 'permvi[vae]'."
        )
    runs: dict[tuple[str, str], list[Row]] = {}
    for method, objective in settings.COMPARISONS:
        if size == "smoke" and objective != settings.BEST[method]:
            continue
        own = runs.setdefault((settings.METHODS[method], objective), [])
        for schedule, pixels in _kinds(size, method, objective):
            identity = {"method": method, "schedule": schedule, "pixels": pixels}
            own += [{**identity, "seed": 1000 * seed + number} for number in range(_NUM_SEEDS)]
    return [
        Task(
            f"{family} {objective}",
            {"family": family, "objective": objective, **_SIZES[size], "runs": own},
        )
        for (family, objective), own in runs.items()
    ]


def _kinds(size: str, method: str, objective: str) -> list[tuple[str, str]]:
    """Return the schedules and pixels with which a method is trained."""
    kinds = [("tuned", "grey")]
    if size == "paper" and objective in (settings.BEST[method], "categorical_kl"):
        kinds.append(("tuned", "binary"))
    if size == "paper" and objective in _MAIN:
        kinds.append(("reference", "grey"))
    return kinds


def run_task(config: Mapping[str, Any], scratch: Path) -> list[Row]:
    """Return the rows of a task; see `permvi.experiments.vae.task.run`."""
    # Imported late, so that `tasks` can say that Equinox is missing.
    from permvi.experiments.vae import task

    return task.run(config, scratch)


def summarise(done: list[Finished]) -> list[Row]:
    """Average over seeds: first the best objective of each method, then everything."""
    everything = [row for finished in done for row in _rows_of(finished)]
    best = [
        {**row, "setting": {"pixels": row["setting"]["pixels"]}}
        for row in everything
        if row["setting"]["schedule"] == "tuned"
        and row["setting"]["objective"] == settings.BEST[row["method"]]
    ]
    return best + everything


def _rows_of(finished: Finished) -> list[Row]:
    scores = [row for row in finished.rows if row["kind"] == "score"]
    kind_of = operator.itemgetter("method", "pixels", "objective", "schedule")
    rows = []
    for kind in dict.fromkeys(map(kind_of, scores)):
        same = [row for row in scores if kind_of(row) == kind]
        method, pixels, objective, schedule = kind
        setting = {"pixels": pixels, "objective": objective, "schedule": schedule}
        # The paper has grey pixels. Its wording leaves open which of the two metrics it means.
        comparable = (finished.task.config["images"], pixels) == ("mnist", "grey")
        paper = settings.PAPER[method] if comparable else None
        seconds = finished.seconds * len(same) / len(scores)
        rows += [
            summary_row(
                "vae",
                method,
                setting,
                metric,
                [row[metric] for row in same],
                seconds=seconds,
                paper=paper,
            )
            for metric in _METRICS
        ]
    return rows


def finish(folder: Path, size: str, seed: int, done: list[Finished]) -> Result:
    """Write the rows, the summary and the figures."""
    del size, seed
    rows = [row for finished in done for row in finished.rows]
    scores = [
        {name: value for name, value in row.items() if name != "kind"}
        for row in rows
        if row["kind"] == "score"
    ]
    drawn = {
        "figure5": figures.reconstructions(rows),
        "training_curves": figures.training_curves(rows),
        "prior_samples": figures.prior_samples(rows),
    }
    return write_result(folder, scores, summarise(done), drawn)


# Processes would compete for an accelerator; threads compile and compute side by side.
STUDY = Study("vae", tasks, run_task, finish, max_threads=5)
