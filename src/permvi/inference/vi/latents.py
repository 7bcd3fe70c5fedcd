"""Latents other than permutations: independent normals in unconstrained space."""

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

# In units of the prior where that is normal, else in unconstrained space.
_INITIAL_SCALE = 0.1


def latent_start(prior: Any, rng_key: jax.Array, spread: jax.Array) -> jax.Array:
    """Where the location of a latent starts.

    Normal priors: at the prior's mean, spread like the start of the permutations. Others: at the
    median of a few prior draws.
    """
    if _normal(prior) is None:
        middle = jnp.median(prior.sample(rng_key, (15,)), axis=0)
        return dist.biject_to(prior.support).inv(middle)
    return spread * jax.random.normal(rng_key, prior.shape(), spread.dtype)


def latent_start_scale(loc: jax.Array) -> jax.Array:
    """The real parameter of the scale at the start."""
    return jnp.full(jnp.shape(loc), jnp.log(jnp.expm1(_INITIAL_SCALE)))


def latent_guide(prior: Any, loc: jax.Array, raw_scale: jax.Array) -> Any:
    """The variational distribution of a latent with real parameters.

    With a normal prior they are in units of the prior, so that a step of Adam means the same for
    latents of any size.
    """
    transform = dist.biject_to(prior.support)
    scale = jax.nn.softplus(raw_scale)
    normal = _normal(prior)
    if normal is not None:
        loc, scale = normal.loc + normal.scale * loc, normal.scale * scale
    base = dist.Normal(loc, scale).to_event(transform.domain.event_dim)
    return dist.TransformedDistribution(base, transform)


def _normal(prior: Any) -> Any:
    """The normal distribution that a prior is, perhaps of several entries, or None."""
    inner = prior.base_dist if isinstance(prior, dist.Independent) else prior
    return inner if isinstance(inner, dist.Normal) else None
