"""Points in frames: what all of tracking works on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from permvi.models import _arguments
from permvi.models.labels import distinct, index_names, is_frame
from permvi.models.scene_columns import find_columns

_DEFAULT_AXES = ("x", "y", "z")
# Times are this near to multiples of a step, relative to it.
_ROUNDING = 1e-6


class Scene(NamedTuple):
    """N points in T frames, those of a frame together and the frames in order of time.

    Attributes:
        points: (N, d) coordinates.
        frame: (N,) the number of each point's frame, from 0.
        times: (T,) the times of the frames in steps; frames that were not taken leave a gap.
        names: (T,) names of the frames.
        ids: (N,) names of the points, distinct in each frame.
        axes: (d,) names of the coordinates.
        rows: (N,) where each point was in the table that was given.
        notes: What was assumed about the data, in sentences without a full stop.
    """

    points: np.ndarray
    frame: np.ndarray
    times: np.ndarray
    names: tuple[str, ...]
    ids: tuple[str, ...]
    axes: tuple[str, ...]
    rows: np.ndarray
    notes: tuple[str, ...]

    @property
    def starts(self) -> np.ndarray:
        """(T + 1,) the first point of each frame, and N."""
        return np.searchsorted(self.frame, np.arange(len(self.times) + 1))


def as_scene(
    frames: Any,
    *,
    times: Sequence[float] | None = None,
    ids: Sequence[Sequence[Any]] | None = None,
    names: Sequence[Any] | None = None,
    axes: Sequence[Any] | None = None,
    frame_col: str | None = None,
    coords: Sequence[str] | None = None,
) -> Scene:
    """Return points given as a DataFrame with a column of frames, or as an array per frame."""
    if isinstance(frames, Scene):
        return frames
    if is_frame(frames):
        header = [str(name) for name in frames.columns]
        found = find_columns(header, frame_col, coords)
        table = np.column_stack([frames.iloc[:, k].to_numpy(np.float64) for k in found.coords])
        labels = [str(value) for value in frames.iloc[:, found.frame].tolist()]
        odd = odd_frame(labels)
        if odd is not None:
            raise ValueError(
                f"frames must have numbers as frames, as most rows have, got {labels[odd]!r:.60} "
                f"in row {odd}."
            )
        own = None if found.ids is None else [str(v) for v in frames.iloc[:, found.ids].tolist()]
        return gather(table, labels, own, [header[k] for k in found.coords], earlier=found.earlier)
    return _from_arrays(frames, times, ids, names, axes)


def _from_arrays(frames: Any, times: Any, ids: Any, names: Any, axes: Any) -> Scene:
    if not isinstance(frames, Sequence | np.ndarray) or isinstance(frames, str):
        raise TypeError(
            "frames must be a DataFrame with a column of frames or a sequence of arrays of points, "
            f"got {frames!r:.60}."
        )
    arrays = [np.asarray(f.to_numpy() if is_frame(f) else f, np.float64) for f in frames]
    dims = {array.shape[1] for array in arrays if array.ndim == 2 and array.size}
    if len(dims) != 1 or any(array.size and array.ndim != 2 for array in arrays):
        shapes = [array.shape for array in arrays]
        raise ValueError(
            f"frames must be (n, d) arrays with the same d, got shapes {shapes!s:.80}."
        )
    d, sizes = dims.pop(), [len(array) if array.size else 0 for array in arrays]
    steps = np.arange(len(arrays)) if times is None else _arguments.real("times", times, (1,))
    if len(steps) != len(arrays) or not (np.diff(steps) > 0).all():
        raise ValueError(f"times must be {len(arrays)} increasing numbers, got {times!r:.60}.")
    texts = tuple(map(str, range(len(arrays)))) if names is None else distinct("names", names)
    if len(texts) != len(arrays):
        raise ValueError(f"names must hold {len(arrays)} names, got {len(texts)}.")
    own: list[str] = []
    for t, size in enumerate(sizes):
        given = ids[t] if ids is not None else None
        if given is None and is_frame(frames[t]):
            given = index_names(frames[t].index)
        mine = distinct(f"ids[{t}]", range(1, size + 1) if given is None else given)
        if len(mine) != size:
            raise ValueError(f"ids[{t}] must hold {size} names, got {len(mine)}.")
        own.extend(mine)
    labels = distinct("axes", _DEFAULT_AXES[:d] if axes is None and d <= 3 else axes or range(d))
    if len(labels) != d:
        raise ValueError(f"axes must hold {d} names, got {len(labels)}.")
    points = np.concatenate([array.reshape(-1, d) for array in arrays])
    scene = Scene(
        _arguments.finite("frames", points),
        np.repeat(np.arange(len(arrays)), sizes),
        np.asarray(steps, np.float64),
        texts,
        tuple(own),
        labels,
        np.arange(len(points)),
        (),
    )
    return _checked(scene)


def gather(
    points: np.ndarray,
    labels: Sequence[str],
    ids: Sequence[str] | None,
    axes: Sequence[str],
    *,
    earlier: bool = False,
) -> Scene:
    """Sort the points of a table into frames.

    Frames that are numbers are in order of the numbers, and steps between them are as long as these
    say; others are in the order in which they first come, one step apart.

    Args:
        points: (N, d) coordinates.
        labels: (N,) the frame of each point.
        ids: (N,) names; counted from 1 in each frame by default.
        axes: (d,) names of the coordinates.
        earlier: Whether the names are an earlier answer, which is not used if it is incomplete.
    """
    notes: list[str] = []
    names = list(dict.fromkeys(labels))
    numbers = _numbers(names)
    if numbers is None:
        times = np.arange(len(names), dtype=np.float64)
        notes.append("frames are not numbers, so they are taken in the order of the file")
    else:
        by_value: dict[float, str] = {}
        for name, number in zip(names, numbers, strict=True):
            by_value.setdefault(number, name)
        same = {name: by_value[number] for name, number in zip(names, numbers, strict=True)}
        labels = [same[label] for label in labels]
        times = np.array(sorted(by_value))
        names = [by_value[time] for time in times]
        if not (times == np.rint(times)).all():
            unit = float(np.diff(times).min())
            times = (times - times[0]) / unit
            near = np.rint(times)
            times = np.where(abs(times - near) < _ROUNDING * np.maximum(near, 1), near, times)
            notes.append(f"times are not whole numbers, so a step is their least gap, {unit:g}")
    missing = times[-1] - times[0] + 1 - len(times)
    if (times == np.rint(times)).all() and missing > 0:
        plural = "" if missing == 1 else "s"
        notes.append(f"{missing:g} frame{plural} between the first and the last without points")
    place = {name: t for t, name in enumerate(names)}
    frame = np.array([place[label] for label in labels])
    order = np.argsort(frame, kind="stable")
    frame = frame[order]
    counted = np.arange(len(frame)) - np.searchsorted(frame, frame) + 1
    own = [str(k) for k in counted] if ids is None else [ids[row] for row in order]
    if earlier and len(set(zip(frame.tolist(), own, strict=True))) < len(own):
        notes.append(
            "the column of earlier tracks names points of a frame twice, so it is not used"
        )
        own = [str(k) for k in counted]
    repeated = len(frame) - len(np.unique(np.column_stack([frame, points[order]]), axis=0))
    if repeated:
        plural = "point is" if repeated == 1 else "points are"
        notes.append(f"{repeated} {plural} where another of the same frame is, and counted again")
    flat = [axis for axis, extent in zip(axes, np.ptp(points, axis=0), strict=True) if extent == 0]
    if 0 < len(flat) < len(axes):
        is_are = "is" if len(flat) == 1 else "are"
        notes.append(f"{' and '.join(flat)} {is_are} the same for all points, and not used")
    scene = Scene(
        _arguments.finite("points", points[order]),
        frame,
        times,
        tuple(names),
        tuple(own),
        tuple(axes),
        order,
        tuple(notes),
    )
    return _checked(scene)


def odd_frame(labels: Sequence[str]) -> int | None:
    """The first row whose frame is no number, if those of most rows are; else None."""
    numeric = {label: _numbers([label]) is not None for label in dict.fromkeys(labels)}
    odd = [k for k, label in enumerate(labels) if not numeric[label]]
    return odd[0] if odd and 2 * len(odd) < len(labels) else None


def _checked(scene: Scene) -> Scene:
    if len(scene.times) < 2:
        raise ValueError("expected two frames or more, got one.")
    if len(scene.points) == 0:
        raise ValueError("expected points in the frames, got none.")
    return scene


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """The numbers that all texts are, with decimal points or commas; else None."""
    try:
        values = [float(text.replace(",", ".")) for text in texts]
    except ValueError:
        return None
    return values if np.isfinite(values).all() else None
