"""The zero-temperature pmf against enumeration and against cold samples of the relaxation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import permutations, transforms


@pytest.mark.float32
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_the_pmf_sums_to_one(n, rng):
    loc = jnp.asarray(rng.normal(size=(n - 1, n - 1)) * 2)
    sticks = transforms.limit_sticks(loc, jnp.asarray(1.3))
    orders = {"row_order": rng.permutation(n), "col_order": rng.permutation(n)}
    every = permutations.enumerate_permutations(n)
    for options in ({}, orders):
        mass = jnp.exp(transforms.limit_log_prob(every, sticks, **options)).sum()
        np.testing.assert_allclose(mass, 1, rtol=1e-5 if mass.dtype == jnp.float32 else 1e-12)


def test_the_pmf_is_the_law_of_cold_samples(rng):
    n, num = 5, 100_000
    loc, scale = rng.normal(size=(n - 1, n - 1)), rng.uniform(0.5, 2, size=(n - 1, n - 1))
    orders = {"row_order": rng.permutation(n), "col_order": rng.permutation(n)}
    psi = loc + scale * rng.normal(size=(num, n - 1, n - 1))
    X, _ = transforms.stick_breaking(psi, 1e-3, **orders)
    code = np.asarray(X).argmax(-1) @ n ** np.arange(n)[::-1]
    every = permutations.enumerate_permutations(n)
    sticks = transforms.limit_sticks(loc, scale)
    expected = np.exp(transforms.limit_log_prob(every, sticks, **orders))
    counts = np.array([(code == c).sum() for c in every @ n ** np.arange(n)[::-1]])
    # At this temperature one stick in a thousand is not yet at an end: rare, but not never.
    assert counts.sum() >= 0.99 * num
    # Pearson's statistic over the cells with enough expected draws; 4 standard deviations.
    kept = expected * num >= 5
    statistic = ((counts - num * expected)[kept] ** 2 / (num * expected)[kept]).sum()
    degrees = kept.sum() - 1
    assert statistic <= degrees + 4 * np.sqrt(2 * degrees)


def test_forced_entries_have_no_say(rng):
    sticks = transforms.limit_sticks(jnp.asarray(rng.normal(size=(2, 2))), jnp.asarray(1.0))
    # (0, 1, 2): row 0 takes column 0, so (0, 1) and (1, 0) are forced and only two sticks count.
    expected = sticks.log_beta[0, 0] + sticks.log_beta[1, 1]
    np.testing.assert_allclose(transforms.limit_log_prob(jnp.array([0, 1, 2]), sticks), expected)
    # (2, 0, 1): row 0 passes both columns; row 1 takes column 0.
    passed = sticks.log_complement[0].sum() + sticks.log_beta[1, 0]
    np.testing.assert_allclose(transforms.limit_log_prob(jnp.array([2, 0, 1]), sticks), passed)


def test_batched_jitted_and_differentiable(rng):
    loc = jnp.asarray(rng.normal(size=(4, 4)))
    perms = jnp.asarray(permutations.enumerate_permutations(5)[::17])

    @jax.jit
    def total(loc):
        return transforms.limit_log_prob(perms, transforms.limit_sticks(loc, 1.0)).sum()

    one_by_one = jax.vmap(
        lambda perm: transforms.limit_log_prob(perm, transforms.limit_sticks(loc, 1.0))
    )(perms)
    np.testing.assert_allclose(total(loc), one_by_one.sum())
    step = 1e-6 * jnp.ones_like(loc)
    slope = (total(loc + step) - total(loc - step)) / 2e-6
    np.testing.assert_allclose(jax.grad(total)(loc).sum(), slope, rtol=1e-6)


def test_the_tails_keep_their_logarithms():
    sticks = transforms.limit_sticks(jnp.array([[40.0]]), jnp.asarray(1.0))
    log_prob = transforms.limit_log_prob(jnp.array([[0, 1], [1, 0]]), sticks)
    np.testing.assert_allclose(log_prob, [0, -804.608442], atol=1e-5)


def test_a_permutation_of_the_wrong_size_is_refused():
    sticks = transforms.limit_sticks(jnp.zeros((2, 2)), jnp.asarray(1.0))
    with pytest.raises(ValueError, match=r"perm must have shape \(\.\.\., 3\).*got shape \(4,\)"):
        transforms.limit_log_prob(jnp.arange(4), sticks)
