import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import permvi
from permvi import cli
from permvi._cli import studies, terminal
from permvi.experiments import registry
from permvi.experiments.results import Result, summary_row

SCRIPT = Path(sys.executable).with_name("permvi")
# Tests of the sdist run beside an installed wheel, which has no benchmarks.
BENCHMARKS = Path(studies.__file__).resolve().parents[3] / "benchmarks" / "run.py"
in_a_checkout = pytest.mark.skipif(
    not BENCHMARKS.is_file(), reason="permvi bench needs a checkout, and this is a wheel"
)


@pytest.fixture
def run():
    runner = CliRunner()
    return lambda *args, **kwargs: runner.invoke(cli.app, [str(arg) for arg in args], **kwargs)


@pytest.fixture
def fake_study(monkeypatch):
    """Let every study write nothing and return a row, and note how it was called."""
    calls = []

    def study(name, out, *, size, seed, progress, workers, scheduler):
        calls.append((name, str(out), size, seed, workers, scheduler))
        progress("working", 0, 1)
        row = summary_row(name, "method", {"n": 3}, "metric", [1.0, 3.0], seconds=0.5, paper=2.5)
        return Result([row], [Path(out) / "summary.json"])

    monkeypatch.setattr(registry, "run", study)
    return calls


@pytest.mark.slow
def test_the_script_reproduces_the_transforms(tmp_path):
    done = subprocess.run(
        [str(SCRIPT), "reproduce", "transforms", "--out", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    # In a pipe there is no progress, and no library may add noise of its own.
    assert done.stderr == ""
    assert "gumbel_softmax" in done.stdout
    for name in ("figure1.png", "figure1.pdf", "summary.json", "rows.csv"):
        assert str(tmp_path / "demo" / name) in done.stdout.splitlines()
        assert (tmp_path / "demo" / name).stat().st_size > 0


def test_version_and_help(run):
    assert run("--version").output == f"permvi {permvi.__version__}\n"
    text = run("--help").output
    commands = (
        "match",
        "rank",
        "track",
        "identify",
        "report",
        "ask",
        "methods",
        "demo",
        "reproduce",
        "cache",
    )
    for word in (*commands, "bench", "--show-completion"):
        assert word in text
    assert "transforms" in run("reproduce", "--help").output


def test_without_arguments_it_prints_the_help(run):
    result = run()
    assert result.exit_code == 2
    assert "Usage" in result.output
    assert result.stderr == ""


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from permvi import cli; "
        "heavy = {'jax', 'numpy', 'matplotlib', 'numba', 'scipy'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_reproduce_shows_a_table_and_the_paths(run, fake_study):
    options = ["--out", "somewhere", "--size", "paper", "--seed", 7, "--workers", 2]
    result = run("reproduce", "transforms", *options)
    assert result.exit_code == 0
    assert fake_study == [("transforms", "somewhere", "paper", 7, 2, None)]
    assert "n 3" in result.stdout
    assert "2.5" in result.stdout
    assert str(Path("somewhere") / "summary.json") in result.stdout.splitlines()
    assert result.stderr == ""


def test_reproduce_prints_json(run, fake_study):
    for flags in (["--json"], ["--json", "--quiet"]):
        result = run("reproduce", "transforms", "--out", "somewhere", *flags)
        assert result.exit_code == 0
        (row,) = json.loads(result.stdout)
        assert row["mean"] == 2
        assert row["setting"] == {"n": 3}


def test_quiet_prints_nothing(run, fake_study):
    result = run("reproduce", "transforms", "--out", "somewhere", "--quiet")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["reproduce", "transfroms", "--out", "x"],
            "got 'transfroms'; did you mean 'transforms'?",
        ),
        (["reproduce", "zebra", "--out", "x"], "got 'zebra'."),
        (
            ["reproduce", "transforms", "--out", "x", "--size", "huge"],
            "size must be 'smoke' or 'paper', got 'huge'.",
        ),
        (["reproduce", "transforms", "--out", __file__], "out must be a folder, got the file"),
        (["bench", "--json", "out.txt"], "--json must end in .json, got 'out.txt'."),
        pytest.param(
            ["bench", "--only", "stick"], "did you mean 'stick_breaking'?", marks=in_a_checkout
        ),
    ],
)
def test_mistakes_are_answered_in_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("permvi: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["reproduce", "transforms"],
        ["reproduce", "transforms", "--out", "x", "--seed", "-1"],
        ["reproduce", "transforms", "--out", "x", "--seed", "one"],
        ["reproduce", "--frobnicate"],
        ["frobnicate"],
    ],
)
def test_bad_usage_too_is_answered_in_one_line(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("permvi: ")
    command = " ".join(["permvi", *(word for word in arguments[:1] if word == "reproduce")])
    assert line.endswith(f"(see {command} --help).")


@pytest.mark.parametrize("error", [ValueError, TypeError, OSError])
def test_errors_of_a_study_are_one_line_without_a_traceback(run, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error("psi must be\n  finite, got nan.")

    monkeypatch.setattr(registry, "run", fail)
    result = run("reproduce", "transforms", "--out", "x")
    assert (result.exit_code, result.stderr) == (2, "permvi: psi must be finite, got nan.\n")
    monkeypatch.setenv("PERMVI_TRACEBACK", "1")
    assert isinstance(run("reproduce", "transforms", "--out", "x").exception, error)


def test_our_own_mistakes_are_not_hidden(run, monkeypatch):
    def fail(*args, **kwargs):
        raise KeyError("bug")

    monkeypatch.setattr(registry, "run", fail)
    assert isinstance(run("reproduce", "transforms", "--out", "x").exception, KeyError)


def test_progress_only_on_a_terminal(monkeypatch, capfd):
    with terminal.progress(quiet=False) as report:
        report("working", 1, 2)
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with terminal.progress(quiet=True) as report:
        report("working", 1, 2)
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are POSIX")
@pytest.mark.parametrize(("done", "total", "share"), [(1, 2, b"50%"), (0, 1, None)])
def test_progress_bar_on_a_terminal(done, total, share):
    """A stage that has not said how much there is to do has no share that stands at zero."""
    import pty

    code = (
        "from permvi._cli import terminal\n"
        f"with terminal.progress(quiet=False) as report: report('working', {done}, {total})"
    )
    parent, child = pty.openpty()
    env = os.environ | {"TERM": "xterm"}
    subprocess.run([sys.executable, "-c", code], stderr=child, check=True, env=env)
    os.close(child)
    shown = os.read(parent, 10_000)
    os.close(parent)
    assert b"working" in shown
    assert share in shown if share else b"%" not in shown


@in_a_checkout
def test_bench_writes_json_and_shows_targets(run, tmp_path, monkeypatch):
    row = {
        "name": "import permvi vs import jax",
        "value": 0.1,
        "unit": "s",
        "reference": 0.2,
        "ratio": 2.0,
        "device": "cpu",
    }
    calls = []

    def fake(only, quick, report):
        calls.append((only, quick))
        report("imports", 0, 1)
        return [row]

    monkeypatch.setattr(studies.load_benchmarks(), "run", fake)
    file = tmp_path / "new" / "bench.json"
    result = run("bench", "--json", file, "--quick", "--only", "imports")
    assert result.exit_code == 0
    assert calls == [("imports", True)]
    assert json.loads(file.read_text()) == [row]
    assert "0.83" in result.stdout
    assert run("bench", "--quiet").output == ""


def test_bench_says_what_an_installed_wheel_lacks(run, tmp_path, monkeypatch):
    installed = tmp_path / "lib" / "site-packages" / "permvi" / "_cli" / "studies.py"
    monkeypatch.setattr(studies, "__file__", str(installed))
    result = run("bench")
    assert result.exit_code == 2
    assert result.stderr.startswith("permvi: permvi bench needs the benchmarks folder")


def test_ask_answers_joint_questions(run, tmp_path):
    labels = (["r1", "r2"], ["Anna", "Bea"])
    model = permvi.models.LinearMatching([[2.1972, 2.0794], [2.0794, 0.0]], labels=labels)
    permvi.fit(model).save(tmp_path / "fit.nc")
    statements = ["r1=Bea, r2=Anna", "r1!=Bea", "r1=Anna,r2!=Anna", "r1=unmatched"]
    shown = run("ask", tmp_path / "fit.nc", *statements)
    assert shown.exit_code == 0
    values = ["0.8767", "0.1233", "0.1233", "0"]
    wanted = [f"p({text}) = {value}" for text, value in zip(statements, values, strict=True)]
    assert shown.output.splitlines() == wanted
    found = json.loads(run("ask", tmp_path / "fit.nc", statements[0], "--json").output)
    assert found["verdict"] == "trust"
    assert found["statements"][0]["probability"] == pytest.approx(64 / 73, abs=1e-4)
    assert found["statements"][0]["se"] == 0
    for text, message in (
        ("r1", "statements must be like"),
        ("r1=Anna,r1=Bea", "an item one label"),
        ("r3=Anna", "item must be the name of one item, got 'r3'"),
    ):
        failed = run("ask", tmp_path / "fit.nc", text)
        assert failed.exit_code == 2
        assert message in failed.stderr
    permvi.fit(permvi.models.LinearMatching([[2.2, 2.1], [2.1, 0.0]])).save(tmp_path / "plain.nc")
    assert "p(0=1,1=0) = 0.88" in run("ask", tmp_path / "plain.nc", "0=1,1=0").output
