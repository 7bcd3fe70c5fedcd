"""Run the tasks of a study: in this process, in its threads, or on a Dask cluster."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from permvi._checks import whole
from permvi._cluster import connected, distributed
from permvi.experiments.results import Progress, Result
from permvi.experiments.runner.study import Finished, Row, Store, Study, Task, opened

_RunTask = Callable[[Mapping[str, Any], Path], list[Row]]


def run_study(
    study: Study,
    folder: Path,
    *,
    size: str,
    seed: int,
    progress: Progress,
    workers: int = 1,
    scheduler: str | None = None,
) -> Result:
    """Run the tasks that are not done yet, then write the summary and the figures.

    An interrupted run has left its results in ``folder``. For the other arguments see
    `permvi.experiments.run`.
    """
    whole("workers", workers)
    tasks = study.tasks(size, seed)
    keys = {task.key: task for task in tasks}
    if len(keys) < len(tasks):
        raise ValueError(f"study {study.name!r} has two tasks of the same configuration.")
    with opened(folder, study, size, seed) as store:
        done = {key: found for key, task in keys.items() if (found := store.load(task))}
        progress(study.name, len(done), len(tasks))
        missing = [task for task in tasks if task.key not in done]
        for finished in _finished(study, store, missing, workers, scheduler):
            done[finished.task.key] = store.save(*finished)
            progress(finished.task.name, len(done), len(tasks))
        return study.finish(folder, size, seed, [done[key] for key in keys])


def _finished(
    study: Study, store: Store, tasks: list[Task], workers: int, scheduler: str | None
) -> Iterator[Finished]:
    """Run the tasks in the place that the study and the caller choose."""
    if not tasks:
        return iter(())
    if scheduler is None and workers == 1:
        return _in_process(study.run_task, tasks, store)
    if scheduler is None and study.max_threads > 1:
        return _in_threads(study.run_task, tasks, store, min(workers, study.max_threads))
    return _on_cluster(study.run_task, tasks, store, workers, scheduler)


def _timed(run_task: _RunTask, config: Mapping[str, Any], scratch: Path) -> tuple[list[Row], float]:
    """Return the rows of a task and how long it took."""
    start = time.perf_counter()
    rows = run_task(config, scratch)
    return rows, time.perf_counter() - start


def _in_process(run_task: _RunTask, tasks: Iterable[Task], store: Store) -> Iterator[Finished]:
    for task in tasks:
        yield Finished(task, *_timed(run_task, task.config, store.scratch(task)))


def _in_threads(
    run_task: _RunTask, tasks: Iterable[Task], store: Store, threads: int
) -> Iterator[Finished]:
    """Run several tasks at once in this process, so that one compiles while another computes."""
    pool = ThreadPoolExecutor(threads)
    try:
        futures = {
            pool.submit(_timed, run_task, task.config, store.scratch(task)): task for task in tasks
        }
        for future in as_completed(futures):
            yield Finished(futures[future], *future.result())
    finally:
        # After an error or Ctrl-C, start nothing new.
        pool.shutdown(cancel_futures=True)


def _on_cluster(
    run_task: _RunTask, tasks: Sequence[Task], store: Store, workers: int, scheduler: str | None
) -> Iterator[Finished]:
    """Yield tasks in the order in which the Dask workers finish them.

    Only the caller writes results, so workers need a shared disk only if the study leaves
    checkpoints.
    """
    with connected(workers, scheduler) as client:
        futures = {
            client.submit(
                _timed, run_task, task.config, store.scratch(task), pure=False, priority=-rank
            ): task
            for rank, task in enumerate(tasks)
        }
        for future, outcome in distributed().as_completed(
            futures, loop=client.loop, with_results=True
        ):
            yield Finished(futures[future], *outcome)
