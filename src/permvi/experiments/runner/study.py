"""A study, its tasks, and the folder that keeps the rows of the tasks that are done.

::

    out/
      run.json        study, size, seed, version: a folder holds one run
      tasks/KEY.json  configuration, rows and seconds of a finished task
      scratch/KEY/    checkpoints of an unfinished task
      rows.csv, summary.json, figures     written at the end

Every file is written under a temporary name and then moved, so it is complete or absent. The
operating system releases the lock when the process ends, so a killed run leaves none behind.
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from permvi._files import write_json, write_text
from permvi._version import __version__
from permvi.experiments.results import Result

Row = dict[str, Any]
_RUN, _LOCK, _OWNER, _TASKS, _SCRATCH = "run.json", ".lock", ".owner", "tasks", "scratch"


@dataclass(frozen=True)
class Task:
    """A piece of work whose rows depend only on its configuration."""

    name: str  # shown to people in progress and file names
    # JSON values, among them the seed of the random numbers.
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A file name that no other task of any study has."""
        text = json.dumps([self.name, self.config], sort_keys=True, allow_nan=False)
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", self.name).strip("-")
        return f"{readable[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Finished(NamedTuple):
    """A finished task."""

    task: Task
    rows: list[Row]  # its measurements, without times, which would differ from run to run
    seconds: float  # how long it took


@dataclass(frozen=True)
class Study:
    """A study, as functions at the top level of a module (workers import them by name)."""

    name: str  # the name in ``permvi reproduce NAME``
    # Maps size and seed to the tasks, in the order in which they are best done.
    tasks: Callable[[str, int], list[Task]]
    # Maps a task's configuration, and a folder for its checkpoints, to its rows: mappings with
    # text, numbers, True, False and None as values, all JSON.
    run_task: Callable[[Mapping[str, Any], Path], list[Row]]
    # Maps the folder, the size, the seed and the finished tasks, in the order of ``tasks``, to the
    # summary and the files (figures, tables) that it wrote.
    finish: Callable[[Path, str, int, list[Finished]], Result]
    # How many tasks may run in threads at once, for tasks that should share one process and its
    # accelerator. With 1, workers are processes.
    max_threads: int = 1


class Store:
    """Read and write the folder of a run; create one with `opened`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, task: Task) -> Finished | None:
        """Return the saved rows of a task, or None if it is not done."""
        try:
            found = json.loads(self._path(task).read_text(encoding="utf-8"))
            rows, seconds = found["rows"], float(found["seconds"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return Finished(task, rows, seconds)

    def save(self, task: Task, rows: Sequence[Row], seconds: float) -> Finished:
        """Save the rows of a finished task and remove its checkpoints."""
        record = {"name": task.name, "config": dict(task.config), "seconds": seconds}
        path = write_json(self._path(task), {**record, "rows": list(rows)})
        shutil.rmtree(self.scratch(task), ignore_errors=True)
        # Read back, so that a run sees the same rows as a resumed one.
        return Finished(task, json.loads(path.read_text(encoding="utf-8"))["rows"], seconds)

    def scratch(self, task: Task) -> Path:
        """Return the folder for the checkpoints of a task, which the task itself creates."""
        return self.folder / _SCRATCH / task.key

    def _path(self, task: Task) -> Path:
        return self.folder / _TASKS / f"{task.key}.json"


@contextlib.contextmanager
def opened(folder: Path, study: Study, size: str, seed: int) -> Iterator[Store]:
    """Create the folder of a run if necessary, and lock it inside the block.

    Raises:
        ValueError: Another process is writing there, or the folder holds another run.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out must be a folder, got the file {str(folder)!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        for leftover in (*folder.glob(".*.tmp"), *folder.glob(f"{_TASKS}/.*.tmp")):
            leftover.unlink(missing_ok=True)
        _claim(folder, {"study": study.name, "size": size, "seed": seed, "version": __version__})
        (folder / _TASKS).mkdir(exist_ok=True)
        yield Store(folder)
        # A run killed between saving a task and removing its checkpoints leaves some here.
        shutil.rmtree(folder / _SCRATCH, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    owner = folder / _OWNER
    try:
        with filelock.FileLock(folder / _LOCK, blocking=False):
            write_text(owner, f"process {os.getpid()} on {socket.gethostname()}")
            try:
                yield
            finally:
                owner.unlink(missing_ok=True)
    except filelock.Timeout:
        who = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
        raise ValueError(
            f"out must be a folder that no other run is writing to, got {str(folder)!r}, where "
            f"{who} is running; wait for it or choose another folder."
        ) from None


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Record which run the folder holds, or check that it is the wanted one."""
    path = folder / _RUN
    if not path.exists():
        write_json(path, wanted)
        return
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        differing = [name for name, value in wanted.items() if held.get(name) != value]
    except (ValueError, AttributeError):
        raise ValueError(f"{path} must be the description of a run, got something else.") from None
    if differing:
        name = differing[0]
        raise ValueError(
            f"out must be a new folder or one of the same run, got {str(folder)!r}, which holds "
            f"{name} {held.get(name)!r} and not {wanted[name]!r}; choose another folder."
        )
