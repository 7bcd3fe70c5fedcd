"""Enumeration of general log densities."""

import itertools
import math

import numpy as np
import pytest
from exact_oracle import brute_force, summarise

from permvi.inference.exact import enumerate_log_density, solve_exact
from permvi.inference.exact.enumeration import count_bound, list_matchings


def quadratic(rng, n):
    a, b = rng.normal(size=(2, n, n))
    return lambda perms: np.einsum("ij,kij->k", a, b[perms[:, :, None], perms[:, None, :]])


def test_quadratic_density_against_itertools(rng):
    n = 5
    density = quadratic(rng, n)
    perms = np.array(list(itertools.permutations(range(n))))
    weights = np.exp(density(perms))
    probs = weights / weights.sum()
    result = enumerate_log_density(density, n, chunk_size=17)
    np.testing.assert_allclose(result.log_evidence, np.log(weights.sum()), rtol=1e-12)
    expected = np.einsum("k,kij->ij", probs, np.eye(n)[perms])
    np.testing.assert_allclose(result.marginals, expected, atol=1e-12)
    np.testing.assert_array_equal(result.mode, perms[probs.argmax()])
    np.testing.assert_allclose(result.mode_log_prob, np.log(probs.max()), rtol=1e-10)
    np.testing.assert_allclose(result.entropy, -(probs * np.log(probs)).sum(), rtol=1e-12)
    np.testing.assert_allclose(result.log_prob(perms), np.log(probs), rtol=1e-10)
    assert result.log_prob([0, 0, 1, 2, 3]) == -np.inf
    assert (result.p_unmatched_rows == 0).all()
    assert (result.p_unmatched_cols == 0).all()
    num = 20_000
    counts = np.eye(n)[result.sample(num, seed=2)].mean(axis=0)
    error = np.sqrt(expected * (1 - expected) / num)
    assert (np.abs(counts - expected) <= 4 * error).all()


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 1)])
def test_linear_density_agrees_with_the_linear_solver(shape, partial, rng):
    n, m = shape
    scores = rng.normal(size=shape)
    mask = rng.random(shape) < 0.8
    np.fill_diagonal(mask, True)
    known = np.full(n, -1)
    known[0] = 0
    alone = 0.0 if partial else None
    linear = solve_exact(scores, mask, known, alone, alone)
    padded = np.pad(scores, ((0, 0), (0, 1)))
    result = enumerate_log_density(
        lambda x: padded[np.arange(n), x].sum(axis=1), n, m, mask=mask, known=known, partial=partial
    )
    np.testing.assert_allclose(result.log_evidence, linear.log_evidence, rtol=1e-10)
    np.testing.assert_allclose(result.marginals, linear.marginals, atol=1e-10)
    np.testing.assert_allclose(result.p_unmatched_rows, linear.p_unmatched_rows, atol=1e-10)
    np.testing.assert_allclose(result.p_unmatched_cols, linear.p_unmatched_cols, atol=1e-10)
    np.testing.assert_allclose(result.entropy, linear.entropy, atol=1e-10)
    np.testing.assert_array_equal(result.mode, linear.mode)


def test_densities_may_be_zero_and_of_any_scale():
    def even_only(perms):
        return np.where(perms[:, 0] % 2 == 0, 1e4 * perms[:, 1], -np.inf)

    result = enumerate_log_density(even_only, 4)
    np.testing.assert_allclose(result.log_evidence, 3e4 + np.log(4), rtol=1e-12)
    np.testing.assert_allclose(result.entropy, np.log(4), rtol=1e-12)
    assert result.log_prob([1, 3, 0, 2]) == -np.inf
    assert np.isin(result.sample(100, seed=0)[:, 0], [0, 2]).all()


def test_nine_items_are_enumerated_completely():
    result = enumerate_log_density(lambda perms: np.zeros(len(perms)), 9)
    np.testing.assert_allclose(result.log_evidence, math.log(math.factorial(9)), rtol=1e-12)


def test_lists_are_complete_and_in_order(rng):
    for _ in range(30):
        n, m = rng.integers(1, 5, size=2)
        allowed = rng.random((n + 1, m + 1)) < 0.7
        alone_rows = np.where(allowed[:n, m], 0.0, -np.inf)
        alone_cols = np.where(allowed[n, :m], 0.0, -np.inf)
        found = brute_force(np.zeros((n, m)), allowed[:n, :m], None, alone_rows, alone_cols)
        assert [tuple(x) for x in list_matchings(allowed).tolist()] == sorted(found)
        assert len(found) <= count_bound(allowed)


@pytest.mark.parametrize(("n", "m"), [(3, 5), (5, 3), (4, 4)])
def test_the_bound_is_exact_without_a_mask(n, m):
    rows_must, cols_must = np.ones((2, n + 1, m + 1), bool)
    rows_must[:n, m] = cols_must[n, :m] = False
    for allowed in (rows_must, cols_must):
        assert count_bound(allowed) == len(list_matchings(allowed))


def test_marginals_of_the_oracle_sum_to_one(rng):
    found = brute_force(rng.normal(size=(3, 4)), row_unmatched=0.1, col_unmatched=-0.3)
    _, marginals, _, _ = summarise(found, (3, 4))
    np.testing.assert_allclose(marginals[:3].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(marginals[:, :4].sum(axis=0), 1.0, rtol=1e-12)


def test_rows_with_one_choice_are_certain_to_the_last_bit(rng):
    # Sums of hundreds of probabilities are one up to rounding only.
    for known in range(5):
        result = enumerate_log_density(quadratic(rng, 6), 6, known=[known, *[-1] * 5])
        assert result.marginals[0, known] == 1
        assert result.marginals[1:, known].sum() == 0
