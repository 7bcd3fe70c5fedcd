"""The quadratic search: its parts against direct computation, its answers against brute force."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import quadratic_assignment

from permvi import assignment
from permvi.inference.map import MapOptions, Quadratic, quadratic, solve_quadratic, tabu_kernels
from permvi.inference.map.polytope import relaxed_starts, solve
from permvi.inference.map.population import Evolved, Islands
from permvi.inference.map.quadratic import climb, upper_bound
from permvi.inference.map.search import default_budget, default_restarts
from permvi.problem.unmatched import random_assignments


def random_problem(rng, n, m):
    """Directed, with loops and a linear part."""
    return Quadratic(rng.normal(size=(n, n)), rng.normal(size=(m, m)), rng.normal(size=(n, m)))


def by_loops(problem, perm):
    pairs = [(i, j) for i, j in enumerate(perm) if j >= 0]
    total = problem.constant + sum(problem.C[i, j] for i, j in pairs)
    edges = itertools.product(pairs, pairs)
    return total + sum(problem.A[i, k] * problem.B[j, h] for (i, j), (k, h) in edges)


def all_matchings(n, m):
    """Of as many pairs as there can be, -1 for unmatched."""
    size = max(n, m)
    perms = {
        tuple(j if j < m else -1 for j in perm[:n]) for perm in itertools.permutations(range(size))
    }
    return sorted(perms)


def brute_force(problem, mask=None):
    """The best value over all allowed matchings."""
    n, m = problem.shape
    allowed = np.ones((n, m), bool) if mask is None else mask
    return max(
        by_loops(problem, perm)
        for perm in all_matchings(n, m)
        if all(allowed[i, j] for i, j in enumerate(perm) if j >= 0)
    )


def random_mask(rng, n, m, density=0.5):
    """A feasible, pruned mask."""
    mask = rng.random((n, m)) < density
    perm = rng.permutation(max(n, m))[:n]
    rows = np.flatnonzero(perm < m)
    mask[rows, perm[rows]] = True
    return assignment.prune_mask(mask)


def test_values_and_gradient(rng):
    problem = random_problem(rng, 4, 4)
    perms = np.array(all_matchings(4, 4))
    np.testing.assert_allclose(problem.values(perms), [by_loops(problem, p) for p in perms])
    X = jnp.asarray(rng.random((2, 4, 4)))

    def value(X):
        mapped = jnp.einsum("ij,jl,kl->ik", X, problem.B, X)
        return jnp.sum(problem.A * mapped) + jnp.sum(problem.C * X)

    rtol = 1e-10 if X.dtype == jnp.float64 else 1e-4
    np.testing.assert_allclose(problem.gradient(np.asarray(X)), jax.vmap(jax.grad(value))(X), rtol)


@pytest.mark.parametrize(("n", "m"), [(5, 5), (4, 6), (6, 4)])
def test_known_pairs_leave_a_quadratic_problem(rng, n, m):
    problem = random_problem(rng, n, m)
    settled = np.full(n, -1)
    settled[[1, 3]] = [2, 0]
    free_rows = np.flatnonzero(settled < 0)
    free_cols = np.setdiff1d(np.arange(m), settled)
    rest = problem.given(settled, free_rows, free_cols)
    for perm in all_matchings(n, m):
        if perm[1] == 2 and perm[3] == 0:
            left = [
                perm[i] if perm[i] < 0 else free_cols.tolist().index(perm[i]) for i in free_rows
            ]
            assert by_loops(rest, left) == pytest.approx(by_loops(problem, perm))


@pytest.mark.parametrize(("n", "m"), [(2, 4), (4, 3)])
def test_padding_changes_no_value(rng, n, m):
    problem = random_problem(rng, n, m)
    for perm in itertools.permutations(range(max(n, m))):
        plain = [j if j < m else -1 for j in perm[:n]]
        assert problem.padded().values(np.array(perm)) == pytest.approx(by_loops(problem, plain))


@pytest.mark.parametrize("symmetric", [False, True])
def test_swap_differences_stay_right(rng, symmetric):
    problem = random_problem(rng, 7, 7)
    if symmetric:
        problem = dataclasses.replace(problem, B=problem.B + problem.B.T).symmetrised()
    assert problem.is_symmetric == symmetric
    A, B, C = problem.A, problem.B, problem.C
    perm = rng.permutation(7)
    D, again, P = np.zeros((7, 7)), np.zeros((7, 7)), np.zeros((7, 7))
    tabu_kernels.all_differences(A, B, C, perm, symmetric, P, D)
    for _ in range(20):
        before = problem.values(perm)
        for i, j in itertools.combinations(range(7), 2):
            swapped = perm.copy()
            swapped[[i, j]] = perm[[j, i]]
            assert D[i, j] == pytest.approx(problem.values(swapped) - before)
        u, v = rng.choice(7, 2, replace=False)
        tabu_kernels.take_swap(A, C, perm, symmetric, u, v, P, D)
        np.testing.assert_array_equal(P, B[np.ix_(perm, perm)])
        tabu_kernels.all_differences(A, B, C, perm, symmetric, P.copy(), again)
        np.testing.assert_allclose(D, again, atol=1e-12)


def test_a_symmetric_side_makes_both_symmetric(rng):
    problem = random_problem(rng, 5, 5)
    assert problem.symmetrised() is problem
    half = dataclasses.replace(problem, A=problem.A + problem.A.T)
    perms = np.array(list(itertools.permutations(range(5))))
    assert half.symmetrised().is_symmetric
    np.testing.assert_allclose(half.symmetrised().values(perms), half.values(perms))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_no_matching_exceeds_the_bound(rng, symmetric, masked):
    for _ in range(5):
        problem = random_problem(rng, 6, 6)
        if symmetric:
            problem = dataclasses.replace(problem, B=problem.B + problem.B.T).symmetrised()
        mask = random_mask(rng, 6, 6) if masked else np.ones((6, 6), bool)
        assert upper_bound(problem, mask) >= brute_force(problem, mask) - 1e-9


def test_bounds_that_are_reached_prove_the_optimum(rng):
    # The eigenvalue bound is the square norm if both graphs are the same, and a linear problem is
    # its own bound of Gilmore and Lawler.
    W = rng.normal(size=(9, 9))
    W, perm = W + W.T, rng.permutation(9)
    same = Quadratic(W[np.ix_(perm, perm)], W, np.zeros((9, 9)))
    linear = Quadratic(np.zeros((9, 9)), W, rng.normal(size=(9, 9)))
    for problem in (same, linear):
        result = solve_quadratic(problem, rng=rng)
        assert result.optimal
        assert result.bound == pytest.approx(problem.values(result.perm))


@pytest.mark.slow
def test_populations_find_what_restarts_miss():
    # A tree and random distances: the hardest kind of QAPLIB for tabu search.
    rng = np.random.default_rng(0)
    n = 16
    A, B = np.zeros((n, n)), np.triu(rng.integers(1, 100, size=(n, n)), 1).astype(float)
    for i in range(1, n):
        A[i, rng.integers(i)] = rng.integers(1, 100)
    problem = Quadratic(-A - A.T, B + B.T, np.zeros((n, n)))
    found = [
        solve_quadratic(problem, None, MapOptions(num_restarts=1, max_iter=1), stream)
        for stream in np.random.default_rng(1).spawn(3)
    ]
    values = [problem.values(result.perm) for result in found]
    np.testing.assert_allclose(values, values[0])
    for result in found:
        assert result.agreed
        assert len(result.restart_values) > 3


def test_only_large_islands_count_as_agreeing(rng):
    sizes = []

    def improve(perms, stream):
        # Small populations all end in the same trap, which is the reverse order.
        del stream
        sizes.append(len(perms))
        end = np.arange(5) if max(sizes) == 24 else np.arange(5)[::-1]
        return np.tile(end, (len(perms), 1)), 1

    def values(perms):
        return (perms == np.arange(5)).sum(axis=-1).astype(float)

    islands = Islands(values, improve, np.ones((5, 5), bool), 1e-9, np.inf)
    known = np.arange(5)[None, ::-1]
    found = islands.run(known, 10_000, 2, rng)
    assert found.agreed
    np.testing.assert_array_equal(found.best, np.arange(5))
    assert values(found.ends).tolist() == [1.0] * 4 + [5.0] * 6
    sizes.clear()
    assert not islands.run(known, 10, 2, rng).agreed


@pytest.mark.parametrize(("every", "agreed"), [(2, False), (6, True)])
def test_most_islands_have_to_end_at_the_best_value(rng, every, agreed):
    streams = []

    def improve(perms, stream):
        # One island in so many ends elsewhere.
        if all(stream is not known for known in streams):
            streams.append(stream)
        end = np.arange(5) if len(streams) % every else np.array([0, 1, 2, 4, 3])
        return np.tile(end, (len(perms), 1)), 1

    def values(perms):
        return (perms == np.arange(5)).sum(axis=-1).astype(float)

    islands = Islands(values, improve, np.ones((5, 5), bool), 1e-9, np.inf)
    found = islands.run(np.array([[0, 1, 2, 4, 3]]), 10_000, 1, rng)
    np.testing.assert_array_equal(found.best, np.arange(5))
    assert found.agreed == agreed


def test_a_time_limit_may_be_longer_than_the_default(rng, monkeypatch):
    budgets = []
    monkeypatch.setattr(
        Islands, "run", lambda _, known, budget, *__: budgets.append(budget) or _ended(known)
    )
    A, B = rng.integers(0, 100, size=(2, 12, 12)).astype(float)
    problem = Quadratic(A, B, np.zeros((12, 12)))
    for limit in (None, 1000.0):
        options = MapOptions(num_restarts=1, max_iter=1, max_seconds=limit)
        solve_quadratic(problem, None, options, np.random.default_rng(0))
    assert budgets[0] == default_budget(12) < budgets[1]


def _ended(known):
    return Evolved(known[:0], known[0], 0, agreed=False)


def test_local_searches_respect_the_mask_and_never_get_worse(rng):
    for _ in range(10):
        problem, mask = random_problem(rng, 8, 8), random_mask(rng, 8, 8)
        arrays = problem.A, problem.B, problem.C, False, mask
        start = random_assignments(1, (8, 8), mask, rng)[0]
        assert mask[np.arange(8), start].all()
        climbed = start.copy()
        tabu_kernels.swap_ascent(*arrays, climbed, 1e-12)
        tenures = rng.integers(7, 10, size=(300, 2))
        found, num_swaps = tabu_kernels.tabu_search(*arrays, start.copy(), tenures, 320)
        assert num_swaps <= 300
        for perm in (climbed, found):
            assert sorted(perm) == list(range(8))
            assert mask[np.arange(8), perm].all()
            assert problem.values(perm) >= problem.values(start)
        for i, j in itertools.combinations(range(8), 2):
            swapped = climbed.copy()
            swapped[[i, j]] = climbed[[j, i]]
            if mask[np.arange(8), swapped].all():
                assert problem.values(swapped) <= problem.values(climbed) + 1e-9


def test_tabu_search_stops_where_nothing_can_move(rng):
    problem = random_problem(rng, 5, 5)
    found, num_swaps = tabu_kernels.tabu_search(
        problem.A, problem.B, problem.C, False, np.eye(5, dtype=bool), np.arange(5),
        np.full((50, 2), 5), 100,
    )  # fmt: skip
    assert found.tolist() == [0, 1, 2, 3, 4]
    assert num_swaps == 0


@pytest.mark.parametrize("mask_density", [None, 0.4])
@pytest.mark.parametrize("shape", [(5, 5), (3, 5), (4, 3)])
def test_relaxed_starts_are_relaxed_matchings(rng, shape, mask_density):
    mask = None if mask_density is None else random_mask(rng, *shape, mask_density)
    starts = relaxed_starts(4, shape, mask, rng)
    assert starts.shape == (4, *shape)
    short = int(np.argmax(shape)) + 1
    # Starts are scaled by so many steps, not to the last digit.
    np.testing.assert_allclose(starts.sum(axis=short), 1, atol=1e-2)
    assert (starts.sum(axis=3 - short) < 1 + 1e-2).all()
    if mask is None:
        np.testing.assert_allclose(starts[0], 1 / max(shape))
    else:
        assert not starts[:, ~mask].any()
        assert (starts[:, mask] > 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_frank_wolfe_is_that_of_scipy(seed):
    rng = np.random.default_rng(seed)
    problem = Quadratic(rng.normal(size=(15, 15)), rng.normal(size=(15, 15)), np.zeros((15, 15)))
    starts = relaxed_starts(3, (15, 15), None, rng)
    for start in starts:
        [perm] = solve(climb(problem, np.ones((15, 15), bool), start, 30).X, None)
        options = {"maximize": True, "P0": start, "tol": 0.01, "maxiter": 30, "rng": rng}
        theirs = quadratic_assignment(problem.A, problem.B, method="faq", options=options)
        np.testing.assert_array_equal(perm, theirs.col_ind)
        assert problem.values(perm) == pytest.approx(theirs.fun)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (6, 6), (7, 7), (4, 6), (6, 4)])
def test_the_best_of_small_problems_is_found(rng, shape):
    for _ in range(3):
        problem = random_problem(rng, *shape)
        result = solve_quadratic(problem, rng=rng)
        assert by_loops(problem, result.perm) == pytest.approx(brute_force(problem))
        assert result.restart_values.max() == pytest.approx(by_loops(problem, result.perm))
        assert len(result.restart_values) >= default_restarts(max(shape)) == 16


@pytest.mark.parametrize("shape", [(6, 6), (7, 7), (4, 6), (6, 4)])
@pytest.mark.parametrize("density", [0.2, 0.5])
def test_the_best_of_small_masked_problems_is_found(rng, shape, density):
    for _ in range(5):
        problem, mask = random_problem(rng, *shape), random_mask(rng, *shape, density)
        result = solve_quadratic(problem, mask, rng=rng)
        matched = np.flatnonzero(result.perm >= 0)
        assert len(set(result.perm[matched])) == len(matched) == min(shape)
        assert mask[matched, result.perm[matched]].all()
        assert by_loops(problem, result.perm) == pytest.approx(brute_force(problem, mask))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cycles_that_no_swap_can_follow_are_found(sign):
    # Two matchings are allowed: everything stays, or everything moves on by one.
    n = 9
    mask = np.eye(n, dtype=bool) | np.roll(np.eye(n, dtype=bool), 1, axis=1)
    problem = Quadratic(np.zeros((n, n)), np.zeros((n, n)), sign * np.eye(n))
    result = solve_quadratic(problem, mask, MapOptions(num_restarts=1))
    wanted = np.arange(n) if sign > 0 else (np.arange(n) + 1) % n
    np.testing.assert_array_equal(result.perm, wanted)


def test_a_planted_permutation_is_recovered(rng):
    n = 40
    W = rng.normal(size=(n, n))
    truth = rng.permutation(n)
    Y = W[np.ix_(truth, truth)] + 0.1 * rng.normal(size=(n, n))
    mask = rng.random((n, n)) < 0.3
    mask[np.arange(n), truth] = True
    problem = Quadratic(Y, W, np.zeros((n, n)))
    result = solve_quadratic(problem, assignment.prune_mask(mask), MapOptions(num_restarts=4))
    np.testing.assert_array_equal(result.perm, truth)


def test_it_is_no_worse_than_scipy(rng):
    # Maximised as it is: random weights have no structure that Frank-Wolfe could use.
    A, B = rng.normal(size=(2, 25, 25))
    ours = solve_quadratic(Quadratic(A, B, np.zeros((25, 25))), budget=200_000_000).value
    for method in ("faq", "2opt"):
        options = {"maximize": True, "rng": np.random.default_rng(1)}
        theirs = [quadratic_assignment(A, B, method=method, options=options).fun for _ in range(5)]
        assert ours >= max(theirs) - 1e-9


def test_the_same_seed_gives_the_same_answer(rng):
    problem = random_problem(rng, 20, 20)
    found = [solve_quadratic(problem, rng=np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(found[0].restart_values, found[1].restart_values)
    assert found[0].num_evaluations == found[1].num_evaluations


def test_every_polish_is_at_least_as_good_as_less_of_it(rng):
    problem = random_problem(rng, 20, 20)
    values, evaluations = [], []
    for polish in ("none", "swap", "tabu"):
        options = MapOptions(num_restarts=3, polish=polish)
        result = solve_quadratic(problem, options=options, rng=np.random.default_rng(0))
        values.append(result.restart_values)
        evaluations.append(result.num_evaluations)
        assert result.finished == (polish != "none")
    assert (values[1] >= values[0] - 1e-9).all()
    assert (values[2] >= values[0] - 1e-9).all()
    assert evaluations == sorted(evaluations)


def test_a_given_start_is_used_and_checked(rng):
    problem = random_problem(rng, 6, 6)
    best = solve_quadratic(problem, rng=rng).perm
    options = MapOptions(num_restarts=1, polish="none")
    result = solve_quadratic(problem, None, options, rng, starts=best[None])
    np.testing.assert_array_equal(result.perm, best)
    assert len(result.restart_values) == 2
    mask = np.ones((6, 6), bool)
    mask[0, best[0]] = False
    with pytest.raises(ValueError, match="starts must respect the mask"):
        solve_quadratic(problem, mask, options, rng, starts=best[None])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_restarts": 0}, "num_restarts must be an integer of at least 1, got 0"),
        ({"max_seconds": 0.0}, "max_seconds must be a positive number, got 0"),
        ({"max_iter": 2.5}, "max_iter must be an integer, got 2.5"),
        ({"polish": "tabus"}, "polish must be one of .* did you mean 'tabu'"),
        ({"max_evaluations": -1}, "max_evaluations must be an integer of at least 1, got -1"),
    ],
)
def test_bad_options_get_one_sentence(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MapOptions(**arguments)


def test_a_given_start_is_never_made_worse(rng):
    options = MapOptions(num_restarts=1, polish="none")
    for _ in range(20):
        problem = random_problem(rng, 8, 8)
        start = solve_quadratic(problem, options=MapOptions(num_restarts=1, polish="swap")).perm
        result = solve_quadratic(problem, None, options, rng, starts=start[None])
        assert result.restart_values[-1] >= problem.values(start) - 1e-9


def test_many_items_have_fewer_restarts():
    assert [default_restarts(n) for n in (5, 200, 300, 1000)] == [16, 16, 8, 6]


@pytest.mark.slow
def test_a_planted_matching_of_many_items_is_found(rng):
    upper = np.triu(rng.random((420, 420)) < 0.05, 1)
    B, order = (upper + upper.T).astype(float), rng.permutation(420)
    A = B[np.ix_(order, order)]
    result = solve_quadratic(Quadratic(A, B, np.zeros_like(A)), rng=rng)
    np.testing.assert_array_equal(result.perm, order)
    assert len(result.restart_values) == default_restarts(420)


def test_slopes_are_carried_along_a_climb(rng):
    problem = random_problem(rng, 9, 9)
    X, perm = relaxed_starts(2, (9, 9), None, rng)[1], rng.permutation(9)
    V = np.eye(9)[perm]
    np.testing.assert_allclose(problem.gradient_at(perm), problem.gradient(V))
    way = V - X
    bend = 0.5 * ((problem.gradient(V) - problem.gradient(X)) * way).sum()
    assert bend == pytest.approx(float(problem.curvature(way)))


def test_the_values_of_many_permutations_do_not_need_their_edges_at_once(rng, monkeypatch):
    problem, perms = random_problem(rng, 6, 6), np.stack([rng.permutation(6) for _ in range(10)])
    whole = problem.values(perms)
    monkeypatch.setattr(quadratic, "_AT_ONCE", 100)
    np.testing.assert_allclose(problem.values(perms.reshape(2, 5, 6)), whole.reshape(2, 5))
