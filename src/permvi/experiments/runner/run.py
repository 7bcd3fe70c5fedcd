"""From a study to its results, through whatever interruptions."""

from collections.abc import Iterator
from pathlib import Path

from permvi.experiments.results import Report, Result
from permvi.experiments.runner.execute import Outcome, in_process, in_threads, on_cluster
from permvi.experiments.runner.store import Store, opened
from permvi.experiments.runner.study import Study, Task


def run_study(
    study: Study,
    folder: Path,
    *,
    size: str,
    seed: int,
    report: Report,
    workers: int = 1,
    scheduler: str | None = None,
) -> Result:
    """Do the tasks that are not done yet, then write the summary and the figures.

    Args:
        study: The study.
        folder: Where the results go, and where those of an earlier, interrupted run are.
        size: "smoke" or "paper".
        seed: Same seed, same rows.
        report: Called with what was done last, how many tasks are done and how many there are.
        workers: Processes of a local Dask cluster, or threads of this process if the study wants
            that; 1 runs one task after the other.
        scheduler: Address of a Dask scheduler to use instead.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}.")
    tasks = study.tasks(size, seed)
    keys = {task.key: task for task in tasks}
    if len(keys) < len(tasks):
        raise ValueError(f"study {study.name!r} has two tasks of the same configuration.")
    with opened(folder, study, size, seed) as store:
        done = {key: found for key, task in keys.items() if (found := store.load(task))}
        report(study.name, len(done), len(tasks))
        missing = [task for task in tasks if task.key not in done]
        for outcome in _outcomes(study, store, missing, workers, scheduler):
            done[outcome.task.key] = store.save(*outcome)
            report(outcome.task.name, len(done), len(tasks))
        return study.finish(folder, size, seed, [done[key] for key in keys])


def _outcomes(
    study: Study, store: Store, tasks: list[Task], workers: int, scheduler: str | None
) -> Iterator[Outcome]:
    if not tasks:
        return iter(())
    if scheduler is None and workers == 1:
        return in_process(study.run_task, tasks, store.scratch)
    if scheduler is None and study.max_threads > 1:
        return in_threads(study.run_task, tasks, store.scratch, min(workers, study.max_threads))
    return on_cluster(study.run_task, tasks, store.scratch, workers=workers, scheduler=scheduler)
