"""Chains and their acceptance rule, in JAX and in NumPy alike.

Functions here take arrays of either kind: densities that are no JAX functions leave the chains on
the host, in float64.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from permvi.inference.mcmc.moves import MatchingSpace, Swap, num_words, propose_cycle, propose_swap
from permvi.problem.problem import Problem

KINDS = ("swap", "cycle", "independence")


class Chains(NamedTuple):
    """B chains: where they are and what they have seen.

    Attributes:
        perms: (B, S, n) matchings.
        log_p: (B,) their log densities.
        best_perms: (B, S, n) the matching of largest density that each has evaluated.
        best_log_p: (B,) its log density. NaN or +inf, which no density may be, stay here once seen.
        moved: (B, 3) how often each of `KINDS` has changed the matching.
    """

    perms: Any
    log_p: Any
    best_perms: Any
    best_log_p: Any
    moved: Any

    @classmethod
    def start(cls, perms: Any, log_p: Any) -> "Chains":
        """Chains that have seen nothing but their starting points."""
        xp = _namespace(perms)
        return cls(perms, log_p, perms, log_p, xp.zeros((len(perms), len(KINDS)), int))


def accept(
    chains: Chains,
    kind: str,
    perms: Any,
    log_p: Any,
    gain: Any,
    betas: Any,
    log_uniforms: Any,
    log_hastings: Any = 0.0,
) -> Chains:
    r"""Metropolis-Hastings on :math:`p^\beta`: move with probability min(1, ratio).

    The ratio is :math:`\exp(\beta (\log p(x') - \log p(x)))` times the Hastings ratio. From where
    the density is zero every proposal is taken, in search of a place where it is not.

    Args:
        chains: B chains.
        kind: One of `KINDS`.
        perms: (B, S, n) proposals; one that is no change is no move.
        log_p: (B,) their log densities.
        gain: (B,) log densities less those of the chains.
        betas: (B,) inverse temperatures.
        log_uniforms: (B,) logs of uniform numbers.
        log_hastings: (B,) logs of Hastings ratios.
    """
    xp = _namespace(chains.perms)
    yes = (log_uniforms < betas * gain + log_hastings) | (chains.log_p == -xp.inf)
    changed = yes & (perms != chains.perms).any(axis=(-2, -1))
    better = ~(log_p <= chains.best_log_p) & ~xp.isnan(chains.best_log_p)
    return Chains(
        perms=xp.where(yes[:, None, None], perms, chains.perms),
        log_p=xp.where(yes, log_p, chains.log_p),
        best_perms=xp.where(better[:, None, None], perms, chains.best_perms),
        best_log_p=xp.where(better, log_p, chains.best_log_p),
        moved=chains.moved + changed[:, None] * (np.arange(len(KINDS)) == KINDS.index(kind)),
    )


def exchange(
    chains: Chains, inverse_temperatures: Any, parity: Any, log_uniforms: Any
) -> tuple[Chains, Any]:
    r"""Exchange matchings between adjacent temperatures (Geyer 1991).

    Neighbours t and t+1 trade places with probability
    :math:`\min(1, \exp((\beta_t - \beta_{t+1}) (\log p_{t+1} - \log p_t)))`, for even t and for odd
    t in turn (Okabe et al. 2001).

    Args:
        chains: B = C T chains, the T temperatures of a chain in succession, the coldest first.
        inverse_temperatures: (T,) decreasing.
        parity: 0 or 1.
        log_uniforms: (C, T-1) logs of uniform numbers.

    Returns:
        The chains, and how many pairs traded places.
    """
    xp = _namespace(chains.perms)
    T = len(inverse_temperatures)
    log_p = chains.log_p.reshape(-1, T)
    ratio = (inverse_temperatures[:-1] - inverse_temperatures[1:]) * (log_p[:, 1:] - log_p[:, :-1])
    trade = (log_uniforms < ratio) & (np.arange(T - 1) % 2 == parity)
    nothing = xp.zeros((len(log_p), 1), int)
    up, down = xp.concatenate([trade, nothing], 1), xp.concatenate([nothing, trade], 1)
    source = (xp.arange(log_p.size).reshape(-1, T) + up - down).reshape(-1)
    return chains._replace(perms=chains.perms[source], log_p=chains.log_p[source]), trade.sum()


def _namespace(array: Any) -> Any:
    return np if isinstance(array, np.ndarray) else jnp


class Target(NamedTuple):
    """A problem, its space, and values of its other latents, (B, ...) each, one for each chain."""

    problem: Problem
    space: MatchingSpace
    latents: dict[str, Any]

    @classmethod
    def of(cls, problem: Problem, latents: dict[str, Any] | None = None) -> "Target":
        """The target of a problem, given its latents if it has any."""
        return cls(problem, MatchingSpace.of(problem), latents or {})

    def log_densities(self, perms: Any) -> Any:
        """(B, S, n) matchings -> (B,) log densities; NumPy in, NumPy out for host densities.

        Raises:
            ValueError: The density does not return one number for each matching.
        """
        problem = self.problem
        events = perms[:, 0] if problem.num_sites == 1 else perms
        if self.latents:

            def one(event: jax.Array, given: dict[str, jax.Array]) -> jax.Array:
                return problem.log_density_of(problem.data, event, **given)

            values = jax.vmap(one)(events, self.latents)
        else:
            values = problem.log_density_of(problem.data, events)
        if values.shape != perms.shape[:1]:
            raise ValueError(
                f"log_density must return one number for each of {len(perms)} matchings, got "
                f"shape {values.shape}."
            )
        return values + self.space.log_weights(perms)

    def gains(self, perms: jax.Array, rows: jax.Array, others: jax.Array, sites: Any) -> jax.Array:
        """(B,) what swapping two rows of (B, S, n) matchings adds, by the model's short cut."""
        problem = self.problem
        several = problem.num_sites > 1
        assert problem.delta is not None  # noqa: S101 (for the type checker)
        delta = problem.delta

        def one(perm: Any, row: Any, other: Any, site: Any, given: dict[str, Any]) -> jax.Array:
            if several:
                return delta(problem.data, perm, row, other, site, **given)
            return delta(problem.data, perm[0], row, other, **given)

        gains = jax.vmap(one)(perms, rows, others, sites, self.latents)
        return jnp.where(rows == others, 0, gains)


def swap_step(
    target: Target, chains: Chains, betas: jax.Array, rng_key: jax.Array, *, use_delta: bool
) -> Chains:
    """One swap of each chain, see `moves`."""
    move_key, accept_key = jax.random.split(rng_key)
    swap = propose_swaps(target.space, chains.perms, move_key)
    if use_delta:
        gain = target.gains(chains.perms, swap.row, swap.other, swap.site)
        gain = gain.astype(chains.log_p.dtype)
        log_p = chains.log_p + gain
    else:
        log_p = target.log_densities(swap.perm)
        gain = log_p - chains.log_p
    return accept(chains, "swap", swap.perm, log_p, gain, betas, _log_uniforms(accept_key, betas))


def cycle_step(target: Target, chains: Chains, betas: jax.Array, rng_key: jax.Array) -> Chains:
    """One change of each chain along an alternating cycle or path, see `moves`."""
    move_key, accept_key = jax.random.split(rng_key)
    perms = propose_cycles(target.space, chains.perms, move_key)
    log_p = target.log_densities(perms)
    gain = log_p - chains.log_p
    return accept(chains, "cycle", perms, log_p, gain, betas, _log_uniforms(accept_key, betas))


def independence_step(
    target: Target,
    chains: Chains,
    betas: jax.Array,
    rng_key: jax.Array,
    params: Any,
    sample: Callable[..., Any],
    log_prob: Callable[..., Any],
) -> Chains:
    """One matching from a law q for each chain, see `Proposal`."""
    move_key, accept_key = jax.random.split(rng_key)
    perms, log_hastings = propose_from(
        target.space, chains.perms, move_key, params, sample, log_prob
    )
    log_p = target.log_densities(perms)
    log_u = _log_uniforms(accept_key, betas)
    gain = log_p - chains.log_p
    return accept(chains, "independence", perms, log_p, gain, betas, log_u, log_hastings)


def propose_swaps(space: MatchingSpace, perms: jax.Array, rng_key: jax.Array) -> Swap:
    """A swap for each of (B, S, n) matchings."""
    words = _words(rng_key, perms, num_words("swap", perms.shape[-1]))
    return jax.vmap(propose_swap, in_axes=(None, 0, 0))(space, perms, words)


def propose_cycles(space: MatchingSpace, perms: jax.Array, rng_key: jax.Array) -> jax.Array:
    """A change along a cycle for each of (B, S, n) matchings."""
    words = _words(rng_key, perms, num_words("cycle", perms.shape[-1]))
    return jax.vmap(propose_cycle, in_axes=(None, 0, 0))(space, perms, words)


def propose_from(
    space: MatchingSpace,
    perms: jax.Array,
    rng_key: jax.Array,
    params: Any,
    sample: Callable[..., Any],
    log_prob: Callable[..., Any],
) -> tuple[jax.Array, jax.Array]:
    """(B, S, n) matchings -> as many draws of q, and (B,) logs of q(old) / q(new)."""
    event = perms.shape[2:] if perms.shape[1] == 1 else perms.shape[1:]

    def one(perm: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn = sample(params, key)
        ratio = log_prob(params, perm.reshape(event)) - log_prob(params, drawn)
        new = drawn.reshape(perm.shape).astype(perm.dtype)
        feasible = space.contains(new)
        return jnp.where(feasible, new, perm), jnp.where(feasible, ratio, 0)

    return jax.vmap(one)(perms, jax.random.split(rng_key, len(perms)))


def exchange_step(
    chains: Chains, inverse_temperatures: jax.Array, parity: jax.Array, rng_key: jax.Array
) -> tuple[Chains, jax.Array]:
    """One round of exchanges between temperatures; returns the number of trades, too."""
    pairs = len(inverse_temperatures) - 1
    shape = (len(chains.perms) // (pairs + 1), pairs)
    log_u = jnp.log(jax.random.uniform(rng_key, shape))
    return exchange(chains, inverse_temperatures, parity, log_u)


def _words(rng_key: jax.Array, perms: jax.Array, num: int) -> jax.Array:
    return jax.random.bits(rng_key, (len(perms), num), jnp.uint32)


def _log_uniforms(rng_key: jax.Array, betas: jax.Array) -> jax.Array:
    return jnp.log(jax.random.uniform(rng_key, betas.shape))


class Config(NamedTuple):
    """What a sweep consists of; compiled into the run.

    Attributes:
        num_swaps: Swaps in a sweep.
        cycles: Whether a proposal along a cycle follows.
        delta: Whether swaps use the model's short cut.
        sample: Draws of the independence proposal that follows, or None.
        log_prob: Its log probabilities, or None.
        thin: Sweeps between two records.
    """

    num_swaps: int
    cycles: bool
    delta: bool
    sample: Callable[..., Any] | None
    log_prob: Callable[..., Any] | None
    thin: int

    @property
    def sweep_length(self) -> int:
        """Proposals in a sweep."""
        return self.num_swaps + self.cycles + (self.sample is not None)


class Records(NamedTuple):
    """What is kept of a part of a run of P problems with C chains each.

    Attributes:
        perms: (P, length, C, S, n) the matchings of the coldest chains.
        log_p: (P, length, C) their log densities.
        trades: (P, length) exchanges between temperatures.
    """

    perms: Any
    log_p: Any
    trades: Any


class Run(Protocol):
    """Chains of P problems under way."""

    @property
    def chains(self) -> Chains:
        """The chains, B = C T of each problem, the T temperatures of a chain in succession."""

    @property
    def num_evaluations(self) -> int:
        """How many densities, or differences of them, were evaluated for each problem so far."""

    def advance(self, length: int, first: int) -> Records:
        """So many records from number ``first`` on."""
