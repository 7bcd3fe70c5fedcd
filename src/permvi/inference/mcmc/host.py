"""The run of chains whose density is no JAX function: all chains in one call for each step.

Proposals are the same as in `loop`, acceptance is in float64. Proposals that change nothing, or
that the constraints forbid, cost no evaluation.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from permvi.inference.mcmc.chains import Chains, accept, exchange
from permvi.inference.mcmc.kernels import Target, propose_cycles, propose_from, propose_swaps
from permvi.inference.mcmc.space import MatchingSpace
from permvi.inference.mcmc.sweeps import Config, Records
from permvi.inference.problem import Problem


class HostRun:
    """Chains of one problem on the host; see `Run`, with P = 1.

    Args:
        problem: The problem.
        params: Of the independence proposal, or None.
        config: What a sweep consists of.
        inverse_temperatures: (T,).
        perms: (1, B, S, n) starting points.
        rng_keys: (1,) JAX random keys.
    """

    def __init__(
        self,
        problem: Problem,
        params: Any,
        config: Config,
        inverse_temperatures: np.ndarray,
        perms: np.ndarray,
        rng_keys: jax.Array,
    ) -> None:
        self._target, self._params, self._config = Target.of(problem), params, config
        self._inverse_temperatures = inverse_temperatures
        self._betas = np.tile(inverse_temperatures, perms.shape[1] // len(inverse_temperatures))
        self._move_key, accept_key = jax.random.split(rng_keys[0])
        self._rng = np.random.default_rng(np.asarray(jax.random.key_data(accept_key)))
        self._num_proposals = 0
        self.num_evaluations = 0
        self._chains = Chains.start(perms[0], self._evaluate(perms[0]))

    @property
    def chains(self) -> Chains:
        """The chains (1, B, ...)."""
        return Chains(*(part[None] for part in self._chains))

    def advance(self, length: int, first: int) -> Records:
        """So many records from number ``first`` on."""
        perms, log_p, trades = [], [], []
        cold = slice(None, None, len(self._inverse_temperatures))
        for index in range(first, first + length):
            traded = 0
            for number in range(self._config.thin):
                traded += self._sweep((index * self._config.thin + number) % 2)
            perms.append(self._chains.perms[cold])
            log_p.append(self._chains.log_p[cold])
            trades.append(traded)
        return Records(np.stack(perms)[None], np.stack(log_p)[None], np.array(trades)[None])

    def _sweep(self, parity: int) -> int:
        config = self._config
        for _ in range(config.num_swaps):
            self._step("swap", _swaps)
        if config.cycles:
            self._step("cycle", _cycles)
        if config.sample is not None and config.log_prob is not None:
            self._step(
                "independence", _draws, self._params, sample=config.sample, log_prob=config.log_prob
            )
        pairs = len(self._inverse_temperatures) - 1
        if pairs == 0:
            return 0
        log_u = np.log(self._rng.random((len(self._betas) // (pairs + 1), pairs)))
        with np.errstate(invalid="ignore"):
            self._chains, traded = exchange(self._chains, self._inverse_temperatures, parity, log_u)
        return int(traded)

    def _step(self, kind: str, propose: Callable[..., Any], *params: Any, **functions: Any) -> None:
        chains = self._chains
        found = propose(
            self._target.space,
            chains.perms,
            self._move_key,
            self._num_proposals,
            *params,
            **functions,
        )
        perms, log_hastings = (np.asarray(part) for part in found)
        self._num_proposals += 1
        changed = (perms != chains.perms).any(axis=(-2, -1))
        log_p = chains.log_p.copy()
        if changed.any():
            log_p[changed] = self._evaluate(perms[changed])
        log_u = np.log(self._rng.random(len(perms)))
        with np.errstate(invalid="ignore"):
            gain = log_p - chains.log_p
            self._chains = accept(
                chains, kind, perms, log_p, gain, self._betas, log_u, log_hastings
            )

    def _evaluate(self, perms: np.ndarray) -> np.ndarray:
        self.num_evaluations += len(perms)
        return np.asarray(self._target.log_densities(perms), np.float64)


@jax.jit
def _swaps(
    space: MatchingSpace, perms: jax.Array, rng_key: jax.Array, number: int
) -> tuple[jax.Array, float]:
    return propose_swaps(space, perms, jax.random.fold_in(rng_key, number)).perm, 0.0


@jax.jit
def _cycles(
    space: MatchingSpace, perms: jax.Array, rng_key: jax.Array, number: int
) -> tuple[jax.Array, float]:
    return propose_cycles(space, perms, jax.random.fold_in(rng_key, number)), 0.0


@functools.partial(jax.jit, static_argnames=("sample", "log_prob"))
def _draws(
    space: MatchingSpace,
    perms: jax.Array,
    rng_key: jax.Array,
    number: int,
    params: Any,
    *,
    sample: Callable[..., Any],
    log_prob: Callable[..., Any],
) -> tuple[jax.Array, jax.Array]:
    key = jax.random.fold_in(rng_key, number)
    return propose_from(space, perms, key, params, sample, log_prob)
