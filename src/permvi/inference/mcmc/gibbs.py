"""Swaps given other latent variables: one half of a Gibbs sampler, for users to complete."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from permvi.inference.mcmc.kernels import Chains, Target, cycle_step, swap_step
from permvi.inference.mcmc.moves import only_rows_swap, swaps_need_cycles
from permvi.problem.problem import Problem


def swap_steps(
    problem: Problem,
    perms: ArrayLike,
    rng_key: jax.Array,
    num_steps: int,
    latents: dict[str, Any] | None = None,
) -> jax.Array:
    """Move chains of matchings by Metropolis steps that leave p(matching | latents) invariant.

    Works under ``jit`` and in the body of a ``lax.scan``, in turn with updates of the latents given
    the matchings, for example::

        def sweep(state, key):
            perms, scales = state
            perm_key, scale_key = jax.random.split(key)
            perms = swap_steps(problem, perms, perm_key, 10, {"scale": scales})
            scales = draw_scales_given(perms, scale_key)
            return (perms, scales), (perms, scales)

    Args:
        problem: With a JAX density.
        perms: (C, n) or (C, S, n) feasible matchings of positive density, one for each chain.
        rng_key: A JAX random key.
        num_steps: Swaps of each chain; with a mask, every other step goes along a cycle.
        latents: (C, ...) values of each latent variable of the problem, one for each chain.

    Returns:
        (C, n) or (C, S, n) matchings.

    Raises:
        ValueError: The latents are not those of the problem, or the density is no JAX function.
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
    use_delta = problem.delta is not None and only_rows_swap(problem)
    cycles = swaps_need_cycles(problem)

    def step(chains: Chains, index: jax.Array) -> tuple[Chains, None]:
        key = jax.random.fold_in(rng_key, index)
        if not cycles:
            return swap_step(target, chains, betas, key, use_delta=use_delta), None
        moved = jax.lax.cond(
            index % 2 == 0,
            lambda chains: swap_step(target, chains, betas, key, use_delta=use_delta),
            lambda chains: cycle_step(target, chains, betas, key),
            chains,
        )
        return moved, None

    chains, _ = jax.lax.scan(step, chains, jnp.arange(num_steps))
    return chains.perms.reshape(start.shape)
