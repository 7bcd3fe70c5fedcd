import csv
import itertools
import json
import math

import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from permvi import _figures, _files, experiments, permutations, transforms
from permvi.experiments import _transforms_figure as figure1
from permvi.experiments import results
from permvi.experiments.transforms import CASES, NUM_SHOWN, TEMPERATURES

KEYS = ["study", "method", "setting", "metric", "mean", "sem", "n", "paper", "seconds"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "made" / "on the way"
    reports = []
    result = experiments.run("transforms", folder, progress=lambda *args: reports.append(args))
    return folder, result, reports


def test_the_files_are_there_and_no_others(study):
    folder, result, _ = study
    names = ["figure1.pdf", "figure1.png", "rows.csv", "summary.json"]
    seen = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    assert seen == {*names, "run.json", "tasks"}
    assert sorted(path.name for path in result.files) == names
    assert (folder / "figure1.pdf").read_bytes().startswith(b"%PDF")


def test_the_picture_is_large_and_not_blank(study):
    folder, _, _ = study
    with Image.open(folder / "figure1.png") as image:
        assert image.format == "PNG"
        expected = (300 * figure1.WIDTH, 300 * figure1.HEIGHT)
        assert image.size == pytest.approx(expected)
        pixels = np.asarray(image.convert("L"))
    for column in np.split(pixels, 4, axis=1):
        for half in np.array_split(column, 2, axis=0):
            assert np.mean(half < 250) > 0.01


def test_the_summary_has_its_form(study):
    folder, result, _ = study
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == result.summary
    assert len(summary) == len(CASES) * len(TEMPERATURES)
    for row in summary:
        assert list(row) == KEYS
        assert row["study"] == "transforms"
        assert row["metric"] == "vertex_distance"
        assert row["n"] == NUM_SHOWN
        assert row["paper"] is None
        assert all(math.isfinite(row[key]) and row[key] > 0 for key in ("mean", "sem", "seconds"))
    drawn = {row["setting"]["panel"]: row for row in summary if "panel" in row["setting"]}
    assert {panel: row["method"] for panel, row in drawn.items()} == {
        "a": "gumbel_softmax",
        "b": "simplex_stick_breaking",
        "c": "stick_breaking",
        "d": "rounding",
    }
    assert drawn["d"]["setting"]["temperature"] == 0.5


def test_lower_temperatures_are_nearer_to_the_vertices(study):
    _, result, _ = study
    for case in CASES:
        means = [row["mean"] for row in result.summary if row["method"] == case.method]
        assert len(means) == len(TEMPERATURES)
        # TEMPERATURES fall, and all of them see the same draws.
        assert all(late < early for early, late in itertools.pairwise(means))


def test_rows_hold_the_points_that_were_drawn(study):
    folder, result, _ = study
    with (folder / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(CASES) * NUM_SHOWN
    for case in CASES:
        points = [row for row in rows if row["panel"] == case.panel]
        mean = np.mean([float(row["vertex_distance"]) for row in points])
        (expected,) = (
            row["mean"] for row in result.summary if row["setting"].get("panel") == case.panel
        )
        assert mean == pytest.approx(expected, rel=1e-5)


def test_the_hole_in_panel_d_is_empty(study):
    folder, _, _ = study
    with (folder / "rows.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["panel"] == "d"]
    points = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    # Outside the hole means beyond at least one of its six edges.
    assert np.max(points @ figure1.HEXAGON.T, axis=1).min() >= 0.5 - 1e-5
    inputs = np.array([[float(row["input_x"]), float(row["input_y"])] for row in rows])
    assert np.max(inputs @ figure1.HEXAGON.T, axis=1).min() < 0.1


def test_same_seed_same_files_and_another_seed_others(study, tmp_path):
    folder, _, _ = study
    experiments.run("transforms", tmp_path / "0", seed=0)
    for name in ("figure1.png", "figure1.pdf", "rows.csv"):
        assert (tmp_path / "0" / name).read_bytes() == (folder / name).read_bytes()
    experiments.run("transforms", tmp_path / "1", seed=1)
    assert (tmp_path / "1" / "rows.csv").read_bytes() != (folder / "rows.csv").read_bytes()


def test_progress_is_reported(study):
    _, _, reports = study
    assert [what for what, _, _ in reports] == ["transforms", *(case.method for case in CASES)]
    assert [(done, total) for _, done, total in reports] == [(k, 4) for k in range(5)]


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(
        ValueError, match=r"study must be .*'transfroms'; did you mean 'transforms'"
    ):
        experiments.run("transfroms", tmp_path)
    with pytest.raises(ValueError, match="size must be 'smoke' or 'paper', got 'huge'"):
        experiments.run("transforms", tmp_path, size="huge")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="out must be a folder, got the file"):
        experiments.run("transforms", file)
    assert "transforms" in experiments.names()


def test_permutation_matrices_are_the_corners_of_the_hexagon(rng):
    matrices = np.asarray(permutations.to_matrix(jnp.asarray(figure1.PERMUTATIONS)))
    np.testing.assert_allclose(figure1.of_birkhoff(matrices), figure1.HEXAGON, atol=1e-12)
    np.testing.assert_allclose(figure1.of_birkhoff(np.ones((3, 3))), 0, atol=1e-12)
    X, Y = rng.normal(size=(2, 3, 3))
    combined = 2 * figure1.of_birkhoff(X) - 3 * figure1.of_birkhoff(Y)
    np.testing.assert_allclose(figure1.of_birkhoff(2 * X - 3 * Y), combined, atol=1e-12)
    # Corners of the hexagon are one apart, whichever order they come in.
    corners = figure1.HEXAGON[np.argsort(np.arctan2(*figure1.HEXAGON.T))]
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1)
    np.testing.assert_allclose(sides, 1)


def test_white_noise_stays_white_in_the_plane():
    basis = np.eye(9).reshape(9, 3, 3)
    image = figure1.of_birkhoff(basis)
    np.testing.assert_allclose(image.T @ image, np.eye(2), atol=1e-12)


def test_rounded_matrices_lie_beyond_the_hole(rng):
    psi = rng.normal(size=(2000, 3, 3))
    for tau in (0.25, 0.5, 1.0):
        X, _ = transforms.rounding(jnp.asarray(psi), tau)
        reach = np.max(figure1.of_birkhoff(np.asarray(X)) @ figure1.HEXAGON.T, axis=1)
        assert reach.min() >= 1 - tau - 1e-5


def test_the_hypercube_has_a_regular_octagon_for_its_outline():
    octagon = figure1.of_hypercube(figure1.OCTAGON)
    np.testing.assert_allclose(np.linalg.norm(octagon, axis=1), 1)
    sides = np.linalg.norm(octagon - np.roll(octagon, 1, axis=0), axis=1)
    np.testing.assert_allclose(sides, sides[0])
    edges = figure1.hypercube_edges()
    assert edges.shape == (32, 2, 2)
    assert np.linalg.norm(edges, axis=-1).max() == pytest.approx(1)
    np.testing.assert_allclose(figure1.of_simplex(np.eye(3)), figure1.TRIANGLE)


def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch):
    kept = tmp_path / "figure.png"
    kept.write_text("the old one")

    def fail(self, path, **kwargs):
        path.write(b"half a fig")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        _figures.save(Figure(), tmp_path, "figure")
    assert [path.name for path in tmp_path.iterdir()] == ["figure.png"]
    assert kept.read_text() == "the old one"


def test_figures_are_saved_in_three_formats_and_no_fourth(tmp_path):
    figure = Figure(figsize=(1, 1))
    before = dict(mpl.rcParams)
    paths = _figures.save(figure, tmp_path, "small", formats=("png", "pdf", "svg"), dpi=50)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".svg"]
    assert all(path.stat().st_size > 0 for path in paths)
    assert dict(mpl.rcParams) == before
    with pytest.raises(ValueError, match="formats must be among png, pdf, svg, got 'bmp'"):
        _figures.save(figure, tmp_path, "small", formats=("bmp",))


def test_json_without_numbers_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        _files.write_json(tmp_path / "summary.json", [float("nan")])
    assert list(tmp_path.iterdir()) == []


def test_summary_rows_are_means_with_standard_errors(rng):
    values = rng.normal(size=50)
    row = results.summary_row("s", "m", {"n": 3}, "x", values, seconds=2.0, paper=0.5)
    assert row["mean"] == pytest.approx(values.mean())
    assert row["sem"] == pytest.approx(values.std(ddof=1) / np.sqrt(50))
    assert (row["n"], row["paper"], row["seconds"]) == (50, 0.5, 2.0)
    assert results.summary_row("s", "m", {}, "x", [1.0], seconds=0.1)["sem"] is None
