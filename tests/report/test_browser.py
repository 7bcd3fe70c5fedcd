"""The report in a real browser: what is shown, and what keys and mouse do."""

import csv

import numpy as np
import pytest
from matplotlib.image import imread

from permvi.posterior import ExactLaw, Posterior
from permvi.report.words import percent
from tests.report import cases
from tests.report.browsing import column, frames, pixels, tip


def test_labels_with_markup_stay_text(show, rng):
    posterior = cases.nasty(rng)
    page = show(posterior)
    shown = page.locator(".items td.item bdi").evaluate_all("a => a.map(x => x.textContent)")
    assert sorted(shown) == sorted(cases.NASTY)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
    page.focus("#plot")
    page.keyboard.press("Enter")
    page.fill("#search", "<img")
    frames(page)
    assert page.locator("td.item mark").first.inner_text() == "<img"
    assert page.evaluate("window.hacked") is None


def test_the_table_shows_the_marginals(show):
    posterior = cases.extremes()
    page = show(posterior)
    items = sorted(posterior.item_summaries(), key=lambda item: item.probability)
    assert column(page, "item") == [str(item.item) for item in items]
    assert column(page, "best") == [str(item.best) for item in items]
    assert column(page, "probability") == [percent(item.probability) for item in items]
    runners = [
        f"{item.runner_up} {percent(item.runner_up_probability)}"
        if item.runner_up_probability >= 1e-4
        else "none"
        for item in items
    ]
    assert column(page, "runner") == runners
    assert column(page, "set") == [", ".join(map(str, item.credible_set)) for item in items]


def test_columns_sort_by_mouse_and_keyboard(show, rng):
    posterior = cases.partial(rng)
    page = show(posterior)
    items = posterior.item_summaries()
    heads = {head: page.locator(f".items th.{head}") for head in ("item", "unmatched")}
    assert page.locator(".items th[aria-sort]").count() == 1
    assert page.locator(".items th.probability").get_attribute("aria-sort") == "ascending"
    heads["item"].locator("button").click()
    assert heads["item"].get_attribute("aria-sort") == "ascending"
    assert column(page, "item") == [item.item for item in items]
    heads["unmatched"].locator("button").focus()
    page.keyboard.press("Enter")
    assert page.locator(".items th[aria-sort]").count() == 1
    assert heads["unmatched"].get_attribute("aria-sort") == "descending"
    falling = sorted((item.p_unmatched for item in items), reverse=True)
    assert column(page, "unmatched") == [percent(p) for p in falling]
    page.keyboard.press("Space")
    assert heads["unmatched"].get_attribute("aria-sort") == "ascending"
    assert column(page, "unmatched") == [percent(p) for p in reversed(falling)]


def test_three_hundred_items_are_searched_and_sorted_at_once(show, rng):
    posterior = cases.crowd(rng, 300)
    page = show(posterior)
    assert page.locator("*").count() < 5000
    assert len(column(page, "item")) == 100
    page.locator("#next").click()
    assert page.locator("#page").inner_text() == "101 to 200 of 300"
    page.fill("#search", "NEURON 17")
    frames(page)
    items = posterior.item_summaries()
    fitting = {
        item.item
        for item in items
        if any("neuron 17" in label for label in (*item.credible_set, item.runner_up))
    }
    assert 11 <= len(fitting) <= 40
    assert set(column(page, "item")) == fitting
    assert page.locator("#found").inner_text() == f"{len(fitting)} of 300 items"
    assert page.locator("#heatmap-note").inner_text().startswith(f"{len(fitting)} of 300 items")
    page.locator(".items th.item button").click()
    assert column(page, "item") == sorted(fitting, key=lambda name: int(name.split()[1]))
    page.fill("#search", "")
    page.check("#unsure")
    unsure = sum(item.probability < 0.95 for item in items)
    assert page.locator("#found").inner_text() == f"{unsure} of 300 items"
    page.fill("#search", "nobody")
    frames(page)
    assert column(page, "empty, .empty td") == ["No items found."]


def test_pointing_at_the_heatmap_tells_item_label_and_probability(show, rng):
    posterior = cases.crowd(rng, 12)
    page = show(posterior)
    rows, cols = (list(names) for names in posterior.labels)
    bounds = page.locator("#cells").bounding_box()
    seen = set()
    for share in np.linspace(0.3, 0.98, 9):
        page.mouse.move(
            bounds["x"] + share * bounds["width"], bounds["y"] + share * bounds["height"]
        )
        item, label, shown = tip(page)
        assert shown == percent(posterior.marginals[rows.index(item), cols.index(label)])
        seen.add((item, label))
    assert len(seen) >= 7
    page.mouse.move(0, 0)
    assert page.locator("#tip").is_hidden()


def test_the_heatmap_works_by_keyboard(show, rng):
    posterior = cases.partial(rng)
    page = show(posterior)
    rows, cols = posterior.labels
    states = [*cols, "unmatched"]
    table = np.column_stack([posterior.marginals, posterior.p_unmatched_rows])
    page.locator("#order").select_option("given")
    page.locator("#order").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "plot"
    assert tip(page) == (rows[0], states[table[0].argmax()], percent(table[0].max()))
    page.keyboard.press("Home")
    for col, label in enumerate(states):
        assert tip(page) == (rows[0], label, percent(table[0, col]))
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert tip(page) == (rows[1], "unmatched", percent(table[1, -1]))
    assert page.locator("#spoken").inner_text() == page.locator("#tip").inner_text()
    page.keyboard.press("ArrowLeft")
    assert tip(page) == (rows[1], cols[-1], percent(table[1, -2]))
    page.keyboard.press("ArrowUp")
    assert tip(page) == (rows[0], cols[-1], percent(table[0, -2]))
    page.keyboard.press("Enter")
    assert tip(page)[1] == states[table[0].argmax()]
    page.keyboard.press("Control+End")
    unused = percent(posterior.p_unmatched_cols[-1])
    assert page.locator("#tip").inner_text() == f"{cols[-1]} is unused: {unused}"
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_cells_are_coloured_by_their_probability(show, rng):
    posterior = cases.crowd(rng, 6)
    page = show(posterior)
    bounds = page.locator("#cells").bounding_box()
    y = bounds["height"] - 12
    shades = {}
    for x in np.linspace(bounds["width"] - 5, bounds["width"] / 4, 40):
        page.mouse.move(bounds["x"] + x, bounds["y"] + y)
        if page.locator("#tip").is_visible():
            item, label, _ = tip(page)
            cell = posterior.labels[0].index(item), posterior.labels[1].index(label)
            shades.setdefault(posterior.marginals[cell], []).append(pixels(page, [x], [y])[0, 0])
    assert len(shades) >= 3
    reds = [np.median(shades[p]) for p in sorted(shades)]
    assert reds == sorted(reds, reverse=True)
    assert reds[0] > reds[-1] + 50


def test_a_crowd_is_shown_whole_or_by_its_least_certain(show, rng):
    posterior = cases.crowd(rng, 900)
    page = show(posterior)
    assert "Rows are items" in page.locator("#heatmap-note").inner_text()
    page.locator("#rows").select_option("unsure")
    assert "The 120 least certain of 900 items" in page.locator("#heatmap-note").inner_text()
    page.fill("#search", "cell 89")
    frames(page)
    assert {name for name in column(page, "item") if "cell 89" in name} == {
        "cell 89",
        *(f"cell 89{k}" for k in range(10)),
    }
    page.focus("#plot")
    page.keyboard.press("ArrowDown")
    assert tip(page)[0] in column(page, "item")


def test_several_permutations_have_a_choice(show, rng):
    posterior = cases.sites(rng)
    page = show(posterior)
    page.locator(".items th.item button").click()
    for site in (2, 0, 1):
        page.locator("#site").select_option(str(site))
        best = posterior.marginals[site].max(axis=1)
        assert column(page, "probability") == [percent(p) for p in best]


def test_one_permutation_has_no_choice(show, rng):
    page = show(cases.crowd(rng, 6))
    assert page.locator("#site-choice").is_hidden()
    assert page.locator(".items th.unmatched").count() == 0


def test_the_first_key_leads_past_everything(show, rng):
    page = show(cases.partial(rng))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["y"] >= 0
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('th').className") == "item"


def test_a_permutation_of_two_thousand_can_be_seen(show, rng):
    hidden = rng.permutation(2000)
    posterior = Posterior.from_draws(hidden[None], shape=(2000, 2000), method="map")
    page = show(posterior)
    page.locator("#order").select_option("given")
    covered = page.evaluate(
        """() => {
        const cells = document.getElementById("cells");
        const { data } = cells.getContext("2d").getImageData(0, 0, cells.width, cells.height);
        const [ground, dark] = [0xf1, 0x0b];
        let sum = 0;
        for (let k = 0; k < data.length; k += 4) {
          if (data[k + 3] === 255) sum += Math.max(0, (ground - data[k]) / (ground - dark));
        }
        return sum;
        }"""
    )
    # Each of 2,000 cells, a third of a pixel wide, covers four pixels, and few share some. Names
    # of rows and columns count, too.
    assert 7000 < covered < 10_000


def test_the_level_of_sets_can_be_chosen(show, rng):
    posterior = cases.crowd(rng, 12)
    page = show(posterior)
    page.locator(".items th.item button").click()
    for level in (0.5, 0.7, 0.99):
        page.evaluate(
            "v => { const s = document.getElementById('level'); s.value = v; "
            "s.dispatchEvent(new Event('input')); }",
            100 * level,
        )
        frames(page)
        assert page.locator("#level-shown").inner_text() == f"{100 * level:g}%"
        wanted = [", ".join(item.credible_set) for item in posterior.item_summaries(level)]
        assert column(page, "set") == wanted
        assert page.locator(".items th.set").inner_text().startswith(f"{100 * level:g}% set")


def test_the_table_from_the_side_of_labels(show, rng):
    posterior = cases.partial(rng)
    page = show(posterior)
    page.locator("#side").select_option("labels")
    page.locator(".items th.item button").click()
    rows, cols = posterior.labels
    table = np.vstack([posterior.marginals, posterior.p_unmatched_cols])
    names = [*rows, "unused"]
    assert column(page, "item") == list(cols)
    assert column(page, "best") == [names[k] for k in table.argmax(axis=0)]
    assert column(page, "probability") == [percent(p) for p in table.max(axis=0)]
    assert column(page, "unmatched") == [percent(p) for p in posterior.p_unmatched_cols]
    page.fill("#search", "number 3")
    frames(page)
    assert "of 6 labels" in page.locator("#found").inner_text()


def test_one_to_one_answers_are_shown_where_they_differ(show):
    equal = Posterior.from_exact(ExactLaw(np.zeros((3, 3))), labels=(["a", "b", "c"], list("ABC")))
    page = show(equal)
    page.locator(".items th.item button").click()
    assert column(page, "best") == ["A", "A", "A"]
    assert sorted(column(page, "choice")) == ["A", "B", "C"]
    certain = Posterior.from_exact(ExactLaw(30 * np.eye(3)))
    assert show(certain).locator(".items th.choice").count() == 0


def test_tables_and_pictures_are_exported(show, rng, tmp_path):
    posterior = cases.nasty(rng)
    page = show(posterior)
    page.locator(".items th.item button").click()
    with page.expect_download() as waiting:
        page.locator("#save-table").click()
    waiting.value.save_as(tmp_path / "items.csv")
    with (tmp_path / "items.csv").open(encoding="utf-8", newline="") as file:
        found = {row["item"]: row for row in csv.DictReader(file)}
    for item in posterior.item_summaries():
        row = found[item.item]
        assert row["best_label"] == item.best
        assert float(row["probability"]) == pytest.approx(item.probability, abs=1e-6)
        assert row["set_95"] == "; ".join(item.credible_set)
    with page.expect_download() as waiting:
        page.locator("#save-picture").click()
    waiting.value.save_as(tmp_path / "cells.png")
    picture = imread(tmp_path / "cells.png")
    size = page.evaluate("(c => [c.height, c.width])(document.getElementById('cells'))")
    assert list(picture.shape[:2]) == size
    assert picture[..., :3].std() > 0.05


def test_items_are_grouped_only_if_it_helps(show, rng):
    alone = Posterior.from_draws(rng.permutation(6)[None], shape=(6, 6), method="map")
    page = show(alone)
    assert page.locator("#order").input_value() == "matched"
    assert page.locator("#order option[value=grouped]").count() == 0
    # Items 0 and 5, 1 and 4, 2 and 3 are confused.
    swapped = np.array([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]])
    mixed = Posterior.from_draws(swapped, shape=(6, 6), method="map")
    assert show(mixed).locator("#order").input_value() == "grouped"


def test_logarithmic_colours_show_small_probabilities(show):
    shares = np.array([0.999, 0.001])
    perms = np.array([[0, 1, 2, 3], [1, 0, 2, 3]])
    posterior = Posterior.from_draws(perms, np.log(shares), shape=(4, 4), method="importance")
    page = show(posterior)
    bounds = page.locator("#cells").bounding_box()
    xs, ys = (np.linspace(0.05, 0.98, 60) * bounds[side] for side in ("width", "height"))
    before = {tuple(colour) for colour in pixels(page, xs, ys).tolist()}
    page.locator("#colours").select_option("log")
    after = {tuple(colour) for colour in pixels(page, xs, ys).tolist()}
    assert after - before
    assert page.locator("#least").inner_text() == "0.01%"
