"""Steps of many chains at once, for densities that are JAX functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from permvi.inference.mcmc.chains import Chains, accept, exchange
from permvi.inference.mcmc.moves import Swap, num_words, propose_cycle, propose_swap
from permvi.inference.mcmc.space import MatchingSpace
from permvi.inference.problem import Problem


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
