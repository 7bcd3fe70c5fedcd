"""Linkage by ``permvi match --pairs``: the calls it takes, what it prints and what it refuses."""

import json

import pandas as pd
import pytest

from permvi import _cluster

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SPLINK = "unique_id_l,unique_id_r,match_weight,town\nr1,x,3,Bonn\nr1,y,-2,Kiel\nr2,x,2,Bonn\n"


def test_a_table_of_splink(run, write, tmp_path):
    path = write("pairs.csv", SPLINK)
    done = run("match", "--pairs", path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "permvi: assumed: column 'match_weight' has log odds to the base of 2" in done.stderr
    assert run("match", "--pairs", path, "--quiet").output == ""
    assert "computed 1 of 1 components exactly" in done.output
    table = pq.read_table(tmp_path / "out" / "pairs")
    odds = [8.0, 0.25, 4.0]
    total = 1 + sum(odds) + odds[1] * odds[2]
    # r1 = y and r2 = x go together, and no other two pairs do.
    expected = [8 / total, (0.25 + 1) / total, (4 + 1) / total]
    assert table["p_link"].to_pylist() == pytest.approx(expected)
    assert table["town"].to_pylist() == ["Bonn", "Kiel", "Bonn"]
    as_json = run("match", "--pairs", path, "--json")
    assert as_json.stderr == done.stderr
    assert json.loads(as_json.stdout)["expected_matches"] == pytest.approx(sum(expected))


def test_several_files_and_named_columns(run, write, tmp_path):
    head, *rows = "from,to,points,x\na,b,1,0\na,c,2,0\nd,c,0.5,0\n".splitlines()
    one = write("one.csv", "\n".join([head, *rows[:1]]) + "\n")
    two = write("two.csv", "\n".join([head, *rows[1:2]]) + "\n")
    three = write("three.csv", "\n".join([head, *rows[2:]]) + "\n")
    names = ("--item-col", "from", "--label-col", "to", "--score-col", "points")
    done = run("match", "--pairs", one, two, three, *names, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["pairs"] == 3


def test_the_report_shows_the_pairs_to_look_at(run, write, tmp_path):
    path = write("pairs.csv", SPLINK.replace("Bonn", "<b>Bonn"))
    done = run("match", "--pairs", path, "--report", tmp_path / "page.html", "--quiet")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Component 0: 4 records, 3 pairs" in page
    assert "&lt;b&gt;Bonn" in page
    assert "<b>" not in page

    # The head says where the numbers come from.
    assert "pairs.csv</bdi>" in page
    assert "<code>permvi match --pairs" in page


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_all_pairs_with_their_probabilities(run, write, tmp_path, ending):
    path, out = write("pairs.csv", SPLINK.replace("Kiel", "=1+1")), tmp_path / f"p.{ending}"
    done = run("match", "--pairs", path, "--probabilities", out, "--quiet")
    assert (done.exit_code, done.output) == (0, "")
    found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    odds = [8.0, 0.25, 4.0]
    total = 1 + sum(odds) + odds[1] * odds[2]
    expected = [8 / total, (0.25 + 1) / total, (4 + 1) / total]
    assert found["p_link"].tolist() == pytest.approx(expected)
    # A spreadsheet must not run what a file holds; Parquet is not read by one.
    assert found["town"][1] == ("'=1+1" if ending == "csv" else "=1+1")
    if ending == "csv":
        run("match", "--pairs", path, "--probabilities", out, "--raw-csv", "--quiet")
        assert pd.read_csv(out)["town"][1] == "=1+1"


def test_small_lists_are_shown_as_before(run, write):
    done = run("match", write("pairs.csv", "item,label,score\nr1,x,1\nr2,y,2\n"), "--pairs")
    assert "Which label is it?" in done.output


@pytest.mark.parametrize(("options", "words"), [
    (("--one-to-many", "--dedupe"), "--one-to-many must come alone"),
    (("--score-col", "points"), "expected a column 'points' (--score-col), got 'unique_id_l'"),
    (("--threshold", "2"), "threshold must be a probability"),
    (("--mask", "pairs.csv", "--dedupe"), "--mask must not be given"),
    (("--kind", "row-probabilities"), "row-probabilities"),
    (("--cluster", "tcp://127.0.0.1:9"), "address of a running Dask scheduler"),
])  # fmt: skip
def test_bad_options_end_with_status_2(run, write, tmp_path, options, words, monkeypatch):
    monkeypatch.setattr(_cluster, "_PATIENCE", "1s")
    path = write("pairs.csv", SPLINK)
    done = run("match", "--pairs", path, "--out", tmp_path / "out", *options)
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


BAD_FILES = {
    "missing ids": (
        "unique_id_l,match_weight,town\nr1,3,Bonn\n",
        "expected columns of left and right records such as 'unique_id_l' and 'unique_id_r', got "
        "'unique_id_l', 'match_weight', 'town'",
    ),
    "unknown ids and columns": (
        "from,to,match_weight,town\nr1,x,3,Bonn\n",
        "got 'from', 'to', 'match_weight', 'town'; name them with --item-col and --label-col",
    ),
    "an id in place of the score": (
        "unique_id_l,town,match_weight\nr1,Bonn,3\n",
        "expected columns of left and right records",
    ),
    "missing scores": (
        "unique_id_l,unique_id_r,town,street\nr1,x,Bonn,Am Hof\n",
        "got 'unique_id_l', 'unique_id_r', 'town', 'street'",
    ),
    "NaN": (SPLINK.replace("-2", "nan"), "row 2: expected a number in column 'match_weight'"),
    "nothing": (SPLINK.replace("-2", ""), "row 2: expected a number in column 'match_weight'"),
    "text": (SPLINK.replace("-2", "high"), "row 2: expected a number in column 'match_weight'"),
    "a pair twice": (SPLINK + "r1,x,3,Kiel\n", "expected each pair once, got 'r1' and 'x' again"),
    "both sides": (SPLINK + "x,z,3,Kiel\n", "expected a record on one side only, got 'x' on both"),
    "a missing id": (SPLINK + ",z,3,Kiel\n", "row 4: expected an id in column 'unique_id_l'"),
    "an empty file": ("", "expected a table of pairs, got an empty file"),
    "a header alone": (SPLINK.splitlines()[0] + "\n", "expected at least one pair, got none"),
    "rows of two lengths": (SPLINK + "r4,y\n", "cannot be read"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_end_with_status_2_and_leave_nothing(run, write, tmp_path, name):
    text, words = BAD_FILES[name]
    path = write("pairs.csv", text)
    # Ids on both sides are allowed in all cases but one.
    option = "--one-to-one" if name == "both sides" else "--separate-ids"
    refused(run("match", "--pairs", path, option, "--out", tmp_path / "out"), words, tmp_path)


@pytest.mark.parametrize("kept", [0.3, 0.9])
def test_truncated_files_end_with_status_2_and_leave_nothing(run, write, tmp_path, kept):
    table = pa.table({"unique_id_l": ["a", "b"], "unique_id_r": ["x", "y"], "p": [0.5, 0.25]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    whole = sink.getvalue().to_pybytes()
    path = write("pairs.parquet", whole[: int(kept * len(whole))])
    refused(run("match", "--pairs", path, "--out", tmp_path / "out"), "cannot be read", tmp_path)


def refused(done, words, folder):
    """Check that a command has said one sentence, and written nothing."""
    assert done.exit_code == 2
    assert words in done.output
    assert len(done.output.strip().splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == [
        path.name for path in folder.glob("pairs.*")
    ]


def test_options_of_linkage_need_pairs(run, write):
    done = run("match", write("table.csv", "item,x\na,1\n"), "--dedupe")
    assert done.exit_code == 2
    assert "--dedupe must go with --pairs" in done.output
