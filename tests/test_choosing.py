"""The page on choosing a method and the benchmark that writes its tables."""

import json

import pytest

import permvi as pv
from benchmarks import choosing
from permvi import experiments
from permvi.experiments import compare
from permvi.experiments.compare import targets
from permvi.inference import registry

PAGE = (
    "<!-- methods:begin -->old<!-- methods:end -->\nkept\n<!-- sizes:begin --><!-- sizes:end -->"
    "<!-- tables:begin --><!-- tables:end -->"
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("choosing")
    page = folder / "page.md"
    page.write_text(PAGE, encoding="utf-8")
    experiments.run("compare", folder / "out")
    choosing.main(["--results", str(folder / "out"), "--page", str(page), "--size", "smoke"])
    return folder


def rows_of(text):
    """Cells of all rows of the comparison's tables that begin with a method, by problem."""
    found, name = {}, None
    for line in text.split("<!-- tables:begin -->")[1].splitlines():
        if line.startswith("### "):
            name = line.removeprefix("### ")
        elif line.startswith("| `") and name is not None:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(name, {})[cells[0].strip("`")] = cells[1:]
    return found


def check_exact_rows(text, names):
    tables = rows_of(text)
    assert list(tables) == names
    for table in tables.values():
        error, worst, hellinger, log_evidence, verdict = table["exact"][:5]
        assert error == worst == log_evidence == "0"
        assert hellinger in ("0", "")
        assert verdict == "trust"


def test_a_quick_run_writes_everything(quick):
    text = (quick / "page.md").read_text(encoding="utf-8")
    assert "\nkept\n" in text
    assert "old" not in text
    names = [target.name for target in targets("smoke")]
    check_exact_rows(text, names)
    assert "Refused by `sinkhorn`, `bethe`." in text
    summary = json.loads((quick / "out" / "summary.json").read_text(encoding="utf-8"))
    keys = ["study", "method", "setting", "metric", "mean", "sem", "n", "paper", "seconds"]
    assert all(list(row) == keys for row in summary)
    errors = {
        row["setting"]["target"]: row["mean"]
        for row in summary
        if (row["method"], row["metric"]) == ("exact", "tv_mean")
    }
    assert errors == dict.fromkeys(names, 0.0)
    assert (quick / "out" / "compare.png").stat().st_size > 10_000


def test_the_weighted_draws_are_compared_with_the_exact_posterior():
    model = pv.models.LinearMatching([[1.0, 0.0], [0.0, 0.0]])
    exact = pv.fit(model, "exact")
    fitted = pv.fit(model, "sequential", num_steps=0, search_evaluations=0)
    # Both matchings are among the draws, which leaves nothing to be wrong about.
    assert compare._hellinger_of_draws(fitted, exact) == pytest.approx(0.0, abs=1e-6)
    assert compare._hellinger_of_draws(exact, exact) is None


def test_the_committed_page_is_complete():
    text = choosing.PAGE.read_text(encoding="utf-8")
    assert choosing.method_table() in text, f"run {choosing.COMMAND}"
    names = [target.name for target in targets("paper")]
    check_exact_rows(text, names)
    for name, table in rows_of(text).items():
        section = text.split(f"### {name}\n")[1].split("\n### ")[0]
        refused = section.split("Refused by ")[1].splitlines()[0] if "Refused" in section else ""
        for info in pv.methods():
            if info.name not in registry.names_for():
                continue
            assert (info.name in table) != (f"`{info.name}`" in refused)


def test_the_tables_by_size_are_those_of_the_committed_results():
    text = choosing.PAGE.read_text(encoding="utf-8")
    assert choosing.sizes_block() in text, f"run {choosing.COMMAND}"
    for family in choosing.SHOWN:
        assert f"### {choosing.SHOWN[family][0]}\n" in text


def test_no_committed_row_is_trusted_and_far_off():
    for table in rows_of(choosing.PAGE.read_text(encoding="utf-8")).values():
        for cells in table.values():
            error, verdict = float(cells[0].removeprefix("< ")), cells[4]
            assert verdict != "trust" or error <= 0.03


def test_the_committed_results_are_those_of_the_page():
    tables = rows_of(choosing.PAGE.read_text(encoding="utf-8"))
    summary = json.loads((choosing.RESULTS / "summary.json").read_text(encoding="utf-8"))
    errors = [row for row in summary if row["metric"] == "tv_mean"]
    assert len(errors) == sum(len(table) for table in tables.values())
    for row in errors:
        shown = tables[row["setting"]["target"]][row["method"]][0]
        assert shown == compare.format_number(row["mean"], 4)


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="page must have <!-- tables:begin -->"):
        choosing.replace_block("nothing", "tables", "")
