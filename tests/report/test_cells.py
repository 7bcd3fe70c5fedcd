"""The page of identified cells."""

import base64
import io
import re

import numpy as np
import pytest
from matplotlib.image import imread

from permvi.posterior import ExactLaw, Posterior
from permvi.report import cells

NAMES = ["$PHA", "PHB_${L}", "<b>"]


@pytest.fixture
def found():
    # The first cell is certain, the other two could be each other.
    scores = np.array([[9.0, 0, 0], [0, 0.5, 0], [0, 0, 0.5]])
    cell_names = ["1", "2", "3"]
    return Posterior.from_exact(ExactLaw(scores), labels=(cell_names, NAMES), method="exact")


PLACES = np.array([[0.0, 1, 2], [5, 3, 1], [9, 2, np.nan]])


@pytest.mark.parametrize("axes", [["x"], ["x", "y"], ["x", "y", "z"]])
def test_cells_are_solid_or_rings_with_two_names(found, axes):
    figure = cells.draw(found.item_summaries(), PLACES[:, : len(axes)], axes)
    assert len(figure.axes) == max(1, len(axes) * (len(axes) - 1) // 2)
    solid, rings = (points.get_offsets() for points in figure.axes[0].collections)
    assert (len(solid), len(rings)) == (1, 2)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words == [r"\$PHA", r"PHB_\${L} or <b>?", r"<b> or PHB_\${L}?"]
    if len(axes) == 3:
        # The third cell has no z.
        assert len(figure.axes[-1].texts) == 2
    figure.canvas.draw()


def test_the_page_holds_the_picture(found):
    text = cells.render(found, PLACES, ["x", "y", "z"], "Cells")
    saved = re.search(r'download="cells.png" href="data:image/png;base64,([^"]+)"', text)
    picture = imread(io.BytesIO(base64.b64decode(saved[1])))
    # As wide as a page, and not empty.
    assert picture.shape[1] == 9 * 150
    assert 0.5 < picture[..., :3].mean() < 0.999
    assert "<b>" not in re.sub(r"</?bdi>", "", text).replace("&lt;b&gt;", "")


@pytest.mark.parametrize("spread", [(1.0, 1.0), (30.0, 1.0), (1.0, 30.0), (1.0, 0.0)])
def test_the_frame_holds_everything_and_little_else(spread, rng):
    labels = [f"a long name, number {k}" for k in range(8)]
    law = ExactLaw(rng.normal(size=(8, 8)))
    items = Posterior.from_exact(law, labels=(list("abcdefgh"), labels)).item_summaries()
    picture = cells._picture(items, rng.normal(size=(8, 2)) * spread, ["x", "y"])
    frame = re.search(r'"frame" x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', picture)
    x, y, width, height = map(int, frame.groups())
    dots = np.array(re.findall(r'<circle cx="([-\d.]+)" cy="([-\d.]+)"', picture), float)
    names = np.array(re.findall(r'</circle><text x="([-\d.]+)" y="([-\d.]+)"', picture), float)
    words = re.findall(r'opacity="[\d.]+">([^<]+)</text>', picture)
    half = np.array([[cells._LETTER * len(word), cells._LINE] for word in words]) / 2
    low = np.minimum(dots.min(axis=0), (names - [0, 3.5] - half).min(axis=0))
    high = np.maximum(dots.max(axis=0), (names - [0, 3.5] + half).max(axis=0))
    assert (low >= [x, y]).all()
    assert (high <= [x + width, y + height]).all()
    assert (high - low >= np.array([width, height]) - 2 * cells._MARGIN - 2).all()


def test_names_hide_neither_each_other_nor_cells():
    """Boxes of names overlap nowhere, though all names on the right would."""
    dots = np.array([[100.0, 100], [118, 102], [104, 125], [300, 100], [300, 108]])
    words = ["DVA", "DVB", "PHAR or PLNR?", "PQR", "PVR"]
    half = np.array([[cells._LETTER * len(word), cells._LINE] for word in words]) / 2

    def overlaps(centers):
        apart = np.abs(centers[:, None] - centers)
        reach = half[:, None] + half
        names = np.triu((apart < reach - 1e-9).all(axis=-1), 1).sum()
        on_dots = (np.abs(centers[:, None] - dots) < half[:, None] + cells._DOT - 1e-9).all(axis=-1)
        return names + on_dots.sum()

    right = dots + (half + cells._DOT) * [1, 0]
    found = cells._beside(dots, words)
    assert overlaps(right) > 0
    assert overlaps(found) == 0
    # A lone name stays on the right, as near as before.
    assert cells._beside(dots[:1], words[:1]).tolist() == right[:1].tolist()
    assert cells._beside(np.zeros((0, 2)), []).shape == (0, 2)
