"""CSV files as people have them: read correctly, or refused with the place of the mistake."""

import itertools

import numpy as np
import pandas as pd
import pytest

from permvi._cli.csv_tables import TRUTH, read_list, read_pairs, read_table

PLAIN = "item,x,y\na,1.5,-2\nb,,3e2\n"
VALUES = [[1.5, -2.0], [np.nan, 300.0]]
PAIRS = [("b", "y", 1.5), ("a", "x", 2.0), ("b", "x", -1.0)]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.rstrip(),
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        "\n\n" + PLAIN.replace("\n", "\n\n") + ",,\n\n",
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace(",", ";").replace(".", ","),
        PLAIN.replace(",", "\t").replace(".", ","),
        PLAIN.replace(",", ", "),
        'item,"x",y\n"a","1.5",-2\nb,"",3e2\n',
        PLAIN.encode("utf-16"),
        b"\xfe\xff" + PLAIN.encode("utf-16-be"),
        PLAIN.replace("item", ""),
        PLAIN.replace("item,", ""),
        PLAIN.replace("b,,", "b,  ,"),
    ],
    ids=[
        "plain", "no last newline", "byte order mark", "windows", "old mac", "blank lines",
        "semicolons", "tabs", "decimal commas", "tabs and decimal commas", "spaces", "quotes",
        "utf-16", "utf-16 big endian", "empty corner", "no corner", "blank cell",
    ],
)  # fmt: skip
def test_one_table_in_many_forms(write, content):
    table = read_table(write("t.csv", content))
    assert (table.rows, table.cols) == (("a", "b"), ("x", "y"))
    np.testing.assert_array_equal(table.values, VALUES)


def test_names_are_what_was_written(write):
    names = ["Müller, Jürgen", 'the "first"', "日本語", "a;b", "line\nbreak", "[bold]x[/]", "=1+1"]
    quoted = [f'"{name}"' for name in (name.replace('"', '""') for name in names)]
    lines = ["," + ",".join(quoted), *(f"{name},{'1,' * 6}1" for name in quoted)]
    table = read_table(write("t.csv", "\n".join(lines)))
    assert list(table.rows) == list(table.cols) == names
    # Counting from one, the name with a line break has moved the later ones down.
    assert table.lines == (3, 4, 5, 6, 7, 9, 10)


def test_a_semicolon_in_a_name_does_not_make_it_the_separator(write):
    table = read_table(write("t.csv", "item,a;b,c\ni,1,2\nj,3,4\n"))
    assert table.cols == ("a;b", "c")


def test_numbers_of_all_kinds(write):
    table = read_table(write("t.csv", "item,a,b,c,d\ni,-inf,Infinity,+1.,.5\nj, 1E-3 ,0,-0,7\n"))
    np.testing.assert_array_equal(table.values, [[-np.inf, np.inf, 1, 0.5], [1e-3, 0, 0, 7]])


def test_words_where_they_are_expected(write):
    path = write("t.csv", "item,a,b,c\ni,True,no,1\n")
    np.testing.assert_array_equal(read_table(path, TRUTH).values, [[1, 0, 1]])
    with pytest.raises(
        ValueError, match=r"line 2, column 2 \('a'\): expected a number, got 'True'"
    ):
        read_table(path)


def test_names_that_count_are_names(write):
    table = read_table(write("t.csv", ",0,1\n0,.5,.25\n1,.125,2\n"))
    assert (table.rows, table.cols) == (("0", "1"), ("0", "1"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "expected a header and rows, got an empty file"),
        ("\n  \n", "expected a header and rows, got an empty file"),
        ("item,x\n", "expected a header and rows, got one line only"),
        ("item\na\n", "line 1: expected a header with a name for each column"),
        ("1,2\n3,4\n", "line 1: expected a header with the names of the columns"),
        ("a,.1,.2\nb,.3,.4\n", "line 1: expected a header with the names of the columns"),
        ("a;0,1;0,2\nb;0,3;0,4\n", "line 1: expected a header with the names of the columns"),
        ("item,x,y\na,1,2\nb,1\n", "line 3: expected 3 cells as in the header, got 2"),
        ("item,x,y\n\na,1,2\nb,1,2,3\n", "line 4: expected 3 cells as in the header, got 4"),
        ("item,x,y\na,1,2\nb,1,two\n", r"line 3, column 3 \('y'\): expected a number, got 'two'"),
        ("item,x,y\na,1,nan\n", r"line 2, column 3 \('y'\): expected a number, got 'nan'"),
        ("item,x,y\na,1,NA\n", r"expected a number, got 'NA' \(leave .* empty\)"),
        ("item,x,y\na,90%,1\n", r"expected a number, got '90%' \(write 0.9 for 90%\)"),
        ('item,x,y\na,"1,234",1\n', r"got '1,234' \(write 1234 or 1.234\)"),
        ('item,x,y\na,"1,234.5",1\n', r"got '1,234.5' \(write 1234.5\)"),
        ("item,x,y\na,1_000,1\n", r"line 2, column 2 \('x'\): expected a number, got '1_000'"),
        ('item,x,y\na,"1,5",2\n', r"line 2, column 2 \('x'\): expected a number, got '1,5'"),
        ("item;x;y\na;1.234,5;2\n", "expected one decimal mark, got"),
        ("item;x;y\na;1,5;2\nb;1;2.5\n", "got '1,5' in line 2, column 2 and '2.5' in line 3"),
        ("item;x;y\na;1,234,567;2\n", r"line 2, column 2 \('x'\): expected a number"),
        ("item,x,x\na,1,2\n", "line 1, column 3: expected a new name, got 'x' as in line 1"),
        ("item,x,y\na,1,2\n a,3,4\n", "line 3, column 1: expected a new name, got 'a' as in"),
        ("item,x,\na,1,2\n", "line 1, column 3: expected a name, got an empty cell"),
        ("item,x,y\n,1,2\n", "line 2, column 1: expected a name, got an empty cell"),
        ('item,x\na,1\n"b,2\nc,3\n', "line 3: expected CSV cells, got unexpected end of data"),
        ('item,x\na,1\n"b"b,2\n', "line 3: expected CSV cells, got"),
        ("item,é\na,1\nä,2\n".encode("latin-1"), "line 1: expected UTF-8 text, got byte 0xe9"),
        (b"item,x\n" + b"a,1\n" * 9999 + b"\xff,2\n", "line 10001: expected UTF-8 text, got byte"),
        (b"\xff\xfea", "expected UTF-16 text"),
    ],
)  # fmt: skip
def test_mistakes_are_answered_with_their_place(write, content, message):
    path = write("bad.csv", content)
    with pytest.raises(ValueError, match=message) as error:
        read_table(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv: expected a CSV file, got no file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="expected a CSV file, got a folder"):
        read_table(tmp_path)


def test_alignment_by_name(write):
    table = read_table(write("t.csv", "item,x,y\na,1,2\nb,3,4\n"))
    other = table.aligned(("b", "a"), ("y", "x"))
    np.testing.assert_array_equal(other.values, [[4, 3], [2, 1]])
    assert other.place(0, 1).endswith("line 3, column 2 ('x')")
    with pytest.raises(ValueError, match="expected a row 'c', got none"):
        table.aligned(("a", "c"), ("x", "y"))
    with pytest.raises(ValueError, match="expected the same columns as in the input, got 'y' too"):
        table.aligned(("a", "b"), ("x",))


def test_pairs(write):
    sides = ("a", "'b'"), ("x", "y")
    found = read_pairs(write("t.csv", "item,label\n\na, x\n'b',y\n"), *sides)
    assert found == [(3, "a", "x"), (4, "'b'", "y")]
    assert read_pairs(write("t.csv", "Label,Item\nx,a\ny,'b'\n"), *sides) == [
        (2, "a", "x"), (3, "'b'", "y"),
    ]  # fmt: skip
    for content, message in [
        ("item,label\na\n", "line 2: expected an item and a label, got 1 cells"),
        ("item,label\na,\n", "line 2: expected an item and a label"),
        ("item,label\na,x,y\n", "line 2: expected an item and a label, got 3 cells"),
        ("a,x\n'b',y\n", "line 1: expected a header such as item,label, got the pair 'a, x'"),
        (",item,label\n0,a,x\n", "line 1: expected an item and a label, got 3 cells"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_pairs(write("bad.csv", content), *sides)


@pytest.mark.parametrize("names", [*itertools.permutations(["item", "label", "score"])])
@pytest.mark.parametrize("separator", [",", ";"])
def test_a_list_with_columns_in_any_order(write, names, separator):
    rows = [{"item": item, "label": label, "score": score} for item, label, score in PAIRS]
    frame = pd.DataFrame(rows)[list(names)]
    found = read_list(write("t.csv", frame.to_csv(sep=separator, index=False)))
    assert found.what == "score"
    assert [
        (found.rows[i], found.cols[j], value)
        for (i, j), value in zip(found.pairs, found.values, strict=True)
    ] == PAIRS


SPREADSHEETS = {
    "an empty column": "item,x,y,\na,1,2,\nb,3,4,\n",
    "several": "item;x;y;;\na;1;2;;\nb;3;4;;\n",
    "and empty cells": "item,x,y,,\na,1,2,, \nb,3,4,,\n",
    "rows alone": "item,x,y\na,1,2,\nb,3,4,\n",
}


@pytest.mark.parametrize("content", SPREADSHEETS.values(), ids=SPREADSHEETS)
def test_columns_that_hold_nothing_at_the_end(write, content):
    table = read_table(write("t.csv", content))
    assert (table.rows, table.cols) == (("a", "b"), ("x", "y"))
    np.testing.assert_array_equal(table.values, [[1, 2], [3, 4]])
    # Only in the last of them the header could lack a name for the first column instead.
    assert len(table.notes) == (content == SPREADSHEETS["rows alone"])


def test_a_column_that_holds_something_needs_a_name(write):
    with pytest.raises(ValueError, match="line 1, column 4: expected a name, got an empty cell"):
        read_table(write("t.csv", "item,x,y,\na,1,2,\nb,3,4,5\n"))
    # The header lacks a name for the first column, and the first pairs of the last are forbidden.
    table = read_table(write("t.csv", "x,y,z\na,1,2,\nb,3,4,5\n"))
    assert table.cols == ("x", "y", "z")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_other_encodings_are_named(write, encoding):
    path = write("t.csv", "item,x\na,1\n".encode(encoding))
    with pytest.raises(ValueError, match="expected UTF-8 text, got bytes of zero, as in UTF-16"):
        read_table(path)


def test_a_table_as_a_list(write):
    table = read_list(write("t.csv", 'who;what;score\nb;y;1,5\na;x;2\n\nb;x;\n a;"z";-inf\n'))
    assert (table.rows, table.cols) == (("b", "a"), ("y", "x", "z"))
    np.testing.assert_array_equal(table.pairs, [[0, 0], [1, 1], [0, 1], [1, 2]])
    np.testing.assert_array_equal(table.values, [1.5, 2, np.nan, -np.inf])
    assert table.place(2).endswith("t.csv, 'b' and 'x'")
    np.testing.assert_array_equal(table.row_sums(), [1.5, -np.inf])
    for content, message in [
        ("item,label,score\na,x\n", "line 2: expected an item, a label and a number, got 2 cells"),
        ("item,label,score\na,x,1\na,y,1\na,x,2\n", "line 4: expected a new pair, got 'a' and 'x'"),
        (
            "item,label,score\na,x,one\n",
            r"line 2, column 3 \('score'\): expected a number, got 'on",
        ),
        ("item,label,score\n,x,1\n", "line 2: expected an item, a label and a number"),
        ("item,label,score\n", "expected a header and rows, got one line only"),
        ("1,2,3\n1,3,4\n", "line 1: expected a header with the names of the columns"),
        (
            "b,y,2\na,x,1\n",
            "line 1: expected a header such as item,label,score, got the pair 'b, y, 2'",
        ),
        (
            "score,item,label\n1,a,x\none,b,y\n",
            r"line 3, column 1 \('score'\): expected a number, got 'one'",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            read_list(write("bad.csv", content))
