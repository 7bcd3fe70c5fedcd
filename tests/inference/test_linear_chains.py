"""Alias tables, worms, beliefs and evidence of the linear engine against enumeration."""

import linear_cases as cases
import numpy as np
import pytest

from permvi.inference.interruptible import Stop
from permvi.inference.linear import Candidates
from permvi.inference.linear.beliefs import log_bethe, propagate, scale_to_marginals
from permvi.inference.linear.chains import EMPTY, Walk, run_round
from permvi.inference.linear.evidence import build_ladder, descend, log_evidence
from permvi.inference.linear.worm_kernels import alias_tables

# So many independent chains give a standard error; their means are t-distributed, and six standard
# errors are exceeded with a probability of 4e-6.
NUM_CHAINS = 24
NUM_ERRORS = 6.0


def rows_of_weights(rng):
    """Rows for alias tables: soft, heavy-tailed, equal, with zeros, tiny, and a single pair."""
    yield from (rng.exponential(size=k) for k in (2, 3, 17))
    yield from (np.exp(10.0 * rng.standard_normal(k)) for k in (5, 40))
    yield from (np.ones(k) for k in (1, 4, 7))
    yield np.array([0.0, 1.0, 0.0, 2.0, 0.0])
    yield np.where(rng.random(30) < 0.8, 0.0, np.exp(5.0 * rng.standard_cauchy(30).clip(-9, 9)))
    yield np.array([1e-300, 1.0, 1e-200])
    yield np.array([0.1] * 10)
    yield np.array([1 / 3, 0.0, 1 / 3, 1 / 3])


def test_alias_tables_imply_the_weights(rng):
    weights = list(rows_of_weights(rng))
    ends = np.cumsum([0, *map(len, weights)])
    cols = rng.integers(1000, size=ends[-1])
    table = alias_tables(ends, cols, np.concatenate(weights))
    np.testing.assert_array_equal(table[:, 1], cols)
    np.testing.assert_array_equal(table[:, 3], cols[table[:, 2]])
    for k, row in enumerate(weights):
        own = table[ends[k] : ends[k + 1]]
        keep, other = own[:, 0] / (2.0**31 - 1.0), own[:, 2] - ends[k]
        implied = (keep + np.bincount(other, 1.0 - keep, len(row))) / len(row)
        np.testing.assert_allclose(implied, row / row.sum(), atol=1e-8)
        assert not implied[row == 0.0].any()


def check_state(walk, state):
    """The rows of columns and the columns of rows are the same pairs."""
    problem = walk.gauge.problem
    perm = walk.matching(state)
    for i, j in enumerate(perm):
        if j >= 0:
            assert state.holder[j] == i
            pair = state.choice[i]
            assert (problem.rows[pair], problem.cols[pair]) == (i, j)
    assert (state.holder >= 0).sum() == (perm >= 0).sum()


def frequencies(walk, *, fugacity=0.0, share=0.5, num_worms=20_000, longest=None):
    """(chains, E + n) frequencies, and the share of worms that were undone."""
    size = len(walk.gauge.weights) + walk.gauge.problem.shape[0]
    rates, found, undone = walk.at(fugacity), np.zeros((NUM_CHAINS, size)), 0
    for k in range(NUM_CHAINS):
        state = walk.start(walk.gauge.best, np.random.default_rng(k))
        if longest is not None:
            state.journal = state.journal[:longest].copy()
        walk.worms(state, rates, share, num_worms // 10, EMPTY)
        check_state(walk, state)
        walk.worms(state, rates, share, num_worms, found[k])
        check_state(walk, state)
        undone += state.num_undone / state.num_worms / NUM_CHAINS
    return found / num_worms, undone


def check_frequencies(found, exact):
    errors = found.std(axis=0, ddof=1) / np.sqrt(NUM_CHAINS)
    # What is hardly ever seen has no standard error of use.
    assert (np.abs(found.mean(axis=0) - exact) <= NUM_ERRORS * errors + 2e-5).all()
    assert errors.max() < 0.01


def exact_choices(problem):
    """(E + n,) probabilities of pairs and of unmatched rows."""
    return np.concatenate(cases.exact_law(problem)[1:3])


def problem_of(kind, seed, n=5, scale=2.0):
    return cases.candidates(cases.KINDS[kind](np.random.default_rng(seed), n, scale))


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_worms_keep_the_law(kind):
    problem = problem_of(kind, 1)
    walk = Walk(cases.gauge_of(problem))
    found, undone = frequencies(walk)
    assert undone == 0.0
    np.testing.assert_allclose(found.sum(axis=1), problem.shape[0])
    check_frequencies(found, exact_choices(problem))


@pytest.mark.parametrize("kind", list(cases.KINDS))
@pytest.mark.parametrize("fugacity", [0.05, 1.5])
def test_worms_keep_the_law_with_fugacity(kind, fugacity):
    gauge = cases.gauge_of(problem_of(kind, 2))
    found, _ = frequencies(Walk(gauge), fugacity=fugacity)
    check_frequencies(found, exact_choices(cases.with_fugacity(gauge, fugacity)))


@pytest.mark.parametrize(("kind", "share"), [("square", 1.0), ("partial", 0.0), ("mixed", 0.1)])
def test_any_share_of_closed_worms_gives_the_same_law(kind, share):
    problem = problem_of(kind, 3)
    found, _ = frequencies(Walk(cases.gauge_of(problem)), share=share)
    check_frequencies(found, exact_choices(problem))


@pytest.mark.parametrize("kind", ["square", "oblong", "partial", "mixed"])
def test_worms_that_are_undone_keep_the_law(kind):
    problem = problem_of(kind, 4, scale=1.0)
    for longest, fewest in ((2, 0.05), (3, 0.02)):
        found, undone = frequencies(Walk(cases.gauge_of(problem)), longest=longest)
        assert undone > fewest
        check_frequencies(found, exact_choices(problem))


def test_undone_worms_leave_everything_as_it_was():
    """A journal of one step undoes all worms but those that end at once."""
    for kind in ("square", "partial"):
        walk = Walk(cases.gauge_of(problem_of(kind, 5)))
        state = walk.start(walk.gauge.best, np.random.default_rng(0))
        state.journal = state.journal[:1].copy()
        before = walk.matching(state)
        walk.worms(state, walk.at(0.0), 1.0, 2000, EMPTY)
        assert state.num_undone > 100
        np.testing.assert_array_equal(walk.matching(state), before)
        check_state(walk, state)


def test_rounds_have_means_squares_and_draws():
    """The mean of squares over batches is the variance that independent rounds show."""
    problem = problem_of("partial", 6)
    walk, rounds = Walk(cases.gauge_of(problem)), []
    for k in range(NUM_CHAINS):
        state = walk.start(walk.gauge.best, np.random.default_rng(k))
        options = {"num_steps": 40_000, "num_batches": 20, "draws_per_batch": 2}
        rounds.append(run_round(walk, state, stopped=Stop(), **options))
        assert rounds[-1].draws.shape == (40, problem.shape[0])
        assert all(np.isfinite(problem.log_weight(draw)) for draw in rounds[-1].draws)
    means = np.stack([r.mean for r in rounds])
    check_frequencies(means, exact_choices(problem))
    stated = np.mean([r.squares for r in rounds], axis=0).sum() / (20 * 19)
    # A variance of some ten independent numbers in 24 chains is known to about 10 percent.
    assert means.var(axis=0, ddof=1).sum() == pytest.approx(stated, rel=0.4)


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
    gauge = cases.gauge_of(problem)
    evidence, *exact = cases.exact_law(problem)
    found = propagate(gauge, gauge.row_alone, gauge.col_alone)
    assert found.converged
    for belief, truth in zip((found.pairs, found.rows, found.cols), exact, strict=True):
        np.testing.assert_allclose(belief, truth, atol=1e-6)
    alone = problem.row_alone, problem.col_alone
    assert log_bethe(problem.scores, alone, *exact) == pytest.approx(evidence, abs=1e-9)
    # All may stay alone at some fugacity, for which messages from here are a start.
    fugacity = 0.3
    other = propagate(gauge, gauge.row_alone + fugacity, gauge.col_alone + fugacity, found.messages)
    truth = cases.exact_law(cases.with_fugacity(gauge, fugacity))[1:]
    for belief, expected in zip((other.pairs, other.rows, other.cols), truth, strict=True):
        np.testing.assert_allclose(belief, expected, atol=1e-6)


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_beliefs_are_fixed_points(kind, rng):
    """The equations of the docstring, as dense tables; and the beliefs sum to one."""
    problem = problem_of(kind, 7, n=7)
    n, m = problem.shape
    gauge = cases.gauge_of(problem)
    r, c = gauge.row_alone, gauge.col_alone
    found = propagate(gauge, r, c)
    assert found.converged
    w, u = np.zeros((n, m)), np.zeros((n, m))
    w[problem.rows, problem.cols], u[problem.rows, problem.cols] = gauge.weights, found.messages
    v = 1.0 / (c + (w * u).sum(axis=0) - w * u)
    again = 1.0 / (r[:, None] + (w * v).sum(axis=1, keepdims=True) - w * v)
    odds = (w * u * v)[problem.rows, problem.cols]
    np.testing.assert_allclose(found.pairs, odds / (1.0 + odds), atol=1e-9)
    new_odds = (w * again * v)[problem.rows, problem.cols]
    np.testing.assert_allclose(new_odds / (1.0 + new_odds), found.pairs, atol=1e-6)
    rows = found.rows + np.bincount(problem.rows, found.pairs, n)
    cols = found.cols + np.bincount(problem.cols, found.pairs, m)
    np.testing.assert_allclose(np.append(rows, cols), 1.0, atol=1e-5)


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_the_bethe_free_energy_bounds_the_evidence(kind, rng):
    """Of the exact marginals and of any others; and the closest are those of beliefs."""
    problem = problem_of(kind, 8)
    evidence, pairs, rows, cols = cases.exact_law(problem)
    alone = problem.row_alone, problem.col_alone
    gauge = cases.gauge_of(problem)
    found = propagate(gauge, gauge.row_alone, gauge.col_alone)
    scaled = scale_to_marginals(problem, found.pairs, found.rows, found.cols)
    highest = log_bethe(problem.scores, alone, *scaled)
    assert evidence - 1.5 < highest <= evidence + 1e-7
    for tilt in (np.ones(len(pairs)), *rng.gamma(1.0, size=(10, len(pairs)))):
        some = scale_to_marginals(problem, pairs * tilt, rows, cols)
        value = log_bethe(problem.scores, alone, *some)
        assert value <= highest + 1e-5


def log_total(gauge, fugacity):
    return cases.exact_law(cases.with_fugacity(gauge, fugacity))[0]


def derivative(gauge, fugacity, step=1e-4):
    """Of the log total by the log of the fugacity, by central differences."""
    ends = [log_total(gauge, fugacity * np.exp(sign * step)) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_chains_watch_the_derivative_and_the_ratio(kind):
    gauge = cases.gauge_of(problem_of(kind, 9, n=4))
    walk = Walk(gauge)
    for fugacity in (0.05, 0.4, 3.0):
        rates, seen = walk.at(fugacity), []
        for k in range(NUM_CHAINS):
            state = walk.start(np.full(gauge.problem.shape[0], -1), np.random.default_rng(k))
            walk.worms(state, rates, 0.3, 200, EMPTY)
            seen.append(walk.watch(state, rates, 0.3, 3, 2000, fugacity)[:2])
        mean, error = np.mean(seen, axis=0), np.std(seen, axis=0, ddof=1) / np.sqrt(NUM_CHAINS)
        ratio = np.exp(log_total(gauge, 0.0) - log_total(gauge, fugacity))
        exact = np.array([derivative(gauge, fugacity), ratio])
        # Of 48,000 looks, ten or so tell nothing of how rare they are.
        assert (np.abs(mean - exact) <= NUM_ERRORS * error + [1e-6, 2e-4]).all()
        assert error[0] < 0.02


@pytest.mark.parametrize("kind", list(cases.KINDS))
def test_the_ladder_integrates_the_derivative(kind):
    """With exact values at its nodes it gives the log total at the lowest fugacity."""
    for scale in (0.5, 3.0):
        gauge = cases.gauge_of(problem_of(kind, 10, n=4, scale=scale))
        ladder = build_ladder(gauge, Stop())
        *nodes, lowest = ladder.fugacities
        assert (np.diff(ladder.fugacities) < 0).all()
        # Belief propagation is a bound, and close at the highest fugacity.
        top = log_total(gauge, 4.0)
        assert top - 1e-3 <= ladder.log_highest <= top + 1e-7
        integral = ladder.weights @ [derivative(gauge, fugacity) for fugacity in nodes]
        assert top - integral == pytest.approx(log_total(gauge, lowest), abs=1e-4)


def test_the_evidence_has_the_stated_error():
    """Over 45 problems of all kinds, z-scores have a root mean square of about one."""
    scores, errors = [], []
    for seed, kind in enumerate(list(cases.KINDS) * 5):
        problem = problem_of(kind, 100 + seed, n=5, scale=(0.5, 1.0, 2.0, 3.0)[seed % 4])
        gauge = cases.gauge_of(problem)
        walk, ladder = Walk(gauge), build_ladder(gauge, Stop())
        rngs = [np.random.default_rng([seed, k]) for k in range(4)]
        descents = [descend(walk, ladder, rng, 60_000, Stop()) for rng in rngs]
        value, error = log_evidence(ladder, descents)
        for descent in descents:
            assert np.isfinite(problem.log_weight(walk.matching(descent.start)))
        scores.append((gauge.log_factor + value - cases.log_evidence(problem)) / error)
        errors.append(error)
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.3
    assert np.max(errors) < 0.2


def test_one_chain_alone_has_an_error_too():
    problem = problem_of("square", 11)
    gauge = cases.gauge_of(problem)
    walk, ladder = Walk(gauge), build_ladder(gauge, Stop())
    descent = descend(walk, ladder, np.random.default_rng(0), 200_000, Stop())
    value, error = log_evidence(ladder, [descent])
    assert abs(gauge.log_factor + value - cases.log_evidence(problem)) < 4 * error < 0.8


def test_chains_stop_when_they_are_asked_to():
    problem = problem_of("square", 12)
    gauge = cases.gauge_of(problem)
    walk, stop = Walk(gauge), Stop()
    stop.asked = True
    state = walk.start(gauge.best, np.random.default_rng(0))
    options = {"num_steps": 10**12, "num_batches": 10**6, "draws_per_batch": 1}
    assert run_round(walk, state, stopped=stop, **options) is None
    assert descend(walk, build_ladder(gauge, Stop()), np.random.default_rng(0), 10**5, stop) is None
    assert stop.done > 0
