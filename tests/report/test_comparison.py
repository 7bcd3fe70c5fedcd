"""Two posteriors side by side."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from typer.testing import CliRunner

from permvi import cli
from permvi.posterior import ExactLaw, Posterior
from permvi.posterior.marginal_law import MarginalsLaw
from permvi.report import comparison

ROWS, COLS = ["a", "b", "c"], ["x", "y", "z"]


def posterior(rng, rows=ROWS, cols=COLS, scores=None, **weights):
    scores = rng.normal(size=(3, 3)) if scores is None else scores
    return Posterior.from_exact(ExactLaw(scores, **weights), labels=(rows, cols), method="exact")


def test_differences_are_total_variation_distances(rng):
    one, other = (posterior(rng, row_unmatched=0.3) for _ in range(2))
    found = comparison.compare(one, other, ["A", "B"])
    tables = [np.column_stack([p.marginals, p.p_unmatched_rows]) for p in (one, other)]
    wanted = abs(tables[0] - tables[1]).sum(axis=1) / 2
    assert [row.difference for row in found.rows] == pytest.approx(sorted(wanted)[::-1])
    for row in found.rows:
        i = ROWS.index(row.item)
        for best, p, table in zip(row[1::2], row[2::2], tables, strict=False):
            assert p == pytest.approx(table[i].max())
            assert best == [*COLS, None][table[i].argmax()]
    assert found.mean_difference == pytest.approx(wanted.mean())


def test_items_and_labels_are_matched_by_name(rng):
    scores = rng.normal(size=(3, 3))
    one = posterior(rng, scores=scores)
    rows, cols = [2, 0, 1], [1, 2, 0]
    moved = posterior(
        rng, [ROWS[i] for i in rows], [COLS[j] for j in cols], scores=scores[np.ix_(rows, cols)]
    )
    found = comparison.compare(one, moved, ["A", "B"])
    assert max(row.difference for row in found.rows) < 1e-12
    assert "0 of 3 items have another best label" in found.summary


def test_sparse_marginals_are_compared(rng):
    one = posterior(rng)
    table = csr_array(one.marginals)
    law = MarginalsLaw(one.marginals, one.p_unmatched_rows, one.p_unmatched_cols)
    listed = Posterior(law=law, marginals=table, mode=one.mode, labels=(ROWS, COLS))
    found = comparison.compare(listed, listed, ["A", "B"])
    assert found.mean_difference == 0
    assert [row.best_a for row in sorted(found.rows)] == [
        COLS[k] for k in one.marginals.argmax(axis=1)
    ]


def test_posteriors_that_cannot_be_compared(rng):
    one = posterior(rng)
    other = posterior(rng, ["a", "b", "q"])
    with pytest.raises(ValueError, match=r"the same items, got 'c' in the first only"):
        comparison.compare(one, other, "AB")
    wide = Posterior.from_exact(ExactLaw(np.zeros((3, 4))))
    with pytest.raises(ValueError, match=r"same items and labels, got \(3, 3\) and \(3, 4\)"):
        comparison.compare(one, wide, "AB")
    several = Posterior.from_exact(ExactLaw(np.zeros((2, 3, 3))))
    with pytest.raises(ValueError, match="one permutation"):
        comparison.compare(one, several, "AB")


def test_the_command_and_its_page(rng, tmp_path):
    nasty = ["<b>", "b & c", "c"]
    for name in "ab":
        posterior(rng, nasty).save(tmp_path / f"{name}.nc")
    run = CliRunner().invoke
    files = [str(tmp_path / "a.nc"), str(tmp_path / "b.nc")]
    page = tmp_path / "both.html"
    shown = run(cli.app, ["compare", *files, "--report", str(page)])
    assert shown.exit_code == 0
    assert "mean difference of an item" in shown.stdout
    text = page.read_text()
    assert "<h1>a.nc and b.nc: 3 items, 3 labels</h1>" in text
    assert text.count('<svg class="cells"') == 2
    assert "<bdi>&lt;b&gt;</bdi>" in text
    assert "<script" not in text
    assert "<code>permvi compare" in text
    assert 'download="differences.csv"' in text
    assert 'download="comparison.png"' in text
    found = json.loads(run(cli.app, ["compare", *files, "--json"]).stdout)
    assert [one["file"] for one in found["posteriors"]] == ["a.nc", "b.nc"]
    assert found["items"][0]["difference"] >= found["items"][-1]["difference"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_probabilities_of_both(rng, tmp_path, ending):
    # Only in the second posterior items may be unmatched; it has other names for columns, and
    # labels that are called as the table's own columns are.
    labels = ["x", "posterior", "item"]
    one = posterior(rng, ROWS, labels)
    other = posterior(rng, ROWS[::-1], labels[::-1], row_unmatched=0.3)
    for name, fit in (("a", one), ("b", other)):
        fit.save(tmp_path / f"{name}.nc")
    path = tmp_path / f"p.{ending}"
    files = [str(tmp_path / "a.nc"), str(tmp_path / "b.nc"), "-q", "--probabilities", str(path)]
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    for options in ([], ["--wide"]):
        assert CliRunner().invoke(cli.app, ["compare", *files, *options]).exit_code == 0
        found = read(path)
        for letter, fit in (("A", one), ("B", other)):
            wanted = pd.DataFrame(fit.marginals, *fit.labels)
            mine = found[found.iloc[:, 0] == letter]
            if options:
                assert list(mine.columns[:2]) == ["posterior_", "item_"]
                table = mine.set_index("item_")[labels]
                np.testing.assert_allclose(mine["unmatched"], fit.p_unmatched_rows, atol=1e-12)
            else:
                assert list(mine.columns) == ["posterior", "item", "label", "probability"]
                table = mine.pivot(index="item", columns="label", values="probability")
            np.testing.assert_allclose(
                table.loc[ROWS, labels], wanted.loc[ROWS, labels], atol=1e-12
            )


def test_names_of_one_posterior_serve_the_other(rng):
    scores = rng.normal(size=(3, 3))
    one = posterior(rng, None, None, scores=scores)
    found = comparison.compare(one, posterior(rng, scores=scores), ["A", "B"])
    assert {row.item for row in found.rows} == set(ROWS)
    assert {row.best_a for row in found.rows} <= set(COLS)


def test_a_picture_of_many_pairs_shows_the_largest_of_each_cell():
    table = np.zeros((250, 501))
    table[np.arange(250), 2 * np.arange(250)] = 1
    picture = comparison._picture(table, np.arange(250), "words")
    assert 'viewBox="0 0 100 100"' in picture
    assert 100 <= picture.count('fill-opacity="1.00"') <= 300


def test_the_saved_picture_shows_both_tables(rng):
    one, other = (posterior(rng) for _ in range(2))
    figure = comparison.draw(comparison.compare(one, other, ["$a.nc", "b_${c}.nc"]))
    for ax, table in zip(figure.axes, (one.marginals, other.marginals), strict=True):
        order = np.argsort(one.mode)
        np.testing.assert_array_equal(ax.images[0].get_array(), table[order])
    assert [ax.get_title() for ax in figure.axes] == [r"\$a.nc", r"b_\${c}.nc"]
    figure.canvas.draw()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_both(browser, tmp_path, rng, scheme):
    names = [f"an item with a rather long name, number {i}" for i in range(3)]
    found = comparison.compare(posterior(rng, names), posterior(rng, names), ["first.nc", "b.nc"])
    path = comparison.write(found, tmp_path / "c.html")
    context = browser.new_context(viewport={"width": 320, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    context.close()
