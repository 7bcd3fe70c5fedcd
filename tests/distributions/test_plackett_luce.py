"""Plackett-Luce models: probabilities and draws against their definition, item by item."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import constraints
from scipy import stats

from permvi.distributions import PlackettLuce

LOG_WORTHS = np.array([0.3, -1.2, 2.0, 0.0, -0.4, 1.1])


@jax.jit
def log_prob(law, values):
    return law.log_prob(values)


def slow_log_prob(log_worths, order):
    """By the definition, on Python lists."""
    left = set(range(len(log_worths)))
    total = 0.0
    for item in order:
        total += log_worths[item] - math.log(math.fsum(math.exp(log_worths[i]) for i in left))
        left.remove(item)
    return total


def orders(n, k):
    return np.array(list(itertools.permutations(range(n), k)))


@pytest.mark.float32
@pytest.mark.parametrize(("n", "k"), [(1, 1), (4, 4), (6, 6), (5, 2), (6, 1)])
def test_probabilities_are_those_of_the_definition_and_sum_to_one(n, k):
    worths = LOG_WORTHS[:n]
    values = orders(n, k)
    law = PlackettLuce(jnp.asarray(worths), k)
    found = log_prob(law, values)
    tolerance = 64 * float(jnp.finfo(found.dtype).eps) * n
    expected = [slow_log_prob(worths.tolist(), order) for order in values.tolist()]
    np.testing.assert_allclose(found, expected, atol=tolerance)
    assert float(jnp.exp(found).sum()) == pytest.approx(1, abs=math.factorial(n) * tolerance)
    assert law.event_shape == (k,)
    assert found.dtype == jnp.result_type(float)


def test_the_first_places_are_a_marginal():
    law = PlackettLuce(jnp.asarray(LOG_WORTHS[:4]))
    full = orders(4, 4)
    probs = np.exp(log_prob(law, full))
    firsts = orders(4, 2)
    expected = [probs[(full[:, :2] == first).all(axis=1)].sum() for first in firsts]
    np.testing.assert_allclose(np.exp(log_prob(law.top_k(2), firsts)), expected, rtol=1e-12)


@pytest.mark.float32
@pytest.mark.parametrize("k", [4, 2])
def test_draws_follow_the_probabilities(k):
    law = PlackettLuce(jnp.asarray(LOG_WORTHS[:4]), k)
    num, values = 20_000, orders(4, k)
    draw = jax.jit(lambda law, key: law.sample(key, (num,)))
    draws = np.asarray(draw(law, jax.random.key(1)))
    powers = 10 ** np.arange(k)
    counts = np.array([(draws @ powers == code).sum() for code in values @ powers])
    assert counts.sum() == num
    expected = num * np.exp(np.asarray(log_prob(law, values), np.float64))
    assert stats.chisquare(counts, expected * num / expected.sum()).pvalue > 1e-4


def test_batches_and_transformations_are_the_plain_call(rng):
    worths = jnp.asarray(rng.normal(size=(2, 3, 4)))
    values = jnp.asarray(rng.permuted(np.tile(np.arange(4), (5, 2, 3, 1)), axis=-1))
    law = PlackettLuce(worths)
    found = log_prob(law, values)
    assert law.batch_shape == (2, 3)
    assert found.shape == (5, 2, 3)
    drawn = jax.eval_shape(lambda key: law.sample(key, (7,)), jax.random.key(0))
    assert drawn.shape == (7, 2, 3, 4)
    single = [
        slow_log_prob(np.asarray(worths)[index[1:]].tolist(), np.asarray(values)[index].tolist())
        for index in np.ndindex(5, 2, 3)
    ]
    np.testing.assert_allclose(np.ravel(found), single, atol=1e-12)
    np.testing.assert_allclose(law.log_prob(values[0]), found[0], rtol=1e-12)
    mapped = jax.jit(jax.vmap(lambda w, v: PlackettLuce(w).log_prob(v)))(worths, values[0])
    np.testing.assert_allclose(mapped, found[0], rtol=1e-12)
    moved = jax.tree.map(lambda leaf: leaf + 0.0, law.top_k(2))
    assert moved.num_places == 2


def test_the_gradient_is_wins_minus_expected_wins():
    worths, order = LOG_WORTHS[:5], [3, 0, 4]
    slope = jax.jit(jax.grad(lambda w: PlackettLuce(w, 3).log_prob(jnp.array(order))))
    found = slope(jnp.asarray(worths))
    expected, left = np.zeros(5), list(range(5))
    for item in order:
        expected[item] += 1
        shares = np.exp(worths[left])
        expected[left] -= shares / shares.sum()
        left.remove(item)
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.float32
def test_extreme_worths_stay_finite():
    worths = jnp.array([80.0, -80.0, 0.0, 79.0])
    density = jax.value_and_grad(lambda w: PlackettLuce(w).log_prob(jnp.array([1, 2, 3, 0])))
    value, slope = jax.jit(density)(worths)
    assert float(value) == pytest.approx(slow_log_prob(worths.tolist(), [1, 2, 3, 0]), rel=1e-5)
    assert bool(jnp.isfinite(slope).all())


def test_support_and_mode():
    law = PlackettLuce(jnp.asarray(LOG_WORTHS[:4]), validate_args=False)
    np.testing.assert_array_equal(law.mode, [2, 0, 3, 1])
    values = jnp.array([[0, 1, 2, 3], [0, 0, 2, 3], [0, 1, 2, 4], [-1, 1, 2, 3]])
    np.testing.assert_array_equal(law.support(values), [True, False, False, False])
    np.testing.assert_array_equal(jnp.isfinite(log_prob(law, values)), [True, False, False, False])
    assert law.support == PlackettLuce(jnp.zeros(4), 2).support != constraints.real_vector
    assert bool(law.support(law.support.feasible_like(values)).all())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((jnp.zeros(()),), ValueError, r"log_worths must have shape \(..., n\)"),
        ((jnp.array([0.0, jnp.inf]),), ValueError, "log_worths must be finite"),
        ((jnp.array([0, 1]),), TypeError, "log_worths must be a floating-point array"),
        ((jnp.zeros(3), 4), ValueError, "num_places must be at most the 3 items, got 4"),
        ((jnp.zeros(3), 0), ValueError, "num_places must be an integer of at least 1"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        PlackettLuce(*arguments)


def test_more_places_than_there_are():
    with pytest.raises(ValueError, match="k must be at most the 2 places, got 3"):
        PlackettLuce(jnp.zeros(4), 2).top_k(3)
