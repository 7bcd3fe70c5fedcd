"""Long computations in a thread, which Ctrl-C ends early with what is known by then."""

import threading
from collections.abc import Callable
from typing import TypeVar

from permvi.inference.method import Context

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
