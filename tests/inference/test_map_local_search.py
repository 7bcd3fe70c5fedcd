"""Hill climbing: what it evaluates, where it ends, and what it may touch."""

import importlib
import itertools

import numpy as np
import pytest

from permvi.inference.map import local_search
from permvi.inference.map.local_search import Neighbourhood, hill_climb
from permvi.problem.evaluation import Evaluations
from permvi.problem.unmatched import random_assignments


class Counted:
    """A random log density of any matchings that keeps what it was asked for."""

    def __init__(self, seed=0):
        self.weights = np.random.default_rng(seed).normal(size=(50, 50))
        self.asked = []

    def of(self, perm):
        flat = np.asarray(perm).ravel()
        return sum(
            self.weights[7 * i % 50, j % 50] * self.weights[(k + 13) % 50, h % 50]
            for (i, j), (k, h) in itertools.combinations(enumerate(flat), 2)
        )

    def __call__(self, perms):
        self.asked += [perm.tobytes() for perm in np.ascontiguousarray(perms)]
        return np.array([self.of(perm) for perm in perms])


def climb_from(f, starts, allowed, budget=100_000, *, partial=False):
    """The climb and what it has evaluated."""
    memory = Evaluations(f, allowed.shape[-1], budget)
    return hill_climb(memory, starts, Neighbourhood(allowed, partial=partial)), memory


def neighbours(perm, m, allowed, partial):
    """One site's matchings that one swap or one free column away, or one pair more or less."""
    n = len(perm)
    found = []
    for i, j in itertools.combinations(range(n), 2):
        swapped = perm.copy()
        swapped[[i, j]] = perm[[j, i]]
        found.append(swapped)
    for i in range(n):
        for j in set(range(m)) - set(perm.tolist()):
            if perm[i] >= 0 or partial:
                moved = perm.copy()
                moved[i] = j
                found.append(moved)
        if partial:
            alone = perm.copy()
            alone[i] = -1
            found.append(alone)
    return [
        other
        for other in found
        if all(allowed[i, j] for i, j in enumerate(other) if j >= 0) and (other != perm).any()
    ]


CASES = [
    ((6, 6), False, None),
    ((3, 5), False, None),
    ((5, 3), False, None),
    ((4, 4), True, None),
    ((3, 4), True, 0.7),
    ((6, 6), False, 0.6),
    ((4, 6), False, 0.6),
]


def random_table(rng, shape, density):
    table = np.ones(shape, bool) if density is None else rng.random(shape) < density
    perm = rng.permutation(max(shape))[: shape[0]]
    rows = np.flatnonzero(perm < shape[1])
    table[rows, perm[rows]] = True
    return table


@pytest.mark.parametrize(("shape", "partial", "density"), CASES)
def test_it_ends_at_local_optima_and_evaluates_nothing_twice(rng, shape, partial, density):
    allowed = random_table(rng, shape, density)
    starts = random_assignments(5, shape, allowed, rng)
    f = Counted()
    climb, seen = climb_from(f, starts, allowed, partial=partial)
    assert climb.finished
    assert len(f.asked) == len(set(f.asked)) == len(seen.matchings) == len(seen.values)
    assert [perm.tobytes() for perm in seen.matchings] == f.asked
    np.testing.assert_allclose(seen.values, [f.of(perm) for perm in seen.matchings])
    for perm in seen.matchings:
        matched = np.flatnonzero(perm >= 0)
        assert len(set(perm[matched])) == len(matched)
        assert allowed[matched, perm[matched]].all()
        assert partial or len(matched) == min(shape)
    for start, end in zip(starts, climb.ends, strict=True):
        assert seen.values[end] >= f.of(start)
        around = neighbours(seen.matchings[end], shape[1], allowed, partial)
        assert all(f.of(other) <= seen.values[end] for other in around)


def test_the_public_function_returns_everything_seen(rng):
    allowed = np.ones((5, 5), bool)
    starts = random_assignments(3, (5, 5), None, rng)
    _, seen = climb_from(Counted(), starts, allowed)
    perms, values = local_search(Counted(), starts, allowed)
    np.testing.assert_array_equal(perms, seen.matchings)
    np.testing.assert_array_equal(values, seen.values)
    np.testing.assert_array_equal(perms[:3], starts)


def test_several_sites_climb_in_turn(rng):
    allowed = np.stack([random_table(rng, (4, 4), 0.7) for _ in range(3)])
    starts = random_assignments(4, (3, 4, 4), allowed, rng)
    f = Counted(1)
    climb, seen = climb_from(f, starts, allowed)
    assert seen.matchings.shape[1:] == (3, 4)
    assert len(f.asked) == len(set(f.asked))
    for end in climb.ends:
        best = seen.matchings[end]
        for s in range(3):
            for other in neighbours(best[s], 4, allowed[s], partial=False):
                changed = best.copy()
                changed[s] = other
                assert f.of(changed) <= seen.values[end]


def test_climbing_one_by_one_ends_at_local_optima_too(rng, monkeypatch):
    allowed = np.ones((2, 5, 5), bool)
    starts = random_assignments(4, (2, 5, 5), None, rng)
    together, seen = climb_from(Counted(), starts, allowed)
    module = importlib.import_module("permvi.inference.map.local_search")
    monkeypatch.setattr(module, "_MAX_NEIGHBOURS", 1)
    one_by_one, also_seen = climb_from(Counted(), starts, allowed)
    assert one_by_one.finished
    assert len(np.unique(also_seen.matchings, axis=0)) == len(also_seen.matchings)
    for end in one_by_one.ends:
        best, f = also_seen.matchings[end], Counted()
        for s in range(2):
            for other in neighbours(best[s], 5, allowed[s], partial=False):
                changed = best.copy()
                changed[s] = other
                assert f.of(changed) <= also_seen.values[end]
    # The first one has climbed alone in the same way, site by site.
    np.testing.assert_array_equal(
        seen.matchings[together.ends[0]], also_seen.matchings[one_by_one.ends[0]]
    )


@pytest.mark.parametrize("budget", [1, 2, 7, 40])
def test_the_budget_is_kept(rng, budget):
    f = Counted()
    starts = random_assignments(4, (7, 7), None, rng)
    perms, values = local_search(f, starts, np.ones((7, 7), bool), budget)
    assert len(f.asked) == len(perms) == len(values) == budget
    climb, _ = climb_from(Counted(), starts, np.ones((7, 7), bool), budget)
    assert not climb.finished
    assert (climb.ends < budget).all()


def test_impossible_matchings_are_left_behind(rng):
    # Finite at the identity and its neighbours alone.
    def f(perms):
        moved = (perms != np.arange(5)).sum(axis=-1)
        return np.where(moved <= 2, -1.0 * moved, -np.inf)

    perms, values = local_search(f, np.array([[1, 0, 2, 3, 4]]), np.ones((5, 5), bool))
    np.testing.assert_array_equal(perms[np.argmax(values)], np.arange(5))


@pytest.mark.parametrize(
    ("starts", "allowed", "message"),
    [
        ([[0, 0, 1]], np.ones((3, 3), bool), r"starts must be matchings, got \[0, 0, 1\]"),
        ([[0, -1, 1]], np.ones((3, 3), bool), r"starts must be matchings, got \[0, -1, 1\]"),
        ([[0, 1, 2]], ~np.eye(3, dtype=bool), r"starts must respect the mask, got \[0, 1, 2\]"),
        ([[0, 1]], np.ones((3, 3), bool), r"starts must be integers of shape \(r, 3\), got"),
        ([[0.0, 1.0, 2.0]], np.ones((3, 3), bool), r"starts must be integers .* dtype float64"),
        ([[0, 1]], np.ones((2, 2, 2), bool), r"starts must be integers of shape \(r, 2, 2\)"),
        ([[0, 1]], np.ones((2, 2)), "allowed must be booleans of shape"),
    ],
)
def test_mistakes_get_one_sentence(starts, allowed, message):
    with pytest.raises(ValueError, match=message):
        local_search(Counted(), np.array(starts), allowed)


def test_one_value_is_wanted_for_each_matching():
    with pytest.raises(ValueError, match=r"one number for each of 1 matchings, got shape \(\)"):
        local_search(lambda perms: np.float64(0), np.arange(3)[None], np.ones((3, 3), bool))


@pytest.mark.parametrize(("shape", "partial", "density"), CASES)
def test_shaking_keeps_to_what_is_allowed(rng, shape, partial, density):
    allowed = random_table(rng, shape, density)
    hood = Neighbourhood(allowed, partial=partial)
    starts = random_assignments(20, shape, allowed, rng)
    padded = hood.padded(starts[:, None])
    shaken = hood.shaken(padded, 4, rng)
    assert (shaken != padded).any()
    for perm in hood.plain(shaken):
        matched = np.flatnonzero(perm >= 0)
        assert len(set(perm[matched])) == len(matched)
        assert allowed[matched, perm[matched]].all()
        assert partial or len(matched) == min(shape)
