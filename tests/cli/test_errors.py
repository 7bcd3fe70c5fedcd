"""Errors in options and files, interrupts, closed pipes, and shell completion."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import permvi as pv
from permvi._cli import results

SCRIPT = Path(sys.executable).with_name("permvi")
TABLE = "item,x,y\na,1,2\nb,3,4\n"
POINTS = "label,u,v\nx,0,1\ny,1,0\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kind", "odds"], "kind must be one of 'scores', 'costs', 'log-odds'"),
        (["--kind", "log-odds", "--temperature", 2], "temperature must be 1 unless kind is"),
        (["--temperature", 0], "temperature must be positive, got 0.0"),
        (["--kind", "probabilities"], "line 2, column 2 ('x'): expected a probability from 0 to"),
        (["--kind", "row-probabilities"], "line 2, column 3 ('y'): expected a probability from 0"),
        (["--method", "exakt"], "did you mean 'exact'?"),
        (["--level", 0], "level must be in (0, 1], got 0"),
        (["--scale", 1], "--scale must go with a file of LABELS, got it without one"),
        (["--unmatched", "z"], "unmatched must be a number or the name of a column of"),
        (["--unused", "x"], "unused must be a number or the name of a row of"),
        (["--unmatched", "inf"], "unmatched must be a score below infinity, got inf"),
        (["--unmatched", "nan"], "unmatched must be a score below infinity, got nan"),
        (["--plot", "f.gif"], "--plot must end in .png, .pdf, .svg, got 'f.gif'"),
        (["--save", "none/fit.nc"], "--save must lie in an existing folder, got"),
        (["--csv", "."], "--csv must be a file, got the folder '.'"),
        (["--mask", "none.csv"], "none.csv: expected a CSV file, got no file of that name"),
        (["--prior", "t.csv", "--prior-kind", "odds"], "prior-kind must be one of"),
        (["--top", -1], "(see permvi match --help)"),
    ],
)
def test_mistakes_in_options(run, write, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    result = run("match", write("t.csv", TABLE), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("permvi: ")
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--mask", "i,x,y\na,1,2\nb,1,1\n", "line 2, column 3 ('y'): expected 1 (allowed) or 0"),
        ("--mask", "i,x,y\na,1,1\n", "expected a row 'b', got none"),
        ("--mask", "i,x,y\na,1,1\nb,0,0\n", "or --unmatched, got none for 'b'"),
        ("--mask", "i,x,y\na,1,0\nb,1,0\n", "got only 'x' for the items 'a', 'b'"),
        ("--known", "item,label\nc,x\n", "line 2: expected an item of the input, got 'c'"),
        ("--known", "item,label\na,z\n", "line 2: expected a label of the input, got 'z'"),
        ("--known", "item,label\na,x\na,y\n", "line 3: expected each item and each label once"),
        ("--known", "item,label\na,x\nb,x\n", "line 3: expected each item and each label once"),
        ("--prior", "i,x\na,1\nb,1\n", "expected a column 'y', got none"),
        ("--prior", "i,x,y,z\na,1,1,1\nb,1,1,1\n", "expected the same columns as in the input"),
    ],
)
def test_mistakes_in_files(run, write, option, content, message):
    result = run("match", write("t.csv", TABLE), option, write("other.csv", content))
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_a_third_file_without_pairs(run, write):
    table = write("t.csv", TABLE)
    result = run("match", table, table, table, "--scale", 1)
    assert result.exit_code == 2
    assert result.stderr == "permvi: a third file must go with --pairs, got it without.\n"


def test_a_method_that_cannot_take_the_model(run, write):
    table = write("t.csv", "item,x,y\na,,2\nb,3,4\n")
    result = run("match", table, "--method", "mallows", "--unmatched", 0)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("permvi: model must have no mask for method 'mallows'")


def test_a_known_pair_has_to_be_allowed(run, write):
    known = write("known.csv", "item,label\na,x\n")
    result = run("match", write("t.csv", "item,x,y\na,,2\nb,3,4\n"), "--known", known)
    assert result.exit_code == 2
    assert "known.csv, line 2: expected a pair that is allowed, got 'a' and 'x'" in result.stderr


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        (POINTS, [], "--scale must be given with a file of LABELS"),
        (POINTS, ["--scale", 1, "--kind", "costs"], "--kind must go with a table of pairs"),
        (POINTS, ["--scale", 1, "--pairs"], "--scale must not be given for a linkage of pairs"),
        (POINTS, ["--scale", "1,2,3"], "scale must be one number or one for each of 2 features"),
        (POINTS, ["--scale", 0], "scale must be positive, got 0.0"),
        (POINTS, ["--scale", "auto"], "scale must be a number, numbers or 'infer', got 'auto'"),
        (POINTS, ["--scale", 1, "--noise", "cauchy"], "noise must be 'gaussian' or 'student_t'"),
        (POINTS, ["--scale", 1, "--df", -1], "df must be positive, got -1"),
        (POINTS, ["--scale", "infer", "--unmatched", -3], "unmatched must be a positive number"),
        (POINTS, ["--scale", 1, "--unmatched", -3], "unmatched must be a positive number, got -3"),
        (POINTS, ["--scale", 1, "--unused", 1], "unused must be a probability from 0 to below 1"),
        ("l,u\nx,1\n", ["--scale", 1], "labels.csv: expected a column 'v', got none"),
        ("l,u,v\nx,1,\n", ["--scale", 1], "line 2, column 3 ('v'): expected a finite number, got"),
        ("l,u,v\nx,1,inf\n", ["--scale", 1], "expected a finite number, got inf"),
    ],
)
def test_mistakes_with_features(run, write, labels, options, message):
    files = write("items.csv", "item,u,v\na,1,2\n"), write("labels.csv", labels)
    result = run("match", *files, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_interrupted_while_computing(run, write, tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(results, "fit", interrupt)
    result = run("match", write("t.csv", TABLE), "--save", tmp_path / "fit.nc")
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "permvi: interrupted; files that were finished are kept.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_an_answer_survives_an_interrupted_check(run, write, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pv.Posterior, "check", interrupt)
    result = run("match", write("t.csv", TABLE))
    assert result.exit_code == 0
    assert "verdict: trust" in result.stdout
    assert result.stderr.startswith("permvi: interrupted: whether the model fits")


def test_interrupted_while_writing(run, write, tmp_path, monkeypatch):
    def interrupt(figure, path, **kwargs):
        path.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", interrupt)
    options = ["--save", tmp_path / "fit.nc", "--plot", tmp_path / "fit.png"]
    result = run("match", write("t.csv", TABLE), *options)
    assert result.exit_code == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.nc", "t.csv"]
    assert pv.load(tmp_path / "fit.nc").labels == (("a", "b"), ("x", "y"))


@pytest.mark.skipif(os.name != "posix", reason="signals and named pipes are POSIX")
def test_ctrl_c(tmp_path):
    fifo = tmp_path / "table.csv"
    os.mkfifo(fifo)
    # Tests that run in the background of a script inherit that the signal is ignored.
    heeding = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from permvi.cli import main; sys.argv[0] = 'permvi'; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", heeding, "match", str(fifo)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Opening waits for the command to open it too, which then reads until this end is closed.
    with fifo.open("w") as file:
        file.write("item,x\n")
        file.flush()
        process.send_signal(signal.SIGINT)
        # A signal between two reads is seen only when the second of them ends: with the file.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err) == ("", "permvi: interrupted; files that were finished are kept.\n")


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_closed_pipe_prints_no_error(options):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [str(SCRIPT), "methods", *options], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")


def test_shell_completion():
    def complete(words):
        env = os.environ | {
            "_PERMVI_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        done = subprocess.run([str(SCRIPT)], capture_output=True, text=True, env=env, check=False)
        assert done.stderr == ""
        return done.stdout.split()

    assert complete("permvi ma") == ["match"]
    assert complete("permvi match --method ex") == ["exact"]
