"""The studies by name; nothing heavy is imported before one of them runs.

A study is a module of this package with a function ::

    run(folder: Path, *, size: str, seed: int, report: Report) -> Result

that writes ``rows.csv``, ``summary.json`` and its figures to the folder.
"""

import importlib
from pathlib import Path

from permvi._choices import one_of
from permvi.experiments.results import Report, Result

# Name -> what it shows, for the command line's help; permvi.experiments.NAME is its module.
STUDIES = {
    "transforms": "Figure 1 of the paper, what each transform does to a cloud of points",
}
SIZES = ("smoke", "paper")


def names() -> list[str]:
    """The names that `run` knows."""
    return list(STUDIES)


def run(
    name: str, out: str | Path, *, size: str = "smoke", seed: int = 0, report: Report | None = None
) -> Result:
    """Run a study.

    Args:
        name: One of `names`.
        out: Folder for the results, created if it is not there.
        size: "smoke" for a quick look, "paper" for the numbers worth quoting.
        seed: Same seed, same results.
        report: Called with what is being done, how much of it is done and how much there is.

    Returns:
        The rows of ``summary.json`` and the paths of all files that were written.
    """
    one_of("study", name, STUDIES)
    one_of("size", size, SIZES)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {str(folder)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    study = importlib.import_module(f"permvi.experiments.{name}")
    return study.run(folder, size=size, seed=seed, report=report or _silent)


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total
