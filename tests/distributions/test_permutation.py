"""The uniform distribution over permutations against lists of all of them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from permvi import permutations
from permvi.distributions import Permutation

RING = sum(np.roll(np.eye(5), shift, axis=0) for shift in range(3)) > 0
CASES = {
    "all": (5, {}),
    "mask": (5, {"mask": RING}),
    "known": (5, {"known": [-1, 3, -1, -1, 0]}),
    "both": (5, {"mask": RING, "known": [-1, -1, -1, -1, 4]}),
    "one": (1, {}),
}


def allowed(n, mask=None, known=None):
    """List the permutations that are allowed, (count, n)."""
    perms = permutations.enumerate_permutations(n)
    fits = np.ones(len(perms), bool)
    if mask is not None:
        fits &= mask[np.arange(n), perms].all(axis=1)
    if known is not None:
        fits &= ((np.array(known) < 0) | (perms == known)).all(axis=1)
    return perms[fits]


@pytest.mark.float32
@pytest.mark.parametrize("name", CASES)
def test_probabilities_are_those_of_a_list(name):
    n, given = CASES[name]
    prior, possible = Permutation(n, **given), allowed(n, **given)
    every = permutations.enumerate_permutations(n)
    expected = np.full(len(every), -np.inf)
    fits = (every[:, None] == possible).all(-1).any(-1)
    expected[fits] = -np.log(len(possible))
    found = jax.jit(prior.log_prob)(every)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == jnp.result_type(float)
    np.testing.assert_array_equal(prior.support(every), fits)
    assert jax.jit(prior.log_prob)(jnp.zeros(n, int) - 1) == -np.inf


@pytest.mark.parametrize("name", CASES)
def test_draws_are_uniform(name):
    n, given = CASES[name]
    prior, possible = Permutation(n, **given), allowed(n, **given)
    num = 4000
    draws = np.asarray(jax.jit(lambda key: prior.sample(key, (num,)))(jax.random.key(1)))
    assert draws.shape == (num, n)
    counts = (draws[:, None] == possible).all(-1).sum(0)
    assert counts.sum() == num
    expected = num / len(possible)
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Chi-squared: mean k and variance 2 k, five standard deviations.
    k = len(possible) - 1
    assert statistic <= k + 5 * np.sqrt(2 * k) + 1e-9


def test_batches_plates_and_events():
    masks = np.stack([RING, np.eye(5, dtype=bool), np.ones((5, 5), bool)])
    prior = Permutation(5, mask=masks)
    assert (prior.batch_shape, prior.event_shape) == ((3,), (5,))
    draws = prior.sample(jax.random.key(0), (7,))
    assert draws.shape == (7, 3, 5)
    counts = np.log([len(allowed(5, mask)) for mask in masks])
    np.testing.assert_allclose(prior.log_prob(draws), np.tile(-counts, (7, 1)), rtol=1e-6)
    np.testing.assert_array_equal(draws[:, 1], np.tile(np.arange(5), (7, 1)))
    assert prior.to_event(1).log_prob(draws).shape == (7,)
    assert Permutation(4).expand((2, 3)).sample(jax.random.key(0)).shape == (2, 3, 4)

    def model():
        with numpyro.plate("few", 3):
            numpyro.sample("X", Permutation(5))

    trace = handlers.trace(handlers.seed(model, 0)).get_trace()
    assert trace["X"]["value"].shape == (3, 5)
    assert isinstance(trace["X"]["fn"], dist.Distribution)


def test_it_is_a_pytree_of_arrays():
    prior = Permutation(5, mask=RING)
    again = jax.jit(lambda p: p)(prior)
    value = jnp.arange(5)
    np.testing.assert_allclose(again.log_prob(value), prior.log_prob(value), rtol=1e-6)
    # A traced mask is not counted, and its draws are allowed.
    draws = jax.jit(lambda mask, key: Permutation(5, mask).sample(key, (50,)))(
        RING, jax.random.key(0)
    )
    assert RING[np.arange(5), np.asarray(draws)].all()
    assert jax.jit(lambda mask: Permutation(5, mask).log_prob(value))(RING) == 0
    feasible = prior.support.feasible_like(jnp.zeros((2, 5), int))
    assert bool(prior.support(feasible).all())
    assert prior.support == Permutation(5, mask=RING).support != Permutation(5).support


def test_large_masks_are_not_normalised_but_known_pairs_make_them_small():
    n = 20
    mask = ~np.eye(n, dtype=bool)
    draws = np.asarray(Permutation(n, mask).sample(jax.random.key(0), (9,)))
    assert (np.sort(draws, axis=-1) == np.arange(n)).all()
    assert (draws != np.arange(n)).all()
    assert Permutation(n, mask).log_prob(draws[0]) == 0
    known = np.arange(n)
    known[:4] = -1
    np.testing.assert_allclose(Permutation(n, known=known).log_count, np.log(24))


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"n": 0}, ValueError, "n must be an integer of at least 1"),
        ({"n": 3, "mask": np.ones((2, 2), bool)}, ValueError, r"mask must have shape \(..., 3, 3"),
        ({"n": 3, "mask": np.ones((3, 3))}, TypeError, "mask must be boolean"),
        ({"n": 3, "known": [0, 0, -1]}, ValueError, "mask"),
        ({"n": 3, "known": [0, 7, -1]}, ValueError, "known must hold columns 0 to 2"),
    ],
)
def test_bad_arguments_are_named(arguments, error, match):
    with pytest.raises(error, match=match):
        Permutation(**arguments)
