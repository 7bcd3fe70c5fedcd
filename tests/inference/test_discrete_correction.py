"""Weighted draws: inclusion probabilities, evidence and what the errors are said to be."""

import jax
import mpmath
import numpy as np
import pytest

from permvi.inference.discrete import correction, without_replacement
from permvi.inference.discrete.family import draw_many, log_prob_many
from permvi.inference.discrete.without_replacement import draw_distinct
from permvi.problem.evaluation import Evaluations, codes
from tests.inference.discrete_cases import (
    all_choices,
    count,
    one_component,
    problem_of,
    random_family,
)

distinct_of = jax.jit(draw_distinct, static_argnums=2)
log_probs = jax.jit(log_prob_many)


@pytest.mark.float32
def test_inclusion_probabilities_are_right_at_the_extremes():
    excess = [-300.0, -90.0, -21.0, -19.0, -3.0, 0.0, 2.0, 3.0, 19.0, 50.0]
    dtype = jax.numpy.zeros(()).dtype
    found = without_replacement._log_inclusion(jax.numpy.array(excess, dtype))
    with mpmath.workdps(200):
        expected = [float(mpmath.log(-mpmath.expm1(-mpmath.exp(x)))) for x in excess]
    # A relative error of x changes e^x, and with it the result, by |x| e^x times as much.
    condition = 1 + np.abs(excess) * np.exp(np.minimum(excess, 5.0))
    error = np.abs(np.asarray(found, np.float64) - expected)
    assert (error <= 8 * np.finfo(dtype).eps * condition * np.abs(expected) + 1e-12).all()
    with mpmath.workdps(400):
        rare = [float(mpmath.log(1 - (1 - mpmath.exp(x)) ** 10)) for x in (-800.0, -50.0, -30.0)]
    again = correction.log_inclusion_with_replacement(np.array([-800.0, -50.0, -30.0]), 10)
    np.testing.assert_allclose(again, rare, rtol=1e-12)


@pytest.mark.float32
@pytest.mark.parametrize("case", ["square", "masked", "partial", "two sites"])
def test_distinct_draws_are_distinct_and_their_probabilities_right(case, rng):
    problem = problem_of(case)
    family = one_component(random_family(problem, "lookahead", rng))
    drawn = jax.tree.map(np.asarray, distinct_of(family, jax.random.key(0), 8))
    there = drawn.log_q > -np.inf
    assert there.sum() == min(8, len(all_choices(problem)))
    assert len(np.unique(codes(drawn.choices[there], 8))) == there.sum()
    expected = log_probs(family, drawn.choices[there])
    np.testing.assert_allclose(drawn.log_q[there], expected, rtol=1e-4, atol=1e-5)
    assert (drawn.log_inclusion[there] <= 0).all()


def test_asking_for_all_matchings_gives_all_with_certainty(rng):
    problem = problem_of("square")
    family = one_component(random_family(problem, "plain", rng))
    drawn = jax.tree.map(np.asarray, distinct_of(family, jax.random.key(3), 40))
    there = drawn.log_q > -np.inf
    assert there.sum() == 24
    np.testing.assert_array_equal(drawn.log_inclusion[there], 0)
    np.testing.assert_allclose(np.exp(drawn.log_q[there]).sum(), 1, rtol=1e-10)


def test_draws_without_replacement_follow_their_law(rng):
    """The first is a draw of q; the first two are x, y with probability q(x) q(y) / (1 - q(x))."""
    problem = problem_of("square")
    family = one_component(random_family(problem, "plain", rng, spread=0.7))
    choices = all_choices(problem)
    q = np.exp(np.asarray(log_probs(family, choices)))
    num = 20_000
    keys = jax.random.split(jax.random.key(5), num)
    drawn = jax.jit(jax.vmap(lambda key: draw_distinct(family, key, 2).choices))(keys)
    for place, expected in enumerate((q, q * ((q / (1 - q)).sum() - q / (1 - q)))):
        frequency = count(np.asarray(drawn)[:, place], choices) / num
        error = np.sqrt(expected * (1 - expected) / num)
        assert (np.abs(frequency - expected) < 5 * error).all()


@pytest.mark.parametrize("scheme", ["swor", "ht", "snis"])
def test_the_evidence_is_unbiased_and_its_error_as_stated(scheme, rng):
    problem = problem_of("square")
    family = one_component(random_family(problem, "plain", rng, spread=1.0))
    choices = all_choices(problem)
    log_q = np.asarray(log_probs(family, choices))
    # Bounded weights: with heavy tails no number of repetitions would tell a bias.
    log_p = log_q + rng.uniform(-1, 1, len(choices))
    places = lambda some: [np.flatnonzero(c)[0] for c in _equal(some, choices)]  # noqa: E731
    seen = Evaluations(lambda some: log_p[places(some)], 4)
    before = choices[:3]
    seen.look_up(before)
    known = seen.contains(choices)
    num, repeats = 8, 400
    keys = jax.random.split(jax.random.key(9), repeats)
    distinct = jax.jit(jax.vmap(lambda key: draw_distinct(family, key, num)))(keys)
    draws = jax.jit(jax.vmap(lambda key: draw_many(family, key, num)))(keys)
    estimates, errors = [], []
    for b in range(repeats):
        if scheme == "swor":
            index = _find(np.asarray(distinct.choices[b]), choices)
            log_inclusion = np.asarray(distinct.log_inclusion[b])
        else:
            index = _find(np.asarray(draws[b]), choices)
            if scheme == "snis":
                found = correction.self_normalised(choices[index], log_p[index], log_q[index])
                estimates.append(np.exp(found.log_evidence))
                errors.append(found.log_evidence_se)
                continue
            index = np.unique(index)
            log_inclusion = correction.log_inclusion_with_replacement(log_q[index], num)
        new = ~known[index]
        rows = np.concatenate([np.flatnonzero(known), index[new]])
        inclusion = np.concatenate([np.zeros(known.sum()), log_inclusion[new]])
        found = correction.horvitz_thompson(choices[rows], log_p[rows], inclusion, 1.0)
        estimates.append(np.exp(found.log_evidence))
        errors.append(found.log_evidence_se)
    estimates, truth = np.array(estimates), np.exp(log_p).sum()
    sem = estimates.std() / np.sqrt(repeats)
    assert abs(estimates.mean() - truth) < 4 * sem
    stated, actual = np.sqrt(np.mean(np.square(errors))), estimates.std() / truth
    assert 0.6 * actual < stated < 2.5 * actual


def test_inclusion_with_replacement_at_the_extremes():
    log_q = np.array([0.0, -1e-12, np.log(0.5), -50.0, -2000.0])
    found = correction.log_inclusion_with_replacement(log_q, 10)
    expected = [0.0, 0.0, np.log(1 - 0.5**10), np.log(10) - 50, np.log(10) - 2000]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_effective_share_of_all_matchings_is_its_definition(rng):
    log_q = np.log(rng.dirichlet(np.ones(30)))
    log_p = rng.standard_normal(30)
    p, q = np.exp(log_p), np.exp(log_q)
    expected = p.sum() ** 2 / (p**2 / q).sum()
    found = correction.effective_share(log_p, log_q, np.zeros(30))
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(correction.effective_share(log_q + 3, log_q, np.zeros(30)), 1)


def test_the_stated_error_of_marginals_is_what_repetitions_show(rng):
    problem = problem_of("square")
    choices = all_choices(problem)[:, 0]
    log_q = np.log(rng.dirichlet(np.ones(len(choices))))
    log_p = log_q + 0.8 * rng.standard_normal(len(choices))
    p = np.exp(log_p) / np.exp(log_p).sum()
    truth = np.stack([np.bincount(choices[:, i], p, 4) for i in range(4)])
    actual, stated = [], []
    for _ in range(300):
        index = np.unique(rng.choice(len(choices), 20, p=np.exp(log_q)))
        inclusion = correction.log_inclusion_with_replacement(log_q[index], 20)
        found = correction.horvitz_thompson(choices[index], log_p[index], inclusion, 1.0)
        weights = np.exp(found.log_weights - found.log_evidence)
        marginals = np.stack([np.bincount(found.perms[:, i], weights, 4) for i in range(4)])
        actual.append(0.5 * np.abs(marginals - truth).sum(axis=1))
        stated.append(correction.total_variation_error(found, 4))
    np.testing.assert_allclose(np.mean(stated), np.mean(actual), rtol=0.3)


@pytest.mark.parametrize("size", [(5, 6), (40, 300)])
def test_what_was_seen_is_not_evaluated_again(size, rng):
    n, m = size
    calls = []

    def evaluate(choices):
        calls.append(len(choices))
        return choices[:, 0].sum(axis=1).astype(float)

    seen = Evaluations(evaluate, m)
    some = np.stack([rng.permutation(m)[:n] for _ in range(20)])[:, None]
    values = seen.look_up(np.concatenate([some, some[:5]]))
    np.testing.assert_array_equal(values[:20], some[:, 0].sum(axis=1))
    assert (calls, seen.num_evaluations, len(seen)) == ([20], 20, 20)
    more = np.concatenate([some[3:6], some[:1, :, ::-1]])
    np.testing.assert_array_equal(seen.look_up(more), more[:, 0].sum(axis=1))
    assert calls == [20, 1]
    assert seen.contains(more).all()


def _equal(some, choices):
    return (np.asarray(some)[:, None] == choices[None]).all(axis=(2, 3))


def _find(some, choices):
    return np.array([np.flatnonzero(row)[0] for row in _equal(some, choices)])
