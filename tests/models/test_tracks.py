"""Tracks two frames at a time: links against brute force."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse
from scipy.stats import norm

import permvi as pv
from permvi.models import Tracks
from permvi.models import tracks as module_of_tracks
from permvi.models.tracks import link_gaps
from permvi.posterior import marginals
from permvi.problem import prepare as preparing
from tests.cli import oracle

FRAMES = {
    "1": {"a": (0.0, 0.0), "b": (1.0, 0.2), "c": (4.0, 4.0)},
    "2": {"p": (0.5, 0.3), "q": (0.7, -0.4)},
    "10": {"r": (0.6, 0.1), "s": (1.1, -0.5), "t": (1.4, 0.6)},
}
SD, NEW, LOST = (0.5, 0.4), 2.0, 0.2

POINTS = [list(points.values()) for points in FRAMES.values()]
NAMED = {"ids": [list(points) for points in FRAMES.values()], "names": FRAMES, "axes": "xy"}


def exact(before, after):
    """(n, m+1) probabilities of each later point's origins, the last of being new; the evidence."""
    x, y = (np.array([*points.values()]) for points in (before, after))
    pairs = norm(x, SD).pdf(y[:, None]).prod(axis=-1)
    new = norm(0, SD[0]).pdf(NEW * SD[0]) * norm(0, SD[1]).pdf(0)
    law, total = oracle.probabilities(pairs, items=new, labels=LOST / (1 - LOST))
    return oracle.marginals(law, pairs.shape), np.log(total)


@pytest.fixture(scope="module")
def linked():
    tracks = Tracks(POINTS, SD, NEW, LOST, **NAMED)
    return tracks.link([pv.fit(step, seed=0) for step in tracks.steps])


def test_links_are_those_of_brute_force(linked):
    rows = {(row["frame"], row["id"]): row for row in linked.rows()}
    for before, after in itertools.pairwise(FRAMES):
        table, _ = exact(FRAMES[before], FRAMES[after])
        names = [*FRAMES[before], None]
        for name, p in zip(FRAMES[after], table, strict=True):
            row = rows[after, name]
            assert row["probability"] == pytest.approx(p[names.index(row["previous"])], abs=1e-6)
            others = np.delete(p, names.index(row["previous"]))
            assert row["runner_up_probability"] == pytest.approx(others.max(), abs=1e-6)
            assert row["p_new"] == pytest.approx(p[-1], abs=1e-6)
        for name, lost in zip(FRAMES[before], 1 - table[:, :-1].sum(axis=0), strict=True):
            assert rows[before, name]["p_lost"] == pytest.approx(lost, abs=1e-6)


def test_tracks_follow_the_links(linked):
    points = {(point.frame, point.row): point for point in linked.points}
    assert sorted(place for track in linked.tracks for place in track.points) == sorted(points)
    for track in linked.tracks:
        first, *others = (points[place] for place in track.points)
        assert first.previous is None
        assert [point.frame for point in others] == [
            first.frame + k + 1 for k in range(len(others))
        ]
        assert [point.previous for point in others] == [row for _, row in track.points[:-1]]
        assert track.probability == pytest.approx(np.prod([p.probability for p in others]))
        assert {points[place].track for place in track.points} == {track.track}


def test_a_table_of_points(linked):
    frame = linked.to_frame()
    assert list(frame.columns) == [
        *("frame", "id", "x", "y", "track", "previous", "probability", "runner_up"),
        *("runner_up_probability", "p_new", "p_lost"),
    ]
    assert len(frame) == sum(map(len, POINTS))
    assert frame["probability"].isna().sum() == len(POINTS[0])
    assert frame["p_lost"].isna().sum() == len(POINTS[-1])


def test_what_a_link_costs_is_what_brute_force_says(rng):
    for n, m in ((3, 3), (4, 2), (2, 4), (1, 1)):
        scores, (new, lost) = 3 * rng.normal(size=(n, m)), rng.normal(size=2)
        weights = {}
        for perm in itertools.product(range(-1, m), repeat=n):
            used = [j for j in perm if j >= 0]
            if len(set(used)) == len(used):
                weight = sum(scores[i, j] if j >= 0 else new for i, j in enumerate(perm))
                weights[perm] = weight + lost * (m - len(used))
        best = max(weights.values())
        gaps = link_gaps(scores, new, lost)
        for i, j in np.ndindex(n, m):
            with_link = max(weight for perm, weight in weights.items() if perm[i] == j)
            assert gaps[i, j] == pytest.approx(best - with_link, abs=1e-9)


def test_names_come_from_data_frames():
    frames = [
        pd.DataFrame(list(points.values()), index=list(points), columns=["u", "v"])
        for points in FRAMES.values()
    ]
    tracks = Tracks(frames, 0.5)
    assert tracks.ids == (("a", "b", "c"), ("p", "q"), ("r", "s", "t"))
    assert (tracks.names, tracks.axes) == (("0", "1", "2"), ("u", "v"))
    assert tracks.steps[0].labels == (("p", "q"), ("a", "b", "c"))
    plain = Tracks(POINTS, 0.5)
    assert (plain.ids[1], plain.axes) == (("0", "1"), ("x0", "x1"))


def test_links_are_left_out_until_groups_are_small(rng):
    few = Tracks([np.zeros((2, 1)), np.ones((2, 1))], 1.0)
    assert few.left_out == (1e9,)
    assert few.steps[0].mask.all()
    crowd = Tracks(np.cumsum(rng.normal(size=(2, 60, 2)) * [[[2.0]], [[0.1]]], axis=0), 0.1)
    (factor,), (step,) = crowd.left_out, crowd.steps
    assert factor in (1e9, 1e6, 1e4, 1e3)
    assert not step.mask.all()
    posterior = pv.fit(step, seed=0)
    assert (posterior.method, posterior.diagnostics.verdict) == ("exact", "trust")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Tracks(3, 1.0), "frames must be a sequence of arrays of points, got 3"),
        (lambda: Tracks(POINTS[:1], 1.0), "frames must hold two frames or more, got 1"),
        (lambda: Tracks([POINTS[0], [[1.0]]], 1.0), r"frames\[1\] must have 2 coordinates as"),
        (lambda: Tracks([POINTS[0], []], 1.0), r"frames\[1\] must be a non-empty array with 2"),
        (lambda: Tracks([[[0.0]], [[np.nan]]], 1.0), r"frames\[1\] must be finite, got nan"),
        (lambda: Tracks(POINTS, 0.0), "sd must be positive and finite, got 0.0"),
        (lambda: Tracks(POINTS, [1, 1, 1]), r"sd must be a number or have shape \(2,\), got"),
        (lambda: Tracks(POINTS, 1.0, new=-1), "new must be positive and finite, got -1"),
        (lambda: Tracks(POINTS, 1.0, lost=1.0), "lost must be a probability between 0 and 1, got"),
        (lambda: Tracks(POINTS, 1.0, ids=["ab"]), "ids must name the points of 3 frames, got 1"),
        (
            lambda: Tracks(POINTS, 1.0, ids=["aab", "pq", "rst"]),
            r"ids\[0\] must differ from each other, got 'a' twice",
        ),
        (lambda: Tracks(POINTS, 1.0, names="ab"), "names must hold 3 names, got 2"),
        (lambda: Tracks(POINTS, 1.0, axes=["x", "track"]), "axes must be none of the other col"),
        (lambda: Tracks(POINTS, 1.0).link([]), "posteriors must be those of the steps, of shapes"),
    ],
)
def test_mistakes(build, message):
    with pytest.raises((ValueError, TypeError), match=message):
        build()


def test_large_frames_are_linked_from_lists(rng, monkeypatch):
    before = 20 * rng.random((30, 2))
    frames = [before, before + 0.3 * rng.normal(size=(30, 2)), 20 * rng.random((25, 2))]
    tracks = pv.models.Tracks(frames, sd=0.3)
    table = tracks.link([pv.fit(step) for step in tracks.steps])
    for module in (module_of_tracks, preparing):
        monkeypatch.setattr(module, "MAX_TABLE", 0)
    monkeypatch.setattr(marginals, "MAX_CELLS", 0)
    tracks = pv.models.Tracks(frames, sd=0.3)
    posteriors = [pv.fit(step) for step in tracks.steps]
    assert all(issparse(posterior.marginals) for posterior in posteriors)
    assert tracks.left_out == (1e9, 1e9)
    lists = tracks.link(posteriors)
    for a, b in zip(lists.points, table.points, strict=True):
        assert a[:4] == b[:4]
        for name in ("probability", "runner_up_probability", "p_new", "p_lost"):
            assert getattr(a, name) == pytest.approx(getattr(b, name), abs=1e-6)
