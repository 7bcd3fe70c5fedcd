"""What commands write and print: formats by ending, standard output, advice, help."""

import csv
import gzip
import io
import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import permvi as pv
from permvi import cli
from permvi._cli import advice, commands, results, tables
from permvi.posterior.marginal_law import MarginalsLaw

SCORES = np.log([[4.0, 1, 2], [1, 3, 1], [2, 2, 5]])
ITEMS, LABELS = ["r1", "r2", "r3"], ["Anna", "Bea", "Cleo"]


@pytest.fixture
def table(write):
    frame = pd.DataFrame(SCORES, ITEMS, LABELS)
    return write("t.csv", frame.to_csv())


@pytest.fixture
def marginals():
    model = pv.models.LinearMatching(SCORES, labels=(ITEMS, LABELS))
    return pd.DataFrame(pv.fit(model).marginals, ITEMS, LABELS)


READERS = {
    "csv": pd.read_csv,
    "tsv": lambda path: pd.read_csv(path, sep="\t"),
    "csv.gz": lambda path: pd.read_csv(path, compression="gzip"),
    "parquet": pd.read_parquet,
    "xlsx": pd.read_excel,
}


@pytest.mark.parametrize("ending", READERS)
def test_probabilities_in_every_format(run, table, tmp_path, marginals, ending):
    path = tmp_path / f"p.{ending}"
    options = ["match", table, "--kind", "scores", "--probabilities", path, "--quiet"]
    assert run(*options).exit_code == 0
    long = READERS[ending](path)
    assert list(long.columns) == ["item", "label", "probability"]
    wanted = long.pivot(index="item", columns="label", values="probability")
    np.testing.assert_allclose(wanted.loc[ITEMS, LABELS], marginals, atol=1e-12)
    assert run(*options, "--wide").exit_code == 0
    wide = READERS[ending](path).set_index("item")
    np.testing.assert_allclose(wide.loc[ITEMS, LABELS], marginals, atol=1e-12)


def test_unmatched_in_probabilities(run, table, tmp_path):
    path = tmp_path / "p.csv"
    options = ["match", table, "--unmatched", "0", "--probabilities", path, "-q"]
    run(*options)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for item in ITEMS:
        mine = [row for row in rows if row["item"] == item]
        assert sum(float(row["probability"]) for row in mine) == pytest.approx(1)
        assert sum(row["label"] == "" for row in mine) == 1
    run(*options, "--wide")
    wide = pd.read_csv(path).set_index("item")
    assert list(wide.columns) == [*LABELS, "unmatched"]
    np.testing.assert_allclose(wide.sum(axis=1), 1)


def test_labels_that_are_called_like_columns():
    law = pv.posterior.ExactLaw(np.zeros((2, 2)), row_unmatched=0.0)
    posterior = pv.Posterior.from_exact(law, labels=(["a", "b"], ["item", "unmatched"]))
    first = results.probabilities_of(posterior, wide=True)[0]
    assert list(first) == ["item_", "item", "unmatched", "unmatched_"]


def test_the_order_of_a_ranking_in_probabilities(run, write, tmp_path):
    path = tmp_path / "p.csv"
    votes = write("v.csv", "1st,2nd,3rd\n" + "A,B,C\n" * 5 + "B,A,C\n" * 2)
    assert run("rank", votes, "--probabilities", path, "--wide", "-q").exit_code == 0
    # By Python: the default of older pandas may be off by the last bit.
    wide = pd.read_csv(path, dtype=str).set_index("item").map(float)
    assert list(wide.columns) == ["1", "2", "3"]
    np.testing.assert_allclose(wide.sum(axis=1), 1)
    np.testing.assert_allclose(wide.sum(axis=0), 1)
    told = json.loads(run("rank", votes, "--json").stdout)
    assert wide.loc[told["items"][0]["item"], "1"] == told["items"][0]["p_first"]


def test_what_each_point_may_be(run, write, tmp_path):
    rng = np.random.default_rng(3)
    rows = ["frame,x,y"]
    for t in range(4):
        rows += [f"{t},{x:.3f},{y:.3f}" for x, y in rng.uniform(0, 5, size=(3, 2))]
    path = tmp_path / "p.parquet"
    points = write("p.csv", "\n".join(rows))
    assert run("track", points, "--probabilities", path, "-q").exit_code == 0
    found = pd.read_parquet(path)
    np.testing.assert_allclose(found.groupby(["frame", "id"])["probability"].sum(), 1, atol=1e-9)
    assert set(found["origin"]) <= {"linked", "new", "false"}
    assert found.loc[found["origin"] == "linked", "previous_id"].notna().all()
    # A column for each of the nine points before the last frame holds the same numbers.
    assert run("track", points, "--probabilities", path, "--wide", "-q").exit_code == 0
    wide = pd.read_parquet(path).set_index(["frame", "id"])
    assert list(wide.columns) == [f"{k} ({t})" for t in range(3) for k in "123"] + ["new", "false"]
    linked = found["previous_id"] + " (" + found["previous_frame"] + ")"
    for point, column, p in zip(
        found[["frame", "id"]].itertuples(index=False, name=None),
        linked.fillna(found["origin"]),
        found["probability"],
        strict=True,
    ):
        assert wide.loc[point, column] == p
    np.testing.assert_allclose(wide.sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--report", "out.pdf", "--report must end in .html, .htm, got"),
        ("--csv", "out.html", "--csv must end in .csv, .tsv, .csv.gz, .tsv.gz, .parquet, .xlsx"),
        ("--probabilities", "out.json", "--probabilities must end in .csv"),
        ("--save", "out.csv", "--save must end in .nc, got"),
        ("--plot", "out.html", "--plot must end in .png, .pdf, .svg, got"),
        ("--json", "out.pdf", "--json must end in .json, got"),
        ("--save", "-", "--save must be a file, since it is not text, got '-'"),
        ("--plot", "-", "--plot must be a file, since it is not text, got '-'"),
    ],
)
def test_a_file_is_what_its_ending_says_or_refused(run, table, tmp_path, option, name, message):
    path = name if name == "-" else tmp_path / name
    result = run("match", table, option, path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.csv"]


# Every command that writes files, and the fewest arguments; the files are never read.
WRITING = {
    "match": ["t.csv"],
    "rank": ["t.csv"],
    "track": ["t.csv"],
    "identify": ["--atlas", "t.csv", "--cells", "t.csv"],
    "report": ["fit.nc"],
    "compare": ["a.nc", "b.nc"],
}


@pytest.mark.parametrize("command", WRITING)
def test_every_command_refuses_other_endings_before_it_works(run, command):
    params = typer.main.get_command(cli.app).commands[command].params
    known = {option for param in params for option in param.opts}
    for option, name in (
        ("--report", "out.pdf"),
        ("--csv", "out.html"),
        ("--probabilities", "out.json"),
        ("--json", "out.pdf"),
        ("--plot", "out.csv"),
        ("--save", "out.csv"),
    ):
        if option in known:
            result = run(command, *WRITING[command], option, name)
            assert (result.exit_code, result.stdout) == (2, "")
            assert f"{option} must end in" in result.stderr
    # What writes CSV can leave labels as they are, and writes all probabilities, wide or long.
    assert {"--raw-csv", "--probabilities", "--wide"} <= known


def test_labels_stay_inert_or_raw_in_every_command(run, write, tmp_path):
    table = write("t.csv", "item,=A,B\n=x,2,-1\ny,0,1\n")
    out, saved = tmp_path / "o.csv", tmp_path / "fit.nc"
    run("match", table, "--save", saved, "-q")
    points = "frame,id,x,y\n1,=a,0,0\n2,=b,0.1,0\n"
    given = ["--sd", "1", "--births", "0.1", "--deaths", "0.1", "--missed", "0.1", "--false", "0.1"]
    for arguments, name in (
        (["match", table], "=x"),
        (["rank", write("v.csv", "1st,2nd\n=x,B\n=x,B\n")], "=x"),
        (["track", write("p.csv", points), *given], "=a"),
        (["report", saved], "=x"),
        (["compare", saved, saved], "=x"),
    ):
        assert run(*arguments, "--csv", out, "-q").exit_code == 0
        assert f"'{name}" in out.read_text()
        assert run(*arguments, "--csv", out, "--raw-csv", "-q").exit_code == 0
        assert name in out.read_text()
        assert f"'{name}" not in out.read_text()


def test_json_goes_to_a_file(run, table, tmp_path):
    path = tmp_path / "o.json"
    printed = json.loads(run("match", table, "--json", "--quiet").stdout)
    for arguments in (["--json", path], [f"--json={path}"]):
        result = run("match", table, *arguments, "--quiet")
        assert (result.exit_code, result.output) == (0, "")
        found = json.loads(path.read_text())
        assert found["items"] == printed["items"]
        path.unlink()
    # A file to read is not taken for one to write.
    assert json.loads(run("match", "--json", table).stdout)["items"] == printed["items"]


@pytest.mark.parametrize("option", ["--csv", "--probabilities", "--report"])
def test_standard_output_holds_nothing_else(run, table, tmp_path, option):
    path = tmp_path / ("o.html" if option == "--report" else "o.csv")
    run("match", table, option, path, "--quiet")
    shown = run("match", table, option, "-").stdout
    clock = re.compile(r"\d\d:\d\d</span>|<code>.*?</code>|[\d.e-]+ s</dd>")
    assert clock.sub("", shown) == clock.sub("", path.read_text(encoding="utf-8"))
    both = run("match", table, option, "-", "--json")
    assert both.exit_code == 2
    both = run("match", table, "--csv", "-", "--probabilities", "-")
    assert "one output at most must be '-', got --csv and --probabilities" in both.stderr


def test_standard_input(table):
    runner = CliRunner()
    content = table.read_bytes()
    for given in (content, gzip.compress(content)):
        result = runner.invoke(cli.app, ["match", "-", "--csv", "-"], input=given)
        assert result.exit_code == 0
        assert [row["item"] for row in csv.DictReader(io.StringIO(result.stdout))] == ITEMS
    points = b"frame,x,y\n0,0,0\n1,0.1,0\n"
    given = ["--sd", "1", "--births", "0.1", "--deaths", "0.1", "--missed", "0.1", "--false", "0.1"]
    result = runner.invoke(cli.app, ["track", "-", *given, "--csv", "-"], input=points)
    assert [row["frame"] for row in csv.DictReader(io.StringIO(result.stdout))] == ["0", "1"]
    votes = b"1st,2nd\nA,B\nA,B\n"
    result = runner.invoke(cli.app, ["rank", "-", "--json"], input=votes)
    assert json.loads(result.stdout)["items"][0]["item"] == "A"


def test_ties_have_a_one_to_one_answer(run, write, tmp_path):
    path = write("t.csv", "item,A,B,C\nr1,0,0,0\nr2,0,0,0\nr3,0,0,0\n")
    shown = run("match", path).stdout
    assert "one-to-one" in shown
    found = json.loads(run("match", path, "--json").stdout)["items"]
    assert [item["best"] for item in found] == ["A", "A", "A"]
    assert sorted(item["one_to_one"] for item in found) == ["A", "B", "C"]
    # If everybody's best label is in the answer, a column would say nothing.
    certain = write("c.csv", "item,A,B\nr1,5,-5\nr2,-5,5\n")
    assert "one-to-one" not in run("match", certain).stdout
    out = tmp_path / "o.csv"
    run("match", certain, "--csv", out, "-q")
    assert list(pd.read_csv(out)["one_to_one"]) == ["A", "B"]


def test_long_sets_are_cut(capsys, tmp_path):
    n = 30
    even = np.full((n, n), 1 / n)
    law = MarginalsLaw(even, np.zeros(n), np.zeros(n))
    posterior = pv.Posterior(law=law, marginals=even, mode=np.arange(n), method="bethe")
    tables.write_csv(tmp_path / "o.csv", results.items_of(posterior, 0.95))
    found = pd.read_csv(tmp_path / "o.csv")
    assert len(found) == n
    assert set(found["set_size"]) == {29}
    assert found["credible_set"][0].endswith("; and 9 more")
    assert found["credible_set"][0].count("; ") == 20
    results.show(posterior, level=0.95, top=0)
    assert "These are the 20 least certain of 30 items." in capsys.readouterr().out
    results.show(posterior, level=0.95, top=0, everything=True)
    assert "least certain" not in capsys.readouterr().out


def test_empty_tables_and_unmatched_cells(tmp_path):
    tables.write_csv(tmp_path / "o.csv", [])
    assert (tmp_path / "o.csv").read_text() == "\n"
    tables.write_csv(tmp_path / "o.csv", [{"a": None, "b": [None, "x"]}])
    assert (tmp_path / "o.csv").read_text() == "a,b\n,unmatched; x\n"


def test_options_of_methods(run, table):
    arguments = ["match", table, "--kind", "scores", "--method", "exact"]
    found = json.loads(run(*arguments, "--option", "max_size=3", "--json").stdout)
    assert found["settings"]["max_size"] == 3
    assert "did you mean 'max_size'?" in run(*arguments, "--option", "max_siz=3").stderr
    for text in ("max_size", "=2", "a b=1"):
        assert "--option must be NAME=VALUE, got" in run(*arguments, "--option", text).stderr
    twice = ["--option", "max_size=2", "--option", "max_size=3"]
    assert "--option must give max_size once" in run(*arguments, *twice).stderr


@pytest.fixture
def votes(write):
    rows = ["1st,2nd,3rd", *["A,B,C"] * 5, *["B,A,C"] * 2, "C,A,B"]
    return write("v.csv", "\n".join(rows) + "\n")


def test_options_of_rankings(run, votes):
    arguments = ["rank", votes, "--json"]
    few = ["--method", "mcmc", "--option", "num_sweeps=400"]
    found = json.loads(run(*arguments, *few).stdout)
    assert found["settings"]["num_sweeps"] == 400
    exact = json.loads(run(*arguments).stdout)
    # A sweep gives at least a tenth of an independent draw: errors of up to 3 of .5 / sqrt(160).
    for one, other in zip(found["items"], exact["items"], strict=True):
        assert one["p_first"] == pytest.approx(other["p_first"], abs=0.12)
    assert "num_sweeps must be left out" in run("rank", votes, "--option", "num_sweeps=400").stderr
    worths = ["--model", "plackett_luce", "--option", "num_draws=4096"]
    assert json.loads(run(*arguments, *worths).stdout)["settings"]["num_draws"] == 4096
    robust = json.loads(run(*arguments, "--robust", "--option", "num_resamples=50").stdout)
    assert robust["shown"].startswith("the share of 50 resamples")
    refused = run("rank", votes, "--option", "num_sweep=3")
    assert refused.exit_code == 2
    assert "--option must be one of" in refused.stderr
    assert "did you mean 'num_sweeps'?" in refused.stderr


def test_options_of_tracks(run, write):
    rng = np.random.default_rng(3)
    rows = ["frame,x,y"]
    for t in range(5):
        rows += [f"{t},{x:.3f},{y:.3f}" for x, y in rng.uniform(0, 3, size=(4, 2))]
    points = write("p.csv", "\n".join(rows))
    given = ["--option", "num_moves=20000", "--option", "num_draws=25", "--motion", "walk"]
    found = json.loads(run("track", points, *given, "--json").stdout)
    assert found["settings"]["num_moves"] == 20_000
    assert found["settings"]["num_draws"] == 25
    # Chains that are far too short say so, and what to do, as a command.
    short = ["--option", "num_moves=20", "--option", "num_draws=20", "--motion", "walk"]
    found = json.loads(run("track", points, *short, "--json").stdout)
    assert found["verdict"] != "trust"
    assert "try more moves (--option num_moves=NUMBER)" in found["reasons"][0]
    refused = run("track", points, "--option", "num_moves=2")
    assert "num_moves must be an integer of at least 20, got 2" in refused.stderr


def test_advice_is_a_command(run, table):
    shown = run("match", table, "--kind", "scores", "--method", "bethe").stdout
    assert "--method linear or --method sequential" in shown
    assert "method='" not in shown
    refused = run("match", table, "--method", "fourier", "--unmatched", "0").stderr
    assert "permvi methods" in refused
    assert "pv." not in refused


def large(n, method):
    law = pv.posterior.DrawsLaw(np.arange(n)[None])
    return pv.Posterior(law=law, marginals=np.eye(n), mode=np.arange(n), method=method)


@pytest.mark.parametrize(
    ("text", "n", "method", "wanted"),
    [
        (
            "try method='sequential' or 'exact'",
            5,
            "bethe",
            "try --method sequential or --method exact",
        ),
        (
            "try method='sequential' or 'exact'",
            300,
            "bethe",
            "try --method sequential or --method linear",
        ),
        ("use method='exact' if it is affordable", 300, "linear", "use --method auto"),
        ("try method='mcmc' or more restarts", 9, "mcmc", "try --method auto or more restarts"),
        (
            "try more steps, num_temperatures=5, or method='exact' if it is affordable",
            9,
            "mcmc",
            "try more steps (--option num_steps=NUMBER), --option num_temperatures=5, or --method "
            "exact",
        ),
        (
            "try more steps (num_steps) or chains (num_chains)",
            300,
            "linear",
            "try more steps (--option num_steps=NUMBER) or chains (--option num_chains=NUMBER)",
        ),
        ("see pv.methods()", 9, "map", "see permvi methods"),
        (
            "at most max_size=24 rows, got 30; pass max_size=30 or use method='linear'",
            30,
            "exact",
            "at most max_size=24 rows, got 30; pass --option max_size=30 or use --method linear",
        ),
    ],
)
def test_advice_fits_the_problem(text, n, method, wanted):
    assert advice.in_commands(text, large(n, method)) == wanted


def test_advice_names_commands_that_exist():
    given = re.compile(r"--method (\w+)")
    for module in pv.methods():
        for name in given.findall(advice.in_commands(f"try method='{module.name}'")):
            assert name in {info.name for info in pv.methods()}


@pytest.mark.parametrize("command", commands.EXAMPLES)
def test_help_has_examples_and_no_types_of_flags(run, command):
    shown = run(command, "--help").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert not re.search("<(bool|str|float|int)", shown.partition("Options")[2])
    # Paragraphs are as wide as the terminal.
    about = [line for line in shown.partition("╭")[0].splitlines()[3:] if line.strip()]
    assert len(about) <= 1 + sum(map(len, about)) // 70
    flat = " ".join(re.sub("[│╭╮╰╯─]", " ", shown).split())
    assert len(commands.EXAMPLES[command]) == 2
    for text, _ in commands.EXAMPLES[command]:
        assert text in flat
        words = shlex.split(text)
        assert words[:2] == ["permvi", command]
        for option in (word for word in words if word.startswith("--")):
            assert option in shown


def test_help_of_permvi_has_no_types_of_flags(run):
    shown = run("--help").stdout
    assert "--version" in shown
    assert "<bool>" not in shown


def test_methods_fit_into_a_terminal(run):
    lines = run("methods").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert {info.name for info in pv.methods()} <= set(lines)


def test_the_command_is_kept(run, table, tmp_path):
    path = tmp_path / "fit.nc"
    run("match", table, "--kind", "scores", "--save", path, "-q")
    given = pv.load(path).settings["command"]
    assert given == shlex.join(
        ["permvi", "match", str(table), "--kind", "scores", "--save", str(path), "-q"]
    )
    assert run("report", path, "-q").exit_code == 0
    assert "<code>permvi match" in path.with_suffix(".html").read_text()


def test_everything_about_a_saved_posterior(run, table, tmp_path, marginals):
    path, out = tmp_path / "fit.nc", tmp_path / "p.csv"
    run("match", table, "--kind", "scores", "--save", path, "-q")
    result = run("report", path, "--probabilities", out, "--wide")
    assert result.stdout == f"{tmp_path / 'fit.html'}\n"
    np.testing.assert_allclose(pd.read_csv(out).set_index("item"), marginals, atol=1e-12)
    assert "--out must end in .html" in run("report", path, "--out", "x.pdf").stderr
