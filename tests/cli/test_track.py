"""``permvi track`` against brute force over the matchings of two frames."""

import csv
import itertools
import json

import numpy as np
import pytest
from scipy.stats import norm

import permvi as pv
from permvi.models.tracks import link_gaps
from tests.cli import oracle
from tests.cli.pages import check_page

FRAMES = {
    "1": {"a": (0.0, 0.0), "b": (1.0, 0.2), "c": (4.0, 4.0)},
    "2": {"p": (0.5, 0.3), "q": (0.7, -0.4)},
    "10": {"r": (0.6, 0.1), "s": (1.1, -0.5), "t": (1.4, 0.6)},
}
SD, NEW, LOST = (0.5, 0.4), 2.0, 0.2


def as_csv(frames, order=None):
    rows = [(f, name, *xy) for f in order or frames for name, xy in frames[f].items()]
    return "\n".join(["frame,id,x,y", *(",".join(map(str, row)) for row in rows)])


@pytest.fixture
def tracked(run, write):
    def run_track(content, *options):
        result = run("track", write("p.csv", content), *options, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    return run_track


def exact(before, after):
    """(n, m+1) probabilities of each later point's origins, the last of being new; the evidence."""
    x, y = (np.array([*points.values()]) for points in (before, after))
    pairs = norm(x, SD).pdf(y[:, None]).prod(axis=-1)
    new = norm(0, SD[0]).pdf(NEW * SD[0]) * norm(0, SD[1]).pdf(0)
    law, total = oracle.probabilities(pairs, items=new, labels=LOST / (1 - LOST))
    return oracle.marginals(law, pairs.shape), np.log(total)


def test_links_and_tracks(tracked):
    # Frames are numbers: their order in the file does not matter.
    options = ["--sd", "0.5,0.4", "--new", NEW, "--lost", LOST]
    found = tracked(as_csv(FRAMES, order=["10", "1", "2"]), *options)
    assert (found["verdict"], found["methods"]) == ("trust", ["exact"])
    points = {(row["frame"], row["id"]): row for row in found["points"]}
    assert list(points) == [(frame, name) for frame in FRAMES for name in FRAMES[frame]]
    evidence = 0.0
    for before, after in itertools.pairwise(FRAMES):
        table, log_total = exact(FRAMES[before], FRAMES[after])
        evidence += log_total
        names = [*FRAMES[before], None]
        for name, p in zip(FRAMES[after], table, strict=True):
            row, by_name = points[after, name], dict(zip(names, p, strict=True))
            assert row["probability"] == pytest.approx(by_name[row["previous"]], abs=1e-6)
            del by_name[row["previous"]]
            assert row["runner_up_probability"] == pytest.approx(max(by_name.values()), abs=1e-6)
            assert by_name[row["runner_up"]] == pytest.approx(max(by_name.values()), abs=1e-6)
            assert row["p_new"] == pytest.approx(p[-1], abs=1e-6)
        for name, lost in zip(FRAMES[before], 1 - table[:, :-1].sum(axis=0), strict=True):
            assert points[before, name]["p_lost"] == pytest.approx(lost, abs=1e-6)
    assert found["log_evidence"] == pytest.approx(evidence, abs=1e-6)
    # Every point is in one track, which follows the links.
    for track in found["tracks"]:
        rows = [points[point["frame"], point["id"]] for point in track["points"]]
        assert [row["track"] for row in rows] == [track["track"]] * len(rows)
        assert [row["previous"] for row in rows[1:]] == [row["id"] for row in rows[:-1]]
        assert rows[0]["previous"] is None
        expected = np.prod([row["probability"] for row in rows[1:]])
        assert track["probability"] == pytest.approx(expected)
    assert sum(len(track["points"]) for track in found["tracks"]) == len(points)


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


def test_a_crowd_is_followed_exactly(tracked, rng):
    start = rng.uniform(0, 12, size=(40, 2))
    steps = np.cumsum([np.zeros((40, 2)), *rng.normal(scale=0.1, size=(2, 40, 2))], axis=0)
    lines = [(t, i, *xy) for t, step in enumerate(steps) for i, xy in enumerate(start + step)]
    rng.shuffle(lines)
    content = "\n".join(["frame;id;x;y", *(f"{t:g};i{i:g};{x};{y}" for t, i, x, y in lines)])
    found = tracked(content, "--sd", 0.1, "--lost", 0.01)
    assert found["verdict"] == "trust"
    assert found["methods"] == ["exact"]
    links = [row for row in found["points"] if row["probability"] is not None]
    right = np.array([row["previous"] == row["id"] for row in links])
    p = np.array([row["probability"] for row in links])
    # As many as promised are right, within four standard errors.
    assert abs(right.sum() - p.sum()) < 4 * np.sqrt((p * (1 - p)).sum()) + 1e-6
    assert right.mean() > 0.9


def test_the_files_and_what_is_shown(run, write, tmp_path):
    names = {"--csv": "o.csv", "--save": "o.nc", "--plot": "o.png", "--report": "o.html"}
    written = [word for option, name in names.items() for word in (option, tmp_path / name)]
    result = run("track", write("p.csv", as_csv(FRAMES)), "--sd", 0.5, *written)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Tracks; p is the probability that all of its links are right")
    assert "The least certain of 5 links" in result.stdout
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["frame"], row["id"]) for row in rows][:4] == [*zip("1112", "abcp", strict=True)]
    assert (float(rows[3]["x"]), float(rows[3]["y"])) == FRAMES["2"]["p"]
    assert (rows[0]["probability"], rows[-1]["p_lost"]) == ("", "")
    posterior = pv.load(tmp_path / "o-2.nc")
    assert posterior.labels == (("r", "s", "t"), ("p", "q"))
    assert posterior.settings["frames"] == ["2", "10"]
    assert "Points of frame 2 in frame 1" in (tmp_path / "o-1.html").read_text()
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


def test_one_coordinate_and_no_ids(run, write, tmp_path):
    content = "frame,z\nstart,0\nstart,5\nend,5.1\nend,0.2\n"
    options = ["--plot", tmp_path / "o.svg", "--save", tmp_path / "fit.nc", "--quiet"]
    result = run("track", write("p.csv", content), "--sd", 0.3, *options)
    assert (result.exit_code, result.output) == (0, "")
    posterior = pv.load(tmp_path / "fit.nc")
    assert posterior.labels == (("1", "2"), ("1", "2"))
    assert posterior.mode.tolist() == [1, 0]
    assert posterior.settings["frames"] == ["start", "end"]


POINTS = "frame,id,x,y\n1,a,0,0\n2,b,0,0\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("frame,x\n1,0\n1,2\n", [], "expected two frames or more, got one"),
        ("frame,id,x\n1,a,0\n1,a,2\n", [], "line 3: expected each point of a frame once, got 'a'"),
        (
            "frame,x\n1,0\n2,\n",
            [],
            "line 3, column 2 ('x'): expected a finite number, got an empty",
        ),
        ("t,x\n1,0\n2,1\n", [], "line 1: expected the columns frame, id (may be left out), 1 to 3"),
        ("frame,x,x\n1,0,0\n", [], "line 1, column 3: expected a new name, got 'x' as in line 1"),
        ("frame,track\n1,0\n2,0\n", [], "expected coordinates with other names than the output"),
        (POINTS, ["--sd", 0], "--sd must be positive, got 0"),
        (POINTS, ["--sd", "1,2,3"], "--sd must be one number or one for each of 2 coordinates"),
        (POINTS, ["--sd", "x"], "--sd must be a number or numbers separated by commas, got 'x'"),
        (POINTS, ["--new", -1], "--new must be positive, got -1"),
        (POINTS, ["--lost", 1], "--lost must be a probability between 0 and 1, got 1"),
        (POINTS, ["--method", "exat"], "did you mean 'exact'?"),
        (POINTS, ["--plot", "o.gif"], "--plot must end in .png, .pdf, .svg, got 'o.gif'"),
    ],
)
def test_mistakes(run, write, content, options, message):
    given = options if "--sd" in options else ["--sd", 1, *options]
    result = run("track", write("p.csv", content), *given)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_the_step_has_to_be_given(run, write):
    result = run("track", write("p.csv", POINTS))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--sd" in result.stderr


def test_the_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Exact, up to the rounding of float32 and of what is printed.
    assert check_page(run, "track.md", error=0.0011) == 1
