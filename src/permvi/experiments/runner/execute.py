"""Where tasks run: in this process, in its threads, on a local Dask cluster, or on a given one."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

from permvi.experiments.runner.study import Row, Task

# A scheduler serves HTTP in any case; on its usual port it would get in the way of another one.
_ANY_PORT = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}

RunTask = Callable[[Mapping[str, Any], Path], list[Row]]


class Outcome(NamedTuple):
    """What came back from a task."""

    task: Task
    rows: list[Row]
    seconds: float


def timed(run_task: RunTask, config: Mapping[str, Any], scratch: Path) -> tuple[list[Row], float]:
    """The rows of a task and how long it took."""
    start = time.perf_counter()
    rows = run_task(config, scratch)
    return rows, time.perf_counter() - start


def in_process(
    run_task: RunTask, tasks: Iterable[Task], scratch: Callable[[Task], Path]
) -> Iterator[Outcome]:
    """One task after the other."""
    for task in tasks:
        yield Outcome(task, *timed(run_task, task.config, scratch(task)))


def in_threads(
    run_task: RunTask, tasks: Iterable[Task], scratch: Callable[[Task], Path], threads: int
) -> Iterator[Outcome]:
    """Several at once in this process, so that one compiles while another computes."""
    pool = ThreadPoolExecutor(threads)
    try:
        futures = {pool.submit(timed, run_task, task.config, scratch(task)): task for task in tasks}
        for future in as_completed(futures):
            yield Outcome(futures[future], *future.result())
    finally:
        # After an error or Ctrl-C nothing new is begun.
        pool.shutdown(cancel_futures=True)


def on_cluster(
    run_task: RunTask,
    tasks: Sequence[Task],
    scratch: Callable[[Task], Path],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> Iterator[Outcome]:
    """Tasks in the order in which Dask's workers finish them.

    Only the caller writes results, so workers need no shared disk unless the study leaves
    checkpoints.
    """
    distributed = _distributed()
    with _client(distributed, workers, scheduler) as client:
        futures = {
            client.submit(timed, run_task, task.config, scratch(task), pure=False, priority=-rank):
            task
            for rank, task in enumerate(tasks)
        }  # fmt: skip
        for future, outcome in distributed.as_completed(
            futures, loop=client.loop, with_results=True
        ):
            yield Outcome(futures[future], *outcome)


def _distributed() -> Any:
    try:
        import distributed
    except ModuleNotFoundError:
        raise ValueError(
            "workers and scheduler need Dask, which is not installed; pip install 'permvi[dask]', "
            "or leave them out."
        ) from None
    return distributed


@contextlib.contextmanager
def _client(distributed: Any, workers: int | None, scheduler: str | None) -> Iterator[Any]:
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"scheduler must be the address of a running Dask scheduler, got {scheduler!r} "
                f"({type(error).__name__})."
            ) from None
        with client:
            yield client
        return
    # A worker has one thread: JAX and the solvers bring their own.
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            scheduler_kwargs=_ANY_PORT,
            memory_limit=0,
            silence_logs=logging.ERROR,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client
