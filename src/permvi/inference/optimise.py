"""The loop of every optimiser: chunks of compiled steps, a trace of ELBOs, and when to stop.

An engine brings a function that takes one chunk of steps. The loop runs on the host between chunks,
so that compiled code calls nothing back.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.interruptible import summing_up
from permvi.inference.method import StepProgress

# (state, first step, last step + 1) -> the state after these steps and a tuple of outputs, the
# first of which are the ELBOs (..., steps).
Advance = Callable[[Any, int, int], tuple[Any, tuple[Any, ...]]]


@dataclass(frozen=True, eq=False)
class Optimised:
    """Where an optimisation ended.

    Attributes:
        state: The last state.
        outputs: What `Advance` returned for each chunk.
        interrupted: Whether the user stopped it.
    """

    state: Any
    outputs: list[tuple[Any, ...]]
    interrupted: bool

    @cached_property
    def elbo_trace(self) -> np.ndarray:
        """(..., steps) estimates of the ELBO."""
        return np.concatenate([elbos for elbos, *_ in self.outputs], axis=-1)

    @cached_property
    def final_elbo(self) -> np.ndarray:
        """(...) mean ELBOs of the last chunk, -inf where they are NaN."""
        return _smoothed(self.outputs[-1][0])

    @cached_property
    def best(self) -> np.ndarray:
        """(...) which restart, along the last axis of fits, has the highest final ELBO."""
        return np.argmax(self.final_elbo, axis=-1)

    @cached_property
    def settled(self) -> np.ndarray:
        """(...) whether the last two chunks have settled; False for a single chunk."""
        if len(self.outputs) < 2:
            return np.zeros(self.final_elbo.shape, bool)
        return has_settled(*(elbos for elbos, *_ in self.outputs[-2:]))


def optimise(
    advance: Advance,
    state: Any,
    num_steps: int,
    chunk_length: int,
    on_progress: StepProgress | None = None,
    *,
    report_elbo: bool = True,
    patience: int | None = None,
    moving_until: float = 0.0,
    interruptible: bool = False,
) -> Optimised:
    """Take steps chunk by chunk.

    Args:
        advance: Takes one chunk of steps.
        state: Where to start.
        num_steps: How many steps.
        chunk_length: Steps in a chunk; the last one may be shorter.
        on_progress: Called after every chunk as ``on_progress(done, num_steps)``.
        report_elbo: Whether it gets a third number, the mean over problems of the best restart's
            mean ELBO in the chunk. Fits then have the axes (problems, restarts).
        patience: Stop after this many consecutive chunks in which no fit has risen.
        moving_until: The step until which temperatures move; patience begins after it.
        interruptible: Whether Ctrl-C after the first chunk ends the loop; else it is raised.
    """
    outputs: list[tuple[Any, ...]] = []
    quiet, interrupted = 0, False
    try:
        for start in range(0, num_steps, chunk_length):
            stop = min(start + chunk_length, num_steps)
            state, (elbos, *others) = advance(state, start, stop)
            outputs.append((np.asarray(elbos), *others))
            if on_progress is not None:
                best = _smoothed(outputs[-1][0]).max(axis=-1)
                on_progress(stop, num_steps, *([float(best.mean())] if report_elbo else []))
            if patience is not None and start - chunk_length >= moving_until:
                settled = Optimised(state, outputs, interrupted=False).settled
                quiet = quiet + 1 if settled.all() else 0
                if quiet >= patience:
                    break
    except KeyboardInterrupt:
        if not (outputs and interruptible):
            raise
        summing_up()
        interrupted = True
    return Optimised(state, outputs, interrupted)


def has_settled(before: np.ndarray, last: np.ndarray) -> np.ndarray:
    """(...) whether mean ELBOs (..., steps) rose by at most two standard errors of a chunk's."""
    # In units of the largest, whose square may not fit into its dtype.
    largest = np.maximum(np.abs(before).max(axis=-1), np.abs(last).max(axis=-1))
    unit = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)[..., None]
    before, last = before / unit, last / unit
    variance = (before.var(axis=-1) + last.var(axis=-1)) / last.shape[-1]
    return last.mean(axis=-1) - before.mean(axis=-1) <= 2 * np.sqrt(variance)


def equal_chunks(num_steps: int, chunk_size: int) -> tuple[int, int]:
    """The number of chunks and their length, all alike so that one compilation serves them.

    Together they have at least ``num_steps`` steps.
    """
    count = math.ceil(num_steps / chunk_size)
    return count, math.ceil(num_steps / count)


def host_scan(
    step: Callable[[Any, Any], tuple[Any, Any]], state: Any, inputs: Iterable[Any]
) -> tuple[Any, Any]:
    """`jax.lax.scan` on the host, for steps that evaluate a density that JAX cannot trace."""
    outputs = []
    for one in inputs:
        state, output = step(state, one)
        outputs.append(output)
    return state, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)


def _smoothed(chunk: np.ndarray) -> np.ndarray:
    """Mean ELBOs (...) of a chunk (..., steps), -inf where they are NaN."""
    mean = chunk.mean(axis=-1)
    return np.where(np.isnan(mean), -np.inf, mean)
