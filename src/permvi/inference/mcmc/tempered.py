"""Tempered chains that find far modes of functions, for "auto" and to judge other methods.

A family that was trained from one start may hold one of two far modes, and weights of its draws
tell nothing of the other. Chains at many temperatures, half of them started anywhere and half of
them at the best matching that steps uphill find, agree only if they have weighed the modes.
"""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.mcmc.method import posterior_of
from permvi.inference.mcmc.options import MCMCOptions
from permvi.inference.mcmc.run import run_mcmc
from permvi.posterior import Posterior
from permvi.problem.evaluation import log_densities
from permvi.problem.prepare import Prepared
from permvi.problem.unmatched import random_matchings

# The most rows of all sites together.
_MAX_ROWS = 64
# Proposals of each chain for up to so many rows, and more in proportion for more rows.
_NUM_STEPS, _FEW_ROWS = 100_000, 25
# Draws that are kept, and at most so many times as many of longer runs.
_NUM_DRAWS, _MORE_DRAWS = 10_000, 3
# The most operations of one evaluation, as XLA counts them, and the most seconds, since XLA counts
# what a loop does only once.
_MAX_OPERATIONS, _MAX_SECONDS = 5_000, 1e-3
# Random matchings that tell how hot the hottest chains have to be, the range of that, and the ratio
# of temperatures next to each other unless they would be too many.
_NUM_LOOKS = 256
_COOLEST, _HOTTEST = 3.0, 1e4
_RATIO, _MAX_TEMPERATURES = 1.4, 16


def suits(prepared: Prepared) -> bool:
    """Return whether a density is a JAX function that millions of evaluations can be asked of."""
    problem = prepared.problem
    rows = problem.num_sites * max(problem.shape)
    if not problem.traceable or problem.latents or rows > _MAX_ROWS:
        return False
    perms = _looks(prepared)
    evaluate = jax.jit(lambda perms: problem.log_density_of(problem.data, perms))
    operations = evaluate.lower(jnp.asarray(perms)).cost_analysis() or {}
    if operations.get("flops", 0.0) > _MAX_OPERATIONS * len(perms):
        return False
    log_densities(problem, perms)
    began = time.perf_counter()
    log_densities(problem, perms)
    return time.perf_counter() - began <= _MAX_SECONDS * len(perms)


def settings(prepared: Prepared, longer: int = 1) -> dict[str, Any]:
    """Return options of method "mcmc" for a problem, with so many times as many steps.

    The hottest temperature is the standard deviation of the log density at random matchings, at
    which it hardly tells them apart.
    """
    problem = prepared.problem
    values = log_densities(problem, _looks(prepared))
    spread = values[np.isfinite(values)].std() if np.isfinite(values).any() else 0.0
    hottest = float(np.clip(spread, _COOLEST, _HOTTEST))
    num = 1 + math.ceil(math.log(hottest) / math.log(_RATIO))
    rows = problem.num_sites * max(problem.shape)
    return {
        "num_steps": longer * _NUM_STEPS * max(_FEW_ROWS, rows) // _FEW_ROWS,
        "num_draws": _NUM_DRAWS * min(longer, _MORE_DRAWS),
        "num_temperatures": min(num, _MAX_TEMPERATURES),
        "max_temperature": hottest,
        "start": "both",
    }


def answer(prepared: Prepared) -> Posterior:
    """Return what long chains say, to compare another answer with."""
    options = MCMCOptions(**settings(prepared))
    result = run_mcmc(prepared.problem, jax.random.key(0), options)
    return posterior_of(prepared, result, 0, options)


def _looks(prepared: Prepared) -> np.ndarray:
    return random_matchings(_NUM_LOOKS, prepared.problem, np.random.default_rng(0))
