"""The benchmarks run, at tiny sizes, and give rows of the right form. Nothing is timed here."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import imports, run, stick_breaking
from benchmarks.timing import side_by_side
from permvi import transforms

KEYS = ["name", "value", "unit", "reference", "ratio", "device"]


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[pytest.mark.slow] if group == "stick_breaking" else [])
        for group in run.GROUPS
    ],
)
def test_a_group_gives_rows(group):
    rows = run.run(only=group, quick=True)
    assert rows
    for row in rows:
        assert list(row) == KEYS
        assert isinstance(row["name"], str)
        for key in ("value", "reference", "ratio"):
            assert math.isfinite(row[key])
            assert row[key] > 0
        assert row["ratio"] == pytest.approx(row["reference"] / row["value"])
    names = [row["name"] for row in rows]
    assert len(set(names)) == len(names)


def test_all_groups_are_run_and_reported(monkeypatch):
    monkeypatch.setattr(run, "GROUPS", ("stick_breaking", "imports"))
    monkeypatch.setattr(stick_breaking, "rows", lambda *, quick: [{"name": "a", "quick": quick}])
    monkeypatch.setattr(imports, "rows", lambda: [{"name": "b"}])
    reports = []
    rows = run.run(quick=True, report=lambda *args: reports.append(args))
    assert rows == [{"name": "a", "quick": True}, {"name": "b"}]
    assert reports == [("stick_breaking", 0, 2), ("imports", 1, 2)]


def test_every_group_exists_and_wanted_ratios_are_collected():
    wanted = run.wanted()
    assert wanted["stick_breaking value+grad N=100 batch=10 vs scan carrying X"] == 50
    assert all(ratio > 0 for ratio in wanted.values())
    assert "cores" in run.machine()


def test_an_unknown_group_is_refused():
    with pytest.raises(ValueError, match=r"only must be one of .* did you mean 'exact'"):
        run.run(only="exacts")


@pytest.mark.parametrize(
    "reference",
    [
        stick_breaking.scan_carrying_sticks,
        stick_breaking.scan_of_scans,
        stick_breaking.scan_carrying_matrix,
    ],
)
def test_the_references_compute_the_same_map(rng, reference):
    psi = jnp.asarray(rng.normal(size=(4, 4)), jnp.float32)
    X, log_det = transforms.stick_breaking(psi)
    other, other_log_det = jax.jit(reference)(psi)
    np.testing.assert_allclose(other, X, atol=1e-5)
    np.testing.assert_allclose(other_log_det, log_det, rtol=1e-4)


def test_side_by_side_takes_turns_after_a_warm_up():
    calls = []
    candidates = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    seconds = side_by_side(candidates, repeats=3)
    assert calls == ["a", "b", *(["a"] * 3 + ["b"] * 3) * 3]
    assert list(seconds) == ["a", "b"]
    assert all(value > 0 for value in seconds.values())
