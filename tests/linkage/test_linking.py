"""From tables of pairs to tables of answers: formats, rules, resuming, and what is refused."""

import gzip
import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

import permvi as pv
from permvi.linkage import graph as graphs
from permvi.linkage import linking, run, sources
from tests.linkage.oracle import enumerate_graph
from tests.linkage.tables import contents, many_pairs

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SMALL = {
    "unique_id_l": ["r1", "r1", "r2", "r3"],
    "unique_id_r": ["x", "y", "x", "y"],
    "match_weight": [3.0, -2.0, 2.0, 0.5],
    "note": ["p", "q", "r", "s"],
}


def exact(columns):
    names = [*columns["unique_id_l"], *columns["unique_id_r"]]
    _, codes = np.unique(names, return_inverse=True)
    half = len(names) // 2
    weights = np.log(2.0) * np.array(columns["match_weight"])
    return enumerate_graph(codes[:half], codes[half:], weights)[0]


def csv_text(columns):
    rows = zip(*columns.values(), strict=True)
    return "\n".join(",".join(map(str, row)) for row in [tuple(columns), *rows]) + "\n"


def files_of(tmp_path, columns):
    table = pa.table(columns)
    text = csv_text(columns).encode()
    pq.write_table(table, tmp_path / "pairs.parquet")
    with pa.ipc.new_file(str(tmp_path / "pairs.arrow"), table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "pairs.csv").write_bytes(text)
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress(text))
    with pa.CompressedOutputStream(str(tmp_path / "pairs.csv.zst"), "zstd") as sink:
        sink.write(text)
    names = ("parquet", "arrow", "csv", "csv.gz", "csv.zst")
    return [tmp_path / f"pairs.{name}" for name in names]


def test_all_formats_give_the_same_answer(tmp_path):
    expected = exact(SMALL)
    for path in files_of(tmp_path, SMALL):
        found = pv.match_pairs(path).table()
        np.testing.assert_allclose(found["p_link"].to_numpy(), expected, atol=1e-12)
        for name, values in SMALL.items():
            assert found[name].to_pylist() == values


def test_what_the_tables_say(tmp_path):
    found = pv.match_pairs(SMALL, out=tmp_path / "out")
    p = exact(SMALL)
    weights = np.log(2.0) * np.array(SMALL["match_weight"])
    pairs = found.table()
    np.testing.assert_allclose(pairs["p_pair"].to_numpy(), 1 / (1 + np.exp(-weights)), atol=1e-12)
    assert pairs["best_link"].to_pylist() == [True, False, False, True]
    assert set(pairs["verdict"].to_pylist()) == {"trust"}
    left, right = found.table("left"), found.table("right")
    np.testing.assert_allclose(
        left["p_unmatched"].to_numpy(), 1 - np.array([p[0] + p[1], p[2], p[3]]), atol=1e-12
    )
    assert left["best_match"].to_pylist() == ["x", None, "y"]
    assert right["best_match"].to_pylist() == ["r1", "r3"]
    assert found.summary["expected_matches"] == pytest.approx(p.sum())
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == found.summary
    assert any("base of 2" in text for text in found.assumptions)
    assert sorted(contents(tmp_path / "out")) == [
        "components/part-00000.parquet", "left/part-00000.parquet", "pairs/part-00000.parquet",
        "review.csv", "right/part-00000.parquet", "run.json", "summary.json", "thresholds.csv",
    ]  # fmt: skip


def test_ids_keep_their_types(tmp_path):
    columns = SMALL | {"unique_id_l": [7, 7, 8, 9]}
    assert pv.match_pairs(columns).table("left")["unique_id_l"].to_pylist() == [7, 8, 9]
    path = tmp_path / "pairs.csv"
    path.write_text(csv_text(columns | {"unique_id_r": ["01", "02", "01", "02"]}))
    found = pv.match_pairs(path)
    assert found.table()["unique_id_l"].type == pa.int64()
    assert found.table("right")["unique_id_r"].to_pylist() == ["01", "02"]


def test_decimal_commas_are_read_and_mentioned(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("unique_id_l;unique_id_r;log_odds;town\na;b;1,5;Bonn\nc;d;-2;Kiel\n")
    found = pv.match_pairs(path)
    expected = 1 / (1 + np.exp(-np.array([1.5, -2.0])))
    np.testing.assert_allclose(found.table()["p_link"].to_numpy(), expected, atol=1e-15)
    assert any("decimal commas" in text for text in found.assumptions)


def test_several_files_are_one_table(tmp_path, rng):
    columns = many_pairs(rng, 200)
    whole = pv.match_pairs(columns).table()
    ends = [0, 70, 71, len(columns["unique_id_l"])]
    for k, (a, b) in enumerate(pairwise(ends)):
        pq.write_table(pa.table(columns).slice(a, b - a), tmp_path / f"{k}.parquet")
    found = pv.match_pairs(sorted(tmp_path.glob("*.parquet"))).table()
    assert found.equals(whole)
    assert pv.match_pairs(tmp_path).table().equals(whole)


def test_parts_are_written_in_order(tmp_path, rng, monkeypatch):
    columns = many_pairs(rng, 300)
    whole = pv.match_pairs(columns).table()
    for module in (sources, linking.tables):
        monkeypatch.setattr(module, "PART_ROWS", 32)
    found = pv.match_pairs(columns, out=tmp_path / "out")
    assert found.table().equals(whole)
    assert len(list((tmp_path / "out" / "pairs").iterdir())) == -(-len(whole) // 32)


@pytest.mark.parametrize("kind", ["probabilities", "log-odds", "log2-odds", "costs"])
def test_kinds_of_scores(kind):
    p = np.array([0.9, 0.2, 0.8, 0.6])
    odds = np.log(p / (1 - p))
    scores = {"probabilities": p, "log-odds": odds, "log2-odds": odds / np.log(2), "costs": -odds}
    columns = {"a": ["r1", "r1", "r2", "r3"], "b": ["x", "y", "x", "y"], "s": scores[kind]}
    found = pv.match_pairs(columns, kind=kind).table()
    # The example of docs/match.md.
    expected = [0.6206896551724138, 0.03448275862068966, 0.30344827586206896, 0.5793103448275863]
    np.testing.assert_allclose(found["p_link"].to_numpy(), expected, atol=1e-12)


def test_it_agrees_with_the_matching_of_a_list():
    i, j = np.array([0, 0, 1, 2]), np.array([0, 1, 0, 1])
    weights = np.array(SMALL["match_weight"]) * np.log(2)
    model = pv.models.SparseMatching(i, j, weights, (3, 2), row_unmatched=0.0, col_unmatched=0.0)
    marginals = pv.fit(model).marginals
    np.testing.assert_allclose(pv.match_pairs(SMALL).table()["p_link"], marginals[i, j], atol=1e-12)


def test_duplicates_within_one_table(rng):
    columns = {
        "id_l": ["a", "a", "b", "c"],
        "id_r": ["b", "c", "c", "d"],
        "log_odds": [2.0, 1.0, 0.5, -1.0],
    }
    p = enumerate_graph([0, 0, 1, 2], [1, 2, 2, 3], columns["log_odds"])[0]
    found = pv.match_pairs(columns, rule="dedupe")
    np.testing.assert_allclose(found.table()["p_link"].to_numpy(), p, atol=1e-12)
    records = found.table("records")
    assert records["id_l"].to_pylist() == ["a", "b", "c", "d"]
    np.testing.assert_allclose(
        records["p_unmatched"].to_numpy(),
        1 - np.array([p[0] + p[1], p[0] + p[2], p[1] + p[2] + p[3], p[3]]),
        atol=1e-12,
    )


def test_one_to_many_lets_left_records_have_several(rng):
    found = pv.match_pairs(SMALL, rule="one-to-many")
    odds = 2.0 ** np.array(SMALL["match_weight"])
    x, y = 1 + odds[0] + odds[2], 1 + odds[1] + odds[3]
    expected = np.array([odds[0] / x, odds[1] / y, odds[2] / x, odds[3] / y])
    np.testing.assert_allclose(found.table()["p_link"].to_numpy(), expected, atol=1e-12)
    alone = found.table("left")["p_unmatched"].to_numpy()
    assert alone[0] == pytest.approx((1 - expected[0]) * (1 - expected[1]))


def test_a_threshold_leaves_pairs_out():
    found = pv.match_pairs(SMALL, threshold=0.5)
    assert found.table()["note"].to_pylist() == ["p", "r", "s"]
    kept = {name: [values[k] for k in (0, 2, 3)] for name, values in SMALL.items()}
    np.testing.assert_allclose(found.table()["p_link"].to_numpy(), exact(kept), atol=1e-12)
    assert any("1 of 4 pairs" in text for text in found.assumptions)


def test_tables_of_splink_with_their_names():
    columns = SMALL | {"unique_id_r": ["r1", "y", "r1", "y"]}
    with pytest.raises(ValueError, match="'r1' on both"):
        pv.match_pairs(columns)
    named = columns | {"source_dataset_l": ["a"] * 4, "source_dataset_r": ["b"] * 4}
    np.testing.assert_allclose(
        pv.match_pairs(named).table()["p_link"].to_numpy(), exact(SMALL), atol=1e-12
    )
    separate = pv.match_pairs(columns, separate_ids=True)
    np.testing.assert_allclose(separate.table()["p_link"].to_numpy(), exact(SMALL), atol=1e-12)
    several = columns | {"source_dataset_l": ["a"] * 4, "source_dataset_r": ["b", "c", "b", "b"]}
    assert pv.match_pairs(several).table("right").num_rows == 3


def test_weights_and_probabilities_that_contradict_each_other():
    p = 1 / (1 + 2.0 ** -np.array(SMALL["match_weight"]))
    pv.match_pairs(SMALL | {"match_probability": p})
    with pytest.raises(ValueError, match="row 2: expected match_weight and match_probability"):
        pv.match_pairs(SMALL | {"match_probability": [p[0], 0.9, p[2], p[3]]})


BAD = {
    "NaN": (SMALL | {"match_weight": [1.0, np.nan, 2.0, 3.0]}, "row 2: expected a number"),
    "infinite": (SMALL | {"match_weight": [1.0, np.inf, 2.0, 3.0]}, "row 2: expected a finite"),
    "a missing id": (SMALL | {"unique_id_r": ["x", None, "x", "y"]}, "row 2: expected an id"),
    "a pair twice": (SMALL | {"unique_id_r": ["x", "x", "x", "y"]}, "'r1' and 'x' again"),
    "both sides": (SMALL | {"unique_id_r": ["x", "y", "r3", "y"]}, "'r3' on both"),
    "no rows": ({k: pa.array(v[:0]) for k, v in SMALL.items()}, "at least one pair, got none"),
    "no ids": ({"a": [1], "b": [2], "c": [3], "d": [4]}, "got 'a', 'b', 'c', 'd'"),
    "no score": ({"id_l": [1], "id_r": [2], "c": [3], "d": [4]}, "a column of scores"),
    "a text": (SMALL | {"match_weight": ["1", "2", "many", "3"]}, "row 3: expected a number"),
    "no numbers": (SMALL | {"match_weight": [[1], [2], [3], [4]]}, "expected numbers in column"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_are_refused_and_leave_nothing(name, tmp_path):
    columns, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        pv.match_pairs(columns, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_percentages_and_self_pairs_are_refused():
    with pytest.raises(ValueError, match="divide percentages by 100"):
        pv.match_pairs(SMALL, kind="probabilities", score_col="match_weight")
    with pytest.raises(ValueError, match="'a' with itself"):
        pv.match_pairs({"a": ["a"], "b": ["a"], "score": [1.0]}, rule="dedupe")
    with pytest.raises(ValueError, match="'a' and 'b' again"):
        pv.match_pairs({"a": ["a", "b"], "b": ["b", "a"], "score": [1.0, 2.0]}, rule="dedupe")


@pytest.mark.parametrize(("scores", "words"), [
    ([0.1, 0.9, 0.5, 0.7], "between 0 and 1"),
    ([10.0, 95.0, 50.0, 70.0], "like percentages"),
    ([0.1, 9.0, 3.0, 0.7], "costs or distances"),
])  # fmt: skip
def test_scores_that_look_like_something_else_are_mentioned(scores, words):
    found = pv.match_pairs({"a": [1, 1, 2, 3], "b": ["x", "y", "x", "y"], "score": scores})
    assert any(words in text for text in found.assumptions)


def test_a_killed_run_resumes_with_the_same_bytes(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(graphs, "_LEAST_COST", 60)
    columns = many_pairs(rng, 400)
    pv.match_pairs(columns, out=tmp_path / "whole")
    calls = []

    def solve_some(task, real=run.solve):
        calls.append(task.number)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(run, "solve", solve_some)
    with pytest.raises(KeyboardInterrupt):
        pv.match_pairs(columns, out=tmp_path / "out")
    assert not (tmp_path / "out" / "pairs").exists()
    work = tmp_path / "out" / ".work"
    kept = {int(path.stem[-5:]) for path in work.glob("answer-*.parquet")}
    assert kept
    assert kept < set(calls)
    # A kill may leave a half-written temporary file.
    (work / ".answer.1.2.tmp").write_bytes(b"half")
    before = len(calls)
    pv.match_pairs(columns, out=tmp_path / "out")
    assert sorted(calls[before:]) == sorted(set(range(max(calls) + 1)) - kept)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_folder_of_something_else_is_left_alone(tmp_path, rng):
    out = tmp_path / "out"
    pv.match_pairs(SMALL, out=out)
    before = contents(out)
    with pytest.raises(ValueError, match="results of other pairs or settings"):
        pv.match_pairs(SMALL, out=out, rule="one-to-many")
    assert contents(out) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match=r"thesis\.txt"):
        pv.match_pairs(SMALL, out=tmp_path / "mine")
    with pytest.raises(ValueError, match="got the file"):
        pv.match_pairs(SMALL, out=tmp_path / "mine" / "thesis.txt")


def test_a_truncated_file_and_an_empty_one(tmp_path):
    whole, *_ = files_of(tmp_path, SMALL)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-40])
    empty = tmp_path / "empty.csv"
    empty.write_bytes(b"")
    for path, words in ((cut, "cannot be read"), (empty, "got an empty file")):
        with pytest.raises(ValueError, match=words):
            pv.match_pairs(path, out=tmp_path / "out")
        assert not (tmp_path / "out").exists()
    with pytest.raises(FileNotFoundError, match="no such file"):
        pv.match_pairs(tmp_path / "missing.parquet")


def test_a_full_disk_leaves_nothing_half_written(tmp_path, rng):
    path = tmp_path / "pairs.parquet"
    pq.write_table(pa.table(many_pairs(rng, 3000)), path)
    out = tmp_path / "out"
    # The limit is set in the new process: a fork of this one, which may run JAX, is unsafe.
    code = (
        "import resource, sys; from permvi.cli import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        f"sys.argv = ['permvi', 'match', '--pairs', {str(path)!r}, '--out', {str(out)!r}];"
        "main()"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.rglob("*.tmp"))
    # What is kept are whole answers, for the next try.
    kept = {path.name for path in out.rglob("*") if path.is_file()}
    assert {name for name in kept if not name.startswith("answer-")} <= {"lock", "run.json"}
