"""The numbers of ``permvi match``, against brute force in the units of the user."""

import csv
import json

import numpy as np
import pytest

import permvi as pv
from permvi.models.rarity import log_density_as_rare
from tests.cli import oracle

ITEMS, LABELS = "abcd", "wxyz"


def as_csv(values, rows=ITEMS, cols=LABELS):
    values = np.asarray(values, dtype=float)
    lines = [["item", *cols[: values.shape[1]]]]
    for name, row in zip(rows, values, strict=False):
        lines.append([name, *("" if np.isnan(v) else repr(float(v)) for v in row)])
    return "\n".join(",".join(line) for line in lines)


@pytest.fixture
def matched(run, write):
    """Run on a table of numbers; the JSON object that comes back."""

    def run_match(values, *options, **names):
        table = write("t.csv", as_csv(values, **names))
        result = run("match", table, *options, "--json", "--quiet")
        assert result.stderr == ""
        assert result.exit_code == 0
        return json.loads(result.stdout)

    return run_match


def assert_agrees(found, pairs, rows=ITEMS, cols=LABELS, **alone):
    """All that the object says of items and matchings is what brute force says."""
    shape = n, m = np.shape(pairs)
    law, total = oracle.probabilities(pairs, **alone)
    table = oracle.marginals(law, shape)
    assert found["log_evidence"] == pytest.approx(np.log(total), abs=1e-9)
    names = [*cols[:m], None]
    assert [item["item"] for item in found["items"]] == list(rows[:n])
    for item, p in zip(found["items"], table, strict=True):
        by_name = dict(zip(names, p, strict=True))
        best = sorted(p)[::-1]
        assert item["probability"] == pytest.approx(best[0], abs=1e-9)
        assert by_name[item["best"]] == pytest.approx(best[0], abs=1e-9)
        assert item["runner_up_probability"] == pytest.approx(best[1], abs=1e-9)
        assert by_name[item["runner_up"]] == pytest.approx(best[1], abs=1e-9)
        assert item["p_unmatched"] == pytest.approx(p[-1], abs=1e-9)
        chosen = [by_name[label] for label in item["credible_set"]]
        assert sum(chosen) >= 0.95 - 1e-9
        assert sum(chosen[:-1]) < 0.95
    unused = 1 - table[:, :m].sum(axis=0)
    got = [label["p_unused"] for label in found["labels"]]
    np.testing.assert_allclose(got, unused, atol=1e-9)
    in_order = sorted(law.values())[::-1]
    for k, matching in enumerate(found["top"]):
        perm = tuple(names[:-1].index(x) if x else -1 for x in matching["matching"].values())
        assert matching["probability"] == pytest.approx(in_order[k], abs=1e-9)
        assert law[perm] == pytest.approx(in_order[k], abs=1e-9)
    assert found["top_is_exact"]


def test_greedy_linking_is_wrong(matched):
    found = matched(np.log([[9, 8], [8, 1]]), "--kind", "log-odds")
    assert found["method"] == "exact"
    assert found["verdict"] == "trust"
    best = found["top"][0]
    assert best["matching"] == {"a": "x", "b": "w"}
    assert best["probability"] == pytest.approx(64 / 73, abs=1e-12)
    assert found["log_evidence"] == pytest.approx(np.log(73), abs=1e-12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (1, 1), (1, 3), (3, 1)])
def test_scores_of_any_shape(matched, rng, shape):
    scores = rng.normal(size=shape)
    assert_agrees(matched(scores, "--top", 50), np.exp(scores))


def test_what_the_kinds_mean(matched, rng):
    p = rng.uniform(0.05, 0.9, size=(3, 3))
    odds = p / (1 - p)
    assert_agrees(matched(p, "--kind", "probabilities"), odds)
    assert_agrees(matched(np.log(odds), "--kind", "log-odds"), odds)
    costs = rng.normal(size=(3, 3))
    assert_agrees(matched(costs, "--kind", "costs"), np.exp(-costs))
    options = ["--kind", "costs", "--temperature", 0.5]
    assert_agrees(matched(costs, *options), np.exp(-2 * costs))
    assert_agrees(matched(costs, "--temperature", 2), np.exp(costs / 2))
    rows = p / p.sum(axis=1, keepdims=True)
    assert_agrees(matched(rows, "--kind", "row-probabilities"), rows)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3)])
def test_staying_alone_in_the_units_of_the_table(matched, rng, shape):
    p = rng.uniform(0.05, 0.9, size=shape)
    odds = p / (1 - p)
    for kind, values, unmatched, unused in [
        ("scores", np.log(odds), np.log(0.3), np.log(2.0)),
        ("costs", -np.log(odds), -np.log(0.3), -np.log(2.0)),
        ("log-odds", np.log(odds), np.log(0.3), np.log(2.0)),
        ("probabilities", p, 0.3 / 1.3, 2 / 3),
    ]:
        options = ["--kind", kind, "--unmatched", unmatched]
        assert_agrees(matched(values, *options), odds, items=0.3, labels=1)
        options += ["--unused", unused]
        assert_agrees(matched(values, *options), odds, items=0.3, labels=2)
        options = ["--kind", kind, "--unused", unused]
        assert_agrees(matched(values, *options), odds, labels=2)
    scaled = matched(-np.log(odds), "--kind", "costs", "--temperature", 2, "--unmatched", 1)
    assert_agrees(scaled, odds**0.5, items=np.exp(-0.5), labels=1)
    rows = p / p.sum(axis=1, keepdims=True)
    options = ["--kind", "row-probabilities", "--unmatched", 0.25]
    assert_agrees(matched(rows, *options), rows, items=0.25, labels=1)


def test_what_staying_alone_counts_by_name(matched, rng):
    weights = rng.uniform(0.2, 3, size=(4, 3))
    scores = np.log(weights)
    scores[1, 2] = np.nan
    found = matched(scores, "--unmatched", "y", "--unused", "d")
    # An empty cell in that column: the item has to be matched.
    assert_agrees(
        found, weights[:3, :2], items=[weights[0, 2], 0, weights[2, 2]], labels=weights[3, :2]
    )


def test_where_names_count_a_number_is_a_number(matched, rng):
    weights = rng.uniform(0.2, 3, size=(2, 2))
    found = matched(np.log(weights), "--unmatched", 0, "--unused", 1, rows="01", cols="01")
    assert_agrees(found, weights, "01", "01", items=1, labels=np.e)


def test_empty_cells_and_infinities_forbid(matched):
    weights = np.array([[2.0, 3, 0], [0, 5, 7], [1, 1, 1]])
    with np.errstate(divide="ignore"):
        scores = np.log(weights)
    assert_agrees(matched(scores), weights)
    assert_agrees(matched(-scores, "--kind", "costs"), weights)
    assert_agrees(matched(weights / 12, "--kind", "row-probabilities"), weights / 12)
    assert_agrees(matched(np.where(weights > 0, scores, np.nan)), weights)


def test_a_list_of_pairs(run, write):
    path = write("t.csv", "item,label,p\na,x,.9\na,none,.1\nb,x,.3\nb,y,.2\nb,none,.5\n")
    options = ["--pairs", "--kind", "row-probabilities", "--unmatched", "none", "--json"]
    found = json.loads(run("match", path, *options).stdout)
    assert_agrees(found, np.array([[0.9, 0], [0.3, 0.2]]), "ab", "xy", items=[0.1, 0.5], labels=1)
    path = write("t.csv", "item,label,p\na,x,.9\na,y,1\n")
    result = run("match", path, "--pairs", "--kind", "probabilities")
    assert "t.csv, 'a' and 'y': expected a probability from 0 to below 1" in result.stderr
    result = run("match", path, "--pairs", "--kind", "row-probabilities")
    assert "t.csv, 'a': expected probabilities that add up to 1 at most, got 1.9" in result.stderr


def test_mask_known_and_prior(matched, write, rng):
    weights, prior = rng.uniform(0.1, 4, size=(2, 3, 3))
    # In other orders than the table.
    mask = write("mask.csv", "\n".join(["i,y,x,w", "b,1,1,1", "a,true,no,1", "c,1,yes,"]))
    allowed = np.array([[1, 0, 1], [1, 1, 1], [0, 1, 1]])
    assert_agrees(matched(np.log(weights), "--mask", mask), weights * allowed)
    known = write("known.csv", "item,label\nc,w\n")
    found = matched(np.log(weights), "--known", known)
    assert_agrees(found, weights, known=[(2, 0)])
    log_prior = np.log(prior)
    log_prior[1, 1], prior[1, 1] = np.nan, 1
    file = write("prior.csv", as_csv(log_prior[::-1], rows="cba"))
    assert_agrees(matched(np.log(weights), "--prior", file), weights * prior)
    p = rng.uniform(0, 0.3, size=(3, 3))
    p[0, 0] = 0
    file = write("prior.csv", as_csv(p))
    found = matched(np.log(weights), "--prior", file, "--prior-kind", "probabilities")
    assert_agrees(found, weights * p / (1 - p))
    found = matched(np.log(weights), "--prior", file, "--prior-kind", "row-probabilities",
                    "--mask", mask, "--unmatched", 0)  # fmt: skip
    assert_agrees(found, weights * p * allowed, items=1, labels=1)
    settings = found["settings"]
    assert (settings["mask"], settings["prior"]) == (str(mask), str(file))
    assert (settings["prior_kind"], settings["unmatched"]) == ("row-probabilities", "0")


def gaussian(distance, scale):
    return np.exp(-0.5 * (distance / scale) ** 2) / (scale * np.sqrt(2 * np.pi))


def cauchy(distance, scale):
    return 1 / (np.pi * scale * (1 + (distance / scale) ** 2))


def test_features(run, write, rng):
    items, labels = rng.normal(size=(3, 2)), rng.normal(size=(4, 2))
    scale = np.array([0.7, 1.3])
    files = [
        write("items.csv", as_csv(items, cols=["u", "v"])),
        write("labels.csv", as_csv(labels[:, ::-1], rows=LABELS, cols=["v", "u"])),
    ]

    def found(*options):
        result = run("match", *files, *options, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    away = items[:, None] - labels
    assert_agrees(found("--scale", 0.5), gaussian(away, 0.5).prod(axis=-1))
    pairs = gaussian(away, scale).prod(axis=-1)
    assert_agrees(found("--scale", "0.7,1.3"), pairs)
    pairs = cauchy(away, scale).prod(axis=-1)
    options = ["--scale", "0.7, 1.3", "--noise", "student_t", "--df", 1]
    assert_agrees(found(*options), pairs)
    # As rare as two standard deviations, see tests/models/test_rarity.py.
    alone = np.exp(log_density_as_rare("student_t", 2.0, scale, 1.0))
    options += ["--unmatched", 2]
    assert_agrees(found(*options), pairs, items=alone, labels=1)
    options += ["--unused", 0.2]
    assert_agrees(found(*options), pairs, items=alone, labels=0.25)


def test_the_noise_may_be_inferred(run, write, rng):
    centers = rng.normal(size=(4, 2))
    items = centers[[2, 0, 3, 1]] + 0.01 * rng.normal(size=(4, 2))
    files = [
        write("i.csv", as_csv(items, cols="uv")),
        write("l.csv", as_csv(centers, LABELS, "uv")),
    ]
    result = run("match", *files, "--scale", "infer", "--json")
    found = json.loads(result.stdout)
    assert [item["best"] for item in found["items"]] == ["y", "w", "z", "x"]
    assert found["method"] == "exact"
    # Eight residuals leave the scale a relative standard error of 1 / sqrt(16); this allows two.
    spread = np.sqrt(np.mean((items - centers[[2, 0, 3, 1]]) ** 2))
    assert found["latents"]["scale"]["mean"] == pytest.approx(spread, rel=0.5)
    lines = run("match", *files, "--scale", "infer").stdout.splitlines()
    assert any(line.startswith("scale: 0.0") for line in lines)


def test_matchings_of_hundreds_of_items_are_listed_on_demand(run, write):
    lines = ["item,label,score", *(f"i{k},l{k},0" for k in range(501))]
    path = write("t.csv", "\n".join(lines))
    found = json.loads(run("match", path, "--pairs", "--json").stdout)
    assert len(found["items"]) == 501
    assert found["top"] == []
    found = json.loads(run("match", path, "--pairs", "--json", "--top", 2).stdout)
    (only,) = found["top"]
    assert only["probability"] == pytest.approx(1)
    assert only["matching"]["i500"] == "l500"


def test_other_methods_and_what_to_think_of_them(run, write):
    table = write("t.csv", as_csv(np.log([[9, 8], [8, 1]])))
    options = ["--kind", "scores", "--method", "map", "--seed", 3, "--strict"]
    result = run("match", table, *options, "--json")
    assert result.exit_code == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "permvi: verdict 'do not trust': the marginals differ from an independent"
    )
    assert " by 0.12 on item 'a'" in line
    found = json.loads(result.stdout)
    assert (found["method"], found["verdict"]) == ("map", "do not trust")
    assert found["reasons"][0] in line
    assert found["settings"]["seed"] == 3
    assert found["settings"]["requested"] == "map"
    # Its one matching, whose probability it does not know.
    assert [best["matching"] for best in found["top"]] == [{"a": "x", "b": "w"}]
    assert not found["top_is_exact"]
    assert run("match", table, *options[:-1]).exit_code == 0
    assert run("match", table, *options, "--quiet").stderr == result.stderr
    assert run("match", table, "--strict").exit_code == 0


def test_everything_is_written(run, write, tmp_path):
    table = write("t.csv", as_csv(np.log([[9, 8], [8, 1]])))
    names = {"--csv": "o.csv", "--save": "f.nc", "--plot": "f.png", "--report": "f.html"}
    options = [part for option, name in names.items() for part in (option, tmp_path / name)]
    result = run("match", table, "--kind", "log-odds", "--unmatched", 0, *options, "--quiet")
    assert (result.exit_code, result.output) == (0, "")
    # Nothing temporary is left.
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["t.csv", *names.values()])
    law, _ = oracle.probabilities([[9, 8], [8, 1]], items=1, labels=1)
    p = oracle.marginals(law, (2, 2))
    with (tmp_path / "o.csv").open(newline="") as file:
        a, b = csv.DictReader(file)
    assert (a["item"], a["best"], b["runner_up"]) == ("a", "x", "")
    assert float(a["probability"]) == pytest.approx(p[0, 1], abs=1e-12)
    assert float(b["p_unmatched"]) == pytest.approx(p[1, 2], abs=1e-12)
    assert b["credible_set"] == "w; unmatched; x"
    posterior = pv.load(tmp_path / "f.nc")
    np.testing.assert_allclose(posterior.marginals, p[:, :2], atol=1e-12)
    assert posterior.settings["kind"] == "log-odds"
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    assert "<html" in (tmp_path / "f.html").read_text(encoding="utf-8")


def test_report_of_what_was_saved(run, write, tmp_path):
    table, fit = write("t.csv", as_csv(np.log([[9, 8], [8, 1]]))), tmp_path / "fit.nc"
    printed = run("match", table, "--save", fit, "--json")
    result = run("report", fit)
    assert (result.exit_code, result.output) == (0, f"{tmp_path / 'fit.html'}\n")
    assert (tmp_path / "fit.html").is_file()
    again = run("report", fit, "--out", tmp_path / "other.html", "--json")
    found, expected = json.loads(again.stdout), json.loads(printed.stdout)
    assert found["items"] == expected["items"]
    assert found["top"] == expected["top"]
    assert (tmp_path / "other.html").is_file()
    assert run("report", fit, "--quiet").output == ""
    result = run("report", table)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "t.csv" in result.stderr


def test_the_tables(run, write):
    table = write("t.csv", as_csv(np.log([[9, 8, 1e-9], [8, 1, 1e-9]])))
    text = run("match", table, "--kind", "log-odds").stdout
    lines = text.splitlines()
    assert any(line.split() == ["a", "x", "0.877", "w", "0.123", "x,", "w"] for line in lines)
    assert any(line.split()[:1] == ["0.8767"] and "a = x, b = w" in line for line in lines)
    assert "verdict: trust (computed exactly)" in lines
    assert "unmatched" not in text
    assert "unmatched" in run("match", table, "--unmatched", 0).stdout
    assert "matchings" not in run("match", table, "--top", 0).stdout


def test_labels_stay_text(run, write):
    names = ["[bold]b[/bold]", ":smile:", "\x1b[31mred", "unmatched"]
    table = write("t.csv", as_csv(np.eye(4), names, names))
    text = run("match", table, "--unmatched", -9).stdout
    assert "[bold]b[/bold]" in text
    assert ":smile:" in text
    assert "\x1b" not in text
    assert "\ufffd[31mred" in text
    # A label of that name is not the same as having none.
    found = json.loads(run("match", table, "--unmatched", -9, "--json").stdout)
    assert found["items"][3]["best"] == "unmatched"
    assert None in found["items"][3]["credible_set"] or found["items"][3]["p_unmatched"] < 0.05


def test_rows_that_add_up_to_one_are_remarked_upon(run, write):
    table = write("t.csv", as_csv([[0.7, 0.3], [0.4, 0.6]]))
    result = run("match", table, "--kind", "probabilities", "--json")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert "--kind row-probabilities" in line
    assert run("match", table, "--kind", "probabilities", "--quiet").output == ""
    assert run("match", table, "--kind", "row-probabilities").stderr == ""


def test_methods(run):
    listed = json.loads(run("methods", "--json").stdout)
    assert [info["name"] for info in listed] == [info.name for info in pv.methods()]
    assert listed[0]["partial"] is True
    text = run("methods").stdout
    assert all(info["name"] in text for info in listed)


def test_an_inferred_scale_and_items_without_a_label(run, write):
    rng = np.random.default_rng(4)
    centers = 5 * rng.normal(size=(6, 2))
    seen = np.concatenate([centers[[3, 0, 5, 1]] + 0.1 * rng.normal(size=(4, 2)), [[40.0, 40.0]]])

    def table(name, letter, points):
        rows = [f"{letter}{k},{x:.4f},{y:.4f}" for k, (x, y) in enumerate(points.tolist())]
        return write(name, "\n".join(["name,u,v", *rows]))

    files = table("seen.csv", "i", seen), table("labels.csv", "l", centers)
    result = run("match", *files, "--scale", "infer", "--unmatched", 3, "--unused", 0.5, "--json")
    assert result.exit_code == 0, result.output
    assert "distances are in units of" in result.stderr
    found = json.loads(result.stdout)
    assert [item["best"] for item in found["items"]] == ["l3", "l0", "l5", "l1", None]
    # Eight residuals of standard deviation 0.1.
    assert 0.04 < found["latents"]["scale"]["mean"] < 0.3
