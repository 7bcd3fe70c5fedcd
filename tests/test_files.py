"""Files are whole or absent: full disks, folders in the way, kills, damaged copies."""

import contextlib
import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import permvi as pv
from permvi import _figures, _files
from permvi._cli import results
from permvi.experiments import results as studies


@contextlib.contextmanager
def little_space(limit):
    """Let this process write at most so many bytes to a file, as on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="module")
def posterior():
    table = np.random.default_rng(0).normal(size=(8, 8))
    labels = [[f"r{k}" for k in range(8)], [f"c{k}" for k in range(8)]]
    return pv.fit(pv.models.LinearMatching(table, labels=labels), "exact")


WRITERS = {
    "fit.nc": lambda posterior, path: posterior.save(path),
    "fit.html": lambda posterior, path: posterior.report(path),
    "fit.csv": lambda posterior, path: results.write_csv(path, results.items_of(posterior, 0.95)),
    "fit.png": lambda posterior, path: _figures.save(
        posterior.plot().figure, path.parent, path.stem, ("png",)
    ),
    "rows.csv": lambda posterior, path: studies.write_rows(path.parent, [{"a": "x" * 5000}]),
    "fit.json": lambda posterior, path: _files.write_json(path, ["x" * 5000]),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("limit", [0, 1, 700])
def test_a_full_disk_leaves_the_old_file(posterior, tmp_path, name, limit):
    path = tmp_path / name
    path.write_bytes(b"old")
    with little_space(limit), pytest.raises(OSError, match="cannot be written: file too large"):
        WRITERS[name](posterior, path)
    # What the error has held is freed here, which has crashed Python 3.12.1.
    gc.collect()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == [name]
    WRITERS[name](posterior, path)
    assert path.read_bytes() != b"old"


def test_errors_are_sentences_with_their_number(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"a\.txt cannot be written: no space left") as caught:
        _files.write_text(path, "text")
    assert caught.value.errno == errno.ENOSPC
    assert not os.listdir(tmp_path)


def test_folders_are_refused(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(ValueError, match="path must be a file, got the folder"):
        _files.write_text(tmp_path / "taken", "text")
    with pytest.raises(FileNotFoundError, match="must lie in an existing folder"):
        _files.write_text(tmp_path / "missing" / "file", "text")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_an_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="cannot be written: permission denied"):
        _files.write_text(tmp_path / "file", "text")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("option", ["--csv", "--save", "--plot", "--report"])
def test_commands_survive_a_full_disk(tmp_path, option):
    endings = {"--csv": "csv", "--save": "nc", "--plot": "png", "--report": "html"}
    table, out = tmp_path / "table.csv", tmp_path / f"out.{endings[option]}"
    table.write_text("item,A,B\nx,1,2\ny,2,1\n")
    out.write_text("old")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20));"
        f"sys.argv = ['permvi', 'match', {str(table)!r}, {option!r}, {str(out)!r}];"
        "import permvi.cli; permvi.cli.main()"
    )
    # What is compiled cannot be kept either.
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("cannot be written") == 1
    assert "Traceback" not in done.stderr
    assert out.read_text() == "old"


WRITE_ON = """
import sys, itertools
sys.path[:0] = [sys.argv[1]]
from pathlib import Path
from permvi._files import write_bytes
for k in itertools.count():
    write_bytes(Path(sys.argv[2]), bytes([k % 251]) * 300_000)
    if k == 0:
        print(flush=True)
"""


@pytest.mark.parametrize("num_kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_a_kill_at_any_moment_leaves_a_whole_file(tmp_path, rng, num_kills):
    path, source = tmp_path / "file", os.path.dirname(os.path.dirname(pv.__file__))
    command = [sys.executable, "-c", WRITE_ON, source, str(path)]
    for _ in range(num_kills):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            time.sleep(0.05 * rng.random())
            writer.kill()
        content = path.read_bytes()
        assert len(content) == 300_000
        assert content == content[:1] * 300_000


def damaged_copies(content, num, rng):
    """Copies with bytes flipped, a part cut off, repeated, zeroed, or with huge numbers in it."""
    for k in range(num):
        copy = bytearray(content)
        place = int(rng.integers(len(copy)))
        if k % 5 == 0:
            for where in rng.integers(len(copy), size=1 + k % 7):
                copy[where] ^= 1 << int(rng.integers(8))
        elif k % 5 == 1:
            copy = copy[:place]
        elif k % 5 == 2:
            copy[place : place + 8] = b"\xff" * 7 + b"\x7f"
        elif k % 5 == 3:
            copy[place:place] = copy[: 1 + place // 2]
        else:
            copy[place : place + 40] = bytes(len(copy[place : place + 40]))
        yield bytes(copy)


@contextlib.contextmanager
def bounded_memory(more):
    """Let this process take so many bytes more than it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("num", [40, pytest.param(3000, marks=pytest.mark.slow)])
def test_damaged_posteriors_are_refused(posterior, tmp_path, rng, num):
    path = tmp_path / "fit.nc"
    posterior.save(path)
    messages = []
    with bounded_memory(1 << 30):
        for copy in damaged_copies(path.read_bytes(), num, rng):
            (tmp_path / "copy.nc").write_bytes(copy)
            try:
                found = pv.load(tmp_path / "copy.nc")
            except ValueError as error:
                messages.append(str(error))
            else:
                # The damage was in the seal, or in a zero that became a zero.
                np.testing.assert_array_equal(found.marginals, posterior.marginals)
                assert found.log_evidence == posterior.log_evidence
    assert not any("\n" in message for message in messages)
    assert len(messages) > 0.8 * num


def test_files_without_a_seal_are_read_unless_truncated(posterior, tmp_path):
    # HDF5 itself does not survive all damages, which is why there is a seal.
    path = tmp_path / "fit.nc"
    posterior.save(path)
    content = path.read_bytes()
    content = content[: content.rindex(b"\npermvi sha256 ")]
    path.write_bytes(content)
    assert pv.load(path).log_evidence == posterior.log_evidence
    for length in np.linspace(0, len(content) - 1, 12).astype(int):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="damaged or something else"):
            pv.load(path)


def test_other_programs_read_a_saved_posterior(posterior, tmp_path):
    import xarray as xr

    posterior.save(tmp_path / "fit.nc")
    with xr.open_dataset(tmp_path / "fit.nc", engine="h5netcdf") as dataset:
        np.testing.assert_array_equal(dataset["marginals"], posterior.marginals)


def test_declared_sizes_beyond_the_file_are_refused(tmp_path):
    import h5py

    path = tmp_path / "huge.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("marginals", shape=(1 << 20, 1 << 20), dtype="f8", chunks=(64, 64))
    with bounded_memory(1 << 30), pytest.raises(ValueError, match="damaged or something else"):
        pv.load(path)


FILES = {
    "table": (["table.csv"], "item,A,B,C\nx,1,2,3.5\ny,2,1,-1e3\nz,0,0,1\n"),
    "pairs": (["--pairs", "table.csv"], "item,label,score\nx,A,1\nx,B,2.5\ny,A,0\ny,B,-1\n"),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("num", [25, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged_tables_are_read_or_refused_in_a_sentence(tmp_path, rng, kind, num):
    from typer.testing import CliRunner

    from permvi.cli import app

    arguments, text = FILES[kind]
    path = tmp_path / "table.csv"
    arguments = [str(path) if word == "table.csv" else word for word in arguments]
    for copy in damaged_copies(text.encode(), num, rng):
        path.write_bytes(copy)
        done = CliRunner().invoke(app, ["match", *arguments, "--quiet"])
        assert done.exit_code in (0, 2), (copy, done.exception)
        assert done.exit_code == 0 or done.output.count("\n") == 1, (copy, done.output)


@pytest.mark.parametrize("label", ["=cmd|calc", "+1+1", "-A1", "@SUM(A1)", " =1", "＝1"])
def test_labels_are_no_formulas_in_csv(tmp_path, label):
    path = tmp_path / "out.csv"
    rows = [{"item": label, "sets": [label, "b"], "p": -0.5, "number": "-5"}]
    results.write_csv(path, rows)
    assert path.read_text() == f"item,sets,p,number\n'{label},'{label}; b,-0.5,-5\n"
    results.write_csv(path, rows, raw=True)
    assert path.read_text() == f"item,sets,p,number\n{label},{label}; b,-0.5,-5\n"


def test_match_writes_raw_labels_when_asked(tmp_path):
    from typer.testing import CliRunner

    from permvi.cli import app

    table, out = tmp_path / "table.csv", tmp_path / "out.csv"
    table.write_text("item,=A,B\nx,9,0\ny,0,9\n")
    for options, wanted in (([], "x,'=A,"), (["--raw-csv"], "x,=A,")):
        done = CliRunner().invoke(app, ["match", str(table), "--csv", str(out), *options])
        assert done.exit_code == 0, done.output
        assert out.read_text().splitlines()[1].startswith(wanted)
