"""Exact evidence of permutations and of moves, against the model's own and its differences."""

import itertools

import numpy as np
import pytest

from permvi.experiments._worms import antisymmetric_weights
from permvi.inference.dynamics.evidence import CollapsedState, Moves, differences
from permvi.inference.dynamics.matching import posterior_beliefs
from permvi.inference.dynamics.regression import Scales
from permvi.models import SharedDynamics
from tests.inference.collapsed_cases import model_of, random_perms, regression, scales_of

# All recorded, so that statistics are summed over subjects; and not.
SIZES = {"complete": (7, 7), "one": (7,), "incomplete": (7, 5), "rectangular": (5, 4)}


@pytest.fixture(params=SIZES.values(), ids=SIZES.keys())
def case(request, rng):
    model = model_of(rng, sizes=request.param)
    problem = regression(model)
    perms = random_perms(rng, problem.num_subjects, 7)
    return model, problem, CollapsedState(problem, perms, scales_of(model))


def density(model, perms):
    perms = perms[:, : model.shape[0]]
    return float(model.collapsed_log_density(perms if model.num_sites > 1 else perms[0]))


def after(perms, exchanges):
    """Permutations after exchanges of labels (subject, a, b)."""
    perms = perms.copy()
    for j, a, b in exchanges:
        i, k = np.flatnonzero(perms[j] == a)[0], np.flatnonzero(perms[j] == b)[0]
        perms[j, i], perms[j, k] = b, a
    return perms


def test_the_evidence_is_the_models(case):
    model, _, state = case
    np.testing.assert_allclose(state.log_evidence, density(model, state.perms), rtol=1e-10)


def test_every_exchange_gains_the_difference(case):
    model, problem, state = case
    before, perms = density(model, state.perms), state.perms
    subjects = range(problem.num_subjects)
    exchanges = [(j, a, b) for j in subjects for a, b in itertools.combinations(range(7), 2)]
    gains = state.walk(
        Moves.single(np.array(exchanges)),
        np.arange(len(exchanges)),
        np.full(len(exchanges), np.inf),
    )
    expected = [density(model, after(perms, [each])) - before for each in exchanges]
    np.testing.assert_allclose(gains, expected, atol=1e-9)
    # Nothing has moved.
    np.testing.assert_array_equal(state.perms, perms)


def test_relabelling_exchanges_in_every_subject(case):
    model, problem, state = case
    before, perms = density(model, state.perms), state.perms
    pairs = list(itertools.combinations(range(7), 2))
    moves = Moves.single(np.array([(-1, a, b) for a, b in pairs]))
    gains = state.walk(moves, np.arange(len(pairs)), np.full(len(pairs), np.inf))
    everywhere = [[(j, a, b) for j in range(problem.num_subjects)] for a, b in pairs]
    expected = [density(model, after(perms, each)) - before for each in everywhere]
    np.testing.assert_allclose(gains, expected, atol=1e-9)


def test_taken_moves_keep_everything_up_to_date(case, rng):
    model, problem, state = case
    exchanges = np.column_stack(
        [
            rng.integers(-1, problem.num_subjects, size=40),
            *np.array([rng.choice(7, 2, replace=False) for _ in range(40)]).T,
        ]
    )
    before = state.log_density
    gains = state.walk(Moves.single(exchanges), np.arange(40), np.full(40, -0.5))
    taken = gains > -0.5
    assert 0 < taken.sum() < 40
    kept = state.log_density
    np.testing.assert_allclose(kept - before, gains[taken].sum(), atol=1e-9)
    state.refresh()
    np.testing.assert_allclose(kept, state.log_density, atol=1e-9)
    np.testing.assert_allclose(state.log_evidence, density(model, state.perms), rtol=1e-10)
    assert state.num_evaluations == 40


def test_masks_and_priors(rng):
    model = model_of(rng)
    perms = random_perms(rng, 2, 7)
    mask = rng.random((2, 7, 7)) < 0.5
    np.put_along_axis(mask, perms[..., None], True, axis=-1)
    prior = rng.normal(size=(2, 7, 7))
    problem = regression(model, mask, prior)
    state = CollapsedState(problem, perms, scales_of(model))
    exchanges = [(j, a, b) for j in (0, 1) for a, b in itertools.combinations(range(7), 2)]
    gains = state.walk(Moves.single(np.array(exchanges)), np.arange(42), np.full(42, np.inf))
    for each, gain in zip(exchanges, gains, strict=True):
        moved = after(perms, [each])
        if np.take_along_axis(problem.mask, moved[..., None], axis=-1).all():
            chosen = [np.take_along_axis(prior, p[..., None], -1).sum() for p in (perms, moved)]
            change = density(model, moved) - density(model, perms) + chosen[1] - chosen[0]
            np.testing.assert_allclose(gain, change, atol=1e-9)
        else:
            assert gain == -np.inf
    assert np.isfinite(gains).any()
    assert np.isinf(gains).any()


def test_differences_lead_from_one_to_the_other(case, rng):
    model, problem, state = case
    perms, other = state.perms, random_perms(rng, problem.num_subjects, 7)
    moves = differences([perms], other)
    gains = state.walk(moves, np.arange(moves.num), np.full(moves.num, np.inf))
    starts = np.concatenate([[0], moves.ends[:-1]])
    parts = [moves.exchanges[a:b] for a, b in zip(starts, moves.ends, strict=True)]
    expected = [density(model, after(perms, part)) - density(model, perms) for part in parts]
    np.testing.assert_allclose(gains, expected, atol=1e-9)
    # Each cycle is there forwards and backwards; those that match the other do so for good.
    wanted = [
        part for part in parts if (after(perms, part) == other).sum() > (perms == other).sum()
    ]
    forwards = [p for p in wanted if (after(perms, p) != perms).sum() == _agreeing(perms, other, p)]
    for part in forwards:
        perms = after(perms, part)
    np.testing.assert_array_equal(perms, other)


def _agreeing(perms, other, part):
    """How many of the entries that a move changes are then those of the other."""
    moved = after(perms, part)
    return ((moved == other) & (moved != perms)).sum()


def test_beliefs_are_the_posterior_of_the_weights(case):
    _, problem, state = case
    K0, K1, present = state.statistics
    found = posterior_beliefs(problem, state.statistics, state.scales)
    for a in range(7):
        b = np.flatnonzero(problem.support[a])
        precision = K0[present[:, a]][:, b[:, None], b].sum(axis=0) / state.scales.noise
        precision += np.eye(len(b)) / state.scales.weight
        covariance = np.linalg.inv(precision)
        cross = K1[present[:, a]][:, a, b].sum(axis=0) / state.scales.noise
        np.testing.assert_allclose(found.mean[a, b], covariance @ cross, atol=1e-10)
        np.testing.assert_allclose(found.variance[a, b], np.diag(covariance), atol=1e-10)
    assert not found.mean[~problem.support].any()


@pytest.mark.parametrize("learned", [(True, True), (True, False), (False, True)])
def test_learned_scales_are_the_most_probable_ones(rng, learned):
    # Recordings with something in them, so that weights of any size do not lose to none.
    support = rng.random((7, 7)) < 0.5
    W = antisymmetric_weights(support | support.T, rng)
    y = rng.normal(size=(2, 80, 7))
    for t in range(1, 80):
        y[:, t] += y[:, t - 1] @ W.T
    model = SharedDynamics(list(y), support | support.T)
    problem, perms = regression(model), np.tile(np.arange(7), (2, 1))
    state = CollapsedState(problem, perms, Scales(0.1, 0.8))
    weight, noise = learned
    state.learn_scales(weight=weight, noise=noise)

    def evidence(scales):
        sizes = np.sqrt(scales)
        arrays = (model.C0, model.C1, model.squares, model.num_steps, model.support)
        other = SharedDynamics.from_statistics(*arrays, weight_scale=sizes[0], noise_scale=sizes[1])
        return float(other.collapsed_log_density(perms))

    found = np.array(state.scales)
    best = evidence(found)
    assert (found == (0.1, 0.8)).tolist() == [not weight, not noise]
    for which in np.flatnonzero(learned):
        for factor in (0.95, 1.05):
            changed = found.copy()
            changed[which] *= factor
            assert evidence(changed) < best
    np.testing.assert_allclose(state.log_evidence, best, rtol=1e-10)
