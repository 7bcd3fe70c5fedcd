"""Marginals from conditional probabilities: the same expectation as frequencies, and less noise."""

import itertools

import exact_cases
import numpy as np
import pytest
from exact_oracle import brute_force, summarise

import permvi as pv
from permvi import metrics
from permvi.inference.rao_blackwell import conditional, conditional_marginals
from permvi.problem.prepare import prepare
from permvi.problem.unmatched import tables_by_site

KINDS = {
    "both": lambda rng, n, m: exact_cases.partial(rng, n, m, density=0.8),
    "rows": lambda rng, n, m: exact_cases.partial(rng, n, m, sides="rows"),
    "cols": lambda rng, n, m: exact_cases.partial(rng, n, m, sides="cols"),
    "mixed": exact_cases.mixed,
    "full": lambda rng, n, m: {"scores": rng.normal(size=(n, m))},
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 5), (5, 3)])
def test_all_matchings_by_their_probabilities_give_the_marginals(kind, shape, rng):
    """Conditioning changes nothing in the mean over the posterior itself."""
    n, m = shape
    given = KINDS[kind](rng, n, m)
    found = brute_force(**given)
    evidence, marginals, _, _ = summarise(found, shape)
    probs = np.exp(np.array(list(found.values())) - evidence)
    perms = np.array(list(found))
    got = conditional_marginals(tables_by_site(given, 1), perms, probs, np.zeros(len(perms)))
    np.testing.assert_allclose(got.pairs, marginals[:-1, :-1], atol=1e-11)
    np.testing.assert_allclose(got.rows, marginals[:-1, -1], atol=1e-11)
    np.testing.assert_allclose(got.cols, marginals[-1, :-1], atol=1e-11)
    np.testing.assert_array_equal(got.sampling_error_by_row, 0)


def test_sites_are_treated_one_by_one(rng):
    given = [exact_cases.partial(rng, 3, 4) for _ in range(2)]
    both = {name: np.stack([one[name] for one in given]) for name in given[0] if name != "mask"}
    tables = tables_by_site(both, 2)
    perms = np.array([[[0, 1, -1], [3, -1, 2]], [[-1, -1, 2], [1, 0, 3]]])
    shares, zeros = np.array([0.3, 0.7]), np.zeros(2)
    got = conditional_marginals(tables, perms, shares, zeros)
    for s in range(2):
        alone = conditional_marginals(tables[s : s + 1], perms[:, s], shares, zeros)
        for part, of_site in zip(got, alone, strict=True):
            np.testing.assert_array_equal(part[s], of_site)


def test_known_pairs_stay_known(rng):
    model = pv.models.LinearMatching(
        rng.normal(size=(4, 4)), known=[2, -1, -1, -1], row_unmatched=-1.0, col_unmatched=-1.0
    )
    draws = pv.fit(model, "exact").sample(50)
    got = conditional(prepare(model), draws, np.full(50, 0.02))
    np.testing.assert_allclose(got.pairs[0], [0, 0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(got.cols[2], 0, atol=1e-12)


def test_they_beat_frequencies_and_know_their_error(rng):
    """Over 40 sets of 200 exact draws of a row with eight choices."""
    model = pv.models.LinearMatching(
        rng.normal(size=(6, 7)) - 1.0, row_unmatched=-1.0, col_unmatched=-1.0
    )
    exact, task = pv.fit(model, "exact"), prepare(model)
    num, sets = 200, 40
    draws = exact.sample(num * sets).reshape(sets, num, 6)
    errors, stated, plain = [], [], []
    for part in draws:
        got = conditional(task, part, np.full(num, 1 / num), np.full(num, 1 / num**2))
        frequencies = pv.Posterior.from_draws(part, shape=(6, 7))
        plain.append(_distance(frequencies.marginals, frequencies.p_unmatched_rows, exact))
        stated.append(got.sampling_error_by_row)
        errors.append(_distance(got.pairs, got.rows, exact))
    assert np.mean(errors) < 0.5 * np.mean(plain)
    # The stated error leaves out what averaging with the columns gains.
    assert np.mean(errors) < 1.05 * np.mean(stated) < 2 * np.mean(errors)


def _distance(marginals, alone, exact):
    return metrics.total_variation_per_row(
        marginals, exact.marginals, alone, exact.p_unmatched_rows
    )


def test_equal_weights_of_any_size_are_told_apart_from_certainty():
    """Beside 1e25 the logarithm of two equal terms is lost, and a share of 1/2 would be 1."""
    perms = np.array(list(itertools.permutations(range(3))))
    shares = np.full(6, 1 / 6)
    for size in (1.0, 1e25):
        tables = tables_by_site({"scores": np.full((3, 3), size)}, 1)
        got = conditional_marginals(tables, perms, shares, np.zeros(6))
        np.testing.assert_allclose(got.pairs, np.full((3, 3), 1 / 3), atol=1e-12)
