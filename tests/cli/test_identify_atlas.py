"""``permvi identify --atlas``: files in, names and pages out, and decisions in again."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

import permvi as pv
from permvi import cli
from permvi._cli.identify_atlas import feature_scores, read_inputs
from permvi._cli.identify_files import Canonical, Recording
from permvi._cli.identify_inputs import identification
from permvi.models import Atlas, AtlasMatching, read_animals

NAMES = [f"N{k:02d}" for k in range(10)]
MEANS = np.random.default_rng(7).normal(size=(10, 4)) * [3, 1, 0.8, 1.5]


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def files(tmp_path):
    """Ten labelled animals, and a new one with its truth."""
    rng = np.random.default_rng(1)
    header = ["animal", "cell", "x", "y", "z", "red", "name"]
    labelled = [header]
    for animal in range(10):
        for j in np.flatnonzero(rng.random(10) > 0.1):
            values = MEANS[j] + rng.normal(scale=0.35, size=4)
            labelled.append([f"a{animal}", f"c{j}", *values.round(4), NAMES[j]])
    who = rng.permutation(10)[:8]
    new = [["cell", "x", "y", "z", "red"]]
    new += [
        [f"u{i}", *(MEANS[j] + rng.normal(scale=0.35, size=4)).round(4)] for i, j in enumerate(who)
    ]
    for name, table in (("labelled.csv", labelled), ("new.csv", new)):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows(table)
    return tmp_path, who


def test_from_files_to_names_and_decisions(run, files):
    folder, who = files
    outputs = ["names.csv", "curate.csv", "page.html", "atlas.npz", "fit.nc"]
    options = ("--probabilities", "--curate", "--report", "--save-atlas", "--save")
    written = [
        part for pair in zip(options, (folder / o for o in outputs), strict=True) for part in pair
    ]
    done = run(
        "identify", "--atlas", folder / "labelled.csv", "--cells", folder / "new.csv", *written
    )
    assert done.exit_code == 0, done.output
    assert "learnt from 10 animals" in done.stderr
    assert "coordinates: x, y, z; other features: red" in done.stderr
    atlas = Atlas.fit(read_animals(folder / "labelled.csv"))
    model = AtlasMatching(read_animals(folder / "new.csv")[0], atlas)
    expected = pv.fit(model).marginals
    found = np.zeros_like(expected)
    for row in rows_of(folder / "names.csv"):
        if row["identity"]:
            i, j = int(row["neuron"][1:]), atlas.labels.index(row["identity"])
            found[i, j] = float(row["probability"])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert Atlas.load(folder / "atlas.npz").labels == atlas.labels
    assert pv.load(folder / "fit.nc").labels[0] == tuple(f"u{i}" for i in range(8))
    page = (folder / "page.html").read_text()
    assert page.count('role="img" font-size') == 3
    # A curator decides about the most doubtful cell, against the answer.
    table = rows_of(folder / "curate.csv")
    values = [float(row["probability"]) for row in table]
    assert values == sorted(values)
    first = int(table[0]["neuron"][1:])
    other = next(name for name in NAMES if name != table[0]["identity"])
    table[0]["decision"] = other
    with (folder / "decided.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, table[0])
        writer.writeheader()
        writer.writerows(table)
    again = run(
        "identify", "--atlas", folder / "atlas.npz", "--cells", folder / "new.csv", "--known",
        folder / "decided.csv", "--json",
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    (worm,) = json.loads(again.stdout)["worms"]
    assert worm["neurons"][first]["identity"] == other
    assert worm["neurons"][first]["known"]
    right = [row["identity"] == NAMES[j] for row, j in zip(worm["neurons"], who, strict=True)]
    assert sum(right) >= 5


def test_all_names_as_a_wide_table_of_cells_from_standard_input(files):
    folder, _ = files
    command = ["identify", "--atlas", str(folder / "labelled.csv"), "--cells", "-", "--quiet"]
    options = ["--probabilities", "-", "--wide"]
    done = CliRunner().invoke(
        cli.app, [*command, *options], input=(folder / "new.csv").read_bytes()
    )
    assert done.exit_code == 0
    header, *rows = csv.reader(done.stdout.splitlines())
    atlas = Atlas.fit(read_animals(folder / "labelled.csv"))
    model = AtlasMatching(read_animals(folder / "new.csv")[0], atlas)
    expected = pv.fit(model)
    assert header == ["worm", "neuron", *atlas.labels, "unmatched"]
    found = np.array([list(map(float, row[2:])) for row in rows])
    np.testing.assert_allclose(found[:, :-1], expected.marginals, atol=1e-12)
    np.testing.assert_allclose(found[:, -1], expected.p_unmatched_rows, atol=1e-12)


def test_a_frame_is_inferred_and_told(run, files):
    folder, who = files
    (new,) = read_animals(folder / "new.csv")
    moved = new.cells.copy()
    moved[:, [1, 2]] = -moved[:, [1, 2]]
    lines = ["cell,x,y,z,red"] + [
        ",".join([f"u{i}", *map(str, row)]) for i, row in enumerate(moved + np.array([3, 3, 3, 0]))
    ]
    (folder / "moved.csv").write_text("\n".join(lines))
    given = (
        "identify",
        "--atlas",
        folder / "labelled.csv",
        "--cells",
        folder / "moved.csv",
        "--json",
    )
    wrong = json.loads(run(*given).stdout)
    assert wrong["verdict"] != "trust"
    found = json.loads(run(*given, "--align", "similarity").stdout)
    (worm,) = found["worms"]
    right = [row["identity"] == NAMES[j] for row, j in zip(worm["neurons"], who, strict=True)]
    assert sum(right) >= 6
    assert np.shape(worm["frame"]["mean"]) == (4, 5)


def test_features_and_activity_add(files):
    folder, _ = files
    rng = np.random.default_rng(3)
    inputs = read_inputs([folder / "labelled.csv"], [folder / "new.csv"], None)
    cells = inputs.animals[0].ids
    # Recorded in another order, and one canonical neuron is in no atlas.
    order = rng.permutation(8)
    names = tuple(cells[i] for i in order)
    recording = Recording(folder / "new.csv", "new", names, rng.normal(size=(30, 8)))
    canonical = Canonical("wiring", ("X", *NAMES), np.ones((11, 11), bool))
    scores = feature_scores(inputs, [recording], canonical, "none", 0)
    model = identification([recording], canonical, features=scores).model
    atlas, table = inputs.atlas, inputs.animals[0].cells[order]
    # The densities are those of the matching by features alone.
    alone = AtlasMatching(inputs.animals[0], atlas).scores[order]
    expected = np.column_stack([atlas.log_background(table), alone])
    np.testing.assert_allclose(model.prior_scores, expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "must have recordings, or --atlas"),
        (("--atlas", "{labelled}"), "--atlas must go with --cells"),
        (
            ("--atlas", "{labelled}", "--cells", "{new}", "--tolerance", "1"),
            "must go with recordings",
        ),
        (
            ("--atlas", "{labelled}", "--cells", "{new}", "--features", "w"),
            "features must be among",
        ),
        (("--atlas", "{labelled}", "--cells", "{new}", "--align", "rigid"), "align must be"),
        (("--atlas", "{new}", "--cells", "{new}"), "at least two"),
    ],
)
def test_mistakes(run, files, options, message):
    folder, _ = files
    places = {"labelled": folder / "labelled.csv", "new": folder / "new.csv"}
    done = run("identify", *(option.format(**places) for option in options))
    assert done.exit_code == 2
    assert message in done.stderr
