import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import filelock
import pytest

from permvi.experiments import registry, runner
from permvi.experiments.runner import Task, run_study
from permvi.experiments.runner import study as runner_study
from tests.experiments.toy_study import STUDY

ROOT = Path(__file__).parents[2]


def run(folder, *, size="smoke", seed=0, reports=None, **where):
    def progress(*args):
        if reports is not None:
            reports.append(args)

    return run_study(STUDY, folder, size=size, seed=seed, progress=progress, **where)


def visible(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("[!.]*") if path.is_file())


def counted(log):
    return sorted(map(int, log.read_text().split()))


def test_rows_and_summary_come_in_the_order_of_the_tasks(tmp_path):
    reports = []
    result = run(tmp_path / "new" / "folder", reports=reports)
    assert [args[1:] for args in reports] == [(k, 6) for k in range(7)]
    lines = (tmp_path / "new" / "folder" / "rows.csv").read_text().splitlines()
    assert lines[0] == "k,value,missing"
    assert [int(line.split(",")[0]) for line in lines[1:]] == [k for k in range(6) for _ in "ab"]
    assert result.summary[0]["n"] == 12
    assert len([name for name in visible(tmp_path) if "/tasks/" in name]) == 6
    assert not (tmp_path / "new" / "folder" / "scratch").exists()


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("TOY_LOG", str(log))
    monkeypatch.setenv("TOY_FAILS", "3")
    with pytest.raises(RuntimeError, match="this task fails"):
        run(tmp_path / "out")
    assert counted(log) == [0, 1, 2, 3]
    assert not (tmp_path / "out" / "rows.csv").exists()
    monkeypatch.delenv("TOY_FAILS")
    reports = []
    run(tmp_path / "out", reports=reports)
    assert counted(log) == [0, 1, 2, 3, 3, 4, 5]
    assert reports[0][1:] == (3, 6)
    run(tmp_path / "other")
    assert (tmp_path / "out" / "rows.csv").read_bytes() == (
        tmp_path / "other" / "rows.csv"
    ).read_bytes()


def test_a_damaged_task_file_is_done_again(tmp_path):
    run(tmp_path)
    before = (tmp_path / "rows.csv").read_bytes()
    first, second, *_ = sorted((tmp_path / "tasks").glob("*.json"))
    first.write_text(first.read_text()[:20])
    second.write_text("[]")
    run(tmp_path)
    assert (tmp_path / "rows.csv").read_bytes() == before
    assert json.loads(first.read_text())["rows"]


def test_a_folder_holds_one_run(tmp_path):
    run(tmp_path)
    before = visible(tmp_path)
    with pytest.raises(ValueError, match=r"holds seed 0 and not 1; choose another folder"):
        run(tmp_path, seed=1)
    with pytest.raises(ValueError, match=r"holds size 'smoke' and not 'paper'"):
        run(tmp_path, size="paper")
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(ValueError, match=r"run.json must be the description of a run"):
        run(tmp_path)
    assert visible(tmp_path) == before


def test_two_runs_cannot_share_a_folder(tmp_path):
    with (
        runner_study.opened(tmp_path, STUDY, "smoke", 0),
        pytest.raises(ValueError, match=rf"where process {os.getpid()} on .* is running"),
    ):
        run(tmp_path)
    with filelock.FileLock(tmp_path / ".lock"), pytest.raises(ValueError, match="another process"):
        run(tmp_path)
    run(tmp_path)


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    run(tmp_path)
    for leftover in (tmp_path / ".rows.csv.99.tmp", tmp_path / "tasks" / ".x.json.99.tmp"):
        leftover.write_text("half")
    run(tmp_path)
    assert not list(tmp_path.rglob("*.tmp"))


def test_another_cluster_is_not_in_the_way(tmp_path, recwarn):
    with socket.socket() as other:
        # If it is taken already, all the better.
        with contextlib.suppress(OSError):
            other.bind(("127.0.0.1", 8787))
            other.listen()
        run(tmp_path, workers=2)
    assert not [str(found.message) for found in recwarn if "in use" in str(found.message)]


def test_results_do_not_depend_on_the_number_of_workers(tmp_path, recwarn):
    run(tmp_path / "one")
    run(tmp_path / "two", workers=2)
    assert (tmp_path / "one" / "rows.csv").read_bytes() == (
        tmp_path / "two" / "rows.csv"
    ).read_bytes()
    assert visible(tmp_path / "one") == visible(tmp_path / "two")


def test_an_existing_scheduler_is_used(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        run(tmp_path / "there", scheduler=cluster.scheduler_address)
    run(tmp_path / "here")
    assert (tmp_path / "there" / "rows.csv").read_bytes() == (
        tmp_path / "here" / "rows.csv"
    ).read_bytes()


def test_a_wrong_scheduler_or_number_of_workers_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"scheduler must be .* got 'nonsense://here'"):
        run(tmp_path, scheduler="nonsense://here")
    with pytest.raises(ValueError, match="workers must be an integer of at least 1, got 0"):
        run(tmp_path, workers=0)


def test_keys_are_file_names_and_differ_by_configuration():
    one, other = Task("a / b: c", {"x": 1}), Task("a / b: c", {"x": 2})
    assert one.key != other.key
    assert one.key.startswith("a-b-c-")
    assert one.key == Task("a / b: c", {"x": 1}).key


def test_checkpoints_of_a_task_that_was_saved_do_not_stay(tmp_path, monkeypatch):
    # As if killed after the rows of a task were written and before its checkpoints were removed.
    removed = shutil.rmtree
    monkeypatch.setattr(runner_study.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setenv("TOY_FAILS", "3")
    with pytest.raises(RuntimeError, match="this task fails"):
        run(tmp_path / "out")
    assert len(list((tmp_path / "out" / "scratch").glob("*/half.json"))) == 3
    monkeypatch.setattr(runner_study.shutil, "rmtree", removed)
    monkeypatch.delenv("TOY_FAILS")
    run(tmp_path / "out")
    run(tmp_path / "at_once")
    assert visible(tmp_path / "out") == visible(tmp_path / "at_once")


@pytest.mark.parametrize(("workers", "kills"), [(1, 6), pytest.param(2, 2, marks=pytest.mark.slow)])
def test_killed_runs_go_on_to_the_same_table(tmp_path, workers, kills):
    reference = tmp_path / "reference"
    command = [sys.executable, "-m", "tests.experiments.toy_run"]
    subprocess.run([*command, reference, "1"], cwd=ROOT, check=True)
    out, log = tmp_path / "out", tmp_path / "log"
    clock = random.Random(workers)
    environment = os.environ | {"TOY_SLEEP": "0.02", "TOY_LOG": str(log)}
    for _ in range(kills):
        process = subprocess.Popen([*command, out, str(workers)], cwd=ROOT, env=environment)
        already = len(list(out.glob("tasks/*.json")))
        wanted = already + clock.randrange(4)
        while process.poll() is None and len(list(out.glob("tasks/*.json"))) < wanted:
            time.sleep(0.005)
        time.sleep(clock.uniform(0, 0.03))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in out.glob("tasks/*.json"):
            json.loads(path.read_text())
    subprocess.run([*command, out, str(workers)], cwd=ROOT, env=environment, check=True)
    assert (out / "rows.csv").read_bytes() == (reference / "rows.csv").read_bytes()
    assert visible(out) == visible(reference)
    if workers == 1:
        # A kill costs the task that was under way and no more.
        assert len(counted(log)) <= 40 + kills


def test_the_paper_size_takes_all_cores_unless_told_otherwise(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(runner, "run_study", lambda *_, workers, **__: given.append(workers))
    monkeypatch.setattr(registry.os, "cpu_count", lambda: 7)
    for size, workers in (("smoke", None), ("paper", None), ("paper", 2)):
        registry.run("transforms", tmp_path, size=size, workers=workers)
    assert given == [1, 7, 2]


def test_tasks_that_share_a_process_run_in_threads(tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_SLEEP", "0.05")
    shared = dataclasses.replace(STUDY, max_threads=3)
    seen = []

    def run_task(config, scratch):
        seen.append((os.getpid(), threading.get_ident()))
        return STUDY.run_task(config, scratch)

    threaded = dataclasses.replace(shared, run_task=run_task)
    settings = {"size": "smoke", "seed": 0, "progress": lambda *_: None, "workers": 8}
    run_study(threaded, tmp_path / "threads", **settings)
    assert {process for process, _ in seen} == {os.getpid()}
    assert len({thread for _, thread in seen}) == 3
    run(tmp_path / "one")
    assert (tmp_path / "threads" / "rows.csv").read_bytes() == (
        tmp_path / "one" / "rows.csv"
    ).read_bytes()
    monkeypatch.setenv("TOY_FAILS", "2")
    with pytest.raises(RuntimeError, match="this task fails"):
        run_study(shared, tmp_path / "again", **settings)
    monkeypatch.delenv("TOY_FAILS")
    run_study(shared, tmp_path / "again", **settings)
