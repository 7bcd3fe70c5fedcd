"""Mallows models: normalisers, probabilities and samplers against lists of all permutations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from permvi import permutations
from permvi.distributions import Mallows
from permvi.distributions._mallows import DISTANCES, log_normalizer

THETAS = np.array([0.0, 0.1, 0.7, 3.0, 40.0])


@functools.partial(jax.jit, static_argnums=2)
def draw(law, key, num):
    return law.sample(key, (num,))


def slow_distance(a, b, distance):
    """By the definition, on Python lists."""
    a, b = list(map(int, a)), list(map(int, b))
    n = len(a)
    if distance == "footrule":
        return sum(abs(x - y) for x, y in zip(a, b, strict=True))
    if distance == "hamming":
        return sum(x != y for x, y in zip(a, b, strict=True))
    if distance == "kendall":
        return sum((a[i] - a[k]) * (b[i] - b[k]) < 0 for i in range(n) for k in range(i + 1, n))
    swaps, current = 0, a[:]
    for i in range(n):
        if current[i] != b[i]:
            k = current.index(b[i])
            current[i], current[k] = current[k], current[i]
            swaps += 1
    return swaps


def table(n, distance, centre):
    perms = permutations.enumerate_permutations(n)
    return perms, np.array([slow_distance(perm, centre, distance) for perm in perms])


@pytest.mark.float32
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("n", [1, pytest.param(3, marks=pytest.mark.slow), 6])
def test_normaliser_and_probabilities(distance, n, rng):
    centre = rng.permutation(n)
    perms, distances = table(n, distance, centre)
    log_weights = -THETAS[:, None] * distances
    expected = logsumexp(log_weights, axis=1)
    tolerance = 64 * float(jnp.finfo(jnp.result_type(float)).eps) * n**2
    law = Mallows(jnp.asarray(centre), jnp.asarray(THETAS), distance)
    assert law.batch_shape == (5,)
    assert law.event_shape == (n,)
    np.testing.assert_allclose(law.log_normalizer, expected, atol=tolerance)
    np.testing.assert_allclose(log_normalizer(THETAS, n, distance, np), expected, atol=1e-12)
    found = law.log_prob(perms[:, None])
    atol = tolerance * (1 + np.abs(log_weights).max())
    np.testing.assert_allclose(found, (log_weights - expected[:, None]).T, atol=atol)
    np.testing.assert_allclose(np.exp(found).sum(axis=0), 1, atol=atol)


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_gradient_of_the_normaliser_is_minus_the_mean_distance(distance):
    _, distances = table(5, distance, np.arange(5))
    for theta in (0.0, 0.4, 2.0):
        weights = np.exp(-theta * distances)
        expected = -(weights @ distances) / weights.sum()
        found = jax.grad(lambda t: log_normalizer(t, 5, distance))(theta)
        assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.float32
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("theta", [0.0, pytest.param(0.35, marks=pytest.mark.slow), 1.2])
def test_draws_follow_the_law(distance, theta, rng):
    n, num = 5, 20_000
    centre = rng.permutation(n)
    perms, distances = table(n, distance, centre)
    law = Mallows(jnp.asarray(centre), theta, distance)
    draws = np.asarray(draw(law, jax.random.key(7), num))
    powers = n ** np.arange(n)
    places = np.searchsorted(np.sort(perms @ powers), draws @ powers)
    order = np.argsort(perms @ powers)
    counts = np.bincount(places, minlength=len(perms))
    assert (perms[order[places]] == draws).all()
    expected = np.exp(-theta * distances)[order]
    expected *= num / expected.sum()
    rare = expected < 5
    pooled = [np.append(x[~rare], x[rare].sum()) for x in (counts, expected)]
    if pooled[1][-1] == 0:
        pooled = [x[:-1] for x in pooled]
    # Twelve tests, twice: one in a thousand runs fails by chance.
    assert stats.chisquare(*pooled).pvalue > 4e-5


@pytest.mark.parametrize("distance", ["kendall", pytest.param("footrule", marks=pytest.mark.slow)])
def test_a_batch_of_centres_and_dispersions_under_jit(distance, rng):
    centres = jnp.asarray(np.argsort(rng.random((2, 1, 30)), axis=-1))
    theta = jnp.array([0.05, 0.5, 10.0])
    law = Mallows(centres, theta, distance)
    assert law.batch_shape == (2, 3)
    draws = draw(law, jax.random.key(0), 50)
    assert draws.shape == (50, 2, 3, 30)
    assert permutations.is_permutation(draws).all()
    log_probs = jax.jit(lambda law, draws: law.log_prob(draws))(law, draws)
    assert log_probs.shape == (50, 2, 3)
    mean = law.distance_to_centre(draws).mean(axis=(0, 1))
    assert (np.diff(mean) < 0).all()


@pytest.mark.parametrize(
    "distance",
    ["footrule", *(pytest.param(name, marks=pytest.mark.slow) for name in DISTANCES[1:])],
)
def test_the_mean_distance_of_many_items(distance):
    # Too many to list: the mean distance is minus the slope of the normaliser.
    n, theta, num = 40, 0.3, 2000
    draws = draw(Mallows(jnp.arange(n), theta, distance), jax.random.key(1), num)
    found = np.asarray(getattr(permutations, distance)(draws, jnp.arange(n)))
    step = 1e-4
    values = log_normalizer(np.array([theta - step, theta + step]), n, distance, np)
    expected = -(values[1] - values[0]) / (2 * step)
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(num)


def test_what_is_no_permutation_has_probability_zero():
    law = Mallows(jnp.arange(3), 1.0, "hamming", validate_args=False)
    assert law.log_prob(jnp.array([0, 0, 2])) == -jnp.inf
    assert law.support(jnp.array([2, 0, 1]))
    assert not law.support(jnp.array([2, 0, 0]))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 2], 1.0), ValueError, "centre must hold each of 0 to n-1 once"),
        (([0.0, 1.0], 1.0), TypeError, "centre must be an integer array"),
        ((3, 1.0), ValueError, r"centre must have shape \(..., n\), got shape \(\)"),
        (([0, 1], -1.0), ValueError, "theta must be finite and at least 0, got -1.0"),
        (([0, 1], 1.0, "kendal"), ValueError, "distance must be .* did you mean 'kendall'"),
    ],
)
def test_bad_arguments(arguments, error, message):
    centre, *others = arguments
    with pytest.raises(error, match=message):
        Mallows(jnp.asarray(centre), *others)
