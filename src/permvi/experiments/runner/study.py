"""What the runner needs to know of a study."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from permvi.experiments.results import Result

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A piece of work whose rows depend on nothing but its configuration.

    Attributes:
        name: What it is, for people: progress and file names.
        config: What JSON can hold. The seed of its random numbers is among it.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A file name that no other task of any study has."""
        text = json.dumps([self.name, self.config], sort_keys=True, allow_nan=False)
        readable = re.sub(r"[^A-Za-z0-9.]+", "-", self.name).strip("-")
        return f"{readable[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Finished(NamedTuple):
    """A task that was done.

    Attributes:
        task: The task.
        rows: What it measured. No times, which would differ from run to run.
        seconds: How long it took.
    """

    task: Task
    rows: list[Row]
    seconds: float


@dataclass(frozen=True)
class Study:
    """A study, as functions at the top level of a module (workers import them by name).

    Attributes:
        name: As in ``permvi reproduce NAME``.
        tasks: From size and seed to the tasks, in the order in which they are best done.
        run_task: From a task's configuration, and a folder where it may leave checkpoints, to its
            rows: mappings with text, numbers, True, False and None as values, all JSON.
        finish: From the folder, the size, the seed and the tasks that were done, in the order of
            ``tasks``, to the summary and the files (figures, tables) that it wrote.
        max_threads: For tasks that should share one process, and with it an accelerator: how many
            may run in threads at once. 1: workers are processes.
    """

    name: str
    tasks: Callable[[str, int], list[Task]]
    run_task: Callable[[Mapping[str, Any], Path], list[Row]]
    finish: Callable[[Path, str, int, list[Finished]], Result]
    max_threads: int = 1
