"""The k best matchings against sorted brute force."""

import numpy as np
import pytest
from exact_cases import CASES, masked, partial
from exact_oracle import brute_force

from permvi.inference.exact import k_best, solve_exact


@pytest.mark.parametrize("k", [1, 7, 10_000])
@pytest.mark.parametrize("name", [name for name in CASES if name != "dense-8"])
def test_agrees_with_sorted_brute_force(name, k, rng):
    problem = CASES[name](rng)
    if k > 100 and name not in ("constant", "masked-8", "partial-5", "mixed-wide", "wide"):
        k = 40
    check(problem, k)


def test_many_small_problems_to_the_last_matching(rng):
    for _ in range(25):
        n, m = rng.integers(1, 5, size=2)
        problem = partial(rng, n, m, density=0.7)
        problem["row_unmatched"][rng.random(n) < 0.4] = -np.inf
        if brute_force(**problem):
            check(problem, 10_000)


def check(problem, k):
    found = brute_force(**problem)
    matchings, log_weights = k_best(**problem, k=k)
    expected = sorted(found.values(), reverse=True)[:k]
    assert len(matchings) == len(expected)
    # Ties may come in any order, but each matching comes once and with its own weight.
    np.testing.assert_allclose(log_weights, expected, rtol=1e-12, atol=1e-10)
    assert (np.diff(log_weights) <= 0).all()
    assert len({tuple(x) for x in matchings.tolist()}) == len(matchings)
    own = [found[tuple(x)] for x in matchings.tolist()]
    np.testing.assert_allclose(log_weights, own, rtol=1e-12, atol=1e-10)


def test_large_problem_is_consistent_with_the_posterior(rng):
    problem = masked(rng, 40, 40, density=0.05)
    problem["scores"] = np.where(problem["mask"], problem["scores"], 0.0)
    result = solve_exact(**problem)
    matchings, log_weights = k_best(**problem, k=50)
    np.testing.assert_array_equal(matchings[0], result.mode)
    np.testing.assert_allclose(
        result.log_prob(matchings), log_weights - result.log_evidence, atol=1e-9
    )
    drawn = result.log_prob(result.sample(500, seed=0))
    assert drawn.max() <= result.log_prob(matchings[0]) + 1e-9
    better = np.unique(result.sample(2000, seed=1), axis=0)
    better = better[result.log_prob(better) > result.log_prob(matchings[-1]) + 1e-9]
    assert {tuple(x) for x in better.tolist()} <= {tuple(x) for x in matchings.tolist()}
