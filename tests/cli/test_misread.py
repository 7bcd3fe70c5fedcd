"""Files that look like something else: a note or a refusal, never silence."""

import json

import numpy as np
import pandas as pd
import pytest

# The name of the file, its content, options, and what the note says.
MISREAD = {
    "ranks": ("t.csv", "item,A,B,C\nr1,1,2,3\nr2,2,1,3\nr3,3,1,2\n", [], "--kind costs"),
    "ranks from 0": ("t.csv", "item,A,B,C\nr1,0,1,2\nr2,2,1,0\n", [], "ranks from 0 to 2"),
    "costs": ("t.csv", "item,A,B\nr1,10.5,22\nr2,12,1.2\n", [], "--kind costs if smaller"),
    "costs by name": ("costs.csv", "item,A,B\nr1,-1.5,2\nr2,1,-2\n", [], "speaks of 'cost'"),
    "similarities": ("t.csv", "item,A,B\nr1,.9,.2\nr2,.2,.8\n", [], "--temperature 0.1"),
    "correlations": ("t.csv", "item,A,B\nr1,.9,-.2\nr2,.2,.8\n", [], "as correlations are"),
    "a mask": ("t.csv", "item,A,B\nr1,1,0\nr2,1,1\n", [], "0 or 1, as in a mask"),
    "percentages": ("t.csv", "item,A,B\nr1,90,10\nr2,20,80\n", [], "divide by 100"),
    "percentages that do not add up": ("t.csv", "i,A,B\nr1,90,1\nr2,2,8\n", [], "from 0 to 100"),
    "probabilities": ("t.csv", "item,A,B\nr1,.9,.1\nr2,.2,.8\n", [], "--kind row-probabilities"),
    "probabilities of items": (
        "t.csv",
        "item,A,B,C\nr1,.6,.3,.2\nr2,.4,.7,.8\n",
        [],
        "every column adds up to 1, as probabilities do, but numbers are taken for scores (log "
        "weights, larger is better); exchange rows and columns and use --kind row-probabilities",
    ),
    "probabilities of pairs": (
        "t.csv",
        "item,A,B\nr1,.4,.1\nr2,.2,.3\n",
        [],
        "the whole table adds up to 1, as probabilities do",
    ),
    "percentages of items": (
        "t.csv",
        "item,A,B,C\nr1,60,30,20\nr2,40,70,80\n",
        [],
        "every column adds up to 100, as percentages do",
    ),
    "logarithms to the base of 10": (
        "t.csv",
        "item,A,B\nr1,-0.0458,-1\nr2,-0.699,-0.0969\n",
        [],
        "every row adds up to 1 if numbers are logarithms to the base of 10, but numbers are taken "
        "for scores (log weights, larger is better) to the base of e; use --temperature 0.4343",
    ),
    "a row of sums": (
        "t.csv",
        "item,A,B\nr1,1.5,-2\nr2,2.5,1\nTotal,4,-1\n",
        [],
        "row 'Total' holds the sums of the others, but is taken for an item; leave it out",
    ),
    "a column of sums": (
        "t.csv",
        "item,A,B,C,alle\nr1,1,-2,3,2\nr2,2,1,-4,-1\nr3,0,1,1,2\nr4,1,-1,2,2\n",
        ["--unmatched", "0"],
        "column 'alle' holds the sums of the others, but is taken for a label; leave it out",
    ),
    "distances within a set": (
        "t.csv",
        ",r2,r1,r3\nr1,-2.5,,-3\nr2,,-2.5,-1\nr3,-1,-3,\n",
        [],
        "rows and columns have the same names and numbers, as those of a set with itself",
    ),
    "columns of items as pairs": (
        "t.csv",
        "item,A,B,C\nr1,.6,.3,.2\nr2,.4,.7,.8\n",
        ["--kind", "probabilities"],
        "every column adds up to 1: if it is one distribution, exchange rows and columns and use",
    ),
    "probabilities as log odds": (
        "t.csv",
        "item,A,B\nr1,.9,.2\nr2,.2,.8\n",
        ["--kind", "log-odds"],
        "use --kind probabilities",
    ),
    "distributions as pairs": (
        "t.csv",
        "item,A,B\nr1,.9,.1\nr2,.2,.8\n",
        ["--kind", "probabilities"],
        "this answer would be overconfident",
    ),
    "a scale that makes everything certain": (
        "t.csv",
        "item,A,B\nr1,-900,-5\nr2,-20,-700\n",
        ["--kind", "scores"],
        "every item is certain, because numbers that differ by 895",
    ),
    "no index": ("t.csv", "A,B,C\n1.5,-2,0\n0.5,0,1\n", [], "the first column, 'A', holds numbers"),
    "no index, whole numbers": ("t.csv", "A,B,C\n7,-2,0\n3,0,1\n", [], "taken for the names"),
    "an empty cell": (
        "t.csv",
        "item,A,B\nr1,-2,\nr2,3,1\n",
        [],
        "1 of 4 cells is empty (the first: 'r1', 'B'), so its pair is forbidden",
    ),
    "several empty cells": (
        "t.csv",
        "item,A,B\nr1,-2,\nr2,,1\n",
        ["--kind", "log-odds"],
        "2 of 4 cells are empty (the first: 'r1', 'B'), so their pairs are forbidden",
    ),
    "an empty cell beside those of unmatched items": (
        "t.csv",
        "item,A,none,B\nr1,-2,,\nr2,3,-1,1\n",
        ["--unmatched", "none"],
        "1 of 4 cells is empty (the first: 'r1', 'B'), so its pair is forbidden",
    ),
    "more items than labels": (
        "t.csv",
        "item,A\nr1,-2\nr2,3\n",
        [],
        "2 items and 1 label, so 1 of the items stays unmatched",
    ),
    "a list of numbered pairs": (
        "t.csv",
        "left,right,score\n101,7,2.5\n102,8,-1.5\n",
        [],
        "as a list of numbered pairs does, but the first is taken for the names of items; use "
        "--pairs",
    ),
    "separators at the ends of rows": (
        "t.csv",
        "item,A,B\nr1,-1,2,\nr2,1,-2,\n",
        [],
        "separators at the ends of rows are left out",
    ),
    "points that may separate thousands": (
        "t.csv",
        "item;A;B\nr1;1.200;-900\nr2;-3;1.250\n",
        [],
        "points are taken for decimal marks, so that 1.200 is 1.200, not 1200; leave them out",
    ),
    "commas that may separate thousands": (
        "t.csv",
        "item;A;B\nr1;1,200;-900\nr2;-3;1,250\n",
        [],
        "commas are taken for decimal marks, so that 1,200 is 1.200",
    ),
}


@pytest.mark.parametrize("case", MISREAD)
def test_a_table_that_looks_like_something_else(run, write, case):
    name, content, options, words = MISREAD[case]
    path = write(name, content)
    result = run("match", path, *options)
    assert result.exit_code == 0
    assert result.stderr.count(words) == 1
    assert all(line.startswith("permvi: ") for line in result.stderr.splitlines())
    assert run("match", path, *options, "--quiet").output == ""
    # The note is on standard error and in the object, and what is computed stays the same.
    told = run("match", path, *options, "--json")
    assert told.stderr == result.stderr
    assert any(words in note for note in json.loads(told.stdout)["notes"])


@pytest.mark.parametrize(
    ("content", "options"),
    [
        # Log weights of both signs, names, and numbers that count or are called names.
        ("item,A,B\nr1,-3.5,2\nr2,1,-4\n", []),
        (",A,B\n0,-3.5,2\n1,1,-4\n", []),
        ("id,A,B\n17,-3.5,2\n4,1,-4\n", []),
        # The user has said what the numbers are.
        ("item,A,B\nr1,10.5,22\nr2,12,1.2\n", ["--kind", "costs"]),
        ("item,A,B\nr1,10.5,22\nr2,12,1.2\n", ["--kind", "scores"]),
        ("item,A,B\nr1,.9,.2\nr2,.2,.8\n", ["--temperature", "0.1"]),
        ("item,A,B\nr1,-900,-5\nr2,-20,-700\n", ["--temperature", "1"]),
        ("item,A\nr1,-2\nr2,3\n", ["--unmatched", "0"]),
        # A comma before two digits, or after a zero, separates no thousands.
        ("item;A;B\nr1;-1,200;1,25\nr2;1,3;-2,100\n", []),
        ("item;A;B\nr1;-1,200;0,125\nr2;1,300;-2,100\n", []),
        ("item;A;B\nr1;-1.200;0.125\nr2;1.300;-2.100\n", []),
        ("item,A,B\nr1,-1.200,1.125\nr2,1.300,-2.100\n", []),
        # Natural logarithms of probabilities are scores, and one number says nothing.
        ("item,A,B\nr1,-0.1054,-2.3026\nr2,-1.6094,-0.2231\n", []),
        ("item,A\nr1,1\n", []),
        # Sums of few numbers may be by chance, and the border of unmatched items is no label.
        ("item,A,B\nr1,1.5,-2\nr2,2.5,1\nr3,4,-1\n", ["--unmatched", "0"]),
        ("item,A,B,all\nr1,1,-2,-1\nr2,-2,3,1\n", ["--unmatched", "all"]),
        # Two sets with the same names.
        (",r1,r2,r3\nr1,2,-2,1\nr2,1,3,0\nr3,0,-1,2\n", []),
        ("item,A,B,,\nr1,-1,2,,\nr2,1,-2,,\n", []),
    ],
)
def test_a_table_that_looks_as_it_should(run, write, content, options):
    result = run("match", write("t.csv", content), *options)
    assert (result.exit_code, result.stderr) == (0, "")


def distances(seed, *, sign, shift):
    """Fifteen items near their labels, as text; a negative sign makes scores of distances."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(15, 5))
    items = centers[rng.permutation(15)] + 0.2 * rng.normal(size=(15, 5))
    far = np.linalg.norm(items[:, None] - centers, axis=2)
    labels = [f"L{k}" for k in range(15)]
    return pd.DataFrame(sign * far + shift, [f"r{k}" for k in range(15)], labels).to_csv()


@pytest.mark.parametrize("seed", [1, 2])
def test_which_way_round_a_larger_table_is(run, write, seed):
    # Scores of matches that happen to be positive need no note, costs do, whatever their sign.
    assert run("match", write("t.csv", distances(seed, sign=-1, shift=20))).stderr == ""
    shifted = run("match", write("t.csv", distances(seed, sign=1, shift=-3))).stderr
    for told in (run("match", write("t.csv", distances(seed, sign=1, shift=0))).stderr, shifted):
        assert "the smallest numbers of the items belong to different labels" in told
        assert "--kind costs if smaller is better" in told
    # Numbers that point nowhere could be either.
    noise = np.random.default_rng(seed).gamma(2.0, size=(15, 15))
    frame = pd.DataFrame(noise, [f"r{k}" for k in range(15)], [f"L{k}" for k in range(15)])
    assert "no number is negative" in run("match", write("t.csv", frame.to_csv())).stderr


def test_lists_of_pairs_get_the_same_notes(run, write):
    path = write("t.csv", "item,label,p\nr1,A,.9\nr1,B,.1\nr2,A,.3\nr2,B,.7\n")
    assert "every row adds up to 1" in run("match", "--pairs", path).stderr
    path = write("t.csv", "item,label,c\nr1,A,9\nr1,B,31\nr2,A,3\nr2,B,7\n")
    assert "--kind costs if smaller is better" in run("match", "--pairs", path).stderr


@pytest.mark.parametrize(("distance", "said"), [(3, ""), (1.5, "13 % of right labels")])
def test_a_distance_that_many_right_labels_exceed(run, write, distance, said):
    items, labels = (
        write("items.csv", "name,x,y\ni1,0,0\n"),
        write("labels.csv", "name,x,y\nl1,0,0\n"),
    )
    found = run("match", items, labels, "--scale", "0.1", "--unmatched", distance)
    assert said in found.stderr
    assert ("further away" in found.stderr) == bool(said)


PRIORS = {
    "probabilities": (".9,.1", ".5,.5", [], "every row adds up to 1, as probabilities do"),
    "counts": ("9,1", "4,5", [], "no number is negative"),
    "said to be scores": ("9,1", "4,5", ["--prior-kind", "scores"], ""),
    "said to be probabilities": (".9,.1", ".5,.5", ["--prior-kind", "row-probabilities"], ""),
    "log weights": ("-1,2", ",.5", [], ""),
}


@pytest.mark.parametrize("name", PRIORS)
def test_a_prior_that_looks_like_something_else(run, write, name):
    first, second, options, words = PRIORS[name]
    table = write("t.csv", "item,A,B\nr1,2,-1\nr2,0,1\n")
    prior = write("prior.csv", f"item,A,B\nr1,{first}\nr2,{second}\n")
    told = run("match", table, "--prior", prior, *options).stderr
    assert words in told
    assert ("--prior-kind" in told) == bool(words)
    assert len(told.splitlines()) == bool(words)
    assert run("match", table, "--prior", prior, *options, "--quiet").output == ""


def test_known_pairs_without_a_header_are_refused(run, write):
    table = write("t.csv", "item,A,B\nr1,2,-1\nr2,0,1\n")
    result = run("match", table, "--known", write("k.csv", "r1,A\n"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "line 1: expected a header such as item,label, got the pair 'r1, A'" in result.stderr


def test_the_name_of_a_column_may_speak_of_costs(run, write):
    path = write("t.csv", "left,right,Distance\nr1,A,-2\nr1,B,3\nr2,A,0\nr2,B,5\n")
    told = run("match", "--pairs", path, "--unmatched", "0").stderr
    assert "the name of the column of numbers speaks of 'dist'" in told


def test_one_scale_for_features_of_very_different_spreads(run, write):
    """The mass of a particle beside its coordinates would decide alone."""
    items = write("items.csv", "name,x,mass\na,0,1000\nb,1,3000\n")
    labels = write("labels.csv", "name,mass,x\nc,1100,0\nd,2900,1\n")
    found = run("match", items, labels, "--scale", "1")
    assert "values of 'mass' spread 1,800 times as widely as those of 'x'" in found.stderr
    assert "give one for each feature" in found.stderr
    assert run("match", items, labels, "--scale", "1,100").stderr == ""


def test_whether_records_of_a_list_may_stay_unmatched_is_said(run, write):
    rows = ["r1,A,2", "r1,B,1", "r2,A,-1.5"]
    path = write("t.csv", "\n".join(["item,label,score", *rows]) + "\n")
    assert "every item is taken to have a match in the list" in run("match", "--pairs", path).stderr
    assert run("match", "--pairs", path, "--unmatched", "0").stderr == ""
    # One more column makes it a linkage, in which records may have no match.
    path = write("t.csv", "\n".join(["item,label,score,x", *(f"{row},1" for row in rows)]) + "\n")
    assert "assumed: records may stay unmatched" in run("match", "--pairs", path).stderr


@pytest.mark.parametrize(
    ("row", "is_list"),
    [("r1,Anna,2", True), ("r1,1x,2", False), ("r1,Anna,Bea", False),
     ("r1,NaN,2", False)],
)  # fmt: skip
def test_a_list_of_pairs_that_is_read_as_a_table(run, write, row, is_list):
    result = run("match", write("t.csv", f"item,label,score\n{row}\nr2,Bea,1\n"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "line 2, column 2 ('label'): expected a number" in result.stderr
    assert ("use --pairs" in result.stderr) == is_list


def test_a_table_without_an_index_whose_numbers_repeat_is_refused(run, write):
    result = run("match", write("t.csv", "A,B,C\n0.5,2,0\n0.5,0,1\n"))
    assert result.exit_code == 2
    assert "got '0.5' as in line 2, column 1 before; names come first" in result.stderr


TODAY = """# FILE NAME: 1.soc
# DATA TYPE: soc
# NUMBER ALTERNATIVES: 3
# NUMBER VOTERS: 5
# ALTERNATIVE NAME 1: Ann
# ALTERNATIVE NAME 2: Bob
# ALTERNATIVE NAME 3: Cid
3: 1,2,3
2: 2,1,3
"""
OLD = "3\n1,Ann\n2,Bob\n3,Cid\n5,5,2\n3,1,2,3\n2,2,1,3\n"


def test_a_list_of_numbered_pairs_that_repeats_items_is_refused(run, write):
    result = run("match", write("t.csv", "left,right,score\n101,7,2.5\n101,8,1\n102,7,3\n"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "before; use --pairs if this is a list" in result.stderr


def test_commas_in_other_files_that_may_separate_thousands(run, write):
    said = "commas are taken for decimal marks, so that 1,200 is 1.200"
    scene = write("s.csv", "frame;x;y\n0;1,200;900\n0;300;100\n1;1,250;902\n1;310;99\n")
    assert said in run("track", scene, "--sd", "5").stderr
    assert said in run("rank", write("r.csv", "judge;A;B\nx;1,200;900\ny;800;700\n")).stderr
    items, labels = (write(name, "item;x\nr1;1,200\nr2;900\n") for name in ("i.csv", "l.csv"))
    assert run("match", items, labels, "--scale", "1").stderr.count(said) == 2
    pairs = write("p.csv", "item;label;score\nr1;A;1,200\nr2;B;900\n")
    assert said in run("match", "--pairs", pairs, "--unmatched", "0").stderr


@pytest.mark.parametrize("content", [TODAY, OLD])
def test_files_of_preflib_by_any_name(run, write, content):
    path = write("votes.csv", content)
    result = run("rank", path, "--json")
    assert "read as a file of PrefLib: 5 rankings of 3 items" in result.stderr
    assert [item["item"] for item in json.loads(result.stdout)["items"]][2] == "Cid"
    # As a table of scores it is refused.
    refused = run("match", path)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert ("permvi rank reads files of PrefLib" in refused.stderr) == (content is TODAY)


def test_ratings_that_could_be_ranks(run, write):
    stars = write("stars.csv", "judge,A,B,C,D,E\nx,5,3,1,1,2\ny,4,4,2,1,1\nz,5,3,2,1,2\n")
    assert "read as ratings (a column for each item, larger is better)" in run("rank", stars).stderr
    path = write("r.csv", "judge,A,B,C,D\nx,1,2,2,4\ny,1,2,2,3\nz,1,4,4,4\n")
    assert "use --format ratings if larger is better" in run("rank", path).stderr
    assert "--format ratings" not in run("rank", path, "--format", "ranks").stderr
    assert run("rank", path, "--quiet").output == ""


def test_a_coordinate_that_is_the_same_everywhere(run, write):
    """TrackMate writes a third coordinate of pictures, too: it changes nothing, and is said."""
    points = [(0, 1.0, 2.0), (0, 5.0, 4.0), (1, 1.2, 2.1), (1, 5.1, 3.9), (3, 1.3, 2.0)]
    given = ["--sd", "0.3", "--births", "0.1", "--deaths", "0.1", "--missed", "0.1", "--false", "1"]
    flat = write("flat.csv", "frame,x,y\n" + "".join(f"{t},{x},{y}\n" for t, x, y in points))
    deep = write("d.csv", "frame,x,y,z\n" + "".join(f"{t},{x},{y},7\n" for t, x, y in points))
    told = run("track", deep, *given, "--json")
    assert "z is the same for all points, and not used" in told.stderr
    one, other = json.loads(told.stdout), json.loads(run("track", flat, *given, "--json").stdout)
    assert one["log_evidence"] == pytest.approx(other["log_evidence"])
    for mine, theirs in zip(one["points"], other["points"], strict=True):
        assert mine["probability"] == pytest.approx(theirs["probability"])


def test_columns_that_are_no_places_and_gaps_between_frames(run, write, monkeypatch):
    def stop(*args, **kwargs):
        raise ValueError("after the notes")

    monkeypatch.setattr("permvi.inference.tracks.track", stop)
    rows = ["y,x,mass,frame"]
    rows += [f"{1 + t / 9},{1 + t / 7},{200 + t},{t}" for t in (0, 1, 4)]
    path = write("p.csv", "\n".join(rows))
    note, _ = run("track", path).stderr.splitlines()
    assert "used the columns frame, x, y, ignored mass" in note
    assert "2 frames between the first and the last without points" in note
    _, note, _ = run("track", path, "--coords", "x,y,mass").stderr.splitlines()
    assert "mass is taken for a coordinate" in note
    assert run("track", path, "--quiet").stderr == "permvi: after the notes\n"


@pytest.mark.parametrize(
    ("options", "content", "words"),
    [
        ([], "item,A,B,C\nr1,1,,\nr2,2,,\nr3,1,1,1\n", "got only 'A' for the items 'r1', 'r2'"),
        ([], "item,A,B\nr1,1,\nr2,1,\nr3,1,\n", "got none for label 'B'"),
        (
            ["--pairs"],
            "i,l,p\nr1,A,1\nr2,A,1\nr3,B,1\nr3,C,1\n",
            "only 'A' for the items 'r1', 'r2'",
        ),
    ],
)
def test_an_infeasible_table_names_the_conflict(run, write, options, content, words):
    result = run("match", write("t.csv", content), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr
    assert "--unmatched VALUE" in result.stderr
    done = run("match", write("t.csv", content), *options, "--unmatched", "0", "--quiet")
    assert done.exit_code == 0


def test_a_conflict_made_by_known_pairs(run, write):
    table = write("t.csv", "item,A,B\nr1,1,2\nr2,,3\n")
    known = write("k.csv", "item,label\nr1,B\n")
    result = run("match", table, "--known", known)
    assert "got none for item 'r2'" in result.stderr
