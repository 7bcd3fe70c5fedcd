"""Compressed files, spreadsheets and arrays are read like CSV."""

import gzip
import io

import numpy as np
import pandas as pd
import pytest

from permvi._cli.csv_tables import read_list, read_records, read_table
from permvi._cli.track_files import read_scene
from permvi.models import Rankings

FRAME = pd.DataFrame(
    [[1.25, -2.0, np.nan], [1e-7, 3, 1234567.875]], index=["r1", "r2"], columns=["A", "B", "C"]
)


def write_npz(path, **names):
    np.savez(path, scores=FRAME.to_numpy(), **names)


WRITERS = {
    "t.csv.gz": lambda path: FRAME.to_csv(path),
    "t.tsv": lambda path: FRAME.to_csv(path, sep="\t"),
    "t.parquet": lambda path: FRAME.to_parquet(path),
    "u.parquet": lambda path: FRAME.rename_axis("item").reset_index().to_parquet(path),
    "t.xlsx": lambda path: FRAME.to_excel(path),
    "t.npz": lambda path: write_npz(
        path, items=FRAME.index.to_numpy(str), labels=FRAME.columns.to_numpy(str)
    ),
    # What a file holds is told by its bytes, not by its name.
    "t.csv": lambda path: FRAME.to_excel(path, engine="openpyxl"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_tables_are_the_same_from_every_format(tmp_path, name):
    path = tmp_path / name
    if name == "t.csv":
        FRAME.to_excel(tmp_path / "t.xlsx")
        (tmp_path / "t.xlsx").rename(path)
    else:
        WRITERS[name](path)
    table = read_table(path)
    assert (table.rows, table.cols) == (("r1", "r2"), ("A", "B", "C"))
    np.testing.assert_array_equal(table.values, FRAME.to_numpy())


def test_arrays_without_names_are_counted_from_0(tmp_path):
    np.save(tmp_path / "t.npy", FRAME.to_numpy())
    table = read_table(tmp_path / "t.npy")
    assert (table.rows, table.cols) == (("0", "1"), ("0", "1", "2"))
    np.testing.assert_array_equal(table.values, FRAME.to_numpy())
    np.savez(tmp_path / "t.npz", FRAME.to_numpy())
    np.testing.assert_array_equal(read_table(tmp_path / "t.npz").values, FRAME.to_numpy())


def test_all_readers_take_all_formats(tmp_path):
    pairs = pd.DataFrame({"item": ["a", "b"], "label": ["x", "x"], "score": [0.5, -1.0]})
    pairs.to_parquet(tmp_path / "p.parquet")
    found = read_list(tmp_path / "p.parquet")
    assert (found.rows, found.cols, found.values.tolist()) == (("a", "b"), ("x",), [0.5, -1.0])
    points = np.array(
        [(0, 1.5, 2.0), (0, 4.0, 4.0), (1, 1.25, 2.5)],
        dtype=[("frame", int), ("x", float), ("y", float)],
    )
    np.save(tmp_path / "p.npy", points)
    scene, notes = read_scene(tmp_path / "p.npy")
    assert (scene.frame.tolist(), notes) == ([0, 0, 1], [])
    np.testing.assert_array_equal(scene.points[:, 0], points["x"])
    votes = pd.DataFrame({"1st": ["A", "A"], "2nd": ["B", "B"]})
    votes.to_excel(tmp_path / "v.xlsx", index=False)
    assert Rankings.read(tmp_path / "v.xlsx").items == ("A", "B")
    packed = gzip.compress(b"3\n1,A\n2,B\n3,C\n2,2,1\n2,1,2,3\n", mtime=0)
    (tmp_path / "v.soc.gz").write_bytes(packed)
    assert Rankings.read(tmp_path / "v.soc.gz").items == ("A", "B", "C")


def test_which_of_several_tables_is_read_is_said(tmp_path):
    path = tmp_path / "t.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame().to_excel(book, sheet_name="Sheet1", index=False, header=False)
        FRAME.to_excel(book, sheet_name="scores")
        pd.DataFrame({"a": []}).to_excel(book, sheet_name="remarks")
    table = read_table(path)
    np.testing.assert_array_equal(table.values, FRAME.to_numpy())
    assert table.notes == ["of 2 sheets 'scores' is read, not 'remarks'"]
    # Who would not pass the note on refuses the file.
    with pytest.raises(ValueError, match=r"expected one table, got several \(of 2 sheets"):
        read_records(path, ("item",), numbers=(3, 3))
    frames = pd.DataFrame({"frame": [0, 1], "x": [1.0, 2.0], "y": [3.0, 4.0]})
    votes = pd.DataFrame({"1st": ["A", "A"], "2nd": ["B", "B"]})
    pairs = pd.DataFrame({"item": ["a"], "label": ["x"], "score": [0.5]})
    for held, read in (
        (frames, lambda: " ".join(read_scene(path)[1])),
        (votes, lambda: Rankings.read(path).note),
        (pairs, lambda: " ".join(read_list(path).notes)),
    ):
        with pd.ExcelWriter(path) as book:
            held.to_excel(book, sheet_name="held", index=False)
            held.to_excel(book, sheet_name="other", index=False)
        assert "of 2 sheets 'held' is read, not 'other'" in read()
    write_npz(tmp_path / "t.npz", mask=np.ones((2, 3)), number=np.array(3))
    assert read_table(tmp_path / "t.npz").notes == ["of 2 tables 'scores' is read, not 'mask'"]


def broken_zip():
    file = io.BytesIO()
    np.savez(file, np.eye(2))
    return file.getvalue()[:-30]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xd0\xcf\x11\xe0" + bytes(100), "got an old Excel file; save it as .xlsx or .csv"),
        (gzip.compress(b"item,A\n", mtime=0)[:-6], "expected a whole gzip file, got a damaged one"),
        (b"PAR1" + bytes(60), "got a damaged one"),
        (broken_zip(), "got a damaged one"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.eye(2), "b": np.eye(2)}, r"expected one table, or one called .*, got .* a, b"),
        ({"scores": np.eye(2), "items": np.array(["a"])}, r"a name for each of 2 rows, got shape"),
        ({"scores": np.eye(2).astype(complex)}, r"real numbers, got .* type complex128"),
        ({"scores": np.array([[None, "x"]], dtype=object)}, r"expected arrays of numbers"),
    ],
)
def test_arrays_that_are_no_tables(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "t.npz")


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    FRAME.to_excel(tmp_path / "t.xlsx")
    FRAME.to_parquet(tmp_path / "t.parquet")
    for name, module in (("t.xlsx", "openpyxl"), ("t.parquet", "pandas")):
        with monkeypatch.context() as patch:
            patch.setitem(__import__("sys").modules, module, None)
            with pytest.raises(ValueError, match=f"pip install {module}"):
                read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["t.parquet", "t.xlsx", "t.npz", "t.csv.gz"])
def test_damaged_files_are_read_or_refused(tmp_path, rng, name):
    path = tmp_path / name
    WRITERS[name](path)
    content = np.frombuffer(path.read_bytes(), np.uint8)
    refused = 0
    for _ in range(25):
        copy = content.copy()
        places = rng.integers(8, len(copy), size=8)
        copy[places] ^= rng.integers(1, 256, size=8).astype(np.uint8)
        path.write_bytes(copy.tobytes())
        try:
            read_table(path)
        except ValueError:
            refused += 1
    # Other errors would be ours, and not all damage can go unnoticed.
    assert refused > 0
