"""Large inputs of ``permvi match``: lists of pairs and files of features, without tables."""

import csv
import json
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import issparse

import permvi as pv
from permvi._cli import results
from permvi.posterior import marginals
from permvi.problem import prepare as preparing

ITEMS, LABELS = ("a", "b", "c"), ("x", "y", "z", "w")
SCORES = np.array([[1.0, np.nan, 0.5, -1.0], [0.0, 2.0, np.nan, 0.3], [np.nan, 1.5, 0.2, 0.1]])


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(preparing, "MAX_TABLE", 0)
    monkeypatch.setattr(marginals, "MAX_CELLS", 0)


def table_text(values, rows=ITEMS, cols=LABELS):
    lines = [",".join(("item", *cols))]
    for row, numbers in zip(rows, values, strict=True):
        cells = ("" if np.isnan(number) else f"{number:g}" for number in numbers)
        lines.append(",".join((row, *cells)))
    return "\n".join(lines) + "\n"


def list_text(values, rows=ITEMS, cols=LABELS):
    pairs = [
        f"{row},{col},{values[i, j]:g}"
        for i, row in enumerate(rows)
        for j, col in enumerate(cols)
        if not np.isnan(values[i, j])
    ]
    # In the order of the table's columns, so that labels have the same numbers.
    pairs.sort(key=lambda line: cols.index(line.split(",")[1]))
    pairs.sort(key=lambda line: line.split(",")[0] != rows[0])
    return "item,label,score\n" + "\n".join(pairs) + "\n"


def by_name(found):
    """What a result says about each item, whatever the order of items and labels."""
    return {
        item["item"]: (
            item["best"],
            pytest.approx(item["probability"], abs=1e-9),
            pytest.approx(item["p_unmatched"], abs=1e-9),
            pytest.approx(item["entropy"], abs=1e-9),
            sorted(map(str, item["credible_set"])),
        )
        for item in found["items"]
    } | {label["label"]: pytest.approx(label["p_unused"], abs=1e-9) for label in found["labels"]}


BORDERS = np.array([[0.1], [np.nan], [0.4]]), np.array([[0.2, np.nan, -0.3, 0.6]])


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--unmatched", "-1"],
        ["--unmatched", "none", "--unused", "0.3"],
        ["--unmatched", "none", "--unused", "free"],
        ["--kind", "costs", "--temperature", "2"],
        ["--mask", "mask.csv"],
        ["--prior", "prior.csv", "--unmatched", "-2"],
        ["--known", "known.csv"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("large", [False, True])
def test_a_list_says_what_its_table_says(options, large, run, write, monkeypatch):
    values, rows, cols = SCORES, ITEMS, LABELS
    if "none" in options:
        values, cols = np.hstack([values, BORDERS[0]]), (*cols, "none")
    if "free" in options:
        corner = np.full((1, values.shape[1] - 4), np.nan)
        values = np.vstack([values, np.hstack([BORDERS[1], corner])])
        rows = (*rows, "free")
    files = {
        "mask.csv": table_text(np.where(np.arange(12).reshape(3, 4) == 5, 0.0, 1.0)),
        "prior.csv": table_text(np.arange(12).reshape(3, 4) / 4),
        "known.csv": "item,label\nb,w\n",
    }
    options = [write(name, files[name]) if name in files else name for name in options]
    table = write("table.csv", table_text(values, rows, cols))
    pairs = write("pairs.csv", list_text(values, rows, cols))
    expected = json.loads(run("match", table, *options, "--json").stdout)
    if large:
        monkeypatch.setattr(preparing, "MAX_TABLE", 0)
        monkeypatch.setattr(marginals, "MAX_CELLS", 0)
    found = json.loads(run("match", pairs, "--pairs", *options, "--json").stdout)
    assert by_name(found) == by_name(expected)
    assert found["log_evidence"] == pytest.approx(expected["log_evidence"])
    assert found["method"] == ("linear" if large else "exact")


@pytest.mark.parametrize("options", [[], ["--unmatched", "3"]], ids=["all", "some"])
def test_features_without_tables(options, run, write, tmp_path, rng, small_limits):
    centers = 9 * rng.random((8, 2))
    for name, points in (("a.csv", centers + rng.normal(size=(8, 2))), ("b.csv", centers)):
        names = tuple(f"{name[0]}{k}" for k in range(8))
        write(name, table_text(points, names, ("u", "v")))
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    saved, written = tmp_path / "fit.nc", tmp_path / "fit.csv"
    outputs = ("--save", saved, "--csv", written, "--report", tmp_path / "fit.html")
    result = run("match", *files, "--scale", 1, *options, *outputs, "--plot", tmp_path / "fit.png")
    assert result.exit_code == 0, result.output
    assert "pairs are too far apart to matter" in result.stdout
    posterior = pv.load(saved)
    assert issparse(posterior.marginals)
    with written.open() as file:
        rows = list(csv.DictReader(file))
    best = np.argmax(posterior.marginals.toarray(), axis=1)
    certain = posterior.marginals.max(axis=1).toarray() > 0.5
    assert [row["best"] for row, sure in zip(rows, certain, strict=True) if sure] == [
        f"b{j}" for j, sure in zip(best, certain, strict=True) if sure
    ]


def test_many_items_are_shown_in_part(run, write, monkeypatch):
    monkeypatch.setattr(results, "MAX_ROWS", 1)
    path = write("t.csv", table_text(np.nan_to_num(SCORES)))
    shown = run("match", path, "--quiet", "--all").stdout + run("match", path).stdout
    assert "These are the 1 least certain of 3 items." in shown
    items = json.loads(run("match", path, "--json").stdout)
    least = max(items["items"], key=lambda item: item["entropy"])["item"]
    rest = min(item["probability"] for item in items["items"] if item["item"] != least)
    assert f"The best label of the others has p = {rest:.3f} or more (--all" in shown
    assert "least certain" not in run("match", path, "--all").stdout
    table = shown.split("verdict")[0]
    assert [name for name in ITEMS if f"\n {name} " in table] == [least]


def test_a_long_list_takes_little_memory(write):
    from permvi._cli.csv_tables import read_list
    from permvi._cli.match_inputs import Files, Unpaired
    from permvi._cli.match_lists import model_of_list

    n = 20_000
    lines = (f"i{k},l{(k + step) % n},{step}\n" for k in range(n) for step in (0, 1))
    path = write("long.csv", "item,label,score\n" + "".join(lines))
    tracemalloc.start()
    model = model_of_list(read_list(path), Files(), Unpaired(), kind="scores", temperature=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.shape == (n, n)
    # A table of booleans would take 400 MB.
    assert peak < 60e6
