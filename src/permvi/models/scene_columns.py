"""Which columns of a table of points are the frame, the coordinates and the names of points."""

import re
from collections.abc import Sequence
from typing import NamedTuple

# By preference; upper and lower case are the same.
_FRAMES = ("frame", "frames", "t", "timepoint", "position_t", "time")
_COORDS = (("x", "y", "z"), ("position_x", "position_y", "position_z"), ("pos_x", "pos_y", "pos_z"))
# The first are names of points; the others are the answer of an earlier tracking.
_IDS = ("id", "label", "name")
_EARLIER = ("particle", "track_id", "track")
# A unit behind a name, as in "x [nm]" and "t (s)".
_UNIT = re.compile(r"\s*(\[[^\]]*\]|\([^)]*\))$")
# What programs call the column of row numbers that they add when they save a table.
_INDEX = ("", "index", "unnamed: 0")


class Columns(NamedTuple):
    """The roles of the columns of a table, by position from 0.

    Attributes:
        frame: The column of frames.
        coords: (d,) the columns of coordinates, d from 1 to 3.
        ids: The column that names points; None if there is none.
        earlier: Whether that column holds the tracks of an earlier tracking, which need not be
            complete.
        ignored: The names of the other columns, without a saved index.
    """

    frame: int
    coords: tuple[int, ...]
    ids: int | None
    earlier: bool
    ignored: tuple[str, ...]


def find_columns(
    header: Sequence[str], frame: str | None = None, coords: Sequence[str] | None = None
) -> Columns:
    """Find the columns by their names, in any order; nothing is taken for a coordinate by guess.

    Args:
        header: The names of all columns.
        frame: The name of the column of frames, if it is not one of the usual names.
        coords: The names of the coordinates, likewise.

    Raises:
        ValueError: A column is missing, or a name that is needed is there twice.
    """
    names = [str(name).strip() for name in header]
    lower = [_UNIT.sub("", name.lower()) for name in names]

    def exactly(wanted: str, what: str) -> int:
        found = [k for k, name in enumerate(names) if name == wanted]
        found = found or [k for k, name in enumerate(lower) if name == wanted.lower()]
        if len(found) != 1:
            listed = ", ".join(filter(None, names))
            count = "none" if not found else f"{len(found)} of them"
            raise ValueError(
                f"expected one column {wanted!r} for {what}, got {count} among {listed!r:.200}."
            )
        return found[0]

    def first(usual: Sequence[str]) -> int | None:
        there = next((name for name in usual if name in lower), None)
        return None if there is None else exactly(there, "the points")

    at_frame = first(_FRAMES) if frame is None else exactly(frame, "the frames")
    if at_frame is None:
        raise ValueError(
            "expected a column of frames called frame, t or POSITION_T, or its name as frame_col, "
            f"got {', '.join(filter(None, names))!r:.200}."
        )
    if coords is not None:
        places = tuple(exactly(name, "a coordinate") for name in coords)
    else:
        axes = next((axes for axes in _COORDS if any(axis in lower for axis in axes)), ())
        places = tuple(exactly(axis, "a coordinate") for axis in axes if axis in lower)
    if not 1 <= len(places) <= 3 or len({at_frame, *places}) != len(places) + 1:
        raise ValueError(
            "expected one to three coordinates called x, y, z or POSITION_X, POSITION_Y, "
            f"POSITION_Z, or their names as coords, got {', '.join(filter(None, names))!r:.200}."
        )
    taken = {at_frame, *places}
    usual = [
        name for name in (*_IDS, *_EARLIER) if name in lower and lower.index(name) not in taken
    ]
    ids = exactly(usual[0], "names of points") if usual else None
    others = [
        name
        for k, name in enumerate(names)
        if k not in taken and k != ids and (k > 0 or lower[k] not in _INDEX)
    ]
    earlier = ids is not None and lower[ids] in _EARLIER
    return Columns(at_frame, places, ids, earlier, tuple(filter(None, others)))
