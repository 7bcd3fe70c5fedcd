"""Posteriors inside JAX transformations: laws on the host are reached through a callback."""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from permvi import _checks

if TYPE_CHECKING:
    from permvi.posterior.posterior import Posterior


def is_traced(value: Any) -> bool:
    """Whether ``jit``, ``vmap`` or ``grad`` hides the value."""
    return not _checks.is_concrete(value)


def log_prob(posterior: "Posterior", perm: Any) -> jax.Array:
    """`Posterior.log_prob` of a traced array."""
    if hasattr(posterior.law, "traced_log_prob"):
        return posterior.law.traced_log_prob(perm)
    event_dim = posterior.mode.ndim
    dtype = jnp.result_type(float)

    def on_host(values: Any) -> np.ndarray:
        return np.asarray(posterior.log_prob(np.asarray(values)), dtype)

    shape = jax.ShapeDtypeStruct(perm.shape[: perm.ndim - event_dim], dtype)
    return jax.pure_callback(on_host, shape, perm, vmap_method="expand_dims")
