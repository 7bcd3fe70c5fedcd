"""Runs of chains: on the device under one scan, or on the host for densities that are not JAX's.

Both kinds make the same proposals. On the host all chains take a step in one call, acceptance is in
float64, and proposals that change nothing or that the constraints forbid cost no evaluation.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from permvi._programmes import jit, light_jit
from permvi.inference.mcmc import kernels
from permvi.inference.mcmc.kernels import KINDS, Chains, Target
from permvi.inference.mcmc.moves import MatchingSpace
from permvi.inference.mcmc.options import Proposal
from permvi.problem.problem import Problem


class Config(NamedTuple):
    """The content of a sweep, compiled into the run.

    Attributes:
        num_swaps: Swaps in a sweep.
        cycles: Whether a proposal along a cycle follows.
        delta: Whether swaps use the model's ``delta``.
        proposal: The independence proposal that follows, without its parameters, or None.
        thin: Sweeps between two records.
    """

    num_swaps: int
    cycles: bool
    delta: bool
    proposal: Proposal | None
    thin: int

    @property
    def counts(self) -> tuple[int, int, int]:
        """The number of proposals of each of `KINDS` in a sweep."""
        return self.num_swaps, int(self.cycles), int(self.proposal is not None)


class Records(NamedTuple):
    """The records of a part of a run of P problems with C chains each.

    Attributes:
        perms: (P, length, C, S, n) the matchings of the coldest chains.
        log_p: (P, length, C) their log densities.
        trades: (P, length) numbers of exchanges between temperatures.
    """

    perms: Any
    log_p: Any
    trades: Any


class DeviceRun:
    """Chains of P problems of one shape, whose densities are JAX functions.

    Args:
        problems: The problems, with an axis of length P in front of every leaf.
        params: The parameters of the independence proposal with the same axis, or None.
        config: The content of a sweep.
        inverse_temperatures: (T,) inverse temperatures.
        perms: (P, B, S, n) starting points, B = C T, the T temperatures of a chain in succession.
        rng_keys: (P,) JAX random keys.

    Attributes:
        num_evaluations: The densities, or differences of them, evaluated for each problem so far.
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
        self._chains = _start(problems, perms)
        log_p = self._chains.log_p
        self._given = problems, params, np.asarray(inverse_temperatures, log_p.dtype), rng_keys
        # A sum of differences cannot start from minus infinity.
        self._config = config._replace(delta=config.delta and bool(jnp.isfinite(log_p).all()))
        self.num_evaluations = perms.shape[1]

    @property
    def chains(self) -> Chains:
        """The chains (P, B, ...) in NumPy."""
        return jax.tree.map(np.asarray, self._chains)

    def advance(self, length: int, first: int) -> Records:
        """Return ``length`` records, numbered from ``first`` on."""
        config = self._config
        self._chains, records = _advance(config, length, *self._given, self._chains, first)
        per_chain = length * config.thin * sum(config.counts) + config.delta
        self.num_evaluations += per_chain * self._chains.perms.shape[1]
        return jax.tree.map(np.asarray, records)


@light_jit
def _start(problems: Problem, perms: jax.Array) -> Chains:
    """Return chains of stacked problems at (P, B, S, n)."""

    def one(problem: Problem, perms: jax.Array) -> Chains:
        return Chains.start(perms, Target.of(problem).log_densities(perms))

    return jax.vmap(one)(problems, perms)


@functools.partial(light_jit, static_argnames=("config", "length"))
def _advance(
    config: Config,
    length: int,
    problems: Problem,
    params: Any,
    inverse_temperatures: jax.Array,
    rng_keys: jax.Array,
    chains: Chains,
    first: jax.Array,
) -> tuple[Chains, Records]:
    """Return the chains after ``length`` records, and the records."""

    def one(problem: Problem, params: Any, chains: Chains, key: jax.Array) -> tuple[Any, Any]:
        target = Target.of(problem)
        if config.delta:
            # Sums of differences drift in float32.
            chains = chains._replace(log_p=target.log_densities(chains.perms))

        def record(chains: Chains, index: jax.Array) -> tuple[Chains, Records]:
            def sweep(chains: Chains, number: jax.Array) -> tuple[Chains, jax.Array]:
                place = index * config.thin + number
                sweep_key = jax.random.fold_in(key, place)
                return _sweep(
                    config, target, params, inverse_temperatures, chains, sweep_key, place % 2
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
    num_chains, pairs = (
        len(chains.perms) // len(inverse_temperatures),
        len(inverse_temperatures) - 1,
    )
    betas = jnp.tile(inverse_temperatures, num_chains)

    def swap(chains: Chains, key: jax.Array) -> tuple[Chains, None]:
        return kernels.swap_step(target, chains, betas, key, use_delta=config.delta), None

    if config.num_swaps == 1:
        chains, _ = swap(chains, swap_key)
    else:
        chains, _ = jax.lax.scan(swap, chains, jax.random.split(swap_key, config.num_swaps))
    if config.cycles:
        chains = kernels.cycle_step(target, chains, betas, cycle_key)
    if config.proposal is not None:
        proposal = config.proposal._replace(params=params)
        chains = kernels.independence_step(target, chains, betas, draw_key, proposal)
    if pairs == 0:
        return chains, jnp.zeros((), int)
    log_u = jnp.log(jax.random.uniform(exchange_key, (num_chains, pairs)))
    return kernels.exchange(chains, inverse_temperatures, parity, log_u)


class HostRun:
    """Chains of one problem on the host; arguments and attributes as in `DeviceRun`, with P = 1.

    The problem and the parameters have no axis in front.
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
        """Return ``length`` records, numbered from ``first`` on."""
        records = []
        cold, thin = slice(None, None, len(self._inverse_temperatures)), self._config.thin
        for index in range(first, first + length):
            traded = sum(self._sweep((index * thin + number) % 2) for number in range(thin))
            records.append((self._chains.perms[cold], self._chains.log_p[cold], traded))
        return Records(*(np.stack(part)[None] for part in zip(*records, strict=True)))

    def _sweep(self, parity: int) -> int:
        for kind, count in zip(KINDS, self._config.counts, strict=True):
            for _ in range(count):
                self._step(kind)
        pairs = len(self._inverse_temperatures) - 1
        if pairs == 0:
            return 0
        log_u = np.log(self._rng.random((len(self._betas) // (pairs + 1), pairs)))
        with np.errstate(invalid="ignore"):
            self._chains, traded = kernels.exchange(
                self._chains, self._inverse_temperatures, parity, log_u
            )
        return int(traded)

    def _step(self, kind: str) -> None:
        chains, proposal = self._chains, self._config.proposal
        key, number = self._move_key, self._num_proposals
        space = self._target.space
        found = _propose(kind, proposal, space, chains.perms, key, number, self._params)
        perms, ratio = (np.asarray(part) for part in found)
        self._num_proposals += 1
        changed = (perms != chains.perms).any(axis=(-2, -1))
        log_p = chains.log_p.copy()
        if changed.any():
            log_p[changed] = self._evaluate(perms[changed])
        log_u = np.log(self._rng.random(len(perms)))
        with np.errstate(invalid="ignore"):
            self._chains = kernels.accept(
                chains, kind, perms, log_p, self._betas, log_u, log_hastings=ratio
            )

    def _evaluate(self, perms: np.ndarray) -> np.ndarray:
        self.num_evaluations += len(perms)
        return np.asarray(self._target.log_densities(perms), np.float64)


@functools.partial(jit, static_argnames=("kind", "proposal"))
def _propose(
    kind: str,
    proposal: Proposal | None,
    space: MatchingSpace,
    perms: jax.Array,
    rng_key: jax.Array,
    number: int,
    params: Any,
) -> tuple[jax.Array, jax.Array | float]:
    """Return proposals of one of `KINDS`, and the logs of their Hastings ratios."""
    key = jax.random.fold_in(rng_key, number)
    if kind == "independence" and proposal is not None:
        return kernels.propose_draws(space, perms, key, proposal._replace(params=params))
    if kind == "cycle":
        return kernels.propose_cycles(space, perms, key), 0.0
    return kernels.propose_swaps(space, perms, key).perm, 0.0
