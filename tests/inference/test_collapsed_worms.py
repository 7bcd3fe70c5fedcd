"""The simulated worms that the collapsed method is measured on."""

import os
from pathlib import Path

import numpy as np
import pytest

from permvi.datasets import celegans, registry
from permvi.experiments._worms import (
    antisymmetric_weights,
    candidates,
    move_edges,
    simulate_worms,
)
from tests.inference.collapsed_cases import graph


def test_weights_are_antisymmetric_on_the_graph_and_stable(rng):
    adjacency = graph(rng, 30, 0.2)
    W = antisymmetric_weights(adjacency, rng)
    np.testing.assert_array_equal(W, -W.T)
    np.testing.assert_array_equal(W != 0, adjacency)
    assert np.abs(np.linalg.eigvals(W)).max() == pytest.approx(1 / 1.1)


def test_worms_follow_the_dynamics_under_their_true_identities(rng):
    adjacency, positions = graph(rng, 20, 0.3), rng.random(20)
    worms = simulate_worms(
        adjacency, positions, rng, num_worms=3, num_steps=200, num_known=4, num_recorded=20
    )
    for y, truth in zip(worms.recordings, worms.truth, strict=True):
        canonical = y[:, np.argsort(truth)]
        residuals = canonical[1:] - canonical[:-1] @ worms.weights.T
        # Unit noise: the mean square of 3980 normal numbers within four standard errors.
        assert abs((residuals**2).mean() - 1) < 4 * np.sqrt(2 / residuals.size)
    np.testing.assert_array_equal(worms.positions, positions[worms.truth])
    assert not (worms.truth == np.arange(20)).all(axis=1).any()


def test_each_worm_has_known_neurons_of_its_own(rng):
    worms = simulate_worms(
        graph(rng, 20, 0.3),
        rng.random(20),
        rng,
        num_worms=3,
        num_steps=5,
        num_known=4,
        num_recorded=15,
    )
    assert worms.recordings.shape == (3, 5, 15)
    known = worms.known >= 0
    np.testing.assert_array_equal(worms.known[known], worms.truth[known])
    assert len({tuple(sorted(row[row >= 0])) for row in worms.known}) == 3
    assert known.sum(axis=1).tolist() == [4, 4, 4]
    # So does which are recorded.
    assert len({tuple(sorted(row)) for row in worms.truth}) == 3


def test_saturated_dynamics_are_the_linear_ones_where_little_happens(rng):
    adjacency, positions = graph(rng, 20, 0.3), rng.random(20)
    seed = int(rng.integers(2**32))

    def worms(**settings):
        fresh = np.random.default_rng(seed)
        return simulate_worms(
            adjacency, positions, fresh, num_steps=1000, num_known=4, num_recorded=20, **settings
        )

    linear, nearly, saturated = (worms(**s) for s in ({}, {"saturation": 1e6}, {"saturation": 0.3}))
    # What tanh leaves of x / c, times c, is x to within eps c.
    np.testing.assert_allclose(nearly.recordings, linear.recordings, atol=1e-8)
    canonical = saturated.recordings[0][:, np.argsort(saturated.truth[0])]
    drive = canonical[:-1] @ saturated.weights.T
    residuals = canonical[1:] - 0.3 * np.tanh(drive / 0.3)
    # Unit noise again, which the linear dynamics do not leave.
    error = np.sqrt(2 / residuals.size)
    assert abs((residuals**2).mean() - 1) < 4 * error
    assert ((canonical[1:] - drive) ** 2).mean() > 1 + 4 * error


def test_moved_edges_are_as_many_and_a_share_of_them_is_wrong(rng):
    adjacency = graph(rng, 30, 0.2)
    moved = move_edges(adjacency, 0.1, rng)
    np.testing.assert_array_equal(moved, moved.T)
    assert not moved.diagonal().any()
    assert moved.sum() == adjacency.sum()
    gone = (adjacency & ~moved).sum() // 2
    assert gone == round(0.1 * adjacency.sum() / 2)


def test_candidates_are_those_that_floating_point_numbers_say():
    # 0.21 - 0.2 is below 0.01 in float64, and 0.31 - 0.3 above.
    found = candidates(np.array([0.2, 0.3]), np.array([0.21, 0.31, 0.2]), 0.01)
    assert found.tolist() == [[True, False, True], [False, False, False]]
    assert candidates(np.array([0.2]), np.array([0.9]), np.inf).all()


def real_folder():
    beside = Path(__file__).parents[3] / "shared" / "data"
    return Path(os.environ.get(registry.FOLDER, beside))


@pytest.mark.skipif(
    not (real_folder() / "celegans").is_dir(), reason="the connectome is not on this machine"
)
def test_mean_numbers_of_candidates_of_the_real_positions(monkeypatch):
    monkeypatch.setenv(registry.FOLDER, str(real_folder()))
    positions = celegans(paper=True).positions
    tolerances = (0.0075, 0.01, 0.02, 0.04, 0.05, 0.1)
    means = [candidates(positions, positions, nu).sum(axis=-1).mean() for nu in tolerances]
    np.testing.assert_allclose(means, [10.4, 17.9, 36.9, 56.8, 68.7, 106.7], atol=0.05)
