"""The report in a real browser: phones, light and dark, contrast, paper, motion."""

import csv

import numpy as np
import pytest

import permvi as pv
from tests.report import cases
from tests.report.browsing import column, frames, pixels

# WCAG 2.2, level AA, for text of ordinary size.
LEAST_CONTRAST = 4.5


@pytest.mark.parametrize("make", [cases.nasty, cases.partial, cases.sites])
def test_a_phone_needs_no_sideways_scrolling(show, rng, make):
    page = show(make(rng), width=320, has_touch=True, device_scale_factor=2)
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) <= 320
    beyond = page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => e.getClientRects().length && "
        "!e.closest('.unseen, thead') && e.getBoundingClientRect().right > 320.5)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert beyond == []
    page.locator("summary").click()
    page.locator(".items th.item button").tap()
    assert page.evaluate(wide) <= 320


@pytest.fixture(scope="module")
def order():
    votes = [["Rome", "Paris", "=Lima"]] * 5 + [["Paris", "Rome", "=Lima"]] * 3
    return pv.rank(votes)


@pytest.fixture(scope="module")
def tracks():
    frames = [np.array([[0.0, 0.0], [1.0, t % 2]]) + 0.3 * t for t in range(4)]
    return pv.track(frames, sd=0.7, births=0.3, deaths=0.1, missed=0.1, false=0.1)


@pytest.mark.parametrize("made", ["order", "tracks"])
def test_pages_without_scripts_on_a_phone(show, request, made):
    page = show(request.getfixturevalue(made), width=320, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    # Wide tables scroll by themselves, and words stay whole: a row has a line or two.
    heights = page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map(r => r.getBoundingClientRect().height)"
    )
    assert 0 < max(heights) < 70


def saved(page, link, tmp_path):
    with page.expect_download() as download:
        link.click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    return path


def test_tables_and_pictures_of_other_pages_can_be_saved(show, tmp_path, order, tracks):
    page = show(order)
    path = saved(page, page.get_by_text("Table as CSV"), tmp_path)
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    wanted = order.table()
    # As in files, a spreadsheet runs nothing.
    assert [row["item"] for row in rows] == ["Rome", "Paris", "'=Lima"]
    assert [float(row["probability"]) for row in rows] == [row.probability for row in wanted]
    picture = saved(page, page.get_by_text("Picture as PNG"), tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    page = show(tracks)
    path = saved(page, page.get_by_text("Table as CSV").last, tmp_path)
    assert path.name == "tracks.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    found = {int(row["track"]): float(row["probability"]) for row in rows}
    assert found == {track.track: track.probability for track in tracks.tracks}


def test_a_phone_shows_three_hundred_columns(show, rng):
    page = show(cases.crowd(rng, 300), width=320)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.locator("#cells").bounding_box()["width"] <= 320


LUMINANCE = """
const luminance = (c) => {
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = c.map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const ground = (e) => {
  for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  }
  return [255, 255, 255];
};
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_its_ground(show, rng, scheme):
    page = show(cases.partial(rng), color_scheme=scheme)
    page.focus("#plot")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    page.fill("#search", "item")
    frames(page)
    poor = page.evaluate(
        f"""() => {{ {LUMINANCE}
        const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        let texts = 0;
        while (walk.nextNode()) {{
          const e = walk.currentNode.parentElement;
          if (!walk.currentNode.data.trim() || !e.getClientRects().length) continue;
          texts += 1;
          const [a, b] = [parse(getComputedStyle(e).color), ground(e)].map(luminance);
          const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          if (ratio < {LEAST_CONTRAST}) out.push([ratio, e.outerHTML.slice(0, 100)]);
        }}
        if (texts < 100) out.push("too little text: " + texts);
        return out; }}"""
    )
    assert poor == []


def lightness(page):
    """How light the page and, on average, the heatmap's cells are."""
    ground = page.evaluate(f"() => {{ {LUMINANCE} return luminance(ground(document.body)); }}")
    bounds = page.locator("#cells").bounding_box()
    cells = pixels(page, *(np.linspace(0, bounds[side] - 1, 40) for side in ("width", "height")))
    linear = (cells[cells[:, 3] == 255][:, :3] / 255) ** 2.2
    return ground, float((linear @ [0.2126, 0.7152, 0.0722]).mean())


def test_dark_and_light_follow_the_reader_and_paper_is_light(show, rng):
    page = show(cases.crowd(rng, 150), color_scheme="light")
    assert min(lightness(page)) > 0.7
    page.emulate_media(color_scheme="dark")
    frames(page)
    assert max(lightness(page)) < 0.1
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert min(lightness(page)) > 0.7
    assert len(column(page, "item")) == 150
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert max(lightness(page)) < 0.1
    assert len(column(page, "item")) == 100


@pytest.mark.parametrize(("motion", "still"), [("reduce", True), ("no-preference", False)])
def test_nothing_moves_for_those_who_want_it_so(show, rng, motion, still):
    page = show(cases.crowd(rng, 6), reduced_motion=motion)
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].some(e => { const s = getComputedStyle(e); "
        "return parseFloat(s.transitionDuration) > 0 || s.animationName !== 'none'; })"
    )
    assert moving is not still
