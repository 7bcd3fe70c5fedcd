"""Sparse problems against brute force, against the dense engines, and through `fit`."""

import warnings

import exact_cases
import numpy as np
import pytest
from exact_oracle import brute_force, summarise
from scipy import stats

import permvi as pv
from permvi import metrics
from permvi.inference import auto
from permvi.inference.exact import solve_exact
from permvi.inference.linear import Candidates, LinearOptions, solve_linear
from permvi.inference.linear.beliefs import log_bethe, propagate, scale_to_marginals
from permvi.inference.linear.chains import run_chains
from permvi.problem.candidates import best_matching, split, used_pairs
from permvi.problem.prepare import prepare

CASES = {
    "perfect": lambda rng: exact_cases.masked(rng, 5, 5, density=0.7),
    "wide": lambda rng: exact_cases.masked(rng, 4, 5, density=0.7),
    "tall": lambda rng: exact_cases.masked(rng, 5, 4, density=0.7),
    "partial": lambda rng: exact_cases.partial(rng, 5, 5, density=0.7),
    "rows": lambda rng: exact_cases.partial(rng, 5, 4, sides="rows", density=0.7),
    "mixed": lambda rng: exact_cases.mixed(rng, 5, 5),
}


def sparse(given):
    scores = np.nan_to_num(given["scores"])
    others = {name: value for name, value in given.items() if name != "scores"}
    return Candidates.from_table(scores, **others)


def grounded(problem, result):
    """(n+1, m+1) marginals of a result."""
    n, m = problem.shape
    table = np.zeros((n + 1, m + 1))
    table[problem.rows, problem.cols] = result.pairs
    table[:n, m], table[n, :m] = result.rows, result.cols
    return table


@pytest.mark.parametrize("name", list(CASES))
def test_the_best_matching_and_the_pairs_in_use(name, rng):
    for _ in range(5):
        given = CASES[name](rng)
        problem, found = sparse(given), brute_force(**given)
        best = best_matching(problem)
        assert found[tuple(best.tolist())] == pytest.approx(max(found.values()))
        assert problem.log_weight(best) == pytest.approx(max(found.values()))
        used = used_pairs(problem, best)
        pairs = {(i, j) for perm in found for i, j in enumerate(perm) if j >= 0}
        expected = [pair in pairs for pair in zip(problem.rows, problem.cols, strict=True)]
        np.testing.assert_array_equal(used, expected)


def test_nothing_feasible_is_one_sentence():
    problem = Candidates.from_table(np.zeros((2, 2)), np.array([[True, False], [True, False]]))
    with pytest.raises(ValueError, match="must leave a feasible matching, got none") as caught:
        best_matching(problem)
    assert "\n" not in str(caught.value)


def test_parts_are_connected_and_cover_everything(rng):
    mask = np.kron(np.eye(3, dtype=bool), np.ones((2, 3), bool))
    mask = np.pad(mask, ((0, 1), (0, 0)))
    problem = Candidates.from_table(np.zeros((7, 9)), mask, np.zeros(7), np.zeros(9))
    parts = split(problem, np.ones(len(problem.rows), bool))
    assert sorted(len(part.pairs) for part in parts) == [0, 6, 6, 6]
    assert sorted(np.concatenate([part.rows for part in parts]).tolist()) == list(range(7))
    assert sorted(np.concatenate([part.cols for part in parts]).tolist()) == list(range(9))


@pytest.mark.parametrize("name", list(CASES))
def test_chains_follow_the_exact_law(name, rng):
    """Marginals within their own standard errors, and the draws by a goodness of fit."""
    given = CASES[name](rng)
    problem = sparse(given)
    found = brute_force(**given)
    _, marginals, _, log_probs = summarise(found, problem.shape)
    options = {"num_chains": 2, "num_steps": 400_000, "num_draws": 1000}
    # Prices may be anything up to one over the weight of being alone; those of beliefs are.
    chains = run_chains(
        problem, propagate(problem).log_prices, best_matching(problem), seed=1, **options
    )
    assert chains.finished
    exact = np.append(marginals[problem.rows, problem.cols], marginals[:-1, -1])
    error = chains.frequencies.mean(axis=0) - exact
    # Five standard errors of some thirty numbers; pairs that are hardly ever seen have none.
    assert (np.abs(error) <= 5 * chains.standard_errors + 1e-4).all()
    probs = np.exp(log_probs)
    counts = dict.fromkeys(found, 0)
    for perm in map(tuple, chains.draws.tolist()):
        counts[perm] += 1
    seen, expected = np.array(list(counts.values())), probs * len(chains.draws)
    large = expected >= 5
    seen = np.append(seen[large], seen[~large].sum())
    expected = np.append(expected[large], expected[~large].sum())
    kept = expected > 0.5
    assert (
        stats.chisquare(seen[kept], expected[kept] * seen[kept].sum() / expected[kept].sum()).pvalue
        > 1e-4
    )


def test_any_prices_give_the_same_law(rng):
    given = exact_cases.partial(rng, 4, 4, scale=1.0)
    problem = sparse(given)
    _, marginals, _, _ = summarise(brute_force(**given), problem.shape)
    exact = np.append(marginals[problem.rows, problem.cols], marginals[:-1, -1])
    log_prices = -given["col_unmatched"] - rng.exponential(size=4)
    chains = run_chains(
        problem,
        log_prices,
        best_matching(problem),
        num_chains=2,
        num_steps=400_000,
        num_draws=100,
        seed=2,
    )
    error = chains.frequencies.mean(axis=0) - exact
    assert (np.abs(error) <= 5 * chains.standard_errors + 1e-4).all()


def path(rng, n, *, alone):
    """Row i with columns i and i + 1: a tree."""
    rows, cols = np.repeat(np.arange(n), 2), np.arange(2 * n) // 2 + np.arange(2 * n) % 2
    weights = rng.normal(size=n), rng.normal(size=n + 1)
    if not alone:
        weights = np.full(n, -np.inf), np.zeros(n + 1)
    return Candidates(rows, cols, rng.normal(size=2 * n), *weights)


@pytest.mark.parametrize("alone", [True, False])
def test_beliefs_are_exact_on_trees(alone, rng):
    problem = path(rng, 5, alone=alone)
    exact = solve_exact(
        problem.table(), row_unmatched=problem.row_alone, col_unmatched=problem.col_alone
    )
    beliefs = propagate(problem)
    assert beliefs.converged
    pairs = exact.marginals[problem.rows, problem.cols]
    np.testing.assert_allclose(beliefs.pairs, pairs, atol=1e-5)
    bethe = log_bethe(problem, pairs, exact.p_unmatched_rows, exact.p_unmatched_cols)
    np.testing.assert_allclose(bethe, exact.log_evidence, atol=1e-9)


@pytest.mark.parametrize("name", list(CASES))
def test_the_bethe_free_energy_bounds_the_evidence(name, rng):
    """Of the exact marginals, of the beliefs, and of any others."""
    for _ in range(5):
        given = CASES[name](rng)
        problem = sparse(given)
        evidence, marginals, _, _ = summarise(brute_force(**given), problem.shape)
        n, m = problem.shape
        pairs = marginals[problem.rows, problem.cols]
        rows, cols = marginals[:n, m], marginals[n, :m]
        for tilt in (np.ones(len(pairs)), rng.gamma(1.0, size=len(pairs))):
            some = scale_to_marginals(problem, pairs * tilt, rows, cols)
            assert log_bethe(problem, *some) <= evidence + 1e-7


def merged(rng, sizes, **kind):
    """Blocks that know nothing of each other, their rows and columns shuffled."""
    n = sum(sizes)
    scores, mask = 2.0 * rng.normal(size=(n, n)), np.zeros((n, n), bool)
    start = 0
    for size in sizes:
        mask[start : start + size, start : start + size] = True
        start += size
    order = rng.permutation(n), rng.permutation(n)
    given = {"scores": scores[np.ix_(*order)], "mask": mask[np.ix_(*order)]}
    if kind["alone"]:
        given |= {"row_unmatched": rng.normal(size=n), "col_unmatched": rng.normal(size=n)}
    return given


@pytest.mark.parametrize("alone", [True, False])
def test_small_parts_are_solved_exactly(alone, rng):
    given = merged(rng, [1, 2, 3, 4, 5, 6], alone=alone)
    problem, exact = sparse(given), solve_exact(**given)
    result = solve_linear(problem, LinearOptions(num_draws=50))
    assert result.exact
    assert result.num_steps == 0
    np.testing.assert_allclose(grounded(problem, result)[:-1, :-1], exact.marginals, atol=1e-12)
    np.testing.assert_allclose(result.cols, exact.p_unmatched_cols, atol=1e-12)
    assert result.log_evidence == pytest.approx(exact.log_evidence)
    np.testing.assert_array_equal(result.mode, exact.mode)
    assert np.isfinite(exact.log_prob(result.draws)).all()


@pytest.mark.parametrize("alone", [True, False])
def test_sampled_and_exact_parts_are_put_together(alone, rng):
    """Blocks of up to 9, of which those beyond 5 are left to chains."""
    given = merged(rng, [3, 5, 7, 8, 9], alone=alone)
    problem, exact = sparse(given), solve_exact(**given)
    result = solve_linear(problem, LinearOptions(max_size=5, num_steps=2_000_000))
    assert np.count_nonzero(result.exact_rows) == 8
    assert result.finished
    table = grounded(problem, result)
    np.testing.assert_allclose(table[:-1].sum(axis=1), 1, atol=1e-7)
    np.testing.assert_allclose(table[:, :-1].sum(axis=0), 1, atol=1e-7)
    error = metrics.total_variation_per_row(
        table[:-1, :-1], exact.marginals, result.rows, exact.p_unmatched_rows
    )
    assert error[result.exact_rows].max() <= 1e-12
    sampled = ~result.exact_rows
    assert error[sampled].max() <= 0.02
    # The stated error is the expected one: neither far too small nor far too large on average.
    assert 0.3 < error[sampled].mean() / result.sampling_error[sampled].mean() < 3
    assert result.log_evidence <= exact.log_evidence
    assert np.isfinite(exact.log_prob(result.draws)).all()


def test_a_lost_chain_is_not_trusted(rng):
    given = exact_cases.masked(rng, 60, 60, density=0.15)
    model = pv.models.LinearMatching(np.nan_to_num(given["scores"]), mask=given["mask"])
    with pytest.warns(pv.FitWarning, match="do not trust"):
        posterior = pv.fit(model, "linear", num_steps=10)
    assert posterior.diagnostics.converged is False
    assert given["mask"][np.arange(60), posterior.sample(3)].all()


def random_candidates(rng, n, degree, **constraints):
    """Few random candidates for each item, the true label among them."""
    rows = np.repeat(np.arange(n), degree)
    cols = rng.integers(n, size=n * degree)
    cols[::degree] = rng.permutation(n)
    codes = np.unique(rows * n + cols)
    scores = 2.0 * rng.normal(size=len(codes))
    return pv.models.SparseMatching(codes // n, codes % n, scores, (n, n), **constraints)


def test_the_front_door_takes_sparse_models(rng):
    model = random_candidates(rng, 600, 5, row_unmatched=-1.0, col_unmatched=-1.0)
    assert auto.choose(prepare(model)).name == "linear"
    posterior = pv.fit(model, num_steps=600_000, num_draws=200)
    assert posterior.method == "linear"
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.log_evidence_kind == "bound"
    assert not posterior.marginals[~model.mask].any()
    again = pv.fit(model, num_steps=600_000, num_draws=200)
    np.testing.assert_array_equal(again.marginals, posterior.marginals)
    # The evidence is at least that of the best matching.
    best = float(model.log_density_of(posterior.mode)) - 2.0 * (posterior.mode < 0).sum()
    assert posterior.log_evidence >= best


def test_known_pairs_and_lists_agree_with_masked_tables(rng):
    model = random_candidates(rng, 40, 3, row_unmatched=-0.5, col_unmatched=0.0)
    known = {int(model.rows[7]): int(model.cols[7])}
    tables = pv.models.LinearMatching(
        model.scores, mask=model.mask, known=known, row_unmatched=-0.5, col_unmatched=0.0
    )
    lists = pv.models.SparseMatching(
        model.rows,
        model.cols,
        model.pair_weights,
        model.shape,
        known=known,
        row_unmatched=-0.5,
        col_unmatched=0.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        posteriors = [
            pv.fit(one, "linear", max_size=size, num_steps=1_000_000)
            for one, size in ((tables, 22), (lists, 22), (lists, 0))
        ]
    np.testing.assert_array_equal(posteriors[0].marginals, posteriors[1].marginals)
    for posterior in posteriors:
        assert posterior.marginals[next(iter(known.items()))] == 1.0
    a, b = posteriors[1:]
    error = metrics.total_variation_per_row(
        a.marginals, b.marginals, a.p_unmatched_rows, b.p_unmatched_rows
    )
    assert error.max() <= 0.02


def test_automatic_choice_prefers_exact_blocks_in_medium_problems(rng):
    given = merged(rng, [5] * 20, alone=True)
    model = pv.models.LinearMatching(**given)
    assert auto.choose(prepare(model)).name == "exact"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_size": 40}, "max_size must be in 0..24, got 40"),
        ({"num_chains": 0}, "num_chains must be an integer of at least 1, got 0"),
        ({"num_steps": 0}, "num_steps must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options_get_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        LinearOptions(**options)
