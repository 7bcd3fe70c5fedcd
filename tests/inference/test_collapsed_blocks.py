"""Blocks of rows matched anew, against full scores and against all permutations."""

import itertools

import numpy as np
import pytest

from permvi.inference.dynamics.evidence import CollapsedState
from permvi.inference.dynamics.matching import Beliefs, Edges, estimate_edges, pair_scores
from permvi.inference.dynamics.search import plausible_moves, rematch_blocks
from tests.inference.collapsed_cases import model_of, random_perms, regression, scales_of


@pytest.mark.parametrize("recorded", [8, 6])
def test_restricted_scores_differ_as_the_full_ones_do(rng, recorded):
    m = 8
    here = np.outer(*[(np.arange(m) < recorded).astype(float)] * 2)
    z = rng.normal(size=(m, m)) * here
    np.fill_diagonal(z, 0.0)
    support = rng.random((m, m)) < 0.5
    beliefs = Beliefs(rng.normal(size=(m, m)) * support, rng.random((m, m)) * support)
    scores = pair_scores(Edges(z, 0.5, here), beliefs, rng.normal(size=(m, m)))
    perm, rows = rng.permutation(m), np.array([1, 3, 4, 7])
    part = scores.restricted(perm, rows)
    gaps = []
    for places in itertools.permutations(range(4)):
        changed = perm.copy()
        changed[rows] = perm[rows][list(places)]
        gaps.append(scores.value(changed) - part.value(np.array(places)))
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-10)


@pytest.mark.parametrize("sizes", [(6,), (4, 4)])
def test_blocks_lead_to_the_best_of_all_permutations(rng, sizes):
    """From anywhere: blocks, their cycles and the climb that follows."""
    m = sizes[0]
    model = model_of(rng, m=m, sizes=sizes, steps=40)
    problem, scales = regression(model), scales_of(model)
    edges = [estimate_edges(problem, j, scales) for j in range(len(sizes))]
    single = np.array(list(itertools.permutations(range(m))))
    every = [np.stack(each) for each in itertools.product(single, repeat=len(sizes))]
    best = max(CollapsedState(problem, perms, scales).log_density for perms in every)
    state = CollapsedState(problem, random_perms(rng, len(sizes), m), scales)
    before = state.log_density
    rematch_blocks(state, edges, rng, 30)
    assert before < best
    np.testing.assert_allclose(state.log_density, best, atol=1e-8)
    assert state.num_evaluations >= 30


def test_blocks_keep_to_the_mask_and_never_lose(rng):
    model = model_of(rng, m=12, sizes=(12, 12))
    perms = random_perms(rng, 2, 12)
    mask = rng.random((2, 12, 12)) < 0.4
    np.put_along_axis(mask, perms[..., None], True, axis=-1)
    problem, scales = regression(model, mask), scales_of(model)
    edges = [estimate_edges(problem, j, scales) for j in range(2)]
    state = CollapsedState(problem, perms, scales)
    value = state.log_density
    for _ in range(3):
        rematch_blocks(state, edges, rng, 5)
        assert np.take_along_axis(problem.mask, state.perms[..., None], axis=-1).all()
        assert state.log_density >= value
        value = state.log_density


def test_known_rows_leave_nothing_to_match(rng):
    model = model_of(rng, m=4, sizes=(4,))
    perms = random_perms(rng, 1, 4)
    problem = regression(model, np.eye(4, dtype=bool)[perms])
    state = CollapsedState(problem, perms, scales_of(model))
    rematch_blocks(state, [estimate_edges(problem, 0, state.scales)], rng, 5)
    np.testing.assert_array_equal(state.perms, perms)


def test_rows_without_a_recording_are_not_exchanged_with_each_other(rng):
    model = model_of(rng, m=7, sizes=(4,))
    problem, scales = regression(model), scales_of(model)
    perms = random_perms(rng, 1, 7)
    moves, _ = plausible_moves(
        CollapsedState(problem, perms, scales), [estimate_edges(problem, 0, scales)]
    )
    rows = np.argsort(perms[0])[moves.exchanges[:, 1:]]
    assert len(rows)
    assert (rows < 4).any(axis=1).all()
