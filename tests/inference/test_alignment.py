"""Frames: derivatives by finite differences, matchings by enumeration, and animals that moved."""

import numpy as np
import pytest
from scipy.linalg import expm

import permvi as pv
from permvi.inference.alignment import method
from permvi.inference.alignment.method import _step_between
from permvi.inference.alignment.search import find_frames
from permvi.models import Atlas, AtlasMatching
from permvi.models.atlas.frames import FrameModel, Frames, _turn_to, start_rotations
from permvi.models.atlas.widths import believed, infer_widths, scaled
from permvi.posterior.diagnostics import SAMPLING_CHECK

ROTATION = expm(np.cross(np.eye(3), [2.4, 0.2, -0.2]))


def atlas_of(m=16, seed=0, spread=0.12):
    rng = np.random.default_rng(seed)
    means = rng.normal(size=(m, 4)) * [3, 1, 0.7, 1]
    return Atlas.fit(means + spread * rng.normal(size=(12, m, 4)), num_positions=3), means, rng


def moved(cells):
    """The cells in another frame, and the map (4, 5) that undoes it."""
    linear = np.diag([1.1, 1.1, 1.1, 2.0])
    linear[:3, :3] = 1.1 * ROTATION
    shift = np.array([5.0, -2.0, 1.0, 7.0])
    back = np.linalg.inv(linear)
    return cells @ linear.T + shift, np.column_stack([back, -back @ shift])


@pytest.fixture(scope="module")
def model():
    atlas, means, rng = atlas_of()
    return FrameModel(atlas, moved(means + 0.1 * rng.normal(size=means.shape))[0], "affine")


@pytest.fixture(scope="module")
def frame(model):
    start = model.starts(start_rotations(model, 12)[7:8])
    step = 0.1 * np.random.default_rng(3).normal(size=(1, len(model.basis) + 5))
    return model.moved(start, step)


def test_derivatives_of_the_density_are_those_of_finite_differences(model, frame):
    perm = np.random.default_rng(0).permutation(16)
    perm[3] = -1
    found, precision = model.settle(frame, perm)
    for k in range(precision.shape[-1]):
        step = np.zeros((1, precision.shape[-1]))
        step[0, k] = 1e-4 / np.sqrt(precision[0, k, k])
        up, down = (model.log_joint(model.moved(found, s), perm)[0] for s in (step, -step))
        # At the mode the slope vanishes, in units of the standard deviation.
        assert abs(up - down) / 2e-4 < 0.02


def test_places_change_as_the_jacobian_says(model, frame):
    y = model.apply(frame)
    H = model._jacobian(y)
    for k in range(H.shape[-1]):
        step = np.zeros((1, H.shape[-1]))
        step[0, k] = 1e-5
        change = (
            model.apply(model.moved(frame, step)) - model.apply(model.moved(frame, -step))
        ) / 2e-5
        np.testing.assert_allclose(change, H[..., k], atol=1e-8)


def test_volumes_and_transforms(model, frame):
    full = model.transforms(frame)[0]
    raw = model.origin + model.data_unit * model.cells
    np.testing.assert_allclose(raw @ full[:, :-1].T + full[:, -1], model.in_atlas(frame)[0])
    start = model.transforms(model.starts(np.eye(3)[None]))[0]
    dets = [np.linalg.slogdet(each[:, :-1])[1] for each in (full, start)]
    np.testing.assert_allclose(model.log_volume(frame)[0], 16 * (dets[0] - dets[1]))


def test_steps_can_be_undone(model, frame):
    step = 0.2 * np.random.default_rng(1).normal(size=(1, len(model.basis) + 5))
    np.testing.assert_allclose(_step_between(model, frame, model.moved(frame, step)), step[0])


def test_starts_are_rotations(model):
    found = start_rotations(model, 12)
    assert found.shape == (36, 3, 3)
    np.testing.assert_allclose(
        found @ found.transpose(0, 2, 1), np.tile(np.eye(3), (36, 1, 1)), atol=1e-12
    )
    np.testing.assert_allclose(np.linalg.det(found), 1.0)
    for target in np.array([[0, 0, 1.0], [-1.0, 0, 0], [1.0, 0, 0]]):
        np.testing.assert_allclose(
            _turn_to(np.array([1.0, 0, 0]), target)[:, 0], target, atol=1e-12
        )


def test_scaled_weights_sum_to_one_and_bound_the_evidence():
    rng = np.random.default_rng(2)
    pairs, alone = rng.normal(size=(1, 4, 5)), rng.normal(size=(1, 4))
    found = scaled(pairs, alone)
    np.testing.assert_allclose(found.pairs.sum(-1) + found.alone, 1.0)
    linear = pv.models.LinearMatching(pairs[0], row_unmatched=alone[0], col_unmatched=np.zeros(5))
    exact = pv.fit(linear, "exact")
    assert 0 <= found.log_evidence[0] - exact.log_evidence < 4
    assert np.abs(found.pairs[0] - exact.marginals).max() < 0.2


@pytest.mark.parametrize("sd", [1.0, 3.0])
def test_beliefs_are_nearly_the_probabilities_of_all_matchings(sd):
    rng = np.random.default_rng(3)
    pairs, alone = sd * rng.normal(size=(5, 6)), sd * rng.normal(size=5)
    pairs[1, 2], alone[2] = -np.inf, -800.0
    mask = np.isfinite(pairs)
    linear = pv.models.LinearMatching(
        np.where(mask, pairs, 0.0), mask=mask, row_unmatched=alone, col_unmatched=np.zeros(6)
    )
    exact = pv.fit(linear, "exact").marginals
    assert np.abs(believed(pairs, alone) - exact).max() < 0.02


def test_widths_of_cells_that_compete_for_labels_are_those_of_known_labels():
    # With more even probabilities of pairs they were 6 % too large.
    rng = np.random.default_rng(0)
    means = rng.normal(size=(120, 3)) * [6, 2, 2]
    atlas = Atlas.fit(means + 0.5 * rng.normal(size=(12, 120, 3)), num_positions=3)
    known = np.where(np.eye(120, dtype=bool), 0.0, -np.inf)
    ratios = []
    for _ in range(6):
        cells = means + 0.5 * rng.normal(size=means.shape)
        ratios.append(infer_widths(atlas, cells)[0] / infer_widths(atlas, cells, known)[0])
    assert abs(np.mean(ratios) - 1) < 0.03


@pytest.mark.parametrize("align", ["similarity", "affine"])
def test_an_animal_in_another_frame_is_identified(align):
    atlas, means, rng = atlas_of()
    kept = rng.permutation(16)[:13]
    cells = means[kept] + 0.1 * rng.normal(size=(13, 4))
    there, back = moved(cells)
    model = AtlasMatching(there, atlas, align=align)
    posterior = pv.fit(model, num_rounds=3, num_draws=120)
    assert (posterior.mode == kept).all()
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.check(model).verdict == "fits"
    frame = posterior.latents["frame"]
    assert frame.draws.shape == (120, 4, 5)
    # Places of the cells are known to within the scatter of a few labels.
    placed = model.in_atlas(frame.mean)
    assert np.abs(placed - (there @ back[:, :-1].T + back[:, -1])).max() < 0.5
    assert (frame.sd > 0).any()
    if align == "similarity":
        again = pv.fit(model, num_rounds=3, num_draws=120)
        np.testing.assert_array_equal(again.marginals, posterior.marginals)


def test_a_frame_that_does_not_exist_is_said():
    atlas, _, rng = atlas_of()
    model = AtlasMatching(rng.normal(size=(13, 4)), atlas, align="similarity")
    with pytest.warns(pv.FitWarning):
        posterior = pv.fit(model, num_rounds=2, num_draws=50)
    assert posterior.diagnostics.verdict != "trust"
    assert posterior.check(model).verdict == "does not fit"


def test_known_cells_stay_known():
    atlas, means, rng = atlas_of()
    there = moved(means + 0.1 * rng.normal(size=means.shape))[0]
    known = np.full(16, -1)
    known[[2, 5]] = 2, 5
    posterior = pv.fit(
        AtlasMatching(there, atlas, align="similarity", known=known), num_rounds=2, num_draws=50
    )
    assert (posterior.marginals[[2, 5], [2, 5]] == 1).all()
    assert (posterior.mode == np.arange(16)).all()


def test_marginals_are_those_of_all_matchings():
    # On a line, with the frame integrated out by Laplace's method for each of 209 matchings.
    means = np.array([[0.0], [1.0], [2.3], [4.1]])
    atlas = Atlas.from_moments(means, [[0.15]], features=("x",), p_present=0.8)
    cells = 3.0 + 0.9 * np.array([[0.2], [0.9], [2.6], [4.0]])
    model = AtlasMatching(cells, atlas, align="similarity")
    exact = pv.fit(model, "exact")
    with pytest.warns(pv.FitWarning, match="more than one frame is possible"):
        found = pv.fit(model, "linear", num_rounds=16, num_chains=8, num_steps=2000)
    # Eight chains say to within an eighth in which direction the line runs.
    assert np.abs(exact.marginals - found.marginals).max() < 0.15
    assert (exact.marginals.argmax(1) == found.marginals.argmax(1)).all()


def test_chains_are_prolonged_only_where_the_answer_is_not_precise(monkeypatch):
    monkeypatch.setattr(method, "_SHARE_OF_ERROR", 0.3)
    # Cells scatter as widely as labels lie apart, in a frame that is known well, or hardly.
    atlas, means, rng = atlas_of(spread=0.7)
    cells = means + 0.7 * rng.normal(size=means.shape)
    doubtful = AtlasMatching(moved(cells)[0], atlas, align="similarity")
    sharp, means, rng = atlas_of()
    clear = AtlasMatching(
        moved(means + 0.1 * rng.normal(size=means.shape))[0], sharp, align="similarity"
    )
    settings = {"num_draws": 60, "num_steps": 500}
    assert pv.fit(clear, num_rounds=1, **settings).num_evaluations == 4
    found = pv.fit(doubtful, num_rounds=1, **settings)
    assert found.num_evaluations in (8, 16)
    error = found.diagnostics.sampling_error_by_row.mean()
    assert error <= 0.3 * SAMPLING_CHECK or found.num_evaluations == 16
    # The average of these frames is as close to that of many as it says, up to a factor of three.
    many = pv.fit(doubtful, num_rounds=20, seed=1, **settings)
    assert np.abs(found.marginals - many.marginals).sum(axis=1).mean() / 2 < 3 * error


def test_frames_are_found_from_all_turns():
    atlas, means, rng = atlas_of()
    for turn in np.linspace(0, 2 * np.pi, 5)[:-1]:
        cells = means + 0.1 * rng.normal(size=means.shape)
        cells[:, :3] = cells[:, :3] @ expm(turn * np.cross(np.eye(3), [1.0, 0, 0])).T
        frames = FrameModel(atlas, cells, "similarity")
        found = find_frames(frames, np.zeros((16, 16)), np.zeros(16))
        assert isinstance(found.frames, Frames)
        off = frames.in_atlas(found.frames)[0] - means
        assert np.sqrt((off**2).mean()) < 0.2
