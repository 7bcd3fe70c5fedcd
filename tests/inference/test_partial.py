"""Partial matchings: the square that stands for them, and the methods that take them."""

import itertools
import math
import warnings
from collections import Counter

import exact_cases
import jax.numpy as jnp
import numpy as np
import pytest
from exact_oracle import brute_force, summarise
from scipy import stats

import permvi as pv
from permvi import metrics
from permvi.inference.discrete.structure import build_structure
from permvi.inference.discrete.warm_start import linear_table, log_marginals
from permvi.inference.naive.rows import draw_partial_rows
from permvi.inference.verdict import coverage
from permvi.inference.vi.relaxed_problem import relax
from permvi.problem import unmatched as partial
from permvi.problem.prepare import prepare

QUICK = {"num_steps": 200, "num_draws": 400, "num_restarts": 2}
KINDS = {
    "both": lambda rng, n, m: exact_cases.partial(rng, n, m, density=0.8),
    "rows": lambda rng, n, m: exact_cases.partial(rng, n, m, sides="rows"),
    "cols": lambda rng, n, m: exact_cases.partial(rng, n, m, sides="cols"),
    "mixed": exact_cases.mixed,
}


def fit(model, method, **options):
    """Without warnings: what these fits are worth is what the tests ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method, **options)


def distance(a, b):
    """(n,) total variation of two posteriors in each row."""
    return metrics.total_variation_per_row(
        a.marginals, b.marginals, a.p_unmatched_rows, b.p_unmatched_rows
    )


def permutations(size, allowed):
    """All permutations of so many items that a square of booleans allows."""
    perms = np.array(list(itertools.permutations(range(size))))
    return perms[allowed[np.arange(size), perms].all(axis=1)]


def corner(perms, n, m):
    return np.where(perms[:, :n] < m, perms[:, :n], -1)


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (3, 3)])
def test_every_partial_matching_has_as_many_permutations(kind, shape, rng):
    n, m = shape
    given = KINDS[kind](rng, n, m)
    problem = prepare(pv.models.LinearMatching(**given)).problem
    square = partial.complete(partial.grounded(problem))[0]
    perms = permutations(n + m, np.isfinite(square))
    found = brute_force(**given)
    counts = Counter(map(tuple, corner(perms, n, m).tolist()))
    assert counts == dict.fromkeys(found, math.factorial(m))
    weights = square[np.arange(n + m), perms].sum(axis=1)
    expected = [found[tuple(row)] for row in corner(perms, n, m).tolist()]
    np.testing.assert_allclose(weights, expected, atol=1e-12)


@pytest.mark.parametrize("kind", list(KINDS))
def test_relaxed_squares_have_the_same_posterior(kind, rng):
    """The mask allows m! permutations for each matching, and the value at each is its density."""
    n, m = 3, 3
    given = KINDS[kind](rng, n, m)
    problem = prepare(pv.models.LinearMatching(**given)).problem
    relaxed = relax(problem, "rounding")
    assert relaxed.size == n + m
    perms = permutations(n + m, np.asarray(relaxed.mask))
    found = brute_force(**given)
    matchings = corner(perms, n, m)
    assert Counter(map(tuple, matchings.tolist())) == dict.fromkeys(found, math.factorial(m))
    values = [relaxed.value(jnp.eye(n + m)[perm][None]) for perm in perms[:: math.factorial(m)]]
    expected = [found[tuple(row)] for row in matchings[:: math.factorial(m)].tolist()]
    np.testing.assert_allclose(values, expected, rtol=1e-5)


def test_the_bound_dummies_of_a_naive_square_would_be_wrong():
    """With a dummy row for each column, matchings of k pairs count k! times: what is avoided."""
    n = m = 2
    square = np.zeros((4, 4))
    square[:n, m:] = square[n:, :m] = np.where(np.eye(2), 0.0, -np.inf)
    counts = Counter(map(tuple, corner(permutations(4, np.isfinite(square)), n, m).tolist()))
    assert counts[0, 1] == 2
    assert counts[0, -1] == counts[-1, -1] == 1


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("size", [3, 5])
def test_exact_marginals_are_those_of_all_partial_matchings(kind, size, rng):
    given = KINDS[kind](rng, size, size)
    posterior = pv.fit(pv.models.LinearMatching(**given), "exact")
    evidence, marginals, _, _ = summarise(brute_force(**given), (size, size))
    np.testing.assert_allclose(posterior.log_evidence, evidence, rtol=1e-9)
    np.testing.assert_allclose(posterior.marginals, marginals[:-1, :-1], atol=1e-9)
    np.testing.assert_allclose(posterior.p_unmatched_rows, marginals[:-1, -1], atol=1e-9)
    np.testing.assert_allclose(posterior.p_unmatched_cols, marginals[-1, :-1], atol=1e-9)


@pytest.mark.parametrize("method", ["bethe", "sinkhorn"])
def test_scaling_bounds_the_evidence_of_partial_problems(method, rng):
    for kind in KINDS:
        model = pv.models.LinearMatching(**KINDS[kind](rng, 4, 4))
        posterior, exact = fit(model, method), pv.fit(model, "exact")
        assert posterior.log_evidence <= exact.log_evidence + 1e-6
        if posterior.diagnostics.converged:
            upper = posterior.diagnostics.extras["log_evidence_upper"]
            assert exact.log_evidence <= upper + 1e-6


@pytest.mark.parametrize(("method", "error"), [("bethe", 0.08), ("sinkhorn", 0.18)])
def test_scaling_is_near_the_marginals_of_partial_problems(method, error, rng):
    """No bound is known. Over such problems the mean is 0.04 for Bethe, 0.12 for Sinkhorn."""
    errors = []
    for _ in range(6):
        model = pv.models.LinearMatching(**exact_cases.partial(rng, 4, 4, scale=1.5))
        errors.append(distance(fit(model, method), pv.fit(model, "exact")).mean())
    assert np.mean(errors) < error


def test_scaling_treats_partial_and_other_problems_apart(rng):
    scores = rng.normal(size=(4, 4))
    models = [
        pv.models.LinearMatching(scores),
        pv.models.LinearMatching(scores, row_unmatched=-1.0, col_unmatched=-1.0),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        full, loose = pv.fit_many(models, "bethe")
    assert not full.p_unmatched_rows.any()
    assert (loose.p_unmatched_rows > 0).all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_map_finds_the_best_partial_matching(kind, rng):
    given = KINDS[kind](rng, 5, 5)
    found = brute_force(**given)
    posterior = fit(pv.models.LinearMatching(**given), "map")
    assert tuple(posterior.mode) == max(found, key=found.get)
    assert posterior.log_evidence == pytest.approx(max(found.values()))


def test_map_climbs_on_partial_densities_that_are_not_linear(rng):
    class Pairwise:
        """Pairs help each other, whatever they weigh alone."""

        shape, num_sites = (4, 4), 1
        row_unmatched, col_unmatched = np.full(4, 0.5), np.full(4, -0.3)
        A, B = rng.normal(size=(2, 4, 4))

        def log_density(self, X):
            return jnp.sum(self.A * (X @ self.B @ jnp.swapaxes(X, -1, -2)), axis=(-2, -1))

    exact, best = pv.fit(Pairwise(), "exact"), fit(Pairwise(), "map", max_evaluations=400)
    np.testing.assert_array_equal(best.mode, exact.mode)
    assert (exact.mode < 0).any()


def test_naive_rows_are_exact_where_there_is_one(rng):
    given = exact_cases.partial(rng, 1, 4, scale=1.0)
    found = brute_force(**given)
    problem = prepare(pv.models.LinearMatching(**given)).problem
    num = 5000
    draws, probs = draw_partial_rows(partial.grounded(problem)[0], num, rng)
    _, marginals, _, _ = summarise(found, (1, 4))
    np.testing.assert_allclose(probs, marginals[:1, :-1], atol=1e-12)
    counts = np.bincount(draws[:, 0] % 5, minlength=5)
    assert stats.chisquare(counts, num * marginals[0]).pvalue > 1e-3


def test_naive_draws_match_what_has_to_be_matched(rng):
    given = exact_cases.mixed(rng, 4, 4)
    found = brute_force(**given)
    draws, _ = draw_partial_rows(
        partial.grounded(prepare(pv.models.LinearMatching(**given)).problem)[0], 200, rng
    )
    assert set(map(tuple, draws.tolist())) <= set(found)


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("rounding", marks=pytest.mark.slow),
        pytest.param("gumbel_sinkhorn", marks=pytest.mark.slow),
        "naive",
    ],
)
def test_relaxations_know_what_stays_unmatched(method):
    """Item 3 has no good label and label 0 no good item; the rest is clear but for one choice."""
    scores = np.full((4, 4), -4.0)
    scores[0, 1], scores[1, 2], scores[2, 3] = 4.0, 4.0, 4.0
    scores[2, 0] = 3.0
    model = pv.models.LinearMatching(scores, row_unmatched=-1.0, col_unmatched=-1.0)
    options = QUICK if method != "naive" else {"num_draws": 400}
    posterior, exact = fit(model, method, **options), pv.fit(model, "exact")
    np.testing.assert_array_equal(posterior.mode, [1, 2, 3, -1])
    assert posterior.p_unmatched_rows[3] > 0.5
    # Of families that fit no posterior exactly; what was measured for rounding is 0.1.
    assert distance(posterior, exact).mean() < 0.15
    assert posterior.log_evidence <= exact.log_evidence + 1e-6


def test_stick_breaking_still_refuses():
    model = pv.models.LinearMatching(np.zeros((3, 3)), row_unmatched=0.0, col_unmatched=0.0)
    with pytest.raises(ValueError, match="must match every item for method 'stick_breaking'"):
        pv.fit(model, "stick_breaking")


def test_a_search_covers_partial_matchings(rng):
    given = exact_cases.partial(rng, 4, 3, scale=1.0)
    model = pv.models.LinearMatching(**given)
    problem = prepare(model).problem
    found = coverage.examine(problem, np.full((1, 4), -1))
    evidence, _, _, _ = summarise(brute_force(**given), (4, 3))
    assert found.closed
    np.testing.assert_allclose(found.log_evidence_bound, evidence, atol=0.02)


def test_random_partial_matchings_are_feasible(rng):
    given = exact_cases.mixed(rng, 5, 4)
    problem = prepare(pv.models.LinearMatching(**given)).problem
    perms = partial.random_matchings(50, problem, rng)
    found = brute_force(**given)
    assert set(map(tuple, perms.tolist())) <= set(found)
    assert len({tuple(perm) for perm in perms.tolist()}) > 5
    assert np.isfinite(problem.unmatched.of(perms)).all()


@pytest.mark.parametrize(
    ("shape", "side"),
    [((3, 4), "col_unmatched"), ((3, 3), "col_unmatched"), ((4, 3), "row_unmatched")],
)
def test_who_has_to_be_matched_is(shape, side, rng):
    given = {"scores": rng.normal(size=shape), side: np.full(shape[side == "col_unmatched"], -1.0)}
    problem = prepare(pv.models.LinearMatching(**given)).problem
    found = brute_force(**given)
    labels = range(-1, shape[1])
    injective = [
        perm
        for perm in itertools.product(labels, repeat=shape[0])
        if all(perm.count(label) <= 1 for label in range(shape[1]))
    ]
    allowed = np.isfinite(problem.unmatched.of(np.array(injective)))
    assert {perm for perm, yes in zip(injective, allowed, strict=True) if yes} == set(found)


def larger(rng):
    """Twelve items against fifteen labels, two in five of them with nothing that fits well."""
    scores = rng.normal(size=(12, 15)) - 4.5
    scores[np.arange(7), rng.permutation(15)[:7]] += 4.0
    return pv.models.LinearMatching(scores, row_unmatched=-1.0, col_unmatched=-1.0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sequential", "mcmc"])
def test_sampling_engines_agree_with_exact_at_twelve_by_fifteen(method, rng):
    """At default settings; over nine such problems the largest was 0.007 and 0.008."""
    model = larger(rng)
    exact = pv.fit(model, "exact")
    assert 0.2 < exact.p_unmatched_rows.mean() < 0.8
    posterior = pv.fit(model, method)
    assert distance(posterior, exact).max() <= 0.02
    assert posterior.diagnostics.verdict == "trust"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sequential", "mcmc"])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_sampling_engines_agree_with_exact_on_weak_and_strong_scores(method, scale):
    for seed in range(2):
        scores = scale * np.random.default_rng(seed).normal(size=(12, 15)) - 1.5 - scale
        model = pv.models.LinearMatching(scores, row_unmatched=-1.0, col_unmatched=-1.0)
        assert distance(pv.fit(model, method), pv.fit(model, "exact")).max() <= 0.02


def test_scaled_marginals_solve_their_equations(rng):
    """Row by row and column by column, what is unmatched included."""
    given = exact_cases.partial(rng, 4, 6, scale=2.0)
    problem = prepare(pv.models.LinearMatching(**given)).problem
    structure = build_structure(problem)
    log_p = log_marginals(structure, linear_table(problem, structure))[0]
    P = np.exp(log_p)
    np.testing.assert_allclose(P.sum(axis=1), 1.0, atol=1e-6)
    # Columns: y_j (1 + sum_i x_i w_ij) = 1, so what is not matched is y_j itself.
    table = linear_table(problem, structure)[0]
    allowed = np.asarray(given.get("mask", np.ones((4, 6), bool)))
    x = log_p[:, -1] - table[:, -1]
    for j in range(6):
        ratio = (log_p[:, j] - table[:, j] - x)[allowed[:, j]]
        np.testing.assert_allclose(np.exp(ratio), 1.0 - P[allowed[:, j], j].sum(), rtol=1e-3)


def test_a_search_leaves_no_row_over_that_has_to_be_matched(rng):
    """Labels may stay unused, items may not: leaving an item out would gain a lot here."""
    model = pv.models.LinearMatching(rng.normal(size=(5, 7)) - 20.0, col_unmatched=-np.ones(7))
    posterior, exact = pv.fit(model, "sequential"), pv.fit(model, "exact")
    assert posterior.diagnostics.missed_mass < 1e-6
    assert posterior.diagnostics.verdict == "trust"
    np.testing.assert_allclose(posterior.log_evidence, exact.log_evidence, atol=0.05)
    assert distance(posterior, exact).max() <= 0.02


def test_a_family_need_not_be_trained(rng):
    """The search for missed modes then starts where nothing is known yet."""
    model = pv.models.LinearMatching(**exact_cases.partial(rng, 3, 3))
    posterior = pv.fit(model, "sequential", num_steps=0, max_evaluations=500)
    assert distance(posterior, pv.fit(model, "exact")).max() <= 1e-6


def test_feasible_matchings_are_those_of_the_definition(rng):
    given = exact_cases.mixed(rng, 3, 3)
    problem = prepare(pv.models.LinearMatching(**given)).problem
    every = [
        perm
        for perm in itertools.product(range(-1, 3), repeat=3)
        if len({*perm} - {-1}) == sum(j >= 0 for j in perm)
    ]
    possible = partial.feasible(problem, np.array(every))
    assert {perm for perm, yes in zip(every, possible, strict=True) if yes} == set(
        brute_force(**given)
    )


def test_the_sparse_method_agrees_with_exact_at_twelve_by_fifteen(rng):
    model = larger(rng)
    posterior = pv.fit(model, "linear", max_size=0, num_steps=2_000_000)
    assert distance(posterior, pv.fit(model, "exact")).max() <= 0.02
    assert posterior.diagnostics.verdict == "trust"
