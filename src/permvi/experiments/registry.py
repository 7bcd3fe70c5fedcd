"""The studies by name; nothing heavy is imported before one of them runs.

A study is a module of this package with a constant ``STUDY``, a `permvi.experiments.runner.Study`.
It writes ``rows.csv``, ``summary.json`` and its figures to a folder.
"""

import importlib.util
import os
from pathlib import Path

from permvi._checks import one_of
from permvi.experiments.results import Report, Result

# Name -> what it shows, for the command line's help; permvi.experiments.NAME is its module.
STUDIES = {
    "transforms": "Figure 1 of the paper, what each transform does to a cloud of points",
    "compare": "all methods on five kinds of problems, next to the exact answer",
    "matching": "Table 1 and Figure 2, all methods against exact posteriors over matchings",
    "celegans": "Figures 3 and 4, which neuron is which in worms that share their dynamics",
    "vae": "Table 2 and Figure 5 of the supplement, autoencoders with categorical codes",
}
SIZES = ("smoke", "paper")


def names() -> list[str]:
    """The names that `run` knows."""
    return list(STUDIES)


def run(
    name: str,
    out: str | Path,
    *,
    size: str = "smoke",
    seed: int = 0,
    report: Report | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Result:
    """Run a study, or go on with one that was interrupted.

    Args:
        name: One of `names`.
        out: Folder for the results, created if it is not there.
        size: "smoke" for a quick look, "paper" for the numbers worth quoting.
        seed: Same seed, same results.
        report: Called with what is being done, how much of it is done and how much there is.
        workers: Processes of a local Dask cluster, or threads of this process for studies that
            share an accelerator; 1 runs one task after the other. The results do not depend on
            it. By default 1, and at size "paper" one for each core (if Dask is installed).
        scheduler: Address of a Dask scheduler to use instead.

    Returns:
        The rows of ``summary.json`` and the paths of all files that were written.
    """
    one_of("study", name, STUDIES)
    one_of("size", size, SIZES)
    from permvi.experiments.runner import run_study

    study = importlib.import_module(f"permvi.experiments.{name}").STUDY
    return run_study(
        study,
        Path(out),
        size=size,
        seed=seed,
        report=report or _silent,
        workers=_default_workers(study.max_threads, size) if workers is None else workers,
        scheduler=scheduler,
    )


def _default_workers(max_threads: int, size: str) -> int:
    possible = max_threads > 1 or importlib.util.find_spec("distributed") is not None
    return os.cpu_count() or 1 if size == "paper" and possible else 1


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
