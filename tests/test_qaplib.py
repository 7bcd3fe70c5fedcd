"""Reading QAPLIB, and the search on its instances; the data is not part of the repository."""

import numpy as np
import pytest

import permvi as pv
from benchmarks import qaplib
from permvi.inference.map import Quadratic, solve_quadratic

# What the search may miss of the optimum, at the most.
LARGEST_GAP = 0.005

needs_data = pytest.mark.skipif(
    not qaplib.data_folder().is_dir(), reason="the QAPLIB instances are not on this machine"
)


def write(folder, dat, sln):
    (folder / "tiny.dat").write_text(dat)
    (folder / "tiny.sln").write_text(sln)


def test_numbers_may_be_spread_over_lines(tmp_path):
    write(tmp_path, " 2\n\n0 1\n2 3\n\n 4 5 6\n7\n", "2  16\n 2,1\n")
    instance = qaplib.read_instance(tmp_path, "tiny")
    assert instance.A.tolist() == [[0, 1], [2, 3]]
    assert instance.B.tolist() == [[4, 5], [6, 7]]
    assert instance.optimum == 16


@pytest.mark.parametrize(
    ("dat", "sln", "message"),
    [
        ("2 0 1 2 3 4 5 6", "2 16 1 2", "tiny.dat must hold 9 numbers, got 8"),
        ("2 0 1 2 3 4 5 6 7", "2 16 1", "tiny.sln must hold 2, the optimum and 2 numbers"),
        ("2 0 1 2 3 4 5 6 7", "3 16 1 2", "tiny.sln must hold 2, the optimum and 2 numbers"),
    ],
)
def test_files_that_do_not_add_up_are_refused(tmp_path, dat, sln, message):
    write(tmp_path, dat, sln)
    with pytest.raises(ValueError, match=message):
        qaplib.read_instance(tmp_path, "tiny")


def test_without_data_a_random_instance_stands_in(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PERMVI_DATA", str(tmp_path))
    rows = qaplib.rows()
    assert [row["value"] for row in rows if row["unit"] == "optimum"] == [1.0, 1.0]
    assert "11 QAPLIB instances skipped: they are not in" in capsys.readouterr().err


@needs_data
@pytest.mark.parametrize("name", qaplib.NAMES)
def test_a_listed_solution_has_the_listed_cost(name):
    instance = qaplib.read_instance(qaplib.data_folder(), name)
    text = (qaplib.data_folder() / f"{name}.sln").read_text().replace(",", " ")
    perm = np.array(text.split()[2:], dtype=int) - 1
    # Some files list the inverse permutation.
    perms = np.stack([perm, np.argsort(perm)])
    costs = -np.asarray(pv.models.GraphMatching(instance.A, instance.B, -1.0).log_density_of(perms))
    assert instance.optimum in costs


# These take seconds each.
LARGE = ("bur26a", "kra30a", "sko42")


@needs_data
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LARGE)) for n in qaplib.NAMES]
)
def test_the_search_comes_close_to_the_optimum(name):
    instance = qaplib.read_instance(qaplib.data_folder(), name)
    problem = Quadratic(-instance.A, instance.B, np.zeros_like(instance.A))
    result = solve_quadratic(problem, rng=np.random.default_rng(1))
    cost = (instance.A * instance.B[np.ix_(result.perm, result.perm)]).sum()
    assert instance.optimum <= cost <= (1 + LARGEST_GAP) * instance.optimum


def test_drawn_instances_are_of_their_kinds():
    for instance in qaplib.drawn_instances():
        n = len(instance.A)
        assert instance.B.shape == (n, n)
        if instance.name.startswith("tree"):
            assert (instance.A > 0).sum() == 2 * (n - 1)


def test_another_draw_has_other_instances_and_names():
    pairs = list(zip(qaplib.drawn_instances(), qaplib.drawn_instances(3), strict=True))
    assert len(pairs) == 14
    for one, other in pairs:
        assert f"{one.name}, draw 3" == other.name
        assert not np.array_equal(one.A, other.A)


def test_fits_are_compared_with_the_best(tmp_path, monkeypatch):
    monkeypatch.setattr(qaplib, "_all_instances", lambda: iter([qaplib.random_instance()]))
    monkeypatch.setattr(
        qaplib, "drawn_instances", lambda draw: [qaplib.tree_instance(5, 0, 2, draw)]
    )
    qaplib.main(["--out", str(tmp_path), "--seeds", "0", "1", "--long"])
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(lines) == 5
    assert all("0.000%" in line for line in lines[1:])
