"""Row-by-row families: their probabilities, their draws, and what masks leave them."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2

import permvi as pv
from permvi.inference.discrete import conditionals, graph
from permvi.inference.discrete.family import draw, draw_beside, draw_many, log_prob, log_prob_many
from permvi.inference.discrete.structure import build_structure
from permvi.problem.prepare import prepare
from permvi.transforms.stick_breaking_limit import limit_log_prob
from permvi.transforms.sticks import Sticks
from tests.inference.discrete_cases import (
    KINDS,
    SHAPES,
    all_choices,
    count,
    one_component,
    problem_of,
    random_family,
)

log_probs = jax.jit(log_prob_many)
draws_of = jax.jit(draw_many, static_argnums=2)


# Every kind and every case is there, all pairs of them among the slow tests.
QUICK = [
    ("square", "plain"), ("masked", "lookahead"), ("partial", "lookahead"),
    ("two sites", "lookahead"), ("more rows", "plain"), ("masked rectangle", "stick_breaking"),
    ("more columns", "stick_breaking"), ("some must", "stick_breaking"),
]  # fmt: skip
THOROUGH = [
    pytest.param(case, kind, marks=pytest.mark.slow)
    for case in SHAPES
    for kind in KINDS
    if (case, kind) not in QUICK
]


def goodness_of_fit(counts, probabilities):
    """The p-value of Pearson's test, rare cells pooled."""
    expected = counts.sum() * probabilities
    rare = expected < 5
    observed = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    used = expected > 0
    assert not observed[~used].any()
    statistic = ((observed - expected)[used] ** 2 / expected[used]).sum()
    return chi2.sf(statistic, used.sum() - 1) if used.sum() > 1 else 1.0


@pytest.mark.float32
@pytest.mark.parametrize(("case", "kind"), QUICK + THOROUGH)
def test_probabilities_sum_to_one(case, kind, rng):
    problem = problem_of(case)
    family = random_family(problem, kind, rng)
    values = np.exp(np.asarray(log_probs(family, all_choices(problem)), np.float64))
    tolerance = 1e-12 if jax.config.jax_enable_x64 else 2e-5
    np.testing.assert_allclose(values.sum(), 1, rtol=tolerance)


@pytest.mark.parametrize(("case", "kind"), QUICK + THOROUGH)
def test_draws_follow_the_probabilities(case, kind, rng):
    problem = problem_of(case)
    family = random_family(problem, kind, rng)
    choices = all_choices(problem)
    counts = count(draws_of(family, jax.random.key(1), 20_000), choices)
    assert goodness_of_fit(counts, np.exp(log_probs(family, choices))) > 1e-4


def test_probabilities_sum_to_one_under_random_masks(rng):
    """Two hundred feasible masks of five items, in one compiled function."""
    value = jax.jit(lambda family, choices: jnp.exp(log_prob_many(family, choices)))
    everything = np.array(list(itertools.permutations(range(5))))[:, None]
    feasible = 0
    while feasible < 200:
        mask = rng.random((5, 5)) < rng.uniform(0.25, 0.8)
        if not mask[np.arange(5), everything[:, 0]].all(axis=-1).any():
            continue
        feasible += 1
        model = pv.models.LinearMatching(np.zeros((5, 5)), mask=mask)
        kind = KINDS[feasible % len(KINDS)]
        problem = prepare(model).problem
        if problem.mask is None:
            continue
        family = random_family(problem, kind, rng)
        values = np.asarray(value(family, everything))
        allowed = mask[np.arange(5), everything[:, 0]].all(axis=-1)
        np.testing.assert_allclose(values.sum(), 1, rtol=1e-10)
        assert not values[~allowed].any()


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_sparse_masks_never_run_into_dead_ends(kind, rng):
    n = 12
    mask = np.eye(n, dtype=bool) | (rng.random((n, n)) < 0.15)
    mask = mask[:, rng.permutation(n)]
    problem = prepare(pv.models.LinearMatching(np.zeros((n, n)), mask=mask)).problem
    family = random_family(problem, kind, rng)
    draws = np.asarray(draws_of(family, jax.random.key(0), 2000))[:, 0]
    assert (np.sort(draws, axis=1) == np.arange(n)).all()
    assert mask[np.arange(n), draws].all()


def test_options_are_what_some_perfect_matching_has(rng):
    options, take = jax.jit(graph.options), jax.jit(graph.take)
    for _ in range(60):
        edges = rng.random((5, 5)) < 0.5
        matchings = [
            p for p in itertools.permutations(range(5)) if edges[np.arange(5), list(p)].all()
        ]
        if not matchings:
            continue
        start = np.array(matchings[rng.integers(len(matchings))], np.int32)
        holding = graph.hold(jnp.asarray(start))
        left = matchings
        for row in rng.permutation(5).tolist():
            found = options(jnp.asarray(edges), holding, jnp.array(row))
            wanted = sorted({p[row] for p in left})
            assert np.flatnonzero(found.allowed).tolist() == wanted
            chosen = int(rng.choice(wanted))
            holding = take(holding, jnp.array(row), jnp.array(chosen), found.successor)
            left = [p for p in left if p[row] == chosen]
            assert edges[np.arange(5), np.asarray(holding.column)].all()
            assert sorted(np.asarray(holding.column).tolist()) == list(range(5))


def test_uniform_look_ahead_is_uniform():
    problem = problem_of("more columns")
    family = random_family(problem, "lookahead", np.random.default_rng(0), spread=0.0)
    choices = all_choices(problem)
    np.testing.assert_allclose(log_probs(family, choices), -np.log(len(choices)), rtol=1e-10)


def test_look_ahead_by_hand(rng):
    family = one_component(random_family(problem_of("square"), "lookahead", rng))
    A, B = (np.asarray(family.params[name])[0, 0] for name in ("logits", "later"))
    order = np.asarray(family.orders)[0, 0]
    choice = np.array([2, 0, 3, 1])
    total, free = 0.0, set(range(4))
    for step, row in enumerate(order):
        logits = {
            j: A[row, j]
            + sum(np.log(sum(np.exp(B[u, k]) for k in free - {j})) for u in order[step + 1 :])
            for j in free
        }
        total += logits[choice[row]] - np.log(sum(np.exp(v) for v in logits.values()))
        free -= {choice[row]}
    found = jax.jit(log_prob)(family, jnp.asarray(choice)[None])
    np.testing.assert_allclose(found, total, rtol=1e-12)


def test_stick_breaking_is_the_limit_of_the_relaxed_family(rng):
    """The same law as in `transforms`, where it is derived from the relaxation."""
    problem = problem_of("square")
    family = one_component(random_family(problem, "stick_breaking", rng))
    logits = family.params["logits"][0, 0][:3, :3]
    family = dataclasses.replace(family, orders=jnp.arange(4)[None, None])
    sticks = Sticks(jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits))
    choices = all_choices(problem)
    expected = limit_log_prob(choices[:, 0], sticks)
    np.testing.assert_allclose(log_probs(family, choices), expected, rtol=1e-12)


@pytest.mark.float32
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_logits_stay_finite(kind, rng):
    problem = problem_of("masked")
    family = random_family(problem, kind, rng, spread=40.0)
    choices = all_choices(problem)

    def total(params):
        return jnp.sum(log_prob_many(dataclasses.replace(family, params=params), choices))

    values = np.asarray(log_probs(family, choices), np.float64)
    assert not np.isnan(values).any()
    np.testing.assert_allclose(np.logaddexp.reduce(values), 0, atol=1e-3)
    for gradient in jax.jit(jax.grad(total))(family.params).values():
        assert np.isfinite(gradient).all()


def test_leaving_one_out_of_a_sum_does_not_cancel():
    rows = np.array([[50.0, 0.0, -3.0], [0.0, 0.0, -1e9], [-400.0, 0.0, -400.0]])
    left = [[np.logaddexp(0, -3), 50.0, 50.0], [0.0, 0.0, np.log(2)], [0.0, -400.0, 0.0]]
    # The last row is so uneven that one of two equal weights stands for both.
    expected = np.array(left) - [[50.0], [np.log(2)], [0.0]]
    for row, values in zip(rows, expected, strict=True):
        later = jnp.array([True, False])
        table = jnp.stack([jnp.asarray(row), jnp.zeros(3)])
        found = conditionals._log_shares_left(table, later, 3)
        np.testing.assert_allclose(found, values, rtol=1e-12, atol=1e-15)
    # Rows add up, and whatever is no column takes nothing away.
    found = conditionals._log_shares_left(jnp.asarray(rows), jnp.ones(3, bool), 2)
    np.testing.assert_allclose(found, [*expected.sum(axis=0)[:2], 0.0], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind, rng):
    problem = problem_of("masked rectangle")
    family = random_family(problem, kind, rng)
    choice = jnp.asarray(all_choices(problem)[3])

    def value(logits):
        params = {**family.params, "logits": logits}
        return log_prob(dataclasses.replace(family, params=params), choice)

    logits = family.params["logits"]
    direction = jnp.asarray(rng.standard_normal(logits.shape))
    compiled, gradient = jax.jit(value), jax.jit(jax.grad(value))
    slope = np.sum(gradient(logits) * direction)
    step = 1e-5
    ends = [compiled(logits + sign * direction) for sign in (step, -step)]
    numeric = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(slope, numeric, rtol=1e-7)


def test_impossible_matchings_have_probability_zero(rng):
    family = random_family(problem_of("masked"), "plain", rng)
    twice, forbidden = [0, 1, 2, 3, 0], [2, 1, 0, 3, 4]
    values = log_probs(family, np.array([[twice], [forbidden]]))
    assert (np.asarray(values) == -np.inf).all()


@pytest.mark.parametrize(
    ("case", "kind", "alone"),
    [("square", "plain", True), ("masked", "lookahead", True), ("partial", "lookahead", True),
     ("two sites", "lookahead", True), ("square", "lookahead", False)],
)  # fmt: skip
def test_a_draw_beside_other_choices_is_the_draw_with_both_probabilities(case, kind, alone, rng):
    problem = problem_of(case)
    family = random_family(problem, kind, rng)
    family = one_component(family) if alone else family
    every = all_choices(problem)
    others = jnp.asarray(every[rng.integers(len(every), size=20)])
    # One that is impossible, too: all rows want the first choice.
    others = others.at[0].set(0)
    keys = jax.random.split(jax.random.key(3), 20)
    found = jax.jit(jax.vmap(draw_beside, (None, 0, 0)))(family, keys, others)
    drawn = jax.jit(jax.vmap(draw, (None, 0)))(family, keys)
    np.testing.assert_array_equal(found[0], drawn)
    np.testing.assert_allclose(found[1], log_probs(family, drawn), rtol=1e-10)
    np.testing.assert_allclose(found[2], log_probs(family, others), rtol=1e-10)
    assert found[2][0] == -jnp.inf


def test_large_families_take_rows_one_by_one(rng):
    """Beyond a size the rows are evaluated one after the other; the value is the same."""
    n = 26
    problem = prepare(pv.models.LinearMatching(np.zeros((n, n)))).problem
    family = one_component(random_family(problem, "lookahead", rng))
    choice = jnp.asarray(rng.permutation(n))[None]
    large = jax.jit(log_prob)(family, choice)
    A, B = (np.asarray(family.params[name])[0, 0] for name in ("logits", "later"))
    total, free = 0.0, np.ones(n, bool)
    order = np.asarray(family.orders)[0, 0]
    for step, row in enumerate(order):
        ahead = np.zeros(n)
        for j in np.flatnonzero(free):
            rest = free.copy()
            rest[j] = False
            later = order[step + 1 :]
            ahead[j] = np.log(np.exp(B[later][:, rest]).sum(axis=1)).sum()
        logits = (A[row] + ahead)[free]
        chosen = A[row, choice[0, row]] + ahead[choice[0, row]]
        total += chosen - np.logaddexp.reduce(logits)
        free[choice[0, row]] = False
    np.testing.assert_allclose(large, total, rtol=1e-10)


def test_a_mask_without_matchings_is_refused():
    problem = problem_of("square")
    mask = np.ones((4, 4), bool)
    mask[:2, 1:] = False
    with pytest.raises(ValueError, match="mask must allow at least one matching"):
        build_structure(dataclasses.replace(problem, mask=mask))
