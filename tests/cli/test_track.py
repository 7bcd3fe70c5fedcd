"""``permvi track``: files as people have them, what is written and shown, and mistakes."""

import csv
import json

import numpy as np
import pytest

import permvi as pv
from tests.cli.pages import check_page

# Two particles; the second is missed in frame 2.
PLACES = [(0, 0.0, 0.0), (0, 9.0, 5.0), (1, 0.1, 0.1), (1, 9.1, 5.2), (2, 0.0, 0.2)]
PLACES += [(3, 0.2, 0.1), (3, 9.0, 5.1)]
RATES = ["--births", 0.1, "--deaths", 0.02, "--missed", 0.1, "--false", 0.1]
GIVEN = ["--sd", 0.3, *RATES]
TRACKS = [[0, 2, 4, 5], [1, 3, 6]]

PLAIN = "\n".join(["frame,x,y", *(f"{t},{x},{y}" for t, x, y in PLACES)])
TRACKPY = "\n".join(
    [
        ",y,x,mass,size,frame,particle",
        *(f"{k},{y},{x},{9 - k},2.5,{t},{k}" for k, (t, x, y) in enumerate(PLACES)),
    ]
)
TRACKMATE = "\n".join(
    [
        "LABEL,ID,TRACK_ID,QUALITY,POSITION_X,POSITION_Y,POSITION_T,FRAME",
        "Label,Spot ID,Track ID,Quality,X,Y,T,Frame",
        "Label,Spot ID,Track ID,Quality,X,Y,T,Frame",
        ",,,(quality),(micron),(micron),(sec),",
        *(f"ID{k},{k},,1.0,{x},{y},{0.5 * t},{t}" for k, (t, x, y) in enumerate(PLACES)),
    ]
)
SECONDS = "\n".join(
    ["x;y;t", *(f"{x};{y};{0.5 * t}".replace(".", ",") for t, x, y in PLACES[::-1])]
)
TWICE = "\n".join(["frame,x,y,frame", *(f"{t},{x},{y},{t}" for t, x, y in PLACES)])
# ThunderSTORM's columns, and a row of units.
UNITS = "\n".join(
    ["frame,x [nm],y (nm),sigma [nm]", ",nm,nm,nm", *(f"{t},{x},{y},9" for t, x, y in PLACES)]
)
NAMED = "\n".join(["when,u,v,signal", *(f"{t},{x},{y},3" for t, x, y in PLACES)])


@pytest.fixture
def tracked(run, write):
    def run_track(content, *options):
        result = run("track", write("p.csv", content), *options, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout), result.stderr

    return run_track


@pytest.mark.parametrize(
    ("content", "options", "note"),
    [
        (PLAIN, [], ""),
        (
            TRACKPY,
            [],
            "used the columns frame, x, y, particle, ignored mass, size; column particle",
        ),
        (TRACKMATE, [], "ignored LABEL, TRACK_ID, QUALITY, POSITION_T; skipped 3 rows of titles"),
        (TWICE, [], "column frame is there twice, with the same values"),
        (SECONDS, [], "times are not whole numbers, so a step is their least gap, 0.5"),
        (UNITS, [], "ignored sigma [nm]; skipped a row of titles below the header"),
        (f"# a movie\n# of cells; cropped\n{PLAIN}", [], "skipped 2 lines that begin with #"),
        (f"# {PLAIN}", [], ""),
        (NAMED, ["--frame-col", "when", "--coords", "u,v"], "used the columns when, u, v, ignored"),
    ],
    ids=["plain", "trackpy", "trackmate", "twice", "seconds", "units", "comments", "hash", "named"],
)
def test_columns_are_found_by_name(tracked, content, options, note):
    found, notes = tracked(content, *GIVEN, *options)
    assert note in notes
    assert len(notes.splitlines()) == bool(note)
    assert (found["method"], found["verdict"]) == ("exact", "trust")
    assert sorted(len(track["points"]) for track in found["tracks"]) == [3, 4]
    long = max(found["tracks"], key=lambda track: len(track["points"]))
    assert [float(point["frame"].replace(",", ".")) for point in long["points"]] == pytest.approx(
        np.arange(4) * (0.5 if content == SECONDS else 1)
    )


def test_the_command_gives_the_numbers_of_the_function(tracked):
    found, _ = tracked(PLAIN, *GIVEN)
    frames = [[(x, y) for s, x, y in PLACES if s == t] for t in range(4)]
    expected = pv.track(frames, 0.3, births=0.1, deaths=0.02, missed=0.1, false=0.1)
    assert found["points"] == expected.rows()
    assert found["log_evidence"] == pytest.approx(expected.log_evidence)
    assert found["parameters"]["missed"] == {"mean": 0.1, "sd": 0.0}


def test_points_that_are_listed_twice_are_said(tracked):
    _, notes = tracked("frame,x\n0,0\n0,5\n0,5\n1,0\n1,5\n", *GIVEN)
    assert "1 point is where another of the same frame is" in notes


def test_steps_over_frames_that_are_not_there_are_wider(tracked):
    near, far = "frame,x\n0,0\n1,3\n", "frame,x\n0,0\n9,3\n"
    options = ["--sd", 1, *RATES, "--volume", 50, "--memory", 0]
    (step, _), (leap, notes) = tracked(near, *options), tracked(far, *options)
    assert "8 frames between the first and the last without points" in notes
    chances = [found["points"][1]["p_new"] for found in (step, leap)]
    seen = [0.9 * 0.98**g * np.exp(-4.5 / g) / np.sqrt(2 * np.pi * g) for g in (1, 9)]
    first, later, clutter = 1.0, 0.1, 0.1
    for p, g, density in zip(chances, (1, 9), seen, strict=True):
        ended = 1 - 0.9 * 0.98**g
        apart = (first * ended + clutter) * (later * g + clutter) / 50
        assert p == pytest.approx(apart / (apart + first * density), abs=1e-9)


@pytest.mark.parametrize(
    ("layout", "header"),
    [
        ("trackpy", ["frame", "x", "y", "particle", "probability", "p_false"]),
        ("napari", ["id", "t", "y", "x"]),
        (
            "trackmate",
            [
                "LABEL",
                "ID",
                "TRACK_ID",
                "QUALITY",
                "POSITION_X",
                "POSITION_Y",
                "POSITION_T",
                "FRAME",
            ],
        ),
    ],
)
def test_layouts_for_other_programs(run, write, tmp_path, layout, header):
    target = tmp_path / "o.csv"
    result = run("track", write("p.csv", PLAIN), *GIVEN, "--csv", target, "--layout", layout, "-q")
    assert (result.exit_code, result.output) == (0, "")
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == header
    assert len(rows) == len(PLACES)
    key = {"trackpy": "particle", "napari": "id", "trackmate": "TRACK_ID"}[layout]
    names = [row[key] for row in rows]
    assert len(set(names)) == 2
    if layout == "napari":
        assert [float(row["t"]) for row in rows] == [0, 1, 2, 3, 0, 1, 3]
    else:
        assert [[k for k, name in enumerate(names) if name == own] for own in "01"] == TRACKS


def test_the_files_and_what_is_shown(run, write, tmp_path):
    names = {"--csv": "o.csv", "--links": "l.csv", "--plot": "o.png", "--report": "o.html"}
    written = [word for option, name in names.items() for word in (option, tmp_path / name)]
    result = run("track", write("p.csv", PLAIN), *GIVEN, *written)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Tracks; p is the probability that all of its links are right")
    assert "verdict: trust (computed exactly from" in result.stdout
    with (tmp_path / "l.csv").open(newline="") as file:
        links = {
            (row["frame"], row["id"], row["next_frame"], row["next_id"])
            for row in csv.DictReader(file)
        }
    assert ("1", "2", "3", "2") in links
    page = (tmp_path / "o.html").read_text()
    assert "Tracks of p.csv" in page
    assert page.count("<path") == 5
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


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
        (
            "frame,x\n1,0\n2,nan\n",
            [],
            "line 3, column 2 ('x'): expected a finite number, got 'nan'.",
        ),
        (
            "frame,x\n1,0\n2,1\nb,0\n",
            [],
            "line 4, column 1 ('frame'): expected a number as in most rows, got 'b'",
        ),
        (
            "frame,x,frame\n1,0,1\n2,1,3\n",
            [],
            "line 3: expected the same in both columns 'frame', got '2' and '3'",
        ),
        (POINTS, ["--walls", "boxes"], "--walls must be one of 'auto', 'box', 'none'"),
        ("frame,x\n1,0\n2,b\n", [], "line 3, column 2 ('x'): expected a number, got 'b'"),
        ("when,x\n1,0\n2,1\n", [], "line 1: expected a column of frames called frame, t or POSIT"),
        ("frame,mass\n1,0\n2,1\n", [], "expected one to three coordinates called x, y, z or POSI"),
        ("frame,x,x\n1,0,0\n", [], "expected one column 'x' for a coordinate, got 2 of them"),
        (POINTS, ["--coords", "x,w"], "expected one column 'w' for a coordinate, got none"),
        (POINTS, ["--frame-col", "T"], "expected one column 'T' for the frames, got none"),
        (POINTS, ["--sd", 0], "--sd must be positive, got 0"),
        (POINTS, ["--sd", "1,2,3"], "--sd must be one number or one for each of 2 coordinates"),
        (POINTS, ["--sd", "x"], "--sd must be a number or infer, got 'x'"),
        (POINTS, ["--missed", 1], "missed must be a probability from 0 to below 1, got 1"),
        (POINTS, ["--motion", "fly"], "--motion must be one of 'auto', 'walk', 'velocity'"),
        (POINTS, ["--layout", "nap"], "did you mean 'napari'?"),
        (POINTS, ["--plot", "o.gif"], "--plot must end in .png, .pdf, .svg, got 'o.gif'"),
    ],
)
def test_mistakes(run, write, content, options, message):
    result = run("track", write("p.csv", content), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_the_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Means over draws, up to what is printed of them.
    assert check_page(run, "track.md", error=0.03) == 1
