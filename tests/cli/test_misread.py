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
