"""Markov kernels on many chains at once: swaps, cycles, independence proposals and exchanges.

`accept` and `exchange` take JAX and NumPy arrays alike, since chains of densities that are not JAX
functions stay on the host, in float64. The steps are for densities that are JAX functions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from permvi.inference.mcmc import moves
from permvi.inference.mcmc.moves import MatchingSpace, Swap
from permvi.inference.mcmc.options import Proposal
from permvi.problem.problem import Problem

KINDS = ("swap", "cycle", "independence")


class Chains(NamedTuple):
    """The states of B chains and what they have seen.

    Attributes:
        perms: (B, S, n) matchings.
        log_p: (B,) their log densities.
        best_perms: (B, S, n) the matching of largest density that each chain has evaluated.
        best_log_p: (B,) its log density. NaN and +inf, which are errors, stay here once seen.
        moved: (B, 3) how often each of `KINDS` has changed the matching.
    """

    perms: Any
    log_p: Any
    best_perms: Any
    best_log_p: Any
    moved: Any

    @classmethod
    def start(cls, perms: Any, log_p: Any) -> "Chains":
        """Return chains at their starting points."""
        xp = _namespace(perms)
        return cls(perms, log_p, perms, log_p, xp.zeros((len(perms), len(KINDS)), int))


def accept(
    chains: Chains,
    kind: str,
    perms: Any,
    log_p: Any,
    betas: Any,
    log_uniforms: Any,
    *,
    gain: Any = None,
    log_hastings: Any = 0.0,
) -> Chains:
    r"""Accept or reject proposals by Metropolis-Hastings on :math:`p^\beta`.

    The ratio is :math:`\exp(\beta (\log p(x') - \log p(x)))` times the Hastings ratio. A chain
    whose density is zero accepts every proposal, in search of a positive density.

    ``perms``, (B, S, n), are proposals of one ``kind`` for B chains and ``log_p`` their log
    densities; a proposal equal to the state does not count as a move. All other arrays are (B,):
    ``betas`` are inverse temperatures, ``log_uniforms`` logs of uniform numbers, and ``gain`` is
    the change of the log density, if it is known more precisely than from the difference.
    """
    xp = _namespace(chains.perms)
    gain = log_p - chains.log_p if gain is None else gain
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
    t in turn (Okabe et al. 2001), by ``parity``. There are B = C T chains, the T temperatures of a
    chain in succession. ``inverse_temperatures``, (T,), decrease, and ``log_uniforms``, (C, T-1),
    are logs of uniform numbers. Return the chains and the number of pairs that traded places.
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
    """A problem, its space, and the values of its other latents, (B, ...) each."""

    problem: Problem
    space: MatchingSpace
    latents: dict[str, Any]

    @classmethod
    def of(cls, problem: Problem, latents: dict[str, Any] | None = None) -> "Target":
        """Return the target of a problem, given its latents if it has any."""
        return cls(problem, MatchingSpace.of(problem), latents or {})

    def log_densities(self, perms: Any) -> Any:
        """Return log densities (B,) of matchings (B, S, n), in NumPy for densities on the host."""
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

    def gains(self, perms: jax.Array, swap: Swap) -> jax.Array:
        """Return (B,) the change of log density by swaps of (B, S, n) matchings, by ``delta``."""
        problem = self.problem
        delta: Any = problem.delta

        def one(perm: Any, row: Any, other: Any, site: Any, given: dict[str, Any]) -> jax.Array:
            if problem.num_sites > 1:
                return delta(problem.data, perm, row, other, site, **given)
            return delta(problem.data, perm[0], row, other, **given)

        gains = jax.vmap(one)(perms, swap.row, swap.other, swap.site, self.latents)
        return jnp.where(swap.row == swap.other, 0, gains)


def swap_step(
    target: Target, chains: Chains, betas: jax.Array, rng_key: jax.Array, *, use_delta: bool
) -> Chains:
    """Make one swap step in each chain, see `moves`."""
    move_key, accept_key = jax.random.split(rng_key)
    swap, log_u = propose_swaps(target.space, chains.perms, move_key), _logs(accept_key, betas)
    if not use_delta:
        return accept(chains, "swap", swap.perm, target.log_densities(swap.perm), betas, log_u)
    gain = target.gains(chains.perms, swap).astype(chains.log_p.dtype)
    return accept(chains, "swap", swap.perm, chains.log_p + gain, betas, log_u, gain=gain)


def cycle_step(target: Target, chains: Chains, betas: jax.Array, rng_key: jax.Array) -> Chains:
    """Make one step along an alternating cycle or path in each chain, see `moves`."""
    move_key, accept_key = jax.random.split(rng_key)
    perms = propose_cycles(target.space, chains.perms, move_key)
    log_p, log_u = target.log_densities(perms), _logs(accept_key, betas)
    return accept(chains, "cycle", perms, log_p, betas, log_u)


def independence_step(
    target: Target, chains: Chains, betas: jax.Array, rng_key: jax.Array, proposal: Proposal
) -> Chains:
    """Propose one matching from the proposal's law q to each chain."""
    move_key, accept_key = jax.random.split(rng_key)
    perms, ratio = propose_draws(target.space, chains.perms, move_key, proposal)
    log_p, log_u = target.log_densities(perms), _logs(accept_key, betas)
    return accept(chains, "independence", perms, log_p, betas, log_u, log_hastings=ratio)


def propose_swaps(space: MatchingSpace, perms: jax.Array, rng_key: jax.Array) -> Swap:
    """Propose a swap for each of (B, S, n) matchings."""
    words = jax.random.bits(rng_key, (len(perms), 2), jnp.uint32)
    return jax.vmap(moves.propose_swap, in_axes=(None, 0, 0))(space, perms, words)


def propose_cycles(space: MatchingSpace, perms: jax.Array, rng_key: jax.Array) -> jax.Array:
    """Propose a change along a cycle for each of (B, S, n) matchings."""
    words = jax.random.bits(rng_key, (len(perms), perms.shape[-1] + 2), jnp.uint32)
    return jax.vmap(moves.propose_cycle, in_axes=(None, 0, 0))(space, perms, words)


def propose_draws(
    space: MatchingSpace, perms: jax.Array, rng_key: jax.Array, proposal: Proposal
) -> tuple[jax.Array, jax.Array]:
    """Propose draws of q for (B, S, n) matchings; return them and (B,) logs of q(old) / q(new)."""
    event = perms.shape[2:] if perms.shape[1] == 1 else perms.shape[1:]

    def one(perm: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        drawn, log_q, log_q_old = proposal.sample(proposal.params, key, perm.reshape(event))
        ratio = log_q_old - log_q
        new = drawn.reshape(perm.shape).astype(perm.dtype)
        feasible = space.contains(new)
        return jnp.where(feasible, new, perm), jnp.where(feasible, ratio, 0)

    return jax.vmap(one)(perms, jax.random.split(rng_key, len(perms)))


def _logs(rng_key: jax.Array, betas: jax.Array) -> jax.Array:
    return jnp.log(jax.random.uniform(rng_key, betas.shape))


def swap_steps(
    problem: Problem,
    perms: ArrayLike,
    rng_key: jax.Array,
    num_steps: int,
    latents: dict[str, Any] | None = None,
) -> jax.Array:
    """Move chains of matchings by Metropolis steps that leave p(matching | latents) invariant.

    This is one half of a Gibbs sampler, in turn with updates of the latents given the matchings. It
    works under ``jit`` and in the body of a ``lax.scan``, for example::

        def sweep(state, key):
            perms, scales = state
            perm_key, scale_key = jax.random.split(key)
            perms = swap_steps(problem, perms, perm_key, 10, {"scale": scales})
            scales = draw_scales_given(perms, scale_key)
            return (perms, scales), (perms, scales)

    Args:
        problem: A problem with a JAX density.
        perms: (C, n) or (C, S, n) feasible matchings of positive density, one for each chain.
        rng_key: A JAX random key.
        num_steps: Swaps of each chain; with a mask, every other step goes along a cycle.
        latents: (C, ...) values of each latent variable of the problem, one for each chain.

    Returns:
        The new matchings, of the shape of ``perms``.

    Raises:
        ValueError: The latents are not those of the problem, or the density is not a JAX function.
    """
    given = latents or {}
    if not problem.traceable:
        raise ValueError("problem must have a JAX density for swap_steps, got one on the host.")
    if set(given) != set(problem.latents):
        raise ValueError(
            f"latents must be those of the problem, {sorted(problem.latents)}, got {sorted(given)}."
        )
    # A density that indexes its data by traced rows needs JAX arrays.
    problem = jax.tree.map(jnp.asarray, problem)
    start = jnp.asarray(perms, int)
    states = start[:, None] if problem.num_sites == 1 else start
    target = Target.of(problem, {name: jnp.asarray(value) for name, value in given.items()})
    chains = Chains.start(states, target.log_densities(states))
    betas = jnp.ones_like(chains.log_p)
    use_delta = problem.delta is not None and moves.only_rows_swap(problem)
    cycles = moves.swaps_need_cycles(problem)

    def step(chains: Chains, index: jax.Array) -> tuple[Chains, None]:
        key = jax.random.fold_in(rng_key, index)

        def swap(chains: Chains) -> Chains:
            return swap_step(target, chains, betas, key, use_delta=use_delta)

        def cycle(chains: Chains) -> Chains:
            return cycle_step(target, chains, betas, key)

        return (jax.lax.cond(index % 2 == 0, swap, cycle, chains) if cycles else swap(chains)), None

    chains, _ = jax.lax.scan(step, chains, jnp.arange(num_steps))
    return chains.perms.reshape(start.shape)
