"""The run of chains of many problems under one scan, for densities that are JAX functions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.mcmc.kernels import (
    Chains,
    Config,
    Records,
    Target,
    accept,
    cycle_step,
    exchange,
    exchange_step,
    independence_step,
    propose_cycles,
    propose_from,
    propose_swaps,
    swap_step,
)
from permvi.inference.mcmc.moves import MatchingSpace
from permvi.problem.problem import Problem


class DeviceRun:
    """Chains of many problems of one shape; see `Run`.

    Args:
        problems: With an axis in front, over P problems.
        params: Of the independence proposal, likewise; None without any.
        config: What a sweep consists of.
        inverse_temperatures: (T,).
        perms: (P, B, S, n) starting points.
        rng_keys: (P,) JAX random keys.
    """

    def __init__(
        self,
        problems: Problem,
        params: Any,
        config: Config,
        inverse_temperatures: np.ndarray,
        perms: np.ndarray,
        rng_keys: jax.Array,
    ) -> None:
        self._problems, self._params, self._rng_keys = problems, params, rng_keys
        self._chains = _start(problems, perms)
        log_p = self._chains.log_p
        self._inverse_temperatures = np.asarray(inverse_temperatures, log_p.dtype)
        # A sum of differences cannot start from minus infinity.
        self._config = config._replace(delta=config.delta and bool(jnp.isfinite(log_p).all()))
        self.num_evaluations = perms.shape[1]

    @property
    def chains(self) -> Chains:
        """The chains (P, B, ...) in NumPy."""
        return jax.tree.map(np.asarray, self._chains)

    def advance(self, length: int, first: int) -> Records:
        """So many records from number ``first`` on."""
        config = self._config
        self._chains, records = _advance(
            config,
            length,
            self._problems,
            self._params,
            self._inverse_temperatures,
            self._chains,
            self._rng_keys,
            first,
        )
        per_chain = length * config.thin * config.sweep_length + config.delta
        self.num_evaluations += per_chain * self._chains.perms.shape[1]
        return jax.tree.map(np.asarray, records)


@jax.jit
def _start(problems: Problem, perms: jax.Array) -> Chains:
    """Chains of problems with an axis in front at (P, B, S, n)."""

    def one(problem: Problem, perms: jax.Array) -> Chains:
        return Chains.start(perms, Target.of(problem).log_densities(perms))

    return jax.vmap(one)(problems, perms)


@functools.partial(jax.jit, static_argnames=("config", "length"))
def _advance(
    config: Config,
    length: int,
    problems: Problem,
    params: Any,
    inverse_temperatures: jax.Array,
    chains: Chains,
    rng_keys: jax.Array,
    first: jax.Array,
) -> tuple[Chains, Records]:
    """A chunk of ``length`` records from number ``first`` on, compiled once for a shape."""

    def one(problem: Problem, params: Any, chains: Chains, key: jax.Array) -> tuple[Any, Any]:
        target = Target.of(problem)
        if config.delta:
            # Sums of differences drift in float32.
            chains = chains._replace(log_p=target.log_densities(chains.perms))

        def record(chains: Chains, index: jax.Array) -> tuple[Chains, Records]:
            def sweep(chains: Chains, number: jax.Array) -> tuple[Chains, jax.Array]:
                sweep_key = jax.random.fold_in(key, index * config.thin + number)
                parity = (index * config.thin + number) % 2
                return _sweep(
                    config, target, params, inverse_temperatures, chains, sweep_key, parity
                )

            chains, trades = jax.lax.scan(sweep, chains, jnp.arange(config.thin))
            cold = slice(None, None, len(inverse_temperatures))
            return chains, Records(chains.perms[cold], chains.log_p[cold], trades.sum())

        return jax.lax.scan(record, chains, first + jnp.arange(length))

    return jax.vmap(one)(problems, params, chains, rng_keys)


def _sweep(
    config: Config,
    target: Target,
    params: Any,
    inverse_temperatures: jax.Array,
    chains: Chains,
    rng_key: jax.Array,
    parity: jax.Array,
) -> tuple[Chains, jax.Array]:
    swap_key, cycle_key, draw_key, exchange_key = jax.random.split(rng_key, 4)
    betas = jnp.tile(inverse_temperatures, len(chains.perms) // len(inverse_temperatures))

    def swap(chains: Chains, key: jax.Array) -> tuple[Chains, None]:
        return swap_step(target, chains, betas, key, use_delta=config.delta), None

    if config.num_swaps == 1:
        chains, _ = swap(chains, swap_key)
    else:
        chains, _ = jax.lax.scan(swap, chains, jax.random.split(swap_key, config.num_swaps))
    if config.cycles:
        chains = cycle_step(target, chains, betas, cycle_key)
    if config.sample is not None and config.log_prob is not None:
        chains = independence_step(
            target, chains, betas, draw_key, params, config.sample, config.log_prob
        )
    if len(inverse_temperatures) == 1:
        return chains, jnp.zeros((), int)
    return exchange_step(chains, inverse_temperatures, parity, exchange_key)


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
