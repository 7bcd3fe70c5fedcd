"""Long computations in a thread, which Ctrl-C ends early with what is known by then."""

import atexit
import contextlib
import contextvars
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from permvi._jax import is_loaded, jax
from permvi.inference.method import Context
from permvi.problem.evaluation import float64

# Seconds between two looks at the progress; how long to wait until chains hear that they were
# interrupted, and then until they have summed up what they know.
_LOOK = 0.2
_PATIENCE = 1.5
_TO_SUM_UP = 30.0

_Result = TypeVar("_Result")


class Stop:
    """Counts the steps of all chains, and tells them when to stop.

    Attributes:
        total: The number of steps that are planned, 0 while that is unknown.
        done: The number of steps so far.
        asked: Whether chains are asked to stop.
        heard: Whether one of them has noticed.
    """

    def __init__(self) -> None:
        self.total, self.done, self.asked, self.heard = 0, 0, False, False

    def plan(self, total: int) -> None:
        """Say how many steps there will be at most."""
        self.total = total

    def __call__(self, steps: int) -> bool:
        """Count steps, and return whether to stop."""
        self.done += steps
        self.heard = self.asked
        return self.asked


def interruptible(solve: Callable[[], _Result], stop: Stop, context: Context) -> _Result:
    """Run in a thread, so that Ctrl-C and progress do not wait for compiled code."""
    results: list[_Result] = []
    errors: list[BaseException] = []
    # Not Thread.join: Python 3.11 takes a thread for finished if Ctrl-C comes while it waits.
    ended = threading.Event()

    def work() -> None:
        try:
            results.append(solve())
        except BaseException as error:
            # Raised again below, in the thread of the caller.
            errors.append(error)
        finally:
            ended.set()

    # A daemon does not keep the interpreter from ending.
    threading.Thread(target=work, daemon=True).start()
    try:
        over = False
        while not over:
            over = ended.wait(_LOOK)
            if stop.total:
                context.step(min(stop.done, stop.total), stop.total)
    except BaseException as error:
        stop.asked = True
        if not isinstance(error, KeyboardInterrupt):
            raise
        if not ended.wait(_PATIENCE) and stop.heard:
            ended.wait(_TO_SUM_UP)
        if not results:
            raise
    if errors:
        raise errors[0]
    return results[0]


def listening(run: Callable[[], _Result]) -> _Result:
    """Run compiled code in a thread, so that the main thread hears Ctrl-C at once.

    The interrupt is handed on, and a method that can sums up what it knows by then. If it does not
    hear it, because XLA compiles or a long chunk of steps runs, KeyboardInterrupt is raised here
    and the thread ends as soon as it hears it. Outside the main thread this calls ``run``: signals
    do not get there.
    """
    if threading.current_thread() is not threading.main_thread():
        return run()

    heard = threading.Event()

    class Interrupted(KeyboardInterrupt):
        """Ctrl-C, handed on; Python makes one when the thread hears it."""

        def __init__(self) -> None:
            super().__init__()
            heard.set()

    results: list[_Result] = []
    errors: list[BaseException] = []
    ended, settings, context = threading.Event(), _settings_of_jax(), contextvars.copy_context()

    def work() -> None:
        try:
            with contextlib.ExitStack() as stack:
                for setting in settings:
                    stack.enter_context(setting)
                results.append(context.run(run))
        except BaseException as error:
            # Raised again below, in the thread of the caller.
            errors.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while not ended.wait(_LOOK):
            pass
    except KeyboardInterrupt:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted)
        )
        if not ended.wait(_PATIENCE) and heard.is_set():
            ended.wait(_TO_SUM_UP)
        if not results:
            _leave_behind(thread)
            raise
    if errors:
        raise errors[0]
    return results[0]


def _leave_behind(thread: threading.Thread) -> None:
    """End the process cleanly even if a thread is still in compiled code when Python exits.

    Python stops such a thread when it comes back, and XLA does not survive that.
    """

    def leave() -> None:
        thread.join(_PATIENCE)
        if thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(128 + signal.SIGINT)

    atexit.register(leave)


def _settings_of_jax() -> list[AbstractContextManager[Any]]:
    """Return the caller's settings of JAX that hold for one thread, to be entered in another."""
    if not is_loaded():
        return []
    names = ("default_matmul_precision", "debug_nans", "disable_jit", "default_device")
    settings = [getattr(jax, name)(getattr(jax.config, f"jax_{name}")) for name in names]
    return [float64(enabled=bool(jax.config.read("jax_enable_x64"))), *settings]
