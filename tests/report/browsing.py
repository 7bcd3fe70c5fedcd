"""What tests ask of a page."""

import re

import numpy as np


def frames(page, num=2):
    """Wait for some animation frames, in which the page must have done what it was asked."""
    page.evaluate(
        "n => new Promise(done => { const f = k => k ? requestAnimationFrame(() => f(k - 1)) "
        ": done(); f(n); })",
        num,
    )


def pixels(page, xs, ys):
    """(len(ys) * len(xs), 4) red, green, blue and opacity of pixels of the heatmap."""
    found = page.evaluate(
        """([xs, ys]) => {
        const copy = document.createElement("canvas"), cells = document.getElementById("cells");
        [copy.width, copy.height] = [cells.width, cells.height];
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(cells, 0, 0);
        return ys.flatMap(y => xs.map(x => [...context.getImageData(x, y, 1, 1).data]));
        }""",
        [list(map(float, xs)), list(map(float, ys))],
    )
    return np.array(found)


def column(page, kind):
    return [text.strip() for text in page.locator(f".items td.{kind}").all_inner_texts()]


def tip(page):
    """The chosen cell: item, label, probability."""
    found = re.fullmatch(r"(.+) is (.+): (.+)", page.locator("#tip").inner_text())
    return found.groups()
