"""Points followed through frames: a matching of each two consecutive frames, linked to tracks."""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, shortest_path

from permvi._assignment.duality import best_matching, reduce_by_prices, residual_graph
from permvi.models import _arguments
from permvi.models.labels import distinct, index_names, is_frame
from permvi.models.points import PointMatching
from permvi.models.protocol import MAX_TABLE

if TYPE_CHECKING:
    import pandas as pd

# Links are dropped if the best matching with them is this many times less probable than the best
# overall: by the first of these factors that leaves groups small enough for the exact answer.
_NEGLIGIBLE = (1e9, 1e6, 1e4, 1e3)
# The size of such a group, on its smaller side.
_MAX_GROUP = 16
# The keys of `LinkedTracks.rows` beside the coordinates.
COLUMNS = (
    *("frame", "id", "track", "previous", "probability", "runner_up", "runner_up_probability"),
    *("p_new", "p_lost"),
)


class LinkedPoint(NamedTuple):
    """A point, its track, and the point of the previous frame that it is linked with.

    Attributes:
        frame: Number of its frame, from 0.
        row: Number of the point in its frame, from 0.
        track: Number of its track, from 1.
        previous: Row of the linked point in the previous frame; None if the point is new.
        probability: Probability of this link, or of being new; None in the first frame.
        runner_up: Row of the most probable other candidate; None if that is "new".
        runner_up_probability: Its probability; None in the first frame.
        p_new: Probability that the point was not in the previous frame; None in the first frame.
        p_lost: Probability that the point is not in the next frame; None in the last frame.
    """

    frame: int
    row: int
    track: int
    previous: int | None
    probability: float | None
    runner_up: int | None
    runner_up_probability: float | None
    p_new: float | None
    p_lost: float | None


class LinkedTrack(NamedTuple):
    """A track.

    Attributes:
        track: Its number, from 1.
        points: (frame, row) of its points, in the order of the frames.
        probability: The probability that all of its links are right. Given the points, the steps
            are independent of each other, so this is the product of the links' probabilities.
    """

    track: int
    points: tuple[tuple[int, int], ...]
    probability: float


class LinkedTracks:
    """Points linked to tracks, the result of `Tracks.link`.

    Attributes:
        model: The `Tracks` that the points belong to.
        points: All points, frame by frame.
        tracks: All tracks by number.
    """

    def __init__(self, model: "Tracks", points: Sequence[LinkedPoint]) -> None:
        self.model = model
        self.points = tuple(points)
        found: dict[int, list[LinkedPoint]] = {}
        for point in points:
            found.setdefault(point.track, []).append(point)
        self.tracks = tuple(_track(found[track]) for track in sorted(found))

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per point: its frame, id, coordinates and the fields of `LinkedPoint`.

        Points are named by their ids. A ``previous`` or ``runner_up`` of None means "new".
        """
        model, rows = self.model, []
        for point in self.points:
            earlier = model.ids[point.frame - 1] if point.frame else ()
            place = model.frames[point.frame][point.row].tolist()
            rows.append(
                {
                    "frame": model.names[point.frame],
                    "id": model.ids[point.frame][point.row],
                    **dict(zip(model.axes, place, strict=True)),
                    "track": point.track,
                    "previous": None if point.previous is None else earlier[point.previous],
                    "probability": point.probability,
                    "runner_up": None if point.runner_up is None else earlier[point.runner_up],
                    "runner_up_probability": point.runner_up_probability,
                    "p_new": point.p_new,
                    "p_lost": point.p_lost,
                }
            )
        return rows

    def to_frame(self) -> "pd.DataFrame":
        """A pandas DataFrame of `rows`."""
        import pandas as pd

        return pd.DataFrame(self.rows())


def _track(points: Sequence[LinkedPoint]) -> LinkedTrack:
    # The first point has no link: it is new, or in the first frame.
    links = [point.probability for point in points[1:] if point.probability is not None]
    places = tuple((point.frame, point.row) for point in points)
    return LinkedTrack(points[0].track, places, math.prod(links, start=1.0))


class Tracks:
    r"""Points followed through frames, two frames at a time.

    A point of one frame is seen again in the next one with probability :math:`1 - P`, a normal step
    away. New points appear at random. With :math:`s_{ij}` the log density of a step from point j to
    point i, a matching of two consecutive frames has

    .. math::
        \log p = \sum_{i \leftarrow j} s_{ij} + \sum_{i\ \mathrm{new}} b
        + \sum_{j\ \mathrm{lost}} \log \frac{P}{1 - P} + \mathrm{const},

    where b is the log density of a step of ``new`` standard deviations along one coordinate.

    Fit each of `steps`, then `link` the posteriors to tracks. Points carry no memory: given their
    positions, the steps are independent, and a point that is missed in a frame starts a new track.
    `permvi.track` looks at all frames together.

    Args:
        frames: Two or more (n_t, d) arrays of points with at least one point each. The index of a
            DataFrame gives the ids, its columns name the axes.
        sd: Standard deviation of a step, a number or (d,).
        new: A point is new rather than take a step longer than about this many standard deviations.
        lost: Probability P that a point is not seen in the next frame, between 0 and 1.
        ids: For each frame the names of its points; "0", "1", ... by default.
        names: Names of the frames; "0", "1", ... by default.
        axes: (d,) names of the coordinates; "x0", "x1", ... by default.

    Attributes:
        frames: Arrays (n_t, d).

    Raises:
        ValueError: Shapes do not fit, points are not finite, names repeat, or a setting is out of
            its range.
        TypeError: An argument has the wrong type.

    Examples:
        >>> tracks = Tracks([[[0.0], [5.0]], [[5.1], [0.2]]], sd=0.3)
        >>> [step.shape for step in tracks.steps]
        [(2, 2)]
    """

    def __init__(
        self,
        frames: Sequence[Any],
        sd: Any,
        new: float = 3.0,
        lost: float = 0.05,
        *,
        ids: Sequence[Sequence[Any]] | None = None,
        names: Sequence[Any] | None = None,
        axes: Sequence[Any] | None = None,
    ) -> None:
        self.frames = _frames(frames)
        d = self.frames[0].shape[1]
        self.sd = _positive("sd", sd, (d,))
        self.new = float(_positive("new", new))
        self.lost = float(_arguments.real("lost", lost, (0,)))
        if not 0 < self.lost < 1:
            raise ValueError(f"lost must be a probability between 0 and 1, got {lost}.")
        given = [None] * len(frames) if ids is None else list(ids)
        if len(given) != len(frames):
            raise ValueError(f"ids must name the points of {len(frames)} frames, got {len(given)}.")
        found = [index_names(each.index) if is_frame(each) else None for each in frames]
        self.ids = tuple(
            _names(f"ids[{t}]", given[t] if given[t] is not None else found[t], len(points))
            for t, points in enumerate(self.frames)
        )
        self.names = _names("names", names, len(frames))
        if axes is None:
            columns = index_names(frames[0].columns) if is_frame(frames[0]) else None
            axes = columns or [f"x{k}" for k in range(d)]
        self.axes = _names("axes", axes, d)
        taken = [name for name in self.axes if name in COLUMNS]
        if taken:
            raise ValueError(
                f"axes must be none of the other columns of `rows`, {', '.join(COLUMNS)}, got "
                f"{taken[0]!r}."
            )

    @property
    def steps(self) -> tuple[PointMatching, ...]:
        """The model of each two consecutive frames; rows are the points of the later frame."""
        return tuple(model for model, _ in self._steps)

    @property
    def left_out(self) -> tuple[float, ...]:
        """For each step, the factor by which the links that its mask forbids are less probable.

        The best matching with such a link is at least this many times less probable than the best
        overall. The factor is 1e9, or 1e6, 1e4 or 1e3 where that is needed to leave groups of
        points that are small enough for the exact answer.
        """
        return tuple(factor for _, factor in self._steps)

    def link(self, posteriors: Sequence[Any]) -> LinkedTracks:
        """Link points to tracks by the matching of each step with the most expected right links.

        Args:
            posteriors: The `permvi.Posterior` of each of `steps`.

        Returns:
            All points with their tracks and probabilities.

        Raises:
            ValueError: There is not one posterior for each step, or a shape does not fit.

        Examples:
            >>> import permvi as pv
            >>> tracks = Tracks([[[0.0], [5.0]], [[5.1], [0.2]]], sd=0.3)
            >>> linked = tracks.link([pv.fit(step, seed=0) for step in tracks.steps])
            >>> [track.points for track in linked.tracks]
            [((0, 0), (1, 1)), ((0, 1), (1, 0))]
        """
        shapes = [posterior.marginals.shape for posterior in posteriors]
        expected = [step.shape for step in self.steps]
        if shapes != expected:
            raise ValueError(
                f"posteriors must be those of the steps, of shapes {expected}, got {shapes}."
            )
        points: list[LinkedPoint] = []
        current: list[int] = []
        num_tracks = 0
        for t, frame in enumerate(self.frames):
            links = [_FIRST] * len(frame) if t == 0 else _links(posteriors[t - 1])
            lost = posteriors[t].p_unmatched_cols.tolist() if t < len(posteriors) else None
            before, current = current, []
            for row, link in enumerate(links):
                if link.previous is None:
                    num_tracks += 1
                    current.append(num_tracks)
                else:
                    current.append(before[link.previous])
                p_lost = None if lost is None else lost[row]
                points.append(LinkedPoint(t, row, current[-1], *link, p_lost))
        return LinkedTracks(self, points)

    @cached_property
    def _steps(self) -> list[tuple[PointMatching, float]]:
        return [self._step(t) for t in range(len(self.frames) - 1)]

    def _step(self, t: int) -> tuple[PointMatching, float]:
        """The model of frames t and t + 1, and its factor of `left_out`."""
        before, after = self.frames[t : t + 2]
        d = before.shape[1]
        away = np.zeros((1, d))
        away[0, 0] = self.new * self.sd[0]
        new = float(PointMatching(away, np.zeros((1, d)), self.sd).scores[0, 0])
        lost = float(np.log(self.lost) - np.log1p(-self.lost))
        alone: dict[str, Any] = {"row_unmatched": new, "col_unmatched": lost}
        labels = (self.ids[t + 1], self.ids[t])
        if len(after) * len(before) > MAX_TABLE:
            # The model lists its pairs itself, and leaves out only links far less probable.
            return PointMatching(after, before, self.sd, labels=labels, **alone), _NEGLIGIBLE[0]
        scores = PointMatching(after, before, self.sd).scores
        gaps = link_gaps(np.asarray(scores, np.float64), new, lost)
        small = (f for f in _NEGLIGIBLE if _largest_group(gaps <= np.log(f)) <= _MAX_GROUP)
        factor = next(small, _NEGLIGIBLE[0])
        model = PointMatching(
            after,
            before,
            self.sd,
            mask=gaps <= np.log(factor),
            labels=labels,
            **alone,
        )
        return model, factor


def link_gaps(scores: np.ndarray, new: float, lost: float) -> np.ndarray:
    """(n, m) log weight of the best matching less that of the best matching with each link.

    The arguments are (n, m) log weights of links, and those of a new point and of a lost one.
    """
    n, m = scores.shape
    table = np.zeros((n + 1, m + 1))
    table[:n, :m], table[:n, m], table[n, :m] = scores, new, lost
    # All points may stay unmatched, so there always is a matching.
    best = np.asarray(best_matching(table))
    table = reduce_by_prices(table, best, residual_graph(table, best))
    # Prices leave no length negative but by rounding. Of a dense graph SciPy would drop the zeros.
    lengths = np.maximum(residual_graph(table, best), 0.0)
    edges = np.nonzero(np.isfinite(lengths))
    back = shortest_path(csr_array((lengths[edges], edges), shape=lengths.shape), method="D")
    return back[:m, best].T - table[:n, :m]


def _largest_group(mask: np.ndarray) -> int:
    """The size, on the smaller side, of the largest group of points that links connect."""
    n, m = mask.shape
    rows, cols = np.nonzero(mask)
    graph = csr_array((np.ones(len(rows)), (rows, n + cols)), shape=(n + m, n + m))
    num, group = connected_components(graph, directed=False)
    sides = [np.bincount(part, minlength=num) for part in (group[:n], group[n:])]
    return int(np.minimum(*sides).max())


class _Link(NamedTuple):
    """The fields of `LinkedPoint` that come from one step."""

    previous: int | None
    probability: float | None
    runner_up: int | None
    runner_up_probability: float | None
    p_new: float | None


_FIRST = _Link(None, None, None, None, None)


def _links(posterior: Any) -> list[_Link]:
    """The link of each later point."""
    n, m = posterior.marginals.shape
    p_new = posterior.p_unmatched_rows
    chosen = posterior.expected_loss("hamming").perm
    pairs = coo_array(posterior.marginals)
    probability, runner_up = np.where(chosen < 0, p_new, 0.0), np.where(chosen == 0, 1, 0)
    mine = pairs.col == chosen[pairs.row]
    probability[pairs.row[mine]] = pairs.data[mine]
    # The most probable other point comes last, and of equals the first.
    others = np.flatnonzero(~mine)
    order = others[np.lexsort((-pairs.col[others], pairs.data[others], pairs.row[others]))]
    rows = pairs.row[order]
    last = order[np.append(rows[1:] != rows[:-1], True)[: len(rows)]]
    of_runner_up = np.zeros(n)
    runner_up[pairs.row[last]], of_runner_up[pairs.row[last]] = pairs.col[last], pairs.data[last]
    new = (chosen >= 0) & (p_new > of_runner_up)
    runner_up, of_runner_up = np.where(new, m, runner_up), np.where(new, p_new, of_runner_up)
    columns = zip(
        [None if column < 0 else column for column in chosen.tolist()],
        probability.tolist(),
        [None if column == m else column for column in runner_up.tolist()],
        of_runner_up.tolist(),
        p_new.tolist(),
        strict=True,
    )
    return [_Link(*link) for link in columns]


def _frames(frames: Any) -> tuple[np.ndarray, ...]:
    if isinstance(frames, str) or not hasattr(frames, "__len__"):
        raise TypeError(f"frames must be a sequence of arrays of points, got {frames!r:.60}.")
    if len(frames) < 2:
        raise ValueError(f"frames must hold two frames or more, got {len(frames)}.")
    checked: list[np.ndarray] = []
    for t, points in enumerate(frames):
        name = f"frames[{t}]"
        array = _arguments.finite(name, _arguments.real(name, points, (2,)))
        if checked and array.shape[1] != checked[0].shape[1]:
            raise ValueError(
                f"{name} must have {checked[0].shape[1]} coordinates as frames[0] has, got shape "
                f"{array.shape}."
            )
        checked.append(array)
    return tuple(checked)


def _positive(name: str, value: Any, shape: tuple[int, ...] = ()) -> np.ndarray:
    array = _arguments.real(name, value, (0, 1) if shape else (0,))
    if array.shape not in ((), shape):
        raise ValueError(f"{name} must be a number or have shape {shape}, got {array.shape}.")
    if not ((array > 0) & (array < np.inf)).all():
        raise ValueError(f"{name} must be positive and finite, got {value}.")
    return np.broadcast_to(array, shape)


def _names(name: str, given: Any, size: int) -> tuple[str, ...]:
    names = distinct(name, range(size) if given is None else given)
    if len(names) != size:
        raise ValueError(f"{name} must hold {size} names, got {len(names)}.")
    return names
