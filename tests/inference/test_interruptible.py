"""Ctrl-C is heard while compiled code runs, and handed on to what computes."""

import functools
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

import permvi as pv
from permvi.inference import interruptible
from permvi.inference.interruptible import listening, side_by_side, summing_up

PROGRAM = """
import numpy as np, permvi as pv
model = pv.models.LinearMatching(np.random.default_rng(0).normal(size=({n}, {n})))
# All modules: an interrupt of an import may end in any error.
pv.methods(), pv.fit
print(flush=True)
print(*pv.fit(model, {method!r}, **{options}).diagnostics.reasons)
"""


# A task that fails while another one, beside it, is in compiled code.
BESIDE = """
import time, jax, jax.numpy as jnp
from permvi.inference import interruptible
interruptible.num_cores = lambda: 2
busy = jax.jit(lambda x: jax.lax.fori_loop(0, 10**6, lambda i, y: jnp.sin(y), x))
def fails():
    time.sleep(0.5)
    raise {error}
tasks = [fails, lambda: [busy(1.0).block_until_ready() for _ in range(10**5)]]
def run():
    try:
        interruptible.side_by_side(tasks)
    except ArithmeticError:
        return 3
print(interruptible.listening(run))
"""


@pytest.fixture(autouse=True)
def _hears_signals():
    """Let Ctrl-C raise an error, also if this process runs in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c():
    """Interrupt the main thread, from another one, as soon as it waits."""
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_results_and_errors_come_back():
    assert listening(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        listening(lambda: 1 / 0)


def test_settings_of_the_caller_hold():
    def settings():
        return jax.numpy.ones(2).dtype, np.geterr()["over"], jax.config.jax_default_matmul_precision

    for enabled in (True, False):
        with (
            jax.enable_x64(enabled),
            np.errstate(over="raise"),
            jax.default_matmul_precision("float32"),
        ):
            assert listening(settings) == settings()
            assert side_by_side([settings] * 3) == [settings()] * 3
    assert settings()[1:] == ("warn", None)


@pytest.mark.parametrize("cores", [1, 2])
def test_tasks_run_at_once_if_there_are_cores(monkeypatch, cores):
    monkeypatch.setattr(interruptible, "num_cores", lambda: cores)
    met = threading.Barrier(cores)

    def meet(name):
        met.wait(timeout=10)
        return name

    assert side_by_side([functools.partial(meet, name) for name in "ab"]) == ["a", "b"]
    with pytest.raises(ZeroDivisionError):
        side_by_side([lambda: 1, lambda: 1 / 0])


def test_an_interrupt_that_is_not_heard_is_raised():
    lock, over = threading.Lock(), threading.Event()
    lock.acquire()

    def wait():
        # In compiled code, as far as Python can see.
        lock.acquire()
        over.set()

    press_ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        listening(wait)
    assert not over.is_set()
    lock.release()


def test_an_interrupt_that_gets_lost_is_raised():
    """As in a callback of the garbage collector, whose errors Python only prints."""
    lost, over = threading.Event(), threading.Event()

    def lose():
        try:
            while True:
                pass
        except KeyboardInterrupt:
            lost.set()
        over.wait()

    press_ctrl_c()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        listening(lose)
    assert lost.is_set()
    # Not the half minute that a result would be waited for.
    assert time.monotonic() - began < 15
    over.set()


def test_a_result_that_takes_long_is_waited_for():
    def count():
        try:
            while True:
                pass
        except KeyboardInterrupt:
            summing_up()
            time.sleep(2.5)
            return 3

    press_ctrl_c()
    assert listening(count) == 3


def test_what_hears_an_interrupt_may_sum_up():
    def count():
        steps = 0
        try:
            while True:
                steps += 1
        except KeyboardInterrupt:
            return steps

    press_ctrl_c()
    assert listening(count) > 0


@pytest.mark.parametrize(
    ("error", "status"), [("KeyboardInterrupt", 130), ("ValueError", 1), ("ArithmeticError", 0)]
)
def test_what_runs_beside_a_task_that_fails_does_not_crash_the_exit(error, status):
    program = [sys.executable, "-c", BESIDE.format(error=error)]
    ended = subprocess.run(program, capture_output=True, check=False)
    assert ended.returncode == status
    # The last task was caught, as an interrupt is by what can sum up.
    assert ended.stdout.decode() == ("" if status else "3\n")
    assert not status or ended.stderr.decode().strip().endswith(error)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rounding", "mcmc", "sequential"])
@pytest.mark.parametrize("after", [1.0, 20.0])
def test_fits_of_300_items_hear_an_interrupt(method, after):
    # The default of "mcmc" may be over by then.
    options = {"num_steps": 10**7} if method == "mcmc" else {}
    program = PROGRAM.format(n=300, method=method, options=options)
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(after)
        process.send_signal(signal.SIGINT)
        # Seconds of patience and of exit; minutes of compilation would be too long.
        output, errors = process.communicate(timeout=30)
    if process.returncode == 0:
        # It had found something by then, and says that it was interrupted.
        assert output.decode().startswith("interrupted:")
        assert "do not trust" in errors.decode()
    else:
        assert process.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
        assert errors.decode().strip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("method", ["rounding", "mcmc"])
def test_what_was_known_by_then_is_marked(method):
    """Ctrl-C comes after the first chunk that there is an answer from."""

    def progress(_what, done, total):
        if done >= total / 2:
            raise KeyboardInterrupt

    model = pv.models.LinearMatching(np.random.default_rng(0).normal(size=(4, 4)))
    options = {"num_steps": 400} if method == "mcmc" else {"num_steps": 8, "chunk_size": 2}
    with pytest.warns(pv.FitWarning, match="do not trust"):
        found = pv.fit(model, method, progress=progress, **options).diagnostics
    assert found.verdict == "do not trust"
    assert found.reasons[0].startswith("interrupted:")
