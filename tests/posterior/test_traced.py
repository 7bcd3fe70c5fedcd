"""Exact probabilities inside JAX transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import permutations
from permvi.posterior import ExactLaw, Posterior


@pytest.mark.float32
@pytest.mark.parametrize("num_sites", [1, 2])
def test_log_prob_under_jit_and_nested_vmap(num_sites, rng):
    scores = rng.normal(size=(4, 4) if num_sites == 1 else (num_sites, 4, 4))
    posterior = Posterior.from_exact(ExactLaw(scores), method="exact")
    every = permutations.enumerate_permutations(4)
    perms = every if num_sites == 1 else every[rng.integers(24, size=(24, num_sites))]
    expected = posterior.log_prob(perms)
    if num_sites == 1:
        np.testing.assert_allclose(np.exp(expected).sum(), 1)
    batch = jnp.asarray(perms).reshape(6, 4, *perms.shape[1:])
    for found in (
        jax.jit(posterior.log_prob)(batch),
        jax.vmap(jax.vmap(posterior.log_prob))(batch),
        posterior.log_prob(batch),
    ):
        np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-5)
