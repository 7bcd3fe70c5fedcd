r"""From frames of points to the posterior of each step between two of them.

A point of one frame is seen again in the next one with probability 1 - P, a normal step away; new
points appear at random. With :math:`s_{ij}` the log density of a step from j to i, a matching has

.. math::
    \log p = \sum_{i \leftarrow j} s_{ij} + \sum_{i\ \mathrm{new}} b
    + \sum_{j\ \mathrm{lost}} \log \frac{P}{1 - P} + \mathrm{const},

with b the log density of a step of so many standard deviations that it counts as a new point.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from permvi._assignment.duality import best_matching, reduce_by_prices, residual_graph
from permvi._cli.csv_numbers import is_number
from permvi._cli.csv_records import read_records
from permvi.models import PointMatching
from permvi.posterior import Posterior

_FRAME, _ID = "frame", "id"
# What is written of a point beside its coordinates.
OUTPUT = (
    *(_FRAME, _ID, "track", "previous", "probability", "runner_up", "runner_up_probability"),
    *("p_new", "p_lost"),
)
_AXES = (1, 3)
# Links are left out if the best matching that has them is so many times less probable than the best
# of all: the first of these that leaves groups of points small enough for the exact answer.
_NEGLIGIBLE = (1e9, 1e6, 1e4, 1e3)
_LARGEST = 16


class Frame(NamedTuple):
    """The points of one frame.

    Attributes:
        name: Its name.
        ids: (n,) names of the points, all different.
        points: (n, d) coordinates.
    """

    name: str
    ids: tuple[str, ...]
    points: np.ndarray


class Frames(NamedTuple):
    """All frames in their order, and the names of the coordinates."""

    axes: tuple[str, ...]
    frames: list[Frame]


class Motion(NamedTuple):
    """How points move.

    Attributes:
        sd: (d,) standard deviations of a step, or one for all coordinates.
        new: A new point counts as much as a step of so many standard deviations.
        lost: The probability that a point is not seen in the next frame, between 0 and 1.
    """

    sd: tuple[float, ...]
    new: float
    lost: float


class Step(NamedTuple):
    """What happens between two frames.

    Attributes:
        before: The earlier one.
        after: The later one.
        posterior: Of which point of the later one is which of the earlier.
        left_out: Links are left out that make a matching less probable by this factor or more.
    """

    before: Frame
    after: Frame
    posterior: Posterior
    left_out: float


def read_frames(path: Path) -> Frames:
    """Frames from a CSV file ``frame``, perhaps ``id``, and one to three coordinates.

    Frames that are numbers come in their order, others in that of the file. Points without an id
    are counted from 1 in each frame.

    Raises:
        ValueError: Something in the file is wrong; the message has the line.
        OSError: It cannot be read.
    """
    records = read_records(path, (_FRAME, _ID), optional=(_ID,), numbers=_AXES)
    for column in records.columns:
        if column in OUTPUT:
            raise ValueError(
                f"{path}: expected coordinates with other names than the output has, got "
                f"{column!r}."
            )
    found: dict[str, dict[str, np.ndarray]] = {}
    for record in records.rows:
        points = found.setdefault(record.names[_FRAME], {})
        name = record.names.get(_ID, str(len(points) + 1))
        if name in points:
            raise ValueError(
                f"{records.at(record)}: expected each point of a frame once, got {name!r:.60} "
                "again."
            )
        points[name] = record.values
    if len(found) < 2:
        raise ValueError(f"{path}: expected two frames or more, got one.")
    names = list(found)
    if all(map(is_number, names)):
        names.sort(key=lambda name: float(name.replace(",", ".")))
    frames = [Frame(name, tuple(found[name]), np.stack([*found[name].values()])) for name in names]
    return Frames(records.columns, frames)


def model_of(before: Frame, after: Frame, motion: Motion) -> tuple[PointMatching, float]:
    """The model of one step, rows the points of the later frame, and `Step.left_out`."""
    d = before.points.shape[1]
    settings: dict[str, Any] = {"scale": np.broadcast_to(motion.sd, d)}
    away = np.zeros((1, d))
    away[0, 0] = motion.new * settings["scale"][0]
    new = float(PointMatching(away, np.zeros((1, d)), **settings).scores[0, 0])
    lost = float(np.log(motion.lost) - np.log1p(-motion.lost))
    everything = PointMatching(after.points, before.points, **settings)
    gaps = link_gaps(np.asarray(everything.scores, np.float64), new, lost)
    small = (ratio for ratio in _NEGLIGIBLE if _largest_group(gaps <= np.log(ratio)) <= _LARGEST)
    left_out = next(small, _NEGLIGIBLE[0])
    model = PointMatching(
        after.points,
        before.points,
        **settings,
        mask=gaps <= np.log(left_out),
        row_unmatched=new,
        col_unmatched=lost,
        labels=(after.ids, before.ids),
    )
    return model, left_out


def link_gaps(scores: np.ndarray, new: float, lost: float) -> np.ndarray:
    """(n, m) how much less log weight than the best matching the best one with a link has."""
    n, m = scores.shape
    table = np.zeros((n + 1, m + 1))
    table[:n, :m], table[:n, m], table[n, :m] = scores, new, lost
    # Everybody may stay alone, so that there always is one.
    best = np.asarray(best_matching(table))
    table = reduce_by_prices(table, best, residual_graph(table, best))
    # Prices leave no length negative but by rounding. Of a dense graph SciPy would drop the zeros.
    lengths = np.maximum(residual_graph(table, best), 0.0)
    edges = np.nonzero(np.isfinite(lengths))
    back = shortest_path(csr_array((lengths[edges], edges), shape=lengths.shape), method="D")
    return back[:m, best].T - table[:n, :m]


def _largest_group(mask: np.ndarray) -> int:
    """The size, of the smaller side, of the largest group of points that links connect."""
    n, m = mask.shape
    rows, cols = np.nonzero(mask)
    graph = csr_array((np.ones(len(rows)), (rows, n + cols)), shape=(n + m, n + m))
    num, group = connected_components(graph, directed=False)
    sides = [np.bincount(part, minlength=num) for part in (group[:n], group[n:])]
    return int(np.minimum(*sides).max())
