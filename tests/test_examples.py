"""The scripts in ``examples`` at their quick size, and what they claim."""

import importlib.util
import os
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SHARED = ROOT.parent / "shared" / "data"


def load(name):
    """The module of a script, without a place on the path."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_record_linkage(capsys):
    results = load("record_linkage").run(quick=True)
    joined, pairs = results["one to one, copies joined"], results["pair by pair"]
    assert joined["precision"] >= pairs["precision"]
    assert joined["recall"] > results["one to one"]["recall"]
    assert joined["ECE"] < 0.05
    assert "copies joined" in capsys.readouterr().out


def test_linkage_at_scale(capsys):
    pytest.importorskip("pyarrow")
    row = load("linkage_at_scale").run(quick=True)
    for kind in ("log score", "Brier"):
        assert row["one to one"][kind] < 0.9 * row["pair by pair"][kind]
        assert row["one to one, calibrated"][kind] < 0.9 * row["pair by pair, calibrated"][kind]
    assert row["worst precision error"] < 0.02
    assert row["worst recall error"] < 0.02
    assert row["F1 at suggested"] > row["best F1"] - 0.01
    assert "expected matches" in capsys.readouterr().out


def test_fellegi_sunter_finds_the_frequencies_that_generated_the_comparisons(rng):
    module = load("record_linkage")
    match = np.tile([0.05, 0.15, 0.8], (4, 1))
    other = np.tile([0.85, 0.1, 0.05], (4, 1))
    truth = rng.random(20_000) < 0.02
    levels = np.stack(
        [np.where(truth, rng.choice(3, 20_000, p=match[f]), rng.choice(3, 20_000, p=other[f]))
         for f in range(4)], axis=1
    )  # fmt: skip
    found = module.estimate(levels)
    # Four standard errors of a frequency among the 400 matches that there are.
    assert np.abs(found.match - match).max() < 4 * np.sqrt(0.25 / truth.sum())
    assert found.p_match == pytest.approx(truth.mean(), abs=4 * np.sqrt(0.02 / 20_000))


def test_neurons_of_made_up_worms(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("PERMVI_DATA", raising=False)
    page = tmp_path / "worm.html"
    results = load("neurons").run(quick=True, report=page)
    assert "made-up worms" in capsys.readouterr().out
    for features in ("position and colour", "position"):
        ours, rows = results[features, "permvi"], results[features, "row by row"]
        assert ours["log score"] > rows["log score"]
        assert ours["difference"] >= -ours["standard error"]
    assert results["position and colour", "turned"]["accuracy"] > 0.9
    text = page.read_text()
    assert text.count("<svg") >= 3
    assert "N03" in text


@pytest.mark.slow
# Of 39 animals a few lie outside what the atlas has seen of the others, and say so.
@pytest.mark.filterwarnings("ignore:verdict 'check'. the animal does not fit:permvi.FitWarning")
def test_neurons_of_real_worms(monkeypatch):
    folder = Path(os.environ.get("PERMVI_DATA", SHARED))
    module = load("neurons")
    if not (folder / module.FILE).is_file():
        pytest.skip(f"the worms' file is not in {folder}")
    monkeypatch.setenv("PERMVI_DATA", str(folder))
    results = module.run()
    for features in ("position and colour", "position"):
        ours = results[features, "permvi"]
        assert ours["difference"] >= -ours["standard error"]
        assert ours["ECE"] <= 0.05
        for other in ("assignment", "row by row"):
            assert ours["log score"] > results[features, other]["log score"]


def test_network_alignment(capsys):
    rows = load("network_alignment").run(quick=True)
    assert len(rows) == len(capsys.readouterr().out.splitlines()) - 3
    assert rows[0]["expected"] > rows[-1]["expected"]


def test_agreements_are_counted_once(rng):
    module = load("network_alignment")
    a, b = (module.random_network(5, 0.5, rng) for _ in range(2))
    model = module.align(a, b, 0.1, np.full(5, -1))
    perms = np.stack([rng.permutation(5) for _ in range(6)])
    upper = np.triu_indices(5, 1)
    agreements = [(a == b[np.ix_(perm, perm)])[upper].sum() for perm in perms]
    log_odds = np.log((1 - 0.18) / 0.18)
    found = np.asarray(model.log_density_of(perms))
    np.testing.assert_allclose(
        found - found[0], (np.array(agreements) - agreements[0]) * log_odds, rtol=1e-6
    )


def test_learning_to_sort(capsys):
    pytest.importorskip("equinox")
    results = load("learn_to_sort").run(quick=True)
    assert results["after"] > results["before"] + 0.2
    assert "after" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_page_has_the_script_and_its_output(path):
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert f'--8<-- "examples/{path.name}"' in page
    assert f'--8<-- "docs/outputs/{path.stem}.txt"' in page
    assert (ROOT / "docs" / "outputs" / f"{path.stem}.txt").read_text(encoding="utf-8").strip()
