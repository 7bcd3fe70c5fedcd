"""The folder of a run: who may write there, what it is a run of, and what is done already.

::

    out/
      run.json        study, size, seed, version: a folder holds one run
      tasks/KEY.json  configuration, rows and seconds of a task that is done
      scratch/KEY/    checkpoints of a task that is not
      rows.csv, summary.json, figures     written at the end

Every file is written under a temporary name and moved, so that it is whole or not there. The lock
belongs to the process and dies with it, so a killed run leaves none behind.
"""

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock

from permvi._files import write_json
from permvi._version import __version__
from permvi.experiments.runner.study import Finished, Row, Study, Task

_RUN, _LOCK, _OWNER, _TASKS, _SCRATCH = "run.json", ".lock", ".owner", "tasks", "scratch"


class Store:
    """Reads and writes the folder of a run; get one from `opened`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load(self, task: Task) -> Finished | None:
        """What a task left, or None if it is still to be done."""
        try:
            found = json.loads(self._path(task).read_text(encoding="utf-8"))
            rows, seconds = found["rows"], float(found["seconds"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return Finished(task, rows, seconds)

    def save(self, task: Task, rows: Sequence[Row], seconds: float) -> Finished:
        """Keep the rows of a task that is done; its checkpoints have no more use."""
        record = {"name": task.name, "config": dict(task.config), "seconds": seconds}
        path = write_json(self._path(task), {**record, "rows": list(rows)})
        shutil.rmtree(self.scratch(task), ignore_errors=True)
        # As a resumed run would read it, so that both see the same.
        return Finished(task, json.loads(path.read_text(encoding="utf-8"))["rows"], seconds)

    def scratch(self, task: Task) -> Path:
        """Where a task may leave checkpoints. It is created by the task, if at all."""
        return self.folder / _SCRATCH / task.key

    def _path(self, task: Task) -> Path:
        return self.folder / _TASKS / f"{task.key}.json"


@contextlib.contextmanager
def opened(folder: Path, study: Study, size: str, seed: int) -> Iterator[Store]:
    """The folder of a run, created if need be and locked inside the block.

    Raises:
        ValueError: Another process is at work there, or the folder holds another run.
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
        # All is done. A kill between saving a task and removing its checkpoints leaves some.
        shutil.rmtree(folder / _SCRATCH, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    owner = folder / _OWNER
    try:
        with filelock.FileLock(folder / _LOCK, blocking=False):
            owner.write_text(f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8")
            try:
                yield
            finally:
                owner.unlink(missing_ok=True)
    except filelock.Timeout:
        who = owner.read_text(encoding="utf-8") if owner.exists() else "another process"
        raise ValueError(
            f"out must be a folder that no other run is writing to, got {str(folder)!r}, where "
            f"{who} is at work; wait for it or choose another folder."
        ) from None


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Write down what the folder holds, or check that it is what is wanted."""
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
