"""Read the points of frames from a CSV file, and write them with their tracks."""

from collections.abc import Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from permvi._cli import results
from permvi._csv import Numbers, Row, at, check_width, is_number, read_rows
from permvi.models.scene_columns import Columns, find_columns
from permvi.models.scenes import Scene, gather, odd_frame

if TYPE_CHECKING:
    from permvi.posterior.tracks import TrackPosterior

# TrackMate explains its columns in this many rows below the header.
_MOST_TITLES = 3
_TRACKMATE = {"x": "POSITION_X", "y": "POSITION_Y", "z": "POSITION_Z"}
LAYOUTS = ("permvi", "trackpy", "trackmate", "napari")


def read_scene(
    path: Path, frame_col: str | None = None, coords: Sequence[str] | None = None
) -> tuple[Scene, list[str]]:
    """Read points from a CSV file whose header names a column of frames and one to three axes.

    Returns:
        The points, and what was ignored or assumed, in sentences without a full stop.
    """
    separator, rows, assumed = read_rows(path, several=True)
    header, first, comments = next(rows), next(rows, None), 0
    while first is not None and header.cells[0].lstrip().startswith("#"):
        if any(is_number(cell) for cell in first.cells):
            # NumPy marks the names of columns as a comment.
            unmarked = header.cells[0].lstrip().lstrip("#")
            header = header._replace(cells=[unmarked, *header.cells[1:]])
            break
        header, first, comments = first, next(rows, None), comments + 1
    if first is None:
        raise ValueError(f"{path}: expected a header and rows, got one line only.")
    if len(header.cells) == len(first.cells) - 1:
        # Some programs save row numbers below no name.
        header = header._replace(cells=["", *header.cells])
    names = [cell.strip() for cell in header.cells]
    twin = names.index(names[0], 1) if names[0] in names[1:] else None
    if twin is not None:
        # A saved index that is a column as well, as trackpy leaves it.
        names[0] = ""
    try:
        columns = find_columns(names, frame_col, coords)
    except ValueError as error:
        message = str(error).replace("frame_col", "--frame-col").replace("as coords", "as --coords")
        raise ValueError(f"{at(path, header.line)}: {message}") from None
    data, notes = chain([first], rows), [*assumed]
    skipped = 0
    numbers = Numbers(path, separator, names, skip=0)
    frames: list[str] = []
    lines: list[int] = []
    ids: list[str] = []
    values: list[np.ndarray] = []
    places: dict[tuple[str, str], int] = {}
    for row in data:
        check_width(path, row, len(names))
        if not values and skipped < _MOST_TITLES and _is_title(row, columns):
            skipped += 1
            continue
        if twin is not None and row.cells[0].strip() != row.cells[twin].strip():
            raise ValueError(
                f"{at(path, row.line)}: expected the same in both columns {names[twin]!r:.40}, got "
                f"{row.cells[0].strip()!r:.40} and {row.cells[twin].strip()!r:.40}."
            )
        frame, name = _names(path, row, names, columns)
        if name is not None:
            if not columns.earlier and (frame, name) in places:
                raise ValueError(
                    f"{at(path, row.line)}: expected each point of a frame once, got {name!r:.60} "
                    "again."
                )
            places[frame, name] = row.line
            ids.append(name)
        frames.append(frame)
        lines.append(row.line)
        values.append(_coordinates(path, row, names, columns, numbers))
    if not values:
        raise ValueError(f"{path}: expected points below the header, got none.")
    odd = odd_frame(frames)
    if odd is not None:
        place = at(path, lines[odd], columns.frame + 1, names[columns.frame])
        raise ValueError(f"{place}: expected a number as in most rows, got {frames[odd]!r:.60}.")
    if twin is not None:
        notes.append(f"column {names[twin]} is there twice, with the same values")
    if columns.ignored:
        used = [names[columns.frame], *(names[k] for k in columns.coords)]
        if columns.ids is not None:
            used.append(names[columns.ids])
        notes.append(f"used the columns {', '.join(used)}, ignored {', '.join(columns.ignored)}")
    if skipped:
        rows_of_titles = "a row" if skipped == 1 else f"{skipped} rows"
        notes.append(f"skipped {rows_of_titles} of titles below the header")
    if comments:
        lines_of_them = "a line that begins" if comments == 1 else f"{comments} lines that begin"
        notes.append(f"skipped {lines_of_them} with #")
    notes += numbers.notes
    if columns.earlier:
        notes.append(f"column {names[columns.ids or 0]} names points, and is not used to link them")
    axes = [names[k] for k in columns.coords]
    try:
        scene = gather(np.stack(values), frames, ids or None, axes, earlier=columns.earlier)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return scene, [*notes, *scene.notes]


def _is_title(row: Row, columns: Columns) -> bool:
    """Whether a row has text and no number where the frame and the coordinates should be."""
    cells = [row.cells[k].strip() for k in (columns.frame, *columns.coords)]
    return not any(is_number(cell) for cell in cells) and any(cells[1:])


def _names(path: Path, row: Row, names: list[str], columns: Columns) -> tuple[str, str | None]:
    """The frame and the name of a point."""
    frame = row.cells[columns.frame].strip()
    if not frame:
        place = at(path, row.line, columns.frame + 1, names[columns.frame])
        raise ValueError(f"{place}: expected a frame, got an empty cell.")
    if columns.ids is None:
        return frame, None
    name = row.cells[columns.ids].strip()
    if not name and not columns.earlier:
        place = at(path, row.line, columns.ids + 1, names[columns.ids])
        raise ValueError(f"{place}: expected a name, got an empty cell.")
    return frame, name


def _coordinates(
    path: Path, row: Row, names: list[str], columns: Columns, numbers: Numbers
) -> np.ndarray:
    # The advice to leave such cells empty would be wrong here.
    cells = [
        cell if k in columns.coords and cell.strip().lower() != "nan" else ""
        for k, cell in enumerate(row.cells)
    ]
    values = numbers.of(Row(row.line, cells))[list(columns.coords)]
    for k, value in zip(columns.coords, values, strict=True):
        if not np.isfinite(value):
            got = f"{row.cells[k].strip()!r:.60}" if row.cells[k].strip() else "an empty cell"
            place = at(path, row.line, k + 1, names[k])
            raise ValueError(f"{place}: expected a finite number, got {got}.")
    return values


def laid_out(found: "TrackPosterior", layout: str) -> list[dict[str, Any]]:
    """The rows of the points as other programs want them.

    ``trackpy`` has a column ``particle``, ``trackmate`` its names in capitals, and ``napari``
    ``id,t,y,x``. The last two leave out points that are likely false.
    """
    rows, scene = found.rows(), found.scene
    if layout == "permvi":
        return rows
    if layout == "trackpy":
        kept = ("particle", "probability", "p_false")
        return [
            {
                "frame": row["frame"],
                **{axis: row[axis] for axis in scene.axes},
                **{name: row[name] for name in kept},
            }
            for row in rows
        ]
    if layout == "napari":
        axes = [axis.lower().removeprefix("position_") for axis in scene.axes[::-1]]
        return [
            dict(zip(["id", "t", *axes], [int(values[0]), *values[1:].tolist()], strict=True))
            for values in found.to_napari()
        ]
    return [
        {
            "LABEL": row["id"],
            "ID": k,
            "TRACK_ID": row["particle"],
            "QUALITY": row["probability"],
            **{_TRACKMATE.get(axis.lower(), axis): row[axis] for axis in scene.axes},
            "POSITION_T": float(scene.times[scene.frame[k]]),
            "FRAME": int(scene.frame[k]),
        }
        for k, row in enumerate(rows)
        if row["particle"] is not None
    ]


def link_rows(found: "TrackPosterior", least: float = 1e-3) -> list[dict[str, Any]]:
    """All links of at least this probability, as rows."""
    scene = found.scene
    return [
        {
            "frame": scene.names[scene.frame[j]],
            "id": scene.ids[j],
            "next_frame": scene.names[scene.frame[i]],
            "next_id": scene.ids[i],
            "probability": float(p),
        }
        for j, i, p in zip(found.cands, found.tails, found.p_links, strict=True)
        if p >= least
    ]


def origin_rows(found: "TrackPosterior", *, wide: bool) -> list[dict[str, Any]]:
    """What each point may be: one of the points before it, new or false; probabilities add to 1.

    Long: a row for each point and each thing that it may be. Wide: a row for each point, a column
    for each point before the last frame, and one each for new and false points.
    """
    return _origin_table(found) if wide else _origin_list(found)


def _origin_table(found: "TrackPosterior") -> list[dict[str, Any]]:
    scene = found.scene
    num, last = len(scene.ids), int(scene.starts[-2])
    results.check_wide(num, last)
    places = [(scene.names[t], name) for t, name in zip(scene.frame, scene.ids, strict=True)]
    earlier = [f"{name} ({frame})" for frame, name in places[:last]]
    table = np.zeros((num, last))
    table[found.tails, found.cands] = found.p_links
    return [
        {
            "frame": frame,
            "id": name,
            **dict(zip(earlier, linked, strict=True)),
            "new": _p_new(found, point),
            "false": float(found.p_false[point]),
        }
        for point, ((frame, name), linked) in enumerate(zip(places, table.tolist(), strict=True))
    ]


def _p_new(found: "TrackPosterior", point: int) -> float:
    """The probability that a point is the first of a particle, and not false."""
    return max(0.0, float(found.p_new[point] - found.p_false[point]))


def _origin_list(found: "TrackPosterior") -> list[dict[str, Any]]:
    scene, order = found.scene, np.argsort(found.tails, kind="stable")
    starts = np.searchsorted(found.tails[order], np.arange(len(found.p_new) + 1))
    rows = []
    for point, (first, last) in enumerate(pairwise(starts)):
        listed: list[tuple[str, int | None, float]] = [
            ("linked", int(found.cands[k]), float(found.p_links[k])) for k in order[first:last]
        ]
        listed += [
            ("new", None, _p_new(found, point)),
            ("false", None, float(found.p_false[point])),
        ]
        rows += [
            {
                "frame": scene.names[scene.frame[point]],
                "id": scene.ids[point],
                "origin": origin,
                "previous_frame": None if earlier is None else scene.names[scene.frame[earlier]],
                "previous_id": None if earlier is None else scene.ids[earlier],
                "probability": p,
            }
            for origin, earlier, p in sorted(listed, key=lambda one: -one[2])
            if p > 0
        ]
    return rows
