"""Solve the tasks of a linking here or on a Dask cluster, and keep finished answers on disk."""

import contextlib
import shutil
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from permvi import _cluster, _threads
from permvi._files import write_json
from permvi.inference.method import Progress
from permvi.linkage.graph import Graph
from permvi.linkage.solve import Answer, Task, solve
from permvi.linkage.sources import arrow, write_table

# The folder for what is not finished, and folders in it for copies of the input and for results.
_WORK = ".work"
SPOOL = "spool"
_FINAL = "final"
# The fields of an answer that belong to pairs; all others belong to groups.
_OF_PAIRS = ("p", "best")
# Tasks that are sent to a cluster before the first of them is back.
_AHEAD = 32
# The chains of groups of more records than this use all cores of their machine.
_ALL_CORES = 2_000


class Place(NamedTuple):
    """Where a run keeps its files.

    Attributes:
        out: The folder of the results.
        work: A folder in it for what is not finished.
    """

    out: Path
    work: Path


@contextlib.contextmanager
def opened(out: Path) -> Iterator[Place]:
    """Open a folder for results, alone; after an error keep answers that a second run can use.

    Raises:
        ValueError: The folder holds something else, or another process writes to it.
    """
    from filelock import FileLock, Timeout

    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder, got the file {out}.")
    if not out.parent.is_dir():
        raise ValueError(f"out must lie in an existing folder, got {out}.")
    if out.is_dir():
        others = [path.name for path in out.iterdir() if path.name != _WORK]
        if others and not (out / "summary.json").is_file() and not (out / _WORK).is_dir():
            raise ValueError(
                f"out must be empty, new or the folder of an earlier run, got {out} with "
                f"{sorted(others)[0]!r}."
            )
    created = not out.exists()
    work = out / _WORK
    work.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(work / "lock", timeout=0):
            for stale in work.rglob(".*.tmp"):
                stale.unlink(missing_ok=True)
            try:
                yield Place(out, work)
            except BaseException:
                for name in (SPOOL, _FINAL):
                    shutil.rmtree(work / name, ignore_errors=True)
                if not list(work.glob("answer-*.parquet")):
                    shutil.rmtree(work, ignore_errors=True)
                raise
            shutil.rmtree(work, ignore_errors=True)
    except Timeout:
        raise ValueError(f"out must be used by one process at a time, got {out} twice.") from None
    finally:
        if created:
            # Only if nothing is in it.
            with contextlib.suppress(OSError):
                out.rmdir()


def check_same_run(place: Place, fingerprint: str) -> None:
    """Forget answers of another run, and refuse to overwrite the results of one.

    Raises:
        ValueError: The folder has the results of other pairs or settings.
    """
    import json

    for folder in (place.out, place.work):
        with contextlib.suppress(OSError, json.JSONDecodeError, KeyError):
            given = json.loads((folder / "run.json").read_text(encoding="utf-8"))["fingerprint"]
            if given == fingerprint:
                continue
            if folder == place.out:
                raise ValueError(
                    f"out must be empty or hold the same run, got {folder} with results of other "
                    "pairs or settings."
                )
            for stale in place.work.glob("answer-*"):
                stale.unlink()
    write_json(place.work / "run.json", {"fingerprint": fingerprint})


def solve_all(
    graph: Graph,
    rule: str,
    seed: int,
    *,
    work: Path,
    progress: Progress,
    client: Any = None,
) -> Answer:
    """Solve all groups, and return the answer with pairs in the order of the source.

    They are solved by the threads of this process, or by the workers of a Dask client. Answers are
    kept in ``work`` as they come, and those that are there already are not computed again. The
    result does not depend on who computes it.
    """
    total = Answer(
        p=np.zeros(graph.num_pairs),
        best=np.zeros(graph.num_pairs, bool),
        log_evidence=np.zeros(graph.num_groups),
        variance=np.zeros(graph.num_groups),
        verdict=np.zeros(graph.num_groups, np.int8),
        error=np.zeros(graph.num_groups),
        exact=np.zeros(graph.num_groups, bool),
    )
    clock = _Clock(graph.num_pairs, progress)

    def put(task: Task, answer: Answer) -> None:
        pairs = graph.order[graph.edge_ends[task.groups[0]] : graph.edge_ends[task.groups[-1] + 1]]
        for name in Answer._fields:
            where = pairs if name in _OF_PAIRS else task.groups
            getattr(total, name)[where] = getattr(answer, name)
        clock.add(len(pairs))

    def missing() -> Iterator[Task]:
        for task in graph.tasks(rule, seed):
            known = _load(work, task)
            if known is None:
                yield task
            else:
                put(task, known)

    solved = _in_threads(missing()) if client is None else _on_cluster(missing(), client)
    with contextlib.closing(solved):
        for task, answer in solved:
            _save(work, task, answer)
            put(task, answer)
    return total


@contextlib.contextmanager
def client_of(
    workers: int | None, scheduler: str | None, client: Any
) -> Iterator[_cluster.Workers]:
    """Open the client that `match_pairs` is asked for, if any.

    New workers start while the caller does something else.
    """
    if client is not None or (workers is None and scheduler is None):
        yield _cluster.Workers(lambda: client, lambda: None)
    elif scheduler is not None:
        with _cluster.connected(1, scheduler) as connected:
            yield _cluster.Workers(lambda: connected, lambda: None)
    else:
        with _cluster.starting(workers or 1, _warm_up) as started:
            yield started


def _warm_up() -> None:
    """Load what tasks need."""
    from permvi.inference import linear  # noqa: F401
    from permvi.linkage import matching_kernels  # noqa: F401


def _in_threads(tasks: Iterable[Task]) -> Generator[tuple[Task, Answer]]:
    """Solve tasks in threads, one for each core: compiled sums and chains need no interpreter."""
    count = _threads.num_cores()
    waiting = iter(tasks)
    running: dict[Any, Task] = {}
    with _threads.pool(count) as threads:
        try:
            while True:
                # One more than there are threads, so that none of them has to wait.
                for _, task in zip(range(count + 1 - len(running)), waiting, strict=False):
                    running[threads.submit(_solve_beside_others, task)] = task
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            for future in running:
                future.cancel()


def _on_cluster(tasks: Iterable[Task], client: Any) -> Generator[tuple[Task, Answer]]:
    """Solve tasks on the workers of a Dask client.

    Dask gives the tasks of a worker that dies to others. An answer counts once, since it is put in
    the place of its task.
    """
    running = _cluster.distributed().as_completed(loop=client.loop, with_results=True)
    waiting = iter(tasks)
    known: dict[Any, Task] = {}

    def send(count: int) -> None:
        for _, task in zip(range(count), waiting, strict=False):
            future = client.submit(_solve_beside_others, task, pure=False, retries=3)
            known[future] = task
            running.add(future)

    send(_AHEAD)
    for future, answer in running:
        task = known.pop(future)
        send(1)
        yield task, Answer(*answer)


def _solve_beside_others(task: Task) -> Answer:
    """Solve a task on one core, unless it has a group for which all others may have to wait."""
    if task.num_vertices.max() > _ALL_CORES:
        return solve(task)
    with _threads.one_core():
        return solve(task)


class _Clock:
    """Reports how many pairs are done, and how long the rest will take."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.total, self.progress, self.done = total, progress, 0
        self.began = time.monotonic()

    def add(self, count: int) -> None:
        """Count pairs as done."""
        self.done += count
        left = (time.monotonic() - self.began) * (self.total / max(self.done, 1) - 1.0)
        self.progress(f"linking, {_duration(left)} to go", self.done, self.total)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _file(work: Path, task: Task) -> Path:
    return work / f"answer-{task.number:05d}.parquet"


def _save(work: Path, task: Task, answer: Answer) -> None:
    """Write an answer as a table of one row, with a list of values for each field."""
    pa = arrow()
    fields = {}
    for name, values in answer._asdict().items():
        ends = pa.array([0, len(values)], pa.int64())
        fields[name] = pa.LargeListArray.from_arrays(ends, pa.array(values))
    write_table(_file(work, task), pa.table(fields))


def _load(work: Path, task: Task) -> Answer | None:
    """Read an answer if there is one for this task."""
    path = _file(work, task)
    if not path.is_file():
        return None
    table = arrow().parquet.read_table(path)
    found = Answer(
        *(table[name].chunk(0).flatten().to_numpy(zero_copy_only=False) for name in Answer._fields)
    )
    if len(found.p) != len(task.tails) or len(found.exact) != len(task.groups):
        return None
    return found


@contextlib.contextmanager
def publishing(place: Place) -> Iterator[Path]:
    """Open a new folder for results; when they are complete, move them to their place in one go.

    Until then the old results, or none, are there.
    """
    final = place.work / _FINAL
    shutil.rmtree(final, ignore_errors=True)
    final.mkdir()
    yield final
    # The mark of a complete run comes last.
    ordered = sorted(final.iterdir(), key=lambda path: (path.name == "summary.json", path.name))
    for new in ordered:
        target = place.out / new.name
        if target.is_dir():
            shutil.rmtree(target)
        new.replace(target)
