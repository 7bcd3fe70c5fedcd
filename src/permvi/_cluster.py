"""Connections to Dask: a cluster elsewhere, or workers on this machine."""

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

# A scheduler always serves HTTP; on its usual port it would collide with another one.
_ANY_PORT = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
# How long to wait for a scheduler.
_PATIENCE = "10s"
# Nobody looks at the statistics of processes that live for one call, and they cost time.
_NO_STATISTICS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
}


def distributed() -> Any:
    """Return the module of Dask's clients, or raise an error that says how to install it."""
    try:
        import distributed
    except ModuleNotFoundError:
        raise ValueError(
            "workers and scheduler need Dask, which is not installed; pip install 'permvi[dask]', "
            "or leave them out."
        ) from None
    return distributed


@contextlib.contextmanager
def connected(workers: int, scheduler: str | None) -> Iterator[Any]:
    """Open a client of a running scheduler, or of this many new processes on this machine.

    Raises:
        ValueError: Dask is missing, or there is no scheduler at the address.
    """
    module = distributed()
    if scheduler is not None:
        try:
            client = module.Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"scheduler must be the address of a running Dask scheduler, got {scheduler!r} "
                f"({type(error).__name__})."
            ) from None
        with client:
            yield client
        return
    import dask.config

    # One thread per worker: JAX and the solvers start their own.
    with dask.config.set(_NO_STATISTICS):
        cluster = module.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            scheduler_kwargs=_ANY_PORT,
            memory_limit=0,
            silence_logs=logging.ERROR,
        )
    with (
        cluster,
        # Answers come straight from the workers, and not through the scheduler.
        module.Client(cluster, set_as_default=False, direct_to_workers=True) as client,
    ):
        client.run(_silence)
        yield client


def _silence() -> None:
    """Keep a worker from complaining that its scheduler is gone, which happens when both end."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


class Workers(NamedTuple):
    """Who solves tasks.

    Attributes:
        wait: Waits until they are there, and returns their client; None if there is none.
        release: Says that no more tasks will come, and returns at once.
    """

    wait: Callable[[], Any]
    release: Callable[[], None]


@contextlib.contextmanager
def starting(workers: int, warm_up: Callable[[], None]) -> Iterator[Workers]:
    """Start processes on this machine in the background, and call ``warm_up`` in each of them.

    They end in the background, too, once they are released, and at the latest with the context.
    """
    context = contextlib.ExitStack()

    def start() -> Any:
        client = context.enter_context(connected(workers, None))
        client.run(warm_up)
        return client

    with ThreadPoolExecutor(1) as thread:
        # A missing package is an error at once, but importing it takes its time.
        if importlib.util.find_spec("distributed") is None:
            distributed()
        started = thread.submit(start)
        ended = []

        def release() -> None:
            ended.append(thread.submit(context.close))

        try:
            yield Workers(started.result, release)
        finally:
            release()
            for end in ended:
                end.result()
