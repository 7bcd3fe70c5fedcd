"""Every kernel against the exact law: many chains from random starts, and their last matchings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi.inference.mcmc import moves
from permvi.inference.mcmc.moves import MatchingSpace
from permvi.inference.mcmc.run import _starting_points
from tests.inference.exact_oracle import brute_force
from tests.inference.mcmc_cases import (
    exact_law,
    last_states,
    linear_problem,
    on_host,
    p_value,
    row_by_row,
)

# Of one test in a thousand with fixed seeds; 15 of them would fail together once in 60 times.
LEVEL = 1e-3
# Every row has its own column and the next one's: the identity and one long cycle, nothing else.
RING = np.eye(5, dtype=bool) | np.roll(np.eye(5, dtype=bool), 1, axis=1)
SPARSE = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1]], bool)


def scores(*shape, scale=1.0, seed=0):
    return scale * np.random.default_rng(seed).normal(size=shape)


PROBLEMS = {
    "square": linear_problem(scores(4, 4)),
    "wide": linear_problem(scores(3, 5)),
    "tall": linear_problem(scores(5, 3)),
    "masked": linear_problem(scores(4, 4), mask=SPARSE),
    "ring": linear_problem(scores(5, 5), mask=RING),
    "wide-masked": linear_problem(scores(3, 4), mask=SPARSE[1:]),
    "tall-masked": linear_problem(scores(4, 3), mask=SPARSE[:, 1:]),
    "partial": linear_problem(
        scores(3, 3), row_unmatched=scores(3, seed=1), col_unmatched=scores(3, seed=2)
    ),
    "partial-masked": linear_problem(
        scores(4, 4),
        mask=SPARSE,
        row_unmatched=np.array([-np.inf, 0.3, -0.2, 0.1]),
        col_unmatched=np.array([0.2, -np.inf, 0.4, -0.5]),
    ),
    "partial-wide": linear_problem(scores(2, 4), row_unmatched=scores(2, seed=3)),
    "sites": linear_problem(scores(2, 3, 3)),
    "sites-masked": linear_problem(scores(2, 4, 4, scale=0.5), mask=SPARSE),
}


@pytest.mark.parametrize(
    "name",
    [
        "wide", "tall", "ring", "sites",
        pytest.param("partial-masked", marks=pytest.mark.float32),
    ],
)  # fmt: skip
def test_chains_have_the_exact_law(name):
    assert p_value(PROBLEMS[name], last_states(PROBLEMS[name], 200)) > LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_more_chains_have_the_exact_law(name):
    draws = last_states(PROBLEMS[name], 400, num_chains=20_000, seed=1)
    assert p_value(PROBLEMS[name], draws) > LEVEL


@pytest.mark.parametrize("name", [pytest.param("square", marks=pytest.mark.slow), "masked"])
def test_independence_proposals_keep_the_exact_law(name):
    # Far from the posterior, and now and then outside the mask.
    proposal = row_by_row(scores(4, 4, seed=5))
    assert p_value(PROBLEMS[name], last_states(PROBLEMS[name], 160, proposal)) > LEVEL


@pytest.mark.parametrize("name", [pytest.param("square", marks=pytest.mark.slow), "partial-masked"])
def test_tempered_chains_have_the_exact_law(name):
    draws = last_states(PROBLEMS[name], 120, num_temperatures=3, max_temperature=4.0)
    assert p_value(PROBLEMS[name], draws) > LEVEL


@pytest.mark.parametrize("name", [pytest.param("square", marks=pytest.mark.slow), "partial-masked"])
def test_chains_on_the_host_have_the_exact_law(name):
    draws = last_states(on_host(PROBLEMS[name]), 120, num_temperatures=2, max_temperature=3.0)
    assert p_value(PROBLEMS[name], draws) > LEVEL


@pytest.mark.slow
def test_independence_proposals_on_the_host_keep_the_exact_law():
    proposal = row_by_row(scores(4, 4, seed=5))
    draws = last_states(on_host(PROBLEMS["square"]), 120, proposal)
    assert p_value(PROBLEMS["square"], draws) > LEVEL


def test_the_test_of_fit_finds_a_wrong_law():
    wrong = linear_problem(scores(4, 4) + 0.2 * scores(4, 4, seed=9))
    assert p_value(wrong, last_states(PROBLEMS["square"], 200)) < 1e-6


def transitions(problem, propose, num=4000):
    """Which matchings are proposed from which, and how often: (states, states) frequencies."""
    matchings, _ = exact_law(problem)
    space = MatchingSpace.of(problem)
    place = {tuple(x): k for k, x in enumerate(matchings.tolist())}
    table = np.zeros((len(matchings), len(matchings)))
    propose = jax.jit(jax.vmap(propose, in_axes=(None, None, 0)))
    for k, matching in enumerate(matchings):
        perm = jnp.asarray(matching.reshape(problem.num_sites, -1))
        words = jax.random.bits(jax.random.key(k), (num, problem.shape[0] + 2), jnp.uint32)
        for found in np.asarray(propose(space, perm, words)).reshape(num, -1).tolist():
            table[k, place[tuple(found)]] += 1
    return table / num


def swap(space, perm, words):
    return moves.propose_swap(space, perm, words).perm


@pytest.mark.parametrize("propose", [swap, moves.propose_cycle], ids=["swap", "cycle"])
@pytest.mark.parametrize("name", ["tall-masked", "partial-masked", "partial-wide"])
def test_proposals_are_symmetric_and_feasible(name, propose):
    table = transitions(PROBLEMS[name], propose)
    # Differences of two independent frequencies, in standard errors.
    error = np.sqrt((table + table.T) / 4000) + 1e-12
    assert (np.abs(table - table.T) / error).max() < 5


@pytest.mark.parametrize("name", ["masked", "ring", "tall-masked", "partial-masked"])
def test_cycles_reach_every_matching(name):
    table = transitions(PROBLEMS[name], moves.propose_cycle, num=2000)
    reached = np.linalg.matrix_power((table > 0).astype(float), len(table) + 1)
    assert (reached > 0).all()


def test_swaps_alone_do_not_leave_a_ring():
    table = transitions(PROBLEMS["ring"], swap)
    np.testing.assert_array_equal(table, np.eye(2))
    law = dict(zip(map(tuple, exact_law(PROBLEMS["ring"])[0].tolist()), (0, 1), strict=True))
    assert set(law) == {(0, 1, 2, 3, 4), (1, 2, 3, 4, 0)}


@pytest.mark.parametrize("name", ["wide", "tall", "ring", "partial-masked", "sites-masked"])
def test_starting_points_are_feasible_and_distinct(name):
    problem = PROBLEMS[name]
    space = MatchingSpace.of(problem)
    matchings, _ = exact_law(problem)
    found = _starting_points(space, np.array([0, 1], np.uint32), 200)
    flat = found.reshape(200, -1)
    assert set(map(tuple, flat.tolist())) <= set(map(tuple, matchings.tolist()))
    assert len(np.unique(flat[:8], axis=0)) == min(8, len(matchings))
    contained = jax.vmap(space.contains)(jnp.asarray(found))
    assert contained.all()


def test_the_space_knows_what_is_infeasible():
    problem = PROBLEMS["partial-masked"]
    space = MatchingSpace.of(problem)
    feasible = set(map(tuple, exact_law(problem)[0].tolist()))
    every = np.stack(np.meshgrid(*[np.arange(-1, 4)] * 4, indexing="ij"), -1).reshape(-1, 4)
    found = jax.vmap(space.contains)(jnp.asarray(every)[:, None])
    assert {tuple(x) for x in every[np.asarray(found)].tolist()} == feasible


def test_weights_of_the_unmatched_are_those_of_the_definition():
    problem = PROBLEMS["partial"]
    space = MatchingSpace.of(problem)
    zero = np.zeros((3, 3)).tolist()
    found = brute_force(zero, None, None, problem.row_unmatched, problem.col_unmatched)
    perms = np.array(list(found))[:, None]
    for given in (perms, jnp.asarray(perms)):
        np.testing.assert_allclose(space.log_weights(given), list(found.values()), rtol=1e-5)
