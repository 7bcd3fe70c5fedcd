"""``permvi rank`` against brute force over orders, completions and dispersions."""

import csv
import itertools
import json
import re

import numpy as np
import pytest
from scipy.integrate import quad

import permvi as pv
from tests.cli.pages import check_page


def exchanges(ranking, order):
    """Pairs of a complete ranking that an order has the other way round."""
    place = {item: k for k, item in enumerate(order)}
    return sum(place[a] > place[b] for a, b in itertools.combinations(ranking, 2))


def mallows(listed, order, theta, below):
    """The probability of a list: the sum of those of all complete rankings that begin with it."""
    order = [item for item in order if below or item in listed]
    total = matching = 0.0
    for ranking in itertools.permutations(order):
        weight = np.exp(-theta * exchanges(ranking, order))
        total += weight
        if list(ranking[: len(listed)]) == list(listed):
            matching += weight
    return matching / total


def law(rankings, items, below=False):
    """Each order's probability with the prior exp(-theta), the evidence and the mean of theta."""

    def integral(order, power):
        def density(theta):
            terms = [mallows(listed, order, theta, below) ** n for listed, n in rankings]
            return theta**power * np.exp(-theta) * np.prod(terms)

        return quad(density, 0, 40, points=[0.5, 2, 6], limit=200)[0]

    orders = list(itertools.permutations(items))
    found = {order: integral(order, 0) for order in orders}
    total = sum(found.values())
    mean = sum(integral(order, 1) for order in orders) / total
    return {order: p / total for order, p in found.items()}, total / len(orders), mean


FORMS = {
    "orders": ("judge,1st,2nd,3rd,4th\nx,A,B,C,D\ny,B,A,D,C\nz,A,C,B,D\n", []),
    "ranks": ("A,B,C,D,count\n1,2,3,4,1\n2,1,4,3,1\n1,3,2,4,1\n4,3,2,1,0\n", ["--ranks"]),
    "semicolons": ("\ufeff;D;B;A;C\nx;4;2;1;3\ny;3;1;2;4\nz;4;3;1;2\n", ["--ranks"]),
}
COMPLETE = [("ABCD", 1), ("BADC", 1), ("ACBD", 1)]


@pytest.fixture
def ranked(run, write):
    def run_rank(content, *options):
        result = run("rank", write("r.csv", content), *options, "--no-robust", "--json")
        assert result.exit_code == 0
        (line,) = result.stderr.splitlines()
        assert line.startswith("permvi: r.csv: read as ")
        return json.loads(result.stdout)

    return run_rank


def assert_agrees(found, rankings, items, below=False):
    exact, evidence, theta = law(rankings, items, below)
    assert found["method"] == "exact"
    assert found["log_evidence"] == pytest.approx(np.log(evidence), abs=1e-6)
    assert found["latents"]["theta"]["mean"] == pytest.approx(theta, rel=1e-6)
    order = [row["item"] for row in found["items"]]
    for k, row in enumerate(found["items"]):
        of_rank = np.zeros(len(items))
        for other, p in exact.items():
            of_rank[other.index(row["item"])] += p
        assert row["rank"] == k + 1
        assert row["probability"] == pytest.approx(of_rank[k], abs=1e-6)
        assert row["p_first"] == pytest.approx(of_rank[0], abs=1e-6)
        assert row["p_top3"] == pytest.approx(of_rank[:3].sum(), abs=1e-6)
        assert row["mean"] == pytest.approx(of_rank @ np.arange(1, len(items) + 1), abs=1e-6)
        low, high = row["low"] - 1, row["high"] - 1
        off = abs(of_rank[low : high + 1].sum() - 0.95)
        # No most probable interval of another length is nearer to the level.
        for size in range(1, len(items) + 1):
            masses = [of_rank[k : k + size].sum() for k in range(len(items) - size + 1)]
            assert off < abs(max(masses) - 0.95) + 1e-6
            assert high - low + 1 != size or off == pytest.approx(abs(max(masses) - 0.95), abs=1e-6)
        if k + 1 < len(order):
            pair = row["item"], order[k + 1]
            p = sum(p for o, p in exact.items() if o.index(pair[0]) < o.index(pair[1]))
            assert row["p_before_next"] == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_complete_rankings_in_every_form(ranked, form):
    content, options = FORMS[form]
    assert_agrees(ranked(content, *options), COMPLETE, "ABCD")


def test_lists_of_some_items(ranked):
    content = "count,best,second,third\n2,A,B,\n1,B,C,A\n1.5,C,D\n"
    rankings = [("AB", 2), ("BCA", 1), ("CD", 1.5)]
    assert_agrees(ranked(content), rankings, "ABCD")
    assert_agrees(ranked(content, "--others-below"), rankings, "ABCD", below=True)
    ranks = "A,B,C,D,votes\n1,2,,,2\n3,1,2,,1\n,,5,7,1.5\n"
    assert_agrees(ranked(ranks, "--ranks"), rankings, "ABCD")


def test_comparisons(ranked):
    found = ranked("Winner,Loser,times\nA,B,3\nB,A,1\nB,C,2\nC,A,1\n")
    assert_agrees(found, [("AB", 3), ("BA", 1), ("BC", 2), ("CA", 1)], "ABC")


@pytest.mark.parametrize("num", [5, pytest.param(18, marks=pytest.mark.slow)])
def test_many_items_by_chains(ranked, rng, num):
    items = [f"i{k:02d}" for k in range(num)]
    lists = [sorted(items, key=lambda name: int(name[1:]) + rng.normal()) for _ in range(30)]
    content = "\n".join([",".join(map(str, range(num))), *(",".join(row) for row in lists)])
    # More than 16 items are sampled without being asked for.
    options = ["--method", "mcmc"] if num <= 16 else []
    found = ranked("judge," + content.replace("\n", "\nx,"), *options)
    assert found["method"] == "mcmc"
    assert found["verdict"] == "trust"
    assert [row["item"] for row in found["items"]] == items
    assert all(row["low"] <= row["rank"] <= row["high"] for row in found["items"])


def test_other_models_and_their_evidence(ranked):
    content = "a,b,c\nA,B,C\nA,C,B\nB,A,C\nA,B,C\n"
    found = ranked(content, "--model", "auto")
    # The last one takes comparisons of two items only.
    *known, last = found["models"]
    assert (last["name"], last["log_evidence"]) == ("davidson", None)
    evidences = [one["log_evidence"] for one in known]
    assert len(evidences) == 6
    assert evidences == sorted(evidences, reverse=True)
    assert found["settings"]["model"] == found["models"][0]["name"]
    worths = ranked(content, "--model", "plackett_luce")
    assert [row["item"] for row in worths["items"]] == ["A", "B", "C"]
    assert sum(row["log_worth"] for row in worths["items"]) == pytest.approx(0, abs=1e-9)
    # A top-two list is not a complete ranking, which some distances need.
    partial = ranked("a,b,c\nA,B\nB,C,A\n", "--model", "auto")
    refused = {one["name"]: one["note"] for one in partial["models"] if one["note"]}
    assert sorted(refused) == ["cayley", "davidson", "footrule", "spearman"]
    assert refused["footrule"] == "footrule takes complete rankings without ties, got others"


def test_a_model_that_does_not_fit(run, write, tmp_path):
    # Two groups of voters with opposite views, the larger one ahead by two of a hundred.
    path = write("votes.soc", "4\n1,A\n2,B\n3,C\n4,D\n100,100,2\n51,1,2,3,4\n49,4,3,2,1\n")
    found = json.loads(run("rank", path, "--json").stdout)
    assert found["model"]["verdict"] == "does not fit"
    assert found["shown"].endswith("resamples of the rankings, since the model does not fit")
    advice = "judges seem to form groups: two orders contradict 100 % fewer pairs than one"
    assert any(r.startswith(advice) for r in found["model"]["reasons"])
    assert any("(--groups 2 looks for them)" in reason for reason in found["model"]["reasons"])
    asked = run("rank", path, "--model", "footrule", "--report", tmp_path / "r.html").stdout
    assert "(--model mallows --groups 2 looks for them)" in asked
    assert "(--model mallows --groups 2 looks for them)" in (tmp_path / "r.html").read_text()
    assert "looks for them" not in run("rank", path, "--groups", 2).stdout
    assert found["items"][0]["item"] == "A"
    # The majority of 100 draws from 51 to 49: within four standard errors of 400 resamples.
    p = 0.5398 + 0.0783 / 2
    assert found["p_order"] == pytest.approx(p, abs=4 * np.sqrt(p * (1 - p) / 400))
    kemeny = found["kemeny"]
    assert (kemeny["order"], kemeny["contradicted"]) == (["A", "B", "C", "D"], 6 * 49)
    assert (kemeny["proven"], kemeny["num_optimal"]) == (True, 1)
    model = json.loads(run("rank", path, "--no-robust", "--json").stdout)
    assert model["shown"] == "the posterior probability of the model mallows"
    assert run("rank", path, "--quiet").output == ""


def test_the_files(run, write, tmp_path):
    names = {"--csv": "o.csv", "--save": "o.nc", "--plot": "o.svg", "--report": "o.html"}
    written = [word for option, name in names.items() for word in (option, tmp_path / name)]
    path = write("r.csv", FORMS["orders"][0])
    result = run("rank", path, *written, "--level", 0.5)
    assert result.exit_code == 0
    with (tmp_path / "o.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    shown = [line.split()[1] for line in result.stdout.splitlines()[4:8]]
    assert [row["item"] for row in rows] == shown == ["A", "B", "C", "D"]
    posterior = pv.load(tmp_path / "o.nc")
    assert posterior.labels == (("A", "B", "C", "D"), ("1", "2", "3", "4"))
    assert float(rows[1]["probability"]) == posterior.marginals[1, 1]
    assert posterior.settings["input"] == str(path)
    ranks = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert np.exp(posterior.log_prob(ranks))[0] == pytest.approx(posterior.top(1)[0].probability)
    assert (tmp_path / "o.svg").read_text().startswith("<?xml")
    page = (tmp_path / "o.html").read_text()
    assert "The order of 4 items" in page
    assert "A before B" in page
    words = re.findall(r"\w+", page.split("<main>")[1].replace("aria-label", ""))
    assert not {"matched", "label", "labels", "matching", "script"} & set(words)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("j,k\nA,A\n", [], "line 2: expected 'A' once, got it again"),
        ("j,k,l\nA,,B\n", [], "line 2: expected empty cells at the end only, got one before 'B'"),
        ("j,k\nA,B,C\n", [], "line 2: expected 2 cells as in the header, got 3"),
        ("j,k\nA,\n", [], "expected rankings of two items or more, got 1 rankings of 1"),
        ("j,count\nA,-1\n", [], "line 2: expected a count of at least 0, got -1"),
        ("j,count\nA,\n", [], "line 2: expected a count of at least 0, got none"),
        ("j,count\nA,x\n", [], "line 2, column 2 ('count'): expected a number, got 'x'"),
        ("A,B\n1,x\n", ["--ranks"], "line 2, column 2 ('B'): expected a number, got 'x'"),
        ("A,A\n1,2\n", ["--ranks"], "line 1, column 2: expected a new name, got 'A' as in line 1"),
        ("winner,loser\nA,A\n", [], "line 2: expected two items, got 'A' twice"),
        ("winner,loser,n\nA,B,-1\n", [], "line 2: expected a count of at least 0, got -1"),
        ("j,k\nA,B\n", ["--method", "exat"], "did you mean 'exact'?"),
        ("j,k\nA,B\n", ["--model", "malows"], "did you mean 'mallows'?"),
        ("j,k\nA,B\n", ["--format", "rank"], "did you mean 'ranks'?"),
        ("j,k\nA,B\n", ["--level", 0], "level must be in (0, 1], got 0"),
        ("j,k\nA,B\n", ["--csv", "none/o.csv"], "--csv must lie in an existing folder, got"),
    ],
)
def test_mistakes(run, write, content, options, message):
    result = run("rank", write("r.csv", content), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert message in line


def test_the_page(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Four standard errors of the draws that say who comes before whom.
    assert check_page(run, "rank.md", error=0.032) == 4


def test_groups_of_voters_are_shown(run, write):
    path = write("r.csv", "a,b,c\nA,B,C\nA,B,C\nA,B,C\nC,B,A\nC,B,A\nC,B,A\n")
    result = run("rank", path, "--groups", "2")
    assert result.exit_code == 0
    assert "What does each group say?" in result.output
    found = json.loads(run("rank", path, "--groups", "2", "--json").stdout)["groups"]
    assert sum(group["share"] for group in found["groups"]) == pytest.approx(1.0)
    assert {tuple(group["order"]) for group in found["groups"]} == {
        ("A", "B", "C"),
        ("C", "B", "A"),
    }
    assert found["compared"] == []
    worths = json.loads(
        run("rank", path, "--groups", "2", "--model", "plackett_luce", "--json").stdout
    )["groups"]
    assert worths["model"] == "plackett_luce"
    for group in worths["groups"]:
        assert group["log_worth"][group["order"][0]] > group["log_worth"][group["order"][-1]]
        assert group["sigma"]["mean"] > 0
    refused = run("rank", path, "--groups", "two")
    assert refused.exit_code == 2
    assert "--groups must be a whole number or auto, got 'two'." in refused.output
