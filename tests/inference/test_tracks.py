"""Tracking against brute force: the exact answer, the chains, the filters, simulated crowds."""

import itertools
from functools import partial

import numpy as np
import pandas as pd
import pytest

import permvi as pv
from permvi.inference.tracks.candidates import (
    all_associations,
    best_association,
    guess_step,
    make_links,
)
from permvi.inference.tracks.chain import (
    Association,
    Motion,
    Parameters,
    Problem,
    Start,
    draw_parameters,
    no_walls,
    run_chain,
)
from permvi.inference.tracks.rates import Clock, Rates, end_weights, log_ended, log_seen
from tests import track_oracle

RATES = {"first": 2.0, "births": 0.3, "deaths": 0.1, "missed": 0.2, "false": 0.4}


def scattered(sizes, seed, spread=1.5):
    rng = np.random.default_rng(seed)
    return [spread * rng.normal(size=(n, 2)) for n in sizes]


def crowd(n, num_frames, seed, *, side, turning=None):
    """Frames with 5 % missed and 5 % false points, and the true links by number."""
    rng = np.random.default_rng(seed)
    x, v = side * rng.random((n, 2)), rng.normal(size=(n, 2))
    frames, links, last, total = [], set(), {}, 0
    for t in range(num_frames):
        if t and turning is None:
            x = x + rng.normal(size=x.shape)
        elif t:
            v = v + turning * rng.normal(size=v.shape)
            x = x + v
        there = np.flatnonzero(rng.random(n) > 0.05)
        false = side * rng.random((rng.poisson(0.05 * n), 2))
        frames.append(np.concatenate([x[there], false]))
        for k, i in enumerate(there):
            if i in last:
                links.add((last[i], total + k))
            last[i] = total + k
        total += len(frames[-1])
    return frames, links


def f1(found, truth):
    chosen = {(int(j), i) for i, j in enumerate(found.previous) if j >= 0}
    return 2 * len(chosen & truth) / (len(chosen) + len(truth))


CASES = {
    "two frames of six": ((6, 6), [0, 1], 0),
    "three frames of three": ((3, 3, 3), [0, 1, 2], 1),
    "a frame that was not taken": ((3, 2, 3), [0, 1, 3], 1),
}


@pytest.mark.parametrize("case", CASES)
def test_few_points_are_solved_exactly(case):
    sizes, times, memory = CASES[case]
    frames, sd = scattered(sizes, 3), [0.7, 0.9]
    density = partial(track_oracle.walk, sd)
    links, pairs, false, evidence = track_oracle.enumerate_tracks(
        frames, times, memory, RATES.values(), 30.0, density
    )
    found = pv.track(frames, sd, memory=memory, times=times, volume=30.0, **RATES)
    assert (found.method, found.verdict) == ("exact", "trust")
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    assert len(found.tails) == len(links)
    for j, i, p in zip(found.cands, found.tails, found.p_links, strict=True):
        assert p == pytest.approx(links[int(j), int(i)], abs=1e-9)
    for (a, b), p in pairs.items():
        assert found.p_same(a, b) == pytest.approx(p, abs=1e-9)
    np.testing.assert_allclose(found.p_false, false, atol=1e-9)
    for track in found.tracks:
        assert track.probability <= track.weakest <= 1


def small_problem(variances, turns=None, walls=None):
    frames, times = scattered((3, 2, 3, 2), 1, 1.2), np.array([0.0, 1.0, 2.0, 4.0])
    points, frame = np.concatenate(frames), np.repeat(np.arange(4), [3, 2, 3, 2])
    later, earlier = np.nonzero(np.subtract.outer(frame, frame) > 0)
    near = frame[later] - frame[earlier] <= 2
    links = make_links(later[near], earlier[near], points, times[frame])
    clock = Clock(times, 1, np.log(20.0), 2.5)
    walls = no_walls(2) if walls is None else walls
    problem = Problem(points, frame, clock, links, dict(RATES), True, walls)
    motion = Motion(np.ones(2), variances, turns or 0.0)
    return frames, problem, Parameters(Rates(**RATES), motion)


FLYING = np.array([0.2, 0.1, 0.6, 0.15])
# Most points of `small_problem` are near them, and some behind, where noise can put them.
WALLS = np.array([[-2.0, -np.inf], [1.0, 1.5]])


@pytest.mark.parametrize(
    ("variances", "turns", "walls"),
    [
        pytest.param(None, None, None, id="walk"),
        # Particles that fly, turn and are reflected do what those of the next two do, and more.
        pytest.param(FLYING, 0.3, WALLS, id="walls"),
        pytest.param(FLYING, None, None, marks=pytest.mark.slow, id="fly"),
        pytest.param(FLYING, 0.3, None, marks=pytest.mark.slow, id="turn"),
    ],
)
def test_chains_visit_what_brute_force_weighs(variances, turns, walls):
    frames, problem, parameters = small_problem(variances, turns, walls)
    motion = partial(track_oracle.walk, [1.0, 1.0])
    if walls is not None:
        motion = partial(track_oracle.walled, variances, turns, walls)
    elif turns is not None:
        motion = partial(track_oracle.turning, variances, turns)
    elif variances is not None:
        motion = partial(track_oracle.moving, variances)
    times, rates = problem.clock.times, RATES.values()
    links, _, false, _ = track_oracle.enumerate_tracks(frames, times, 1, rates, 20.0, motion)
    rng = np.random.default_rng(0)
    start = Start(Association(problem, np.full(10, -1)), parameters)
    picks = np.arange(len(problem.links.tails))
    start = run_chain(start, picks, 200, 20, rng, fixed=True).last
    found = run_chain(start, picks, 3000, 60, rng, fixed=True)
    cands, tails, shares = problem.links.cands, problem.links.tails, found.shares
    both = zip(cands.tolist(), tails.tolist(), strict=True)
    np.testing.assert_allclose(shares, [links[pair] for pair in both], atol=0.01)
    np.testing.assert_allclose(found.false, false, atol=0.02)
    # The account of time agrees with the associations themselves.
    there = found.preds[:, tails] == cands
    np.testing.assert_allclose(there.mean(axis=0), shares, atol=0.05)


@pytest.mark.parametrize("walls", [None, np.array([[-0.5, -0.5], [1.0, 1.0]])])
def test_hot_chains_visit_turns_as_often_as_their_weights_say(walls):
    """Two points and one link: every state is known, at a temperature of 2."""
    variances, turns, heat = FLYING, 0.3, 2.0
    points = np.array([[0.0, 0.0], [0.9, 0.4]])
    clock = Clock(np.array([0.0, 1.0]), 0, np.log(20.0), 1.0)
    one = np.array([1])
    links = make_links(one, one - 1, points, clock.times)
    inside = no_walls(2) if walls is None else walls
    problem = Problem(points, np.arange(2), clock, links, dict(RATES), True, inside)
    parameters = Parameters(Rates(**RATES), Motion(np.ones(2), variances, turns))
    start = Start(Association(problem, np.full(2, -1)), parameters)
    rng = np.random.default_rng(0)
    found = run_chain(start, np.array([0]), 200, 1000, rng, heat=heat, fixed=True)
    ends = problem.ends(parameters)
    score, turned = problem.scores(parameters)[0], problem.turned(parameters)[0]
    places = itertools.product(*([x] if walls is None else images(x, walls) for x in points[1]))
    smooth = [track_oracle.moving(variances, [points[0], y], clock.times) for y in places]
    linked = ends[0, 0] + ends[1, 1] + np.array([*(np.add(score, smooth)), turned])
    weights = np.array([ends[2].sum(), *linked]) / heat
    expected = np.exp(weights - np.logaddexp.reduce(weights))
    # Steps are repeated for a few moves, so that 200,000 of them err by less than this.
    np.testing.assert_allclose(found.shares, expected[1:].sum(), atol=0.01)


def images(place, walls):
    """A coordinate and its mirror images at walls that are the same along all coordinates."""
    return [place, 2 * walls[0, 0] - place, 2 * walls[1, 0] - place]


def test_links_of_particles_at_walls():
    """Particles that bounce in a box are followed, and their turns found."""
    rng = np.random.default_rng(5)
    x, v, frames, truth, total = 12 * rng.random((8, 2)), rng.normal(size=(8, 2)), [], [], 0
    bounced = 0
    for _ in range(25):
        x = x + v
        over = (x < 0) | (x > 12)
        bounced += over.any(axis=1).sum()
        x, v = np.where(x < 0, -x, np.where(x > 12, 24 - x, x)), np.where(over, -v, v)
        frames.append(x + 0.05 * rng.normal(size=x.shape))
        truth += [(total - 8 + k, total + k) for k in range(8) if total]
        total += 8
    found = pv.track(frames, motion="velocity", walls="none", seed=0)
    assert found.settings["walls"] == "none"
    assert f1(found, set(truth)) > 0.97
    share = bounced / len(truth)
    mean, sd = found.summary()["turns"]
    assert share > 0.05
    assert mean == pytest.approx(share, abs=4 * sd)
    # Walls are found, and explain all turns.
    walled = pv.track(frames, motion="velocity", seed=0)
    assert walled.settings["walls"] == "box"
    assert f1(walled, set(truth)) > 0.99
    mean, sd = walled.summary()["turns"]
    assert mean < 4 * sd


def test_no_walls_are_found_where_particles_leave(rng):
    x, v = 40 * rng.random((60, 2)) - 10, rng.normal(size=(60, 2))
    frames = []
    for _ in range(20):
        x = x + v
        frames.append(x[((x > 0) & (x < 20)).all(axis=1)])
    found = pv.track(frames, motion="velocity", num_moves=2000, num_draws=20)
    assert found.settings["walls"] == "none"


def test_weights_at_walls_are_those_of_mirrored_points():
    """The filters with codes weigh a track as the dense normal of its points in unfolded rooms."""
    walls = np.array([[-1.0, -1.0], [1.0, 1.0]])
    points = np.array([[0.8, 0.1], [0.7, -0.6], [-0.2, -0.7], [-0.9, 0.2]])
    frame = np.arange(4)
    clock = Clock(frame.astype(float), 0, 3.0, 1.0)
    links = make_links(frame[1:], frame[:-1], points, clock.times)
    problem = Problem(points, frame, clock, links, dict(RATES), True, walls)
    association = Association(problem, frame - 1)
    # The first coordinate meets the upper wall, then the lower one; the second the lower one.
    association.code[1:] = [2, 3 * 1, 1]
    unfolded = np.array([[0.8, 0.1], [1.3, -0.6], [2.2, -1.3], [3.1, -2.2]])
    expected = track_oracle.moving(FLYING, unfolded, clock.times)
    assert association.log_likelihood(FLYING) == pytest.approx(expected, abs=1e-9)
    parameters = Parameters(Rates(**RATES), Motion(np.ones(2), FLYING, 0.1))
    ends, scores = problem.ends(parameters), problem.scores(parameters)
    total = expected + ends[0, 0] + ends[1, 3] + scores.sum()
    assert association.log_weight(parameters) == pytest.approx(total, abs=1e-9)


def test_weights_of_associations_with_velocities_are_those_of_dense_normals():
    variances = FLYING
    _, problem, parameters = small_problem(variances)
    times = problem.time
    preds = all_associations(problem.links.starts(10), problem.links.cands)
    ends, scores = problem.ends(parameters), problem.scores(parameters)
    for pred in preds[:: len(preds) // 20]:
        association = Association(problem, pred)
        expected = 0.0
        for first in np.flatnonzero(pred < 0):
            track = [first]
            while association.succ[track[-1]] >= 0:
                track.append(association.succ[track[-1]])
            if len(track) == 1:
                expected += ends[2, first]
                continue
            expected += ends[0, first] + ends[1, track[-1]]
            expected += scores[association.edge[track[1:]]].sum()
            expected += track_oracle.moving(variances, problem.points[track], times[track])
        assert association.log_weight(parameters) == pytest.approx(expected, abs=1e-9)


def test_the_best_association_is_that_of_brute_force():
    _, problem, parameters = small_problem(None)
    scores, ends = problem.scores(parameters), problem.ends(parameters)
    preds = all_associations(problem.links.starts(10), problem.links.cands)
    weights = [Association(problem, pred).log_weight(parameters) for pred in preds]
    best = best_association(problem.links, scores, ends)
    np.testing.assert_array_equal(best.pred, preds[int(np.argmax(weights))])
    top = max(weights)
    there = preds[:, problem.links.tails] == problem.links.cands
    for e, gap in enumerate(best.gaps):
        assert gap <= top - max(np.array(weights)[there[:, e]]) + 1e-9


def test_a_particle_is_seen_next_or_never():
    clock = Clock(np.array([0.0, 1.0, 3.0, 4.0, 5.0]), 2, 0.0, 4.0)
    seen, ended = log_seen(clock, 0.1, 0.2), log_ended(clock, 0.1, 0.2)
    np.testing.assert_allclose(np.exp(seen).sum(axis=1) + np.exp(ended), 1.0)
    assert np.exp(seen[0, 1]) == pytest.approx(0.9**3 * 0.2 * 0.8)
    assert ended[-1] == pytest.approx(0.0)
    ends = end_weights(clock, Rates(**RATES), np.array([0, 2]))
    np.testing.assert_allclose(ends[0], np.log([2.0, 0.6]))


def test_the_step_is_guessed_in_a_crowd():
    frames, _ = crowd(100, 10, 0, side=40.0)
    sizes = [len(frame) for frame in frames]
    frame = np.repeat(np.arange(10), sizes)
    guess = guess_step(np.concatenate(frames), frame, np.arange(10.0))
    np.testing.assert_allclose(guess, 1.0, rtol=0.2)


def test_parameters_are_drawn_from_their_posterior():
    # One chain of links that is known: the variance is inverse gamma.
    rng = np.random.default_rng(0)
    points = np.cumsum(rng.normal(size=(400, 1)), axis=0)
    frame = np.arange(400)
    clock = Clock(frame.astype(float), 0, 5.0, 1.0)
    links = make_links(frame[1:], frame[:-1], points, clock.times)
    problem = Problem(points, frame, clock, links, {}, False, no_walls(1))
    now = Parameters(Rates(1.0, 0.1, 0.05, 0.05, 0.1), Motion(np.ones(1)))
    association = Association(problem, frame - 1)
    draws = []
    for _ in range(2000):
        now = draw_parameters(association, now, rng)
        draws.append(now.motion.sd[0] ** 2)
    shape, level = 0.5 * 401, 0.5 * (links.square.sum() + 2.0)
    mean, sd = level / (shape - 1), level / (shape - 1) / np.sqrt(shape - 2)
    assert np.mean(draws) == pytest.approx(mean, abs=4 * sd / np.sqrt(2000))
    assert np.std(draws) == pytest.approx(sd, rel=0.1)


@pytest.mark.parametrize("motion", ["walk", "velocity"])
def test_crowds_are_followed_with_calibrated_links(motion):
    turning = None if motion == "walk" else 0.1
    frames, truth = crowd(25, 20, 1, side=30.0, turning=turning)
    found = pv.track(frames, seed=1)
    assert found.settings["motion"] == motion
    assert found.verdict == "trust"
    # Less two standard errors: a tenth of the links is wrong, and equal ones are chosen by chance.
    assert f1(found, truth) > 0.9 - 2 * np.sqrt(0.9 * 0.1 / len(truth))
    chosen = np.flatnonzero(found.previous >= 0)
    right = sum((int(found.previous[i]), int(i)) in truth for i in chosen)
    p = found.p_previous[chosen]
    assert abs(right - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum()) + 0.02 * len(chosen)
    assert found.expected_switches == pytest.approx((1 - p).sum())
    missed, spread = found.summary()["missed"]
    assert abs(missed - 0.05) < 4 * spread


@pytest.mark.parametrize("motion", ["walk", "velocity"])
def test_the_kind_of_motion_is_chosen_in_a_small_box(motion, rng):
    # Steps are guessed too large where all points are near, and particles often meet walls.
    n, T, side = (20, 80, 13.0) if motion == "walk" else (8, 100, 5.0)
    x, v = side * rng.random((n, 3)), rng.normal(size=(n, 3))
    frames = []
    for _ in range(T):
        frames.append(x)
        v = rng.normal(size=(n, 3)) if motion == "walk" else v + 0.1 * rng.normal(size=(n, 3))
        x = x + v
        v = np.where((x < 0) | (x > side), -v, v)
        x = side - np.abs(side - np.abs(x))
    found = pv.track(frames, num_moves=2000, num_draws=20)
    assert found.settings["motion"] == motion


def test_links_shown_have_the_largest_f1_expected(rng):
    frames = [rng.normal(size=(3, 1)) for _ in range(3)]
    found = pv.track(frames, 1.0, births=0.1, deaths=0.05, missed=0.1, false=0.2, memory=1)
    p, ends = found.p_links, np.stack([found.tails, found.cands + len(found.p_false)])

    def f1(chosen):
        return 2 * p[chosen].sum() / (len(chosen) + p.sum())

    best = 0.0
    likely = np.argsort(-p)[:14].tolist()
    for size in range(1, 7):
        for chosen in map(list, itertools.combinations(likely, size)):
            points = ends[:, chosen].ravel()
            if len(set(points.tolist())) == len(points):
                best = max(best, f1(chosen))
    shown = np.flatnonzero(found.previous[found.tails] == found.cands)
    assert len(shown) == np.count_nonzero(found.previous >= 0)
    assert f1(shown) == pytest.approx(best, abs=1e-3)
    assert best > 0.4


def test_a_missed_point_does_not_end_its_track():
    frames = [[[0.0, 0.0], [9.0, 9.0]], [[0.1, 0.0]], [[0.0, 0.1], [9.1, 9.0]]]
    rates = {"births": 0.1, "deaths": 0.01, "missed": 0.1, "false": 0.1}
    found = pv.track(frames, 0.3, memory=1, **rates)
    assert [track.points for track in found.tracks] == [((0, 0), (1, 0), (2, 0)), ((0, 1), (2, 1))]
    assert found.p_same(found.point(0, "2"), found.point(2, "2")) > 0.9
    forgetful = pv.track(frames, 0.3, memory=0, **rates)
    assert forgetful.p_same(1, 4) == 0.0


def test_columns_of_a_data_frame_and_the_same_seed():
    frames, _ = crowd(6, 5, 2, side=20.0)
    rows = [(xy[1], 7.0, t, xy[0]) for t, frame in enumerate(frames) for xy in frame]
    table = pd.DataFrame(rows, columns=["y", "mass", "frame", "x"]).sample(frac=1, random_state=0)
    found, again = (pv.track(table, motion="walk", seed=3) for _ in range(2))
    assert found.scene.axes == ("x", "y")
    np.testing.assert_array_equal(found.p_links, again.p_links)
    back = table.iloc[found.scene.rows]
    np.testing.assert_allclose(found.scene.points, back[["x", "y"]].to_numpy())
    assert list(found.to_frame()["particle"].dropna().unique()) == list(range(len(found.tracks)))
    layer = found.to_napari()
    assert layer.shape == (sum(len(track.points) for track in found.tracks), 4)
    assert (np.diff(layer[:, 0]) >= 0).all()


def test_a_report_escapes_names_and_loads_nothing(tmp_path):
    frames = [[[0.0], [5.0]], [[5.1], [0.2]], [[0.1], [5.3]]]
    found = pv.track(frames, 0.3, ids=[["<b>", "2"], ["3", "4"], ["5", "6"]], names="<&x")
    text = found.report(tmp_path / "r.html", title="<script>alert(1)</script>").read_text()
    assert "<script" not in text
    assert "<b>" not in text
    assert "default-src 'none'" in text
    assert text.count("<path") == sum(found.previous >= 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames": 3}, "frames must be a DataFrame with a column of frames or a sequence"),
        ({"frames": [[[0.0]]]}, "expected two frames or more, got one"),
        ({"frames": [[[0.0]], [[0.0, 1.0]]]}, r"frames must be \(n, d\) arrays with the same d"),
        ({"frames": [[[0.0]], [[np.nan]]]}, "frames must be finite, got nan"),
        ({"sd": 0.0}, "sd must be positive and finite, got 0.0"),
        ({"sd": [1, 1, 1]}, r"sd must be a number or have shape \(1,\)"),
        ({"sd": 1.0, "motion": "velocity"}, "sd must be left out with motion='velocity'"),
        ({"motion": "vel"}, "did you mean 'velocity'"),
        ({"memory": -1}, "memory must be an integer of at least 0"),
        ({"missed": 1.0}, "missed must be a probability from 0 to below 1, got 1.0"),
        ({"false": -1}, "false must be a number of at least 0, got -1"),
        ({"times": [1, 0]}, "times must be 2 increasing numbers"),
        ({"volume": 0.0}, "volume must be a positive number, got 0.0"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pv.track(**{"frames": [[[0.0]], [[1.0]]], **arguments})


def test_points_too_far_apart_have_no_links():
    found = pv.track([[[0.0, 0.0]], [[1e6, 1e6]]], 1.0)
    assert (found.previous < 0).all()
    assert found.verdict == "trust"
