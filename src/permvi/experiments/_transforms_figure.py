r"""The drawing of Figure 1, and how three items look in the plane.

The figure has four columns, each with a cloud of points, an arrow and the image of the cloud.

**Birkhoff polytope.** The 3x3 doubly-stochastic matrices have four dimensions. The six permutation
matrices P form two triangles, the even and the odd permutations, each with the all-1/3 matrix as
its centre: two matrices of the same kind share no 1, two of different kinds share one. Put the
even ones on a triangle in the plane and the odd ones on the opposite triangle, so that together
they are the corners p_P of a regular hexagon of radius 1. Then

.. math:: f(X) = \tfrac13 \sum_P \langle X, P \rangle \, p_P

is linear and sends each P to its corner: the inner product of P with itself is 3, with its own kind
0 and with the other kind 1, and the corners of each kind add up to zero. Two facts make the picture
easy to read. White noise of standard deviation s in the nine entries is white noise of standard
deviation s in the plane. And the nearest permutation matrix P has the largest inner product with X,
which puts f(X) on P's side of the centre. So rounding with temperature t gives
``f(X) . p_P >= 1 - t``, and the middle of the hexagon is empty.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle

from permvi import permutations
from permvi._figures import CLOUD, FAINT, INK, PALETTE

_Outline = Callable[[Axes], None]

# Inches. The columns share the width. Heights are measured from the bottom.
WIDTH, HEIGHT = 7.2, 4.6
_COLUMN = WIDTH / 4
_SIDE = 1.76
_LOWER, _ARROW, _UPPER, _HEADER = 0.93, 2.0, 3.0, 4.5
_STENCIL = 0.3
_GREY = "#5B6472"
_SMALL = 6.5


def _on_circle(degrees: list[float]) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


TRIANGLE = _on_circle([90, 210, 330])

PERMUTATIONS = permutations.enumerate_permutations(3)
# In lexicographic order; the even ones are 012, 120 and 201.
HEXAGON = _on_circle([90, 30, 150, 210, 330, 270])
_MATRICES = np.eye(3)[PERMUTATIONS]

# Four edge directions 45 degrees apart make the outline of the 4-cube a regular octagon. This
# length gives it the radius 1.
_EDGES = _on_circle([22.5, 67.5, 112.5, 157.5]) / (np.cos(np.pi / 8) + np.sin(np.pi / 8))

# Corners of the 4-cube on the octagon: up from zero on the right, one entry of B at a time, and
# down again on the left.
OCTAGON = np.concatenate([np.tri(4, k=-1), 1 - np.tri(4, k=-1)]).reshape(8, 2, 2)


def of_simplex(x: np.ndarray) -> np.ndarray:
    """Project R^3 along its diagonal, one-hot vectors to ``TRIANGLE``: (..., 3) -> (..., 2)."""
    return x @ TRIANGLE


def of_birkhoff(X: np.ndarray) -> np.ndarray:
    """Project 3x3 matrices, permutations to ``HEXAGON``: (..., 3, 3) -> (..., 2)."""
    return np.einsum("...ij,pij,pk->...k", X, _MATRICES, HEXAGON) / 3


def of_hypercube(B: np.ndarray) -> np.ndarray:
    """Project [0, 1]^(2x2) into an octagon around the origin: (..., 2, 2) -> (..., 2)."""
    return (B.reshape(*B.shape[:-2], 4) - 0.5) @ _EDGES


def hypercube_edges() -> np.ndarray:
    """Return the ends of the 32 edges of the 4-cube in the plane: (32, 2, 2)."""
    corners = np.array(list(itertools.product([0.0, 1.0], repeat=4))).reshape(-1, 2, 2)
    pairs = [(a, b) for a, b in itertools.combinations(corners, 2) if np.abs(a - b).sum() == 1]
    return of_hypercube(np.array(pairs))


class Cloud(NamedTuple):
    """Draws for the two pictures of a panel, (count, 2) each, and their law."""

    inputs: np.ndarray
    outputs: np.ndarray
    law: str


class _Text(NamedTuple):
    title: str
    target: str
    above: str
    formula: str
    below: str


_TEXTS = {
    "a": _Text(
        "Gumbel-softmax",
        "to the simplex",
        r"$\psi \in \mathbb{R}^3$",
        r"$x = \mathrm{softmax}(\psi / \tau)$",
        r"$x \in \Delta_3$",
    ),
    "b": _Text(
        "Stick-breaking",
        "to the simplex",
        r"$\beta \in [0, 1]^2$",
        r"$x_n = \beta_n\, (1 - x_1 - \cdots - x_{n-1})$",
        r"$x \in \Delta_3$",
    ),
    "c": _Text(
        "Stick-breaking",
        "to the Birkhoff polytope",
        r"$B \in [0, 1]^{2 \times 2}$",
        r"$x_{mn} = \ell_{mn} + \beta_{mn} (u_{mn} - \ell_{mn})$",
        r"$X \in \mathcal{B}_3$",
    ),
    "d": _Text(
        "Rounding",
        "towards permutations",
        r"$\Psi \in \mathbb{R}^{3 \times 3}$",
        r"$X = \tau \Psi + (1 - \tau)\, \mathrm{round}(\Psi)$",
        r"$X \in \mathbb{R}^{3 \times 3}$",
    ),
}


def draw(clouds: dict[str, Cloud], hole: float) -> Figure:
    """Draw panels "a" to "d".

    ``hole`` is the distance from the centre of panel d's hexagon to the edges of its hole, 1 - tau.
    """
    figure = Figure(figsize=(WIDTH, HEIGHT))
    canvas = figure.add_axes((0, 0, 1, 1))
    canvas.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    canvas.axis("off")
    outlines: dict[str, tuple[_Outline, _Outline]] = {
        "a": (_real_space, _simplex),
        "b": (_unit_square, _simplex),
        "c": (_hypercube, _birkhoff),
        "d": (_hexagon, lambda axes: _with_hole(axes, hole)),
    }
    for index, letter in enumerate(outlines):
        left = index * _COLUMN
        inputs, outputs, law = clouds[letter]
        _annotate(canvas, left, letter, law)
        marked = _spread(np.stack([inputs, outputs]), len(PALETTE))
        above, below = outlines[letter]
        for height, points, outline in ((_UPPER, inputs, above), (_LOWER, outputs, below)):
            corner = left + (_COLUMN - _SIDE) / 2, height - _SIDE / 2
            axes = figure.add_axes(
                (corner[0] / WIDTH, corner[1] / HEIGHT, _SIDE / WIDTH, _SIDE / HEIGHT)
            )
            axes.axis("off")
            _scatter(axes, points, marked)
            outline(axes)
    return figure


def _annotate(canvas: Axes, left: float, letter: str, law: str) -> None:
    """Write the text of a column outside its two pictures."""
    text = _TEXTS[letter]
    canvas.text(left + 0.06, _HEADER, letter, fontsize=10.5, weight="bold", va="top")
    canvas.text(left + 0.24, _HEADER, text.title, fontsize=8.5, weight="bold", va="top")
    canvas.text(left + 0.24, _HEADER - 0.17, text.target, fontsize=7.5, va="top")
    canvas.text(left + 0.24, _HEADER - 0.43, law, fontsize=7, color=_GREY, va="center")
    for height, label in ((_UPPER, text.above), (_LOWER, text.below)):
        canvas.text(left + 0.06, height + 0.78, label, fontsize=8, va="center")
    canvas.annotate(
        "",
        xytext=(left + 0.2, _ARROW + 0.16),
        xy=(left + 0.2, _ARROW - 0.16),
        arrowprops={"arrowstyle": "-|>,head_width=0.2,head_length=0.4", "color": INK, "lw": 1.3},
    )
    canvas.text(left + 0.32, _ARROW, text.formula, fontsize=7.5, va="center")


def _scatter(axes: Axes, points: np.ndarray, marked: np.ndarray) -> None:
    x, y = points.T
    axes.scatter(x, y, s=4, color=CLOUD, alpha=0.28, linewidths=0, zorder=2, clip_on=False)
    x, y = points[marked].T
    style: dict[str, Any] = {"edgecolors": INK, "linewidths": 0.6, "zorder": 5, "clip_on": False}
    axes.scatter(x, y, s=26, c=PALETTE, **style)


def _spread(pictures: np.ndarray, count: int) -> np.ndarray:
    """Choose draws that lie far apart in both pictures (2, draws, 2), none of them an outlier.

    The first is the middle one. The others go around it counter-clockwise in the upper picture.
    """
    pictures = pictures - pictures.mean(1, keepdims=True)
    pictures = pictures / pictures.std((1, 2), keepdims=True)
    size = np.linalg.norm(pictures, axis=-1).max(0)
    gap = np.where(size <= np.quantile(size, 0.9), np.inf, 0)
    chosen = [np.argmin(size)]
    for _ in range(count - 1):
        offset = pictures - pictures[:, chosen[-1:]]
        gap = np.minimum(gap, np.linalg.norm(offset, axis=-1).min(0))
        chosen.append(np.argmax(gap))
    around = np.array(chosen[1:])
    angles = np.arctan2(pictures[0, around, 1], pictures[0, around, 0])
    return np.concatenate([chosen[:1], around[np.argsort(angles)]])


def _view(axes: Axes, radius: float, x: float = 0, y: float = 0) -> None:
    axes.set(xlim=(x - radius, x + radius), ylim=(y - radius, y + radius))


def _polygon(axes: Axes, corners: np.ndarray, **style: Any) -> None:
    look = {"fill": False, "edgecolor": INK, "linewidth": 0.9, "zorder": 3, "joinstyle": "round"}
    axes.add_patch(Polygon(corners, closed=True, **(look | style)))


def _segments(axes: Axes, ends: np.ndarray) -> None:
    axes.add_collection(LineCollection(list(ends), colors=FAINT, linewidths=0.5, zorder=1))


def _label(axes: Axes, position: np.ndarray, text: str, **style: Any) -> None:
    halo = patheffects.withStroke(linewidth=2, foreground="white")
    x, y = position
    look: dict[str, Any] = {"fontsize": 7.5, "ha": "center", "va": "center", "zorder": 4}
    axes.text(x, y, text, path_effects=[halo], **(look | style))


def _real_space(axes: Axes) -> None:
    radius = 1.02 * np.abs(axes.dataLim.get_points()).max()
    _view(axes, radius)
    arrow = {"arrowstyle": "-|>,head_width=0.14,head_length=0.28", "color": INK, "lw": 0.8}
    for index, direction in enumerate(TRIANGLE):
        axes.annotate(
            "", xytext=(0, 0), xy=0.72 * radius * direction, arrowprops=arrow | {"shrinkA": 0}
        )
        _label(axes, 0.81 * radius * direction, rf"$\psi_{index + 1}$")


def _unit_square(axes: Axes) -> None:
    _view(axes, 0.85, x=0.5, y=0.5)
    _polygon(axes, np.array([[0, 0], [1, 0], [1, 1], [0, 1]]))
    for value in (0, 1):
        _label(axes, np.array([value, -0.09]), str(value), fontsize=_SMALL, color=_GREY)
        _label(axes, np.array([-0.09, value]), str(value), fontsize=_SMALL, color=_GREY)
    _label(axes, np.array([0.5, -0.11]), r"$\beta_1$")
    _label(axes, np.array([-0.11, 0.5]), r"$\beta_2$")


def _simplex(axes: Axes) -> None:
    _view(axes, 1.3, y=0.2)
    _polygon(axes, TRIANGLE)
    for corner, name in zip(TRIANGLE, ("1, 0, 0", "0, 1, 0", "0, 0, 1"), strict=True):
        outside = np.array([0, 0.14 if corner[1] > 0 else -0.14])
        _label(axes, corner + outside, f"({name})", fontsize=_SMALL, color=_GREY)


def _hypercube(axes: Axes) -> None:
    _view(axes, 1.45)
    _segments(axes, hypercube_edges())
    octagon = of_hypercube(OCTAGON)
    _polygon(axes, octagon)
    for corner, value in ((octagon[0], 0), (octagon[4], 1)):
        _label(axes, 1.12 * corner, str(value), fontsize=_SMALL, color=_GREY)
    for edge, entry in enumerate(("11", "12", "21", "22")):
        middle = octagon[edge : edge + 2].mean(0)
        _label(axes, 1.2 * middle, rf"$\beta_{{{entry}}}$")


def _hexagon(axes: Axes) -> None:
    _view(axes, 1.64)
    _polygon(axes, _around(HEXAGON))


def _permutations(axes: Axes) -> None:
    _hexagon(axes)
    for perm, corner in zip(PERMUTATIONS, HEXAGON, strict=True):
        _stencil(axes, perm, 1.4 * corner)


def _birkhoff(axes: Axes) -> None:
    _permutations(axes)
    # Every two vertices of this polytope are joined by an edge.
    _segments(axes, np.array(list(itertools.combinations(HEXAGON, 2))))


def _with_hole(axes: Axes, hole: float) -> None:
    _permutations(axes)
    corners = _around(HEXAGON)
    # The edges of the hole face the hexagon's corners, which are 60 degrees apart.
    corners = hole * (corners + np.roll(corners, 1, axis=0)) / (1 + np.cos(np.pi / 3))
    _polygon(axes, corners, edgecolor=_GREY, linestyle=(0, (3, 2)), linewidth=0.7)
    _label(axes, np.zeros(2), "no $X$ here", fontsize=_SMALL, color=_GREY)


def _around(corners: np.ndarray) -> np.ndarray:
    """Sort the corners of a convex polygon around the origin."""
    return corners[np.argsort(np.arctan2(corners[:, 1], corners[:, 0]))]


def _stencil(axes: Axes, perm: np.ndarray, centre: np.ndarray) -> None:
    """Draw a 3x3 icon of a permutation matrix, ones in black."""
    cell = _STENCIL / 3
    for i, j in itertools.product(range(3), repeat=2):
        x, y = centre + cell * (np.array([j, 2 - i]) - 1.5)
        fill = INK if perm[i] == j else "white"
        square = Rectangle((x, y), cell, cell, facecolor=fill, edgecolor=_GREY, linewidth=0.35)
        axes.add_patch(square).set_zorder(4)
