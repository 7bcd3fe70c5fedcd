"""Long computations in a thread, which Ctrl-C ends early with what is known by then."""

import atexit
import contextlib
import contextvars
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import numpy as np

from permvi._jax import is_loaded, jax
from permvi._threads import num_cores
from permvi.inference.method import Context
from permvi.problem.evaluation import float64

# Seconds between two looks at the progress; how long to wait until chains hear that they were
# interrupted, and then until they have summed up what they know.
_LOOK = 0.2
_PATIENCE = 1.5
_TO_SUM_UP = 30.0
# What the threads of computations are called.
_NAME = "permvi computes"

# Set by what computes in `listening` once it has caught an interrupt and will return what it knows.
_sums_up: contextvars.ContextVar[threading.Event] = contextvars.ContextVar("_sums_up")

_Result = TypeVar("_Result")


class Stop:
    """Counts the steps of all chains, and tells them when to stop.

    Attributes:
        total: The number of steps that are planned, 0 while that is unknown.
        done: The number of steps so far.
        flag: (1,) whether chains are asked to stop, for compiled code to look at.
        heard: Whether one of them has noticed.
    """

    def __init__(self) -> None:
        self.total, self.done, self.heard = 0, 0, False
        self.flag = np.zeros(1, bool)

    @property
    def asked(self) -> bool:
        """Whether chains are asked to stop."""
        return bool(self.flag[0])

    @asked.setter
    def asked(self, value: bool) -> None:
        self.flag[0] = value

    def plan(self, total: int) -> None:
        """Say how many steps there will be at most."""
        self.total = total

    def __call__(self, steps: int) -> bool:
        """Count steps, and return whether to stop."""
        self.done += steps
        self.heard = self.asked
        return self.asked


class _Work(Generic[_Result]):
    """A computation in a thread of its own, which does not keep the interpreter from ending."""

    def __init__(self, run: Callable[[], _Result]) -> None:
        self._results: list[_Result] = []
        self._errors: list[BaseException] = []
        # Not Thread.join: Python 3.11 takes a thread for finished if Ctrl-C comes while it waits.
        self._ended = threading.Event()
        self.thread = threading.Thread(target=self._do, args=(run,), name=_NAME, daemon=True)
        self.thread.start()

    def _do(self, run: Callable[[], _Result]) -> None:
        try:
            self._results.append(run())
        except BaseException as error:
            # Raised again by `result`, in the thread of the caller.
            self._errors.append(error)
        finally:
            self._ended.set()

    def ended_within(self, seconds: float) -> bool:
        """Wait for the end, and return whether it came."""
        return self._ended.wait(seconds)

    def sums_up(self, heard: Callable[[], bool]) -> bool:
        """Wait after an interrupt, longer if it was heard; return whether there is a result."""
        if not self._ended.wait(_PATIENCE) and heard():
            self._ended.wait(_TO_SUM_UP)
        return bool(self._results)

    def result(self) -> _Result:
        """Return the result, or raise what the computation raised."""
        if self._errors:
            raise self._errors[0]
        return self._results[0]


def interruptible(solve: Callable[[], _Result], stop: Stop, context: Context) -> _Result:
    """Run in a thread, so that Ctrl-C and progress do not wait for compiled code."""
    work = _Work(solve)
    try:
        over = False
        while not over:
            over = work.ended_within(_LOOK)
            if stop.total:
                context.step(min(stop.done, stop.total), stop.total)
    except BaseException as error:
        stop.asked = True
        if not isinstance(error, KeyboardInterrupt):
            raise
        # Large problems take seconds to sum up, and nobody should press Ctrl-C again meanwhile.
        summing_up()
        with contextlib.suppress(KeyboardInterrupt):
            context.progress("interrupted, summing up", 0, 1)
        if not work.sums_up(lambda: stop.heard):
            raise
    return work.result()


def listening(run: Callable[[], _Result]) -> _Result:
    """Run compiled code in a thread, so that the main thread hears Ctrl-C at once.

    The interrupt is handed on, and a method that can sums up what it knows by then (`summing_up`).
    If none says so, because XLA compiles, a long chunk of steps runs or the interrupt got lost in a
    callback of the garbage collector, KeyboardInterrupt is raised here and the thread ends as soon
    as it hears it. Outside the main thread this calls ``run``: signals do not get there.
    """
    if threading.current_thread() is not threading.main_thread():
        return run()

    caught = threading.Event()
    token = _sums_up.set(caught)
    work = _Work(_with_my_settings(run))
    _sums_up.reset(token)
    try:
        while not work.ended_within(_LOOK):
            pass
    except KeyboardInterrupt:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(work.thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
        )
        if not work.sums_up(caught.is_set):
            _leave_behind()
            raise
    return work.result()


def side_by_side(tasks: Sequence[Callable[[], _Result]]) -> list[_Result]:
    """Run compiled code of independent tasks at once, if there are cores; return their results.

    XLA takes one core for a loop of small steps, so that two loops take two threads.
    """
    first, *others = tasks
    if num_cores() == 1:
        return [task() for task in tasks]
    works = [_Work(_with_my_settings(task)) for task in others]
    try:
        results = [first()]
        for work in works:
            while not work.ended_within(_LOOK):
                pass
            results.append(work.result())
    except BaseException:
        _leave_behind()
        raise
    return results


def _with_my_settings(run: Callable[[], _Result]) -> Callable[[], _Result]:
    """Return a function that another thread can call under the settings of this one."""
    settings, context = _settings_of_jax(), contextvars.copy_context()

    def with_settings() -> _Result:
        with contextlib.ExitStack() as stack:
            for setting in settings:
                stack.enter_context(setting)
            return context.run(run)

    return with_settings


def summing_up() -> None:
    """Say that an interrupt was caught and that a result follows, which is worth waiting for."""
    with contextlib.suppress(LookupError):
        _sums_up.get().set()


def _leave_behind() -> None:
    """End the process cleanly even if threads are still in compiled code when Python exits.

    Python stops such a thread when it comes back, and XLA does not survive that.
    """
    # Last in, first out: before JAX clears up.
    atexit.unregister(_leave)
    atexit.register(_leave)


def _leave() -> None:
    end = time.monotonic() + _PATIENCE
    for thread in threading.enumerate():
        if thread.name == _NAME:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                sys.stdout.flush()
                sys.stderr.flush()
                # A fit that summed up what it knew ends like any other.
                raised = getattr(sys, "last_value", None)
                interrupted = isinstance(raised, KeyboardInterrupt)
                os._exit(128 + signal.SIGINT if interrupted else int(raised is not None))


def _settings_of_jax() -> list[AbstractContextManager[Any]]:
    """Return the caller's settings of JAX that hold for one thread, to be entered in another."""
    if not is_loaded():
        return []
    names = ("default_matmul_precision", "debug_nans", "disable_jit", "default_device")
    settings = [getattr(jax, name)(getattr(jax.config, f"jax_{name}")) for name in names]
    return [float64(enabled=bool(jax.config.read("jax_enable_x64"))), *settings]
