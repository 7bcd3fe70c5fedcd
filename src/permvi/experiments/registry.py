"""The studies by name. Nothing heavy is imported before one of them runs.

A study is a module of this package with a constant ``STUDY``, a `permvi.experiments.runner.Study`.
It writes ``rows.csv``, ``summary.json`` and its figures to a folder.
"""

import importlib.util
import os
from pathlib import Path

from permvi._checks import one_of
from permvi.experiments.results import Progress, Result

# What each study shows, for the command line's help. The module is permvi.experiments.NAME.
STUDIES = {
    "transforms": "Figure 1 of the paper, what each transform does to a cloud of points",
    "compare": "all methods on five kinds of problems, next to the exact answer",
    "matching": "Table 1 and Figure 2, all methods against exact posteriors over matchings",
    "celegans": "Figures 3 and 4, which neuron is which in worms that share their dynamics",
    "vae": "Table 2 and Figure 5 of the supplement, autoencoders with categorical codes",
}
SIZES = ("smoke", "paper")


def names() -> list[str]:
    """Return the names of the studies that `run` accepts."""
    return list(STUDIES)


def run(
    name: str,
    out: str | Path,
    *,
    size: str = "smoke",
    seed: int = 0,
    progress: Progress | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Result:
    """Run a study, or resume one that was interrupted.

    Args:
        name: One of `names`.
        out: Folder for the results. It is created if it does not exist.
        size: "smoke" for a quick look, "paper" for the numbers worth quoting.
        seed: The same seed gives the same results.
        progress: Called with the last finished task, the number of finished tasks and their total.
        workers: Processes of a local Dask cluster, or threads of this process for studies that
            share an accelerator. 1 runs one task after the other. The results do not depend on
            it. The default is 1, and at size "paper" one per core if Dask is installed.
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
        progress=progress or _silent,
        workers=_default_workers(study.max_threads, size) if workers is None else workers,
        scheduler=scheduler,
    )


def _default_workers(max_threads: int, size: str) -> int:
    possible = max_threads > 1 or importlib.util.find_spec("distributed") is not None
    return os.cpu_count() or 1 if size == "paper" and possible else 1


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
