"""Deformations: factors against dense linear algebra, learning and matching on made-up animals."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import multivariate_normal

import permvi as pv
from permvi.models import Animal, Atlas, AtlasMatching
from permvi.models.atlas import deformation
from permvi.models.atlas.deformation import Deformation, log_densities, smoothed
from permvi.models.atlas.frames import FrameModel, start_rotations

FEATURES = ("x", "y", "red")
NUM, LENGTH, SHARED, OWN = 60, 3.0, 0.5, 0.5
PLACES = np.random.default_rng(3).uniform(0, 10, (NUM, 2))
MEANS = np.column_stack([PLACES, np.random.default_rng(4).normal(size=NUM)])


def deformed(rng, shared=SHARED, own=OWN):
    """Features (m, d) of an animal whose neighbours are displaced together, some NaN."""
    squares = ((PLACES[:, None] - PLACES) ** 2).sum(-1)
    root = np.linalg.cholesky(np.exp(-squares / 2 / LENGTH**2) + 1e-8 * np.eye(NUM))
    cells = MEANS + own * rng.normal(size=MEANS.shape)
    cells[:, :2] += shared * root @ rng.normal(size=(NUM, 2))
    cells[rng.random(NUM) < 0.2] = np.nan
    return cells


@pytest.fixture(scope="module")
def atlas():
    rng = np.random.default_rng(0)
    return Atlas.fit(np.stack([deformed(rng) for _ in range(12)]), num_positions=2)


def test_smoothing_is_conditioning(rng):
    n, q = 7, 2
    law = Deformation(np.array([[1.0, 0.3], [0.3, 0.6]]), 1.5)
    prior = law.prior(rng.normal(size=(n, q)))
    roots = rng.normal(size=(n, q, q))
    # A factor may be flat.
    roots[2] = 0.0
    precisions, forces = roots @ np.swapaxes(roots, 1, 2), rng.normal(size=(n, q))
    dense = np.zeros((n * q, n * q))
    for i, one in enumerate(precisions):
        dense[q * i : q * i + q, q * i : q * i + q] = one
    whole = np.linalg.inv(np.linalg.inv(prior) + dense)
    means, covariances = smoothed(prior, precisions, forces)
    np.testing.assert_allclose(means, (whole @ forces.ravel()).reshape(n, q), rtol=1e-8)
    for i, one in enumerate(covariances):
        np.testing.assert_allclose(one, whole[q * i : q * i + q, q * i : q * i + q], rtol=1e-8)


def test_densities_of_known_cells_are_those_given_the_others(rng, monkeypatch):
    monkeypatch.setattr(deformation, "_STEPS", 80)
    monkeypatch.setattr(deformation, "_CONVERGED", 1e-10)
    n, d, q = 6, 3, 2
    A = np.array([[0.5, 0.1], [0.1, 0.3]])
    roots = rng.normal(size=(n, d, d))
    own = roots @ np.swapaxes(roots, 1, 2) + 0.3 * np.eye(d)
    scales = own.copy()
    scales[:, :q, :q] += A
    cells = 2 * rng.normal(size=(n, d))
    means = cells + rng.normal(size=(n, d))
    atlas = Atlas.from_moments(means, scales, mistakes=1e-12, background=1e-9, num_positions=q)
    atlas = dataclasses.replace(atlas, deformation=Deformation(A, 2.0))
    only = np.where(np.eye(n, dtype=bool), 0.0, -np.inf)
    found = np.diagonal(log_densities(atlas, cells, np.ones(d), only))
    squares = ((cells[:, None, :q] - cells[:, :q]) ** 2).sum(-1)
    wide = np.zeros((d, d))
    wide[:q, :q] = A
    joint = np.kron(np.exp(-squares / 8), wide)
    for i, one in enumerate(own):
        joint[d * i : d * i + d, d * i : d * i + d] += one
    away = (cells - means).ravel()
    whole = multivariate_normal(np.zeros(n * d), joint).logpdf(away)
    for i in range(n):
        rest = np.delete(np.arange(n * d), np.arange(d * i, d * i + d))
        others = multivariate_normal(np.zeros(len(rest)), joint[np.ix_(rest, rest)])
        np.testing.assert_allclose(found[i], whole - others.logpdf(away[rest]), rtol=1e-6)


def test_deformations_are_learnt_where_there_are_some(atlas):
    law = atlas.deformation
    assert LENGTH / 2 <= law.length <= 2 * LENGTH
    share = np.trace(law.covariance) / np.trace(atlas.scales[:, :2, :2].mean(0))
    # 12 animals with some ten independent displacements in two coordinates tell the variance with
    # a relative error of sqrt(2 / 240).
    assert abs(share - 0.5) < 0.5 * 4 * np.sqrt(2 / 240)
    rng = np.random.default_rng(1)
    free = Atlas.fit(np.stack([deformed(rng, shared=0.0) for _ in range(12)]), num_positions=2)
    assert free.deformation is None
    few = Atlas.fit(np.stack([deformed(rng) for _ in range(2)]), num_positions=2)
    assert few.deformation is None


def animal_of(cells, atlas):
    """The cells that were seen, and their labels."""
    truth = np.flatnonzero(np.isfinite(cells).all(-1))
    return Animal(cells[truth], tuple(atlas.labels[j] for j in truth), atlas.features), truth


@pytest.mark.slow
def test_neighbours_tell_where_a_cell_should_be(atlas):
    rng = np.random.default_rng(9)
    free = dataclasses.replace(atlas, deformation=None)
    scores = []
    for _ in range(3):
        animal, truth = animal_of(deformed(rng), atlas)
        models = [AtlasMatching(animal, one) for one in (atlas, free)]
        assert models[0].fingerprint != models[1].fingerprint
        fits = [pv.fit(model) for model in models]
        scores.append([np.log(fit.marginals[np.arange(len(truth)), truth]).mean() for fit in fits])
    with_law, without = np.mean(scores, axis=0)
    assert with_law > without + 0.1


def test_cells_that_miss_a_feature_keep_their_own_densities(atlas):
    animal, _ = animal_of(deformed(np.random.default_rng(2)), atlas)
    cells = animal.cells.copy()
    cells[3, 0] = np.nan
    found = log_densities(atlas, cells, np.ones(3))
    own = atlas.log_densities(cells, np.ones(3))
    np.testing.assert_array_equal(found[3], own[3])
    assert np.abs(found[4] - own[4]).max() > 0.1


def test_an_atlas_with_deformations_survives_its_file(atlas, tmp_path):
    again = Atlas.load(atlas.save(tmp_path / "atlas.npz"))
    np.testing.assert_array_equal(again.deformation.covariance, atlas.deformation.covariance)
    assert again.deformation.length == atlas.deformation.length


def test_weights_in_a_frame_are_those_of_its_densities(atlas):
    animal, truth = animal_of(deformed(np.random.default_rng(6)), atlas)
    free = FrameModel(dataclasses.replace(atlas, deformation=None), animal.cells, "similarity")
    frame = free.starts(start_rotations(free, 1))
    pairs, alone = (table[0] for table in free.tables(free.apply(frame)))
    extra = np.zeros(pairs.shape)
    np.testing.assert_allclose(free.relative(frame, extra), pairs - alone[:, None], atol=1e-8)
    posterior = pv.fit(AtlasMatching(animal, atlas, align="similarity"), num_rounds=1)
    near = posterior.marginals[np.arange(len(truth)), truth].mean()
    assert near > 5 / NUM
