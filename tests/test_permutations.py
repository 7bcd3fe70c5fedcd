"""Permutations against their definitions, written out over all of S_n."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import permutations

DISTANCES = ["hamming", "footrule", "kendall", "cayley"]


def all_of(n):
    return np.array(list(itertools.permutations(range(n))))


def definition(name, a, b):
    n = len(a)
    if name == "hamming":
        return sum(a[i] != b[i] for i in range(n))
    if name == "footrule":
        return sum(abs(a[i] - b[i]) for i in range(n))
    if name == "kendall":
        pairs = itertools.combinations(range(n), 2)
        return sum((a[i] < a[k]) != (b[i] < b[k]) for i, k in pairs)
    # Cayley: sort a into b, swapping the right value into each place in turn.
    a, swaps = list(a), 0
    for i in range(n):
        if a[i] != b[i]:
            k = a.index(b[i])
            a[i], a[k] = a[k], a[i]
            swaps += 1
    return swaps


@pytest.mark.float32
@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_distances_are_their_definitions(name, n):
    every = all_of(n)
    distance = getattr(permutations, name)
    found = distance(every[:, None, :], every[None, :, :])
    expected = [[definition(name, a, b) for b in every] for a in every]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_at_larger_sizes_and_under_transformations(name, rng):
    a, b = (np.array([rng.permutation(23) for _ in range(6)]) for _ in range(2))
    distance = getattr(permutations, name)
    expected = [definition(name, x, y) for x, y in zip(a, b, strict=True)]
    for function in (distance, jax.jit(distance), jax.vmap(distance)):
        np.testing.assert_array_equal(function(jnp.asarray(a), jnp.asarray(b)), expected)


def test_matrices_and_vectors_are_two_ways_to_say_the_same(rng):
    perms = np.array([[rng.permutation(5) for _ in range(3)] for _ in range(2)])
    matrices = permutations.to_matrix(perms)
    assert matrices.shape == (2, 3, 5, 5)
    for index in np.ndindex(2, 3):
        for i in range(5):
            assert matrices[index][i, perms[index][i]] == 1
    assert matrices.sum() == perms.size
    np.testing.assert_array_equal(permutations.from_matrix(matrices), perms)
    np.testing.assert_array_equal(jax.jit(permutations.from_matrix)(matrices), perms)


def test_the_group(rng):
    a, b = rng.permutation(7), rng.permutation(7)
    product = permutations.to_matrix(a) @ permutations.to_matrix(b)
    np.testing.assert_array_equal(permutations.to_matrix(permutations.compose(a, b)), product)
    for order in ((a, permutations.inverse(a)), (permutations.inverse(a), a)):
        np.testing.assert_array_equal(permutations.compose(*order), permutations.identity(7))
    batch = np.array([rng.permutation(7) for _ in range(4)])
    together = permutations.compose(batch, b)
    for k in range(4):
        np.testing.assert_array_equal(together[k], permutations.compose(batch[k], b))


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_enumeration_is_complete_and_in_order(n):
    np.testing.assert_array_equal(permutations.enumerate_permutations(n), all_of(n))


def test_membership():
    perms = jnp.array([[0, 1, 2], [0, 0, 2], [1, 2, 3], [2, 1, 0]])
    np.testing.assert_array_equal(permutations.is_permutation(perms), [True, False, False, True])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: permutations.enumerate_permutations(10), ValueError, "n must be between 1 and 9"),
        (lambda: permutations.enumerate_permutations(0), ValueError, "n must be between 1 and 9"),
        (lambda: permutations.identity(0), ValueError, "n must be an integer of at least 1, got 0"),
        (lambda: permutations.to_matrix([0, 0, 1]), ValueError, r"once, got \[0, 0, 1\]"),
        (lambda: permutations.to_matrix([0.0, 1.0]), TypeError, "perm must be an integer array"),
        (lambda: permutations.to_matrix([]), TypeError, "perm must be an integer array"),
        (lambda: permutations.from_matrix(np.ones((2, 2))), ValueError, "must be a permutation m"),
        (lambda: permutations.from_matrix(np.eye(2)[:1]), ValueError, r"got shape \(1, 2\)"),
        (lambda: permutations.hamming([0, 1], [0, 1, 2]), ValueError, "got 2 and 3"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()
