"""Linkings and fits on Dask workers: the same answers, also if a worker dies."""

import os
import signal

import numpy as np
import pytest

import permvi as pv
from permvi._cluster import connected
from permvi.linkage import graph as graphs
from tests.linkage.tables import contents, many_pairs

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def client():
    with connected(2, None) as opened:
        yield opened


def test_the_answer_does_not_depend_on_the_workers(client, tmp_path, monkeypatch, rng):
    monkeypatch.setattr(graphs, "_LEAST_COST", 60)
    table = many_pairs(rng, 400)
    alone = pv.match_pairs(table, out=tmp_path / "alone")
    pv.match_pairs(table, out=tmp_path / "together", client=client)
    assert contents(tmp_path / "alone") == contents(tmp_path / "together")
    assert alone.summary["components"] > 50


def test_a_worker_that_dies_is_replaced(client, tmp_path, monkeypatch, rng):
    monkeypatch.setattr(graphs, "_LEAST_COST", 60)
    table = many_pairs(rng, 400)
    pv.match_pairs(table, out=tmp_path / "alone")
    processes, killed = list(client.run(os.getpid).values()), []

    def kill_one(what, done, total):
        if what.startswith("linking") and not killed:
            killed.append(processes[0])
            os.kill(processes[0], signal.SIGKILL)

    pv.match_pairs(table, out=tmp_path / "together", client=client, progress=kill_one)
    assert killed
    assert contents(tmp_path / "alone") == contents(tmp_path / "together")


# Dask uses what pandas will drop.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_dask_frames_in_and_out(client, rng):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    table = many_pairs(rng, 60)
    frame = frames.from_pandas(pandas.DataFrame(table), npartitions=3)
    found = pv.match_pairs(frame, client=client)
    lazy = found.to_dask()
    np.testing.assert_array_equal(
        lazy["p_link"].compute().to_numpy(), pv.match_pairs(table).table()["p_link"].to_numpy()
    )


def test_fits_on_workers_are_those_without(client, rng):
    models = [pv.models.LinearMatching(rng.normal(size=(4, 4))) for _ in range(20)]
    here, there = pv.fit_many(models), pv.fit_many(models, client=client)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.marginals, other.marginals)
        assert other.diagnostics.verdict == "trust"
