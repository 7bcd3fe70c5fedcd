"""Representations of the symmetric group, transforms, marginals, conditioning and projection."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from permvi.inference.fourier import (
    convolve,
    from_marginals,
    inverse_transform,
    irrep,
    multiply,
    partitions,
    project,
    to_marginals,
    transform,
    tuples,
)
from permvi.permutations import enumerate_permutations


def distribution(rng, n):
    return rng.dirichlet(np.full(math.factorial(n), 0.3))


def largest_difference(a, b):
    assert list(a) == list(b)
    return max(np.abs(a[key] - b[key]).max() for key in a)


def marginals_by_listing(perms, probs, order):
    """P(perm[a] = b) for all tuples, by its definition."""
    items = tuples(perms.shape[1], order)
    place = {tuple(each): k for k, each in enumerate(items.tolist())}
    table = np.zeros((len(items), len(items)))
    for perm, p in zip(perms, probs, strict=True):
        for k, each in enumerate(items):
            table[k, place[tuple(perm[each].tolist())]] += p
    return table


def test_the_partitions():
    assert partitions(4) == [(4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]
    assert partitions(6, 2) == [(6,), (5, 1), (4, 2), (4, 1, 1)]
    assert partitions(50, 1) == [(50,), (49, 1)]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_squares_of_dimensions_add_up(n):
    assert sum(irrep(each).dim ** 2 for each in partitions(n)) == math.factorial(n)


@pytest.mark.parametrize("partition", [*partitions(4), *partitions(5), (4, 2), (6, 1, 1)])
def test_representations(partition, rng):
    found, n = irrep(partition), sum(partition)
    for _ in range(5):
        a, b = rng.permutation(n), rng.permutation(n)
        A, B = found.matrix(a), found.matrix(b)
        np.testing.assert_allclose(A @ B, found.matrix(a[b]), atol=1e-13)
        np.testing.assert_allclose(A @ A.T, np.eye(found.dim), atol=1e-13)
        M = rng.normal(size=(found.dim, found.dim))
        np.testing.assert_allclose(found.left(a, M), A @ M, atol=1e-13)
        np.testing.assert_allclose(found.right(M, a), M @ A, atol=1e-13)


@pytest.mark.parametrize("partition", [(3, 2), (3, 1, 1), (2, 2, 1)])
def test_permutations_of_the_first_items_are_block_diagonal(partition, rng):
    found = irrep(partition)
    inner = rng.permutation(4)
    expected = np.zeros((found.dim, found.dim))
    for smaller, place in found.blocks:
        expected[place, place] = irrep(smaller).matrix(inner)
    np.testing.assert_allclose(found.matrix(np.append(inner, 4)), expected, atol=1e-13)


@pytest.mark.parametrize("partition", partitions(5))
def test_the_mean_transposition_is_a_number(partition):
    found = irrep(partition)
    total = np.zeros((found.dim, found.dim))
    for i in range(5):
        for j in range(i):
            swap = np.arange(5)
            swap[[i, j]] = j, i
            total += found.matrix(swap) / 10
    np.testing.assert_allclose(total, found.mean_transposition * np.eye(found.dim), atol=1e-13)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_the_full_transform_gives_any_distribution_back(n, rng):
    certain = np.eye(math.factorial(n))[-1]
    for values in (distribution(rng, n), certain, rng.normal(size=math.factorial(n))):
        back = inverse_transform(transform(values))
        np.testing.assert_allclose(back, values, rtol=0, atol=1e-10)


def test_the_convolution_theorem(rng):
    perms = enumerate_permutations(4)
    f, g = distribution(rng, 4), distribution(rng, 4)
    place = {tuple(perm): k for k, perm in enumerate(perms.tolist())}
    expected = np.zeros(24)
    for a, p in zip(perms, f, strict=True):
        for b, q in zip(perms, g, strict=True):
            expected[place[tuple(a[b].tolist())]] += p * q
    found = inverse_transform(convolve(transform(f), transform(g)))
    np.testing.assert_allclose(found, expected, atol=1e-14)
    limited = convolve(transform(f), transform(g, 1))
    assert list(limited) == [(4,), (3, 1)]


def test_tables_of_other_sizes_are_refused():
    with pytest.raises(
        ValueError, match="values must have one entry for each of the n! permutations"
    ):
        transform(np.ones(10))


@pytest.mark.parametrize(("n", "order"), [(3, 1), (4, 1), (4, 2), (4, 3), (5, 1), (5, 2)])
def test_marginals_are_those_of_a_list(n, order, rng):
    perms, f = enumerate_permutations(n), distribution(rng, n)
    coefficients = transform(f, order)
    found = to_marginals(coefficients, order)
    np.testing.assert_allclose(found, marginals_by_listing(perms, f, order), atol=1e-13)
    assert largest_difference(from_marginals(found, n, order), coefficients) < 1e-13
    # What no function has is dropped: the way back is an orthogonal projection.
    noise = rng.normal(size=found.shape)
    nearest = to_marginals(from_marginals(noise, n, order), order)
    assert abs(((noise - nearest) * nearest).sum()) < 1e-10


@pytest.mark.parametrize(("n", "order"), [(3, 2), (4, 3), (5, 4), (4, 1), (5, 1), (5, 2)])
def test_conditioning_multiplies_a_band_limited_function(n, order, rng):
    perms, likelihood = enumerate_permutations(n), rng.random(n)
    limited = transform(distribution(rng, n), order)
    for item in (0, n - 1):
        product = inverse_transform(limited) * likelihood[perms[:, item]]
        found = multiply(limited, item, likelihood)
        assert largest_difference(found, transform(product, order)) < 1e-13


def test_a_projection_is_the_nearest_doubly_stochastic_matrix(rng):
    n = 4
    T = to_marginals(transform(distribution(rng, n), 1), 1)
    # Away from the centre, out of the polytope.
    outside = 1 / n + 4 * (T - 1 / n)
    found = project(from_marginals(outside, n, 1), 1)
    nearest = to_marginals(found.coefficients, 1)
    assert found.converged
    assert outside.min() < -0.1 < nearest.min()
    assert nearest.min() >= -1e-9
    np.testing.assert_allclose(nearest.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(nearest.sum(axis=1), 1, atol=1e-12)
    assert found.distance == pytest.approx(np.linalg.norm(nearest - outside))
    sums = np.concatenate(
        [np.kron(np.eye(n), np.ones((1, n))), np.kron(np.ones((1, n)), np.eye(n))]
    )
    expected = minimize(
        lambda x: 0.5 * ((x - outside.ravel()) ** 2).sum(),
        np.full(n * n, 1 / n),
        jac=lambda x: x - outside.ravel(),
        bounds=[(0, 1)] * (n * n),
        # The last sum follows from the others.
        constraints={"type": "eq", "fun": lambda x: (sums @ x - 1)[:-1]},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(nearest.ravel(), expected.x, atol=1e-6)


def test_a_projection_of_pairs(rng):
    n = 4
    coefficients = transform(distribution(rng, n), 2)
    outside = {key: 3 * matrix for key, matrix in coefficients.items()}
    outside[(n,)] = coefficients[(n,)]
    found = project(outside, 2)
    T, start = to_marginals(found.coefficients, 2), to_marginals(outside, 2)
    assert found.converged
    assert start.min() < -0.05
    assert T.min() >= -1e-9
    assert found.coefficients[(n,)] == pytest.approx(np.ones((1, 1)))
    # The same by alternating projections (Dykstra 1983).
    nearest, correction = start, 0.0
    for _ in range(3000):
        positive = np.maximum(nearest + correction, 0)
        correction = nearest + correction - positive
        consistent = from_marginals(positive, n, 2)
        consistent[(n,)] = np.ones((1, 1))
        nearest = to_marginals(consistent, 2)
    np.testing.assert_allclose(T, nearest, atol=1e-7)


def test_what_is_valid_stays(rng):
    coefficients = transform(distribution(rng, 4), 2)
    found = project(coefficients, 2)
    assert found.distance == 0
    assert largest_difference(found.coefficients, coefficients) == 0
