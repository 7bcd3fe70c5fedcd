"""Tempered chains that find far modes of functions, for "auto" and to judge other methods.

A family that was trained from one start may hold one of two far modes, and weights of its draws
tell nothing of the other. Chains at many temperatures, half of them started anywhere and half of
them at the best matching that steps uphill find, agree only if they have weighed the modes.
"""

import math
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from permvi.inference.mcmc.method import posterior_of
from permvi.inference.mcmc.options import HOTTEST_TRUSTED, MCMCOptions
from permvi.inference.mcmc.run import run_mcmc
from permvi.posterior import Posterior
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared
from permvi.problem.problem import Problem
from permvi.problem.unmatched import random_matchings

# The most rows of all sites together, for chains that judge.
_MAX_ROWS = 64
# Proposals of each chain for up to so many rows, and more in proportion for more rows.
_NUM_STEPS, _FEW_ROWS = 100_000, 25
# There are as many if an evaluation takes up to so many seconds, half as many if it takes up to
# twice as long, and so on down to the last number: chains of fewer steps would show nothing, and
# if evaluations take longer than the most seconds, such chains would take minutes.
_FAST_SECONDS, _MOST_SECONDS, _FEWEST_STEPS = 2e-6, 128e-6, 3_125
# What a step of a chain on the host takes beside the call.
_HOST_SECONDS = 5e-6
# Draws that are kept, and at most so many times as many of longer runs.
_NUM_DRAWS, _MORE_DRAWS = 10_000, 3
# Random matchings that are evaluated, a few of them first, since each may take seconds. They tell
# how hot the hottest chains have to be; the range of that, and the ratio of temperatures next to
# each other unless they would be too many.
_NUM_LOOKS, _FEW_LOOKS = 256, 4
_COOLEST, _HOTTEST = 3.0, 1e4
_RATIO, _MAX_TEMPERATURES = 1.4, 16


class Ladder(NamedTuple):
    """How long and how hot the chains of a problem are.

    Attributes:
        num_steps: Proposals of each chain at each temperature if chains only judge.
        hottest: The highest temperature.
        fast: Whether evaluations are so quick that there are no fewer steps because of them.
    """

    num_steps: int
    hottest: float
    fast: bool

    @property
    def may_be_trusted(self) -> bool:
        """Whether chains may be trusted if they run for long enough."""
        return self.hottest <= HOTTEST_TRUSTED

    def settings(self, longer: int = 1) -> dict[str, Any]:
        """Return options of method "mcmc", with so many times as many steps."""
        num = 1 + math.ceil(math.log(self.hottest) / math.log(_RATIO))
        return {
            "num_steps": longer * self.num_steps,
            "num_draws": _NUM_DRAWS * min(longer, _MORE_DRAWS),
            "num_temperatures": min(num, _MAX_TEMPERATURES),
            "max_temperature": self.hottest,
            "start": "both",
        }


def ladder(prepared: Prepared, max_rows: int = _MAX_ROWS) -> Ladder | None:
    """Return how chains of a problem should run; None if it has many rows, or it takes minutes.

    The highest temperature is the standard deviation of the log density at random matchings, at
    which it hardly tells them apart.
    """
    problem = prepared.problem
    rows = problem.num_sites * max(problem.shape)
    if problem.latents or rows > max_rows:
        return None
    looks = random_matchings(_NUM_LOOKS, problem, np.random.default_rng(0))
    if not problem.traceable and _timed(problem, looks[:_FEW_LOOKS])[0] > 2 * _MOST_SECONDS:
        return None
    seconds, values = _timed(problem, looks)
    if seconds > _MOST_SECONDS:
        return None
    of_step = seconds + (0.0 if problem.traceable else _HOST_SECONDS)
    halvings = max(0, math.ceil(math.log2(of_step / _FAST_SECONDS)))
    spread = values[np.isfinite(values)].std() if np.isfinite(values).any() else 0.0
    return Ladder(
        max(_FEWEST_STEPS, _NUM_STEPS >> halvings) * max(_FEW_ROWS, rows) // _FEW_ROWS,
        float(np.clip(spread, _COOLEST, _HOTTEST)),
        halvings == 0,
    )


def answer(prepared: Prepared, found: Ladder) -> Posterior:
    """Return what long chains say, to compare another answer with."""
    options = MCMCOptions(**found.settings())
    result = run_mcmc(prepared.problem, jax.random.key(0), options)
    if result.interrupted:
        raise KeyboardInterrupt
    return posterior_of(prepared, result, 0, options)


def _timed(problem: Problem, perms: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the seconds that an evaluation takes, and log densities (num,)."""
    taken = []
    # The first time, JAX compiles.
    for _ in range(3):
        began = time.perf_counter()
        values = log_densities(problem, perms)
        taken.append(time.perf_counter() - began)
    return min(taken) / len(perms), values
