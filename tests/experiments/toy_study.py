"""A study whose tasks are quick, for tests of the runner; workers import it by name."""

import json
import os
import time

import numpy as np

from permvi.experiments.results import Result, summary_row, write_rows, write_summary
from permvi.experiments.runner import Study, Task


def tasks(size, seed):
    count = {"smoke": 6, "paper": 40}[size]
    return [Task(f"toy {k}", {"k": k, "seed": seed}) for k in range(count)]


def run_task(config, scratch):
    """Squares, in two halves with a checkpoint between them; every run of a task is counted."""
    log = os.environ.get("TOY_LOG")
    if log:
        with open(log, "a") as file:
            file.write(f"{config['k']}\n")
    if os.environ.get("TOY_FAILS") == str(config["k"]):
        raise RuntimeError("this task fails")
    checkpoint = scratch / "half.json"
    if checkpoint.exists():
        half = json.loads(checkpoint.read_text())
    else:
        time.sleep(float(os.environ.get("TOY_SLEEP", "0")))
        half = np.random.default_rng([config["seed"], config["k"]]).normal(size=2).tolist()
        scratch.mkdir(parents=True, exist_ok=True)
        temporary = scratch / f".half.{os.getpid()}"
        temporary.write_text(json.dumps(half))
        temporary.replace(checkpoint)
    time.sleep(float(os.environ.get("TOY_SLEEP", "0")))
    return [{"k": config["k"], "value": value, "missing": None} for value in half]


def finish(folder, size, seed, finished):
    rows = [row for task in finished for row in task.rows]
    values = [row["value"] for row in rows]
    seconds = sum(task.seconds for task in finished)
    summary = [summary_row("toy", "normal", {"size": size}, "value", values, seconds=seconds)]
    return Result(summary, [write_rows(folder, rows), write_summary(folder, summary)])


STUDY = Study("toy", tasks, run_task, finish)
