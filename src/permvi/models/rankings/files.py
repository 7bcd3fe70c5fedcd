"""Read ballots from files: PrefLib, lines with arrows, and CSV files of several forms."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi._checks import one_of
from permvi._csv import Numbers, Row, at, check_names, check_width, is_number
from permvi.models.rankings import arrows, columns, preflib
from permvi.models.rankings.ballots import Ballots, Group, Unranked, order_by_rank
from permvi.models.rankings.columns import Table, is_missing
from permvi.models.rankings.preflib import Orders

FORMATS = ("auto", "preflib", "arrows", "orders", "ranks", "ratings", "comparisons")

# What voting machines write for two marks in one column.
_OVERVOTE = "overvote"
# What people write between tied items, besides braces.
_SLASH = re.compile(r"\s*[/=|&+]\s*")
# The most rankings of a file, all counts together.
_MOST = 1e9
_MEANING = {
    "orders": "each row lists items, the best first",
    "ranks": "a column for each item, 1 for the best",
    "ratings": "a column for each item, larger is better",
    "comparisons": "each row has a winner and a loser",
}


class Read(NamedTuple):
    """The ballots of a file, and a sentence on what was assumed."""

    ballots: Ballots
    note: str


def read(path: Path, format: str = "auto", unranked: Unranked = "absent") -> Read:
    """Read ballots from a file; "auto" finds out which form it has, and the note says which.

    Raises:
        ValueError: A line is not what the form has there, or the form cannot be told.
    """
    one_of("format", format, FORMATS)
    if format == "preflib" or (format == "auto" and preflib.is_preflib(path)):
        kind, meaning = "a file of PrefLib", ""
        found = preflib.read(path)
    elif format == "arrows" or (format == "auto" and arrows.is_arrows(path)):
        kind, meaning = "lines with arrows", " (the best first, '=' for ties)"
        found = arrows.read(path)
    else:
        table = Table.of(path)
        kind = table.form() if format == "auto" else format
        meaning = f" ({_MEANING[kind]})"
        if table.long:
            meaning = meaning.replace("a column for each item", "a row for each judge and item")
        if kind == "orders" and table.arrows is not None:
            found = table.as_arrows(table.arrows)
        else:
            found = table.as_long(kind, *table.long) if table.long else _READERS[kind](table)
        found = found._replace(notes=[*dict.fromkeys([*table.notes, *found.notes])])
    listed = [groups for groups, n in zip(found.groups, found.counts, strict=True) if groups and n]
    lower: dict[str, str] = {}
    for item in found.items:
        if lower.setdefault(item.casefold(), item) != item:
            other = lower[item.casefold()]
            found.notes.append(f"{other!r:.40} and {item!r:.40} are taken for two items")
    if len(found.items) < 2 or not listed:
        raise ValueError(
            f"{path}: expected rankings of two items or more, got {len(listed)} rankings of "
            f"{len(found.items)}."
        )
    ballots = Ballots.of(found.items, found.groups, np.array(found.counts), unranked)
    total = ballots.counts.sum()
    if total > _MOST:
        raise ValueError(
            f"{path}: expected up to {_MOST:,.0f} rankings, got {total:,.10g}; divide all counts "
            "by the same number."
        )
    rankings = "1 ranking" if total == 1 else f"{total:,.10g} rankings"
    notes = [f"read as {kind}{meaning}: {rankings} of {len(found.items):,} items"]
    notes += found.notes
    if kind != "comparisons":
        if any(sum(map(len, groups)) < len(found.items) for groups in listed):
            absent = "did not take part (unranked='below' puts them last)"
            meant = "come after the listed ones" if unranked == "below" else absent
            notes.append(f"items that a row does not list {meant}")
        if any(len(group) > 1 for groups in listed for group in groups):
            notes.append("tied items are in an unknown order")
    return Read(ballots, "; ".join(notes))


def _comparisons(table: Table) -> Orders:
    names = table.names
    if table.sides is None and not {"winner", "loser"} <= set(names):
        raise ValueError(
            f"{at(table.path, table.header.line)}: expected columns winner and loser, got "
            f"{', '.join(table.header.cells)!r:.60}."
        )
    tie = next((k for k, name in enumerate(names) if name in columns.TIES), None)
    winner = names.index("winner")
    sides = table.sides or (winner, names.index("loser"))
    others = [k for k in range(len(names)) if k not in (*sides, winner, tie, table.index)]
    notes = []
    if table.sides:
        first, second = (table.header.cells[k].strip() for k in sides)
        notes.append(f"columns {first!r:.40} and {second!r:.40} hold the two items")
    if table.count is None:
        table.count = next((k for k in others if names[k] in columns.GAMES), None)
    ignored = [table.header.cells[k].strip() for k in others if k != table.count]
    alone = table.count is None and len(ignored) == 1
    hint = " (name it count if it counts the comparisons)" if alone else ""
    notes += [f"ignored column {name!r:.40}{hint}" for name in ignored]
    items: dict[str, int] = {}
    groups: list[list[Group]] = []
    counts = []
    for row in table.rows:
        check_width(table.path, row, len(names))
        pair = [row.cells[k].strip() for k in sides]
        if not all(pair):
            raise ValueError(f"{at(table.path, row.line)}: expected two items, got an empty cell.")
        if pair[0] == pair[1]:
            raise ValueError(
                f"{at(table.path, row.line)}: expected two items, got {pair[0]!r:.60} twice."
            )
        won = row.cells[winner].strip()
        tied = tie is not None and _is_marked(table, row, tie)
        tied = tied or (won not in pair and won.lower() in columns.NOBODY)
        one, other = (items.setdefault(name, len(items)) for name in sorted(pair, key=won.__ne__))
        groups.append([(one, other)] if tied else [(one,), (other,)])
        counts.append(table.counted(row))
    return Orders(list(items), groups, counts, notes)


def _is_marked(table: Table, row: Row, column: int) -> bool:
    """Whether a cell says yes; an empty one says no."""
    cell = row.cells[column].strip()
    if cell.lower() not in (*columns.TRUE, *columns.FALSE):
        place = at(table.path, row.line, column + 1, table.header.cells[column].strip())
        raise ValueError(f"{place}: expected yes or no, got {cell!r:.40}.")
    return cell.lower() in columns.TRUE


def _orders(table: Table) -> Orders:
    path, listing = table.path, table.listed
    items: dict[str, int] = {}
    groups, counts, skipped = [], [], []
    for row in table.rows:
        if len(row.cells) > len(table.names):
            check_width(path, row, len(table.names))
        cells = [row.cells[k].strip() for k in listing if k < len(row.cells)]
        skipped += [cell for cell in cells if cell.lower() in columns.SKIPPED]
        if _OVERVOTE in map(str.lower, cells):
            raise ValueError(
                f"{at(path, row.line)}: expected items, got {_OVERVOTE!r}; leave such cells empty."
            )
        entries = arrows.entries(
            path, row.line, ["" if cell.lower() in columns.SKIPPED else cell for cell in cells]
        )
        listed: list[str] = [name for group in entries for name in group]
        for k, name in enumerate(listed):
            if name in listed[:k]:
                raise ValueError(f"{at(path, row.line)}: expected {name!r:.60} once, got it again.")
        groups.append([tuple(items.setdefault(name, len(items)) for name in g) for g in entries])
        counts.append(table.counted(row))
    if len(listing) < 2:
        only = ", ".join(table.header.cells)
        raise ValueError(
            f"{at(path, table.header.line)}: expected two columns of items or more, got "
            f"{only!r:.60}."
        )
    if len(groups) > 1 and len(items) == sum(len(group) for row in groups for group in row):
        raise ValueError(
            f"{at(path, table.rows[1].line)}: expected rankings of the same items, got rows that "
            "have no item in common."
        )
    joined = {
        items[name]: name
        for name in items
        if len(parts := _SLASH.split(name)) > 1 and all(part in items for part in parts)
    }
    for row, ballot in zip(table.rows, groups, strict=True) if joined else ():
        for item in (item for group in ballot for item in group if item in joined):
            raise ValueError(
                f"{at(path, row.line)}: expected ties in braces, as in {{A,B}}, got "
                f"{joined[item]!r:.60}."
            )
    header = [table.header.cells[k].strip() for k in listing]
    others = [table.header.cells[k].strip() for k in table.columns if k not in listing]
    # A column before those of items has the judges, and columns that are no places anything.
    notes = [
        f"ignored column {name!r:.40}" if table.places else f"column {name!r:.40} names the judges"
        for name in others
    ]
    if skipped:
        notes.append(f"cells such as {skipped[0]!r} are taken for empty ones")
    if len(set(header)) == len(header) > 1 and all(name in items for name in header):
        groups.insert(0, [(items[name],) for name in header])
        counts.insert(0, 1.0)
        notes.append("the first row lists items, so it is a ranking and not a header")
    return Orders(list(items), groups, counts, notes)


def _valued(table: Table, sign: float) -> Orders:
    path, header = table.path, table.header
    places, width = table.columns, len(table.names)
    if places and all(is_number(header.cells[k]) and "." in header.cells[k] for k in places):
        raise ValueError(
            f"{at(path, header.line)}: expected a header with the names of the columns, got the "
            f"numbers {', '.join(header.cells)!r:.40}."
        )
    notes = _check_header(table)
    items = check_names(path, [(header.line, k + 1, header.cells[k]) for k in places])
    first = min(places)
    numbers = Numbers(path, table.separator, header.cells, skip=first)
    groups, counts = [], []
    filled: list[str] = []
    for row in table.rows:
        check_width(path, row, width)
        missing = [cell.strip() for cell in row.cells[first:] if is_missing(cell)]
        if missing:
            row = row._replace(cells=["" if is_missing(cell) else cell for cell in row.cells])
            filled = filled or [f"cells such as {missing[0]!r} are taken for empty ones"]
        values = numbers.of(row)[[k - first for k in places]]
        groups.append(order_by_rank(sign * values))
        counts.append(table.counted(row))
    return Orders(list(items), groups, counts, notes + filled + numbers.notes)


def _check_header(table: Table) -> list[str]:
    """Refuse a header that is a ranking, and rows that are items; note a header of numbers."""
    place = at(table.path, table.header.line)
    if table.judge is not None and table.plain[table.judge] in columns.ITEMS:
        raise ValueError(
            f"{place}: expected a row for each judge and a column for each item, got a column "
            f"{table.header.cells[table.judge].strip()!r:.40}; turn the table, or name its columns "
            "judge, item and rank or rating."
        )
    header = [table.header.cells[k].strip() for k in table.columns]
    value = next((name for name in header if name.lower() in columns.VALUES), None)
    if value is not None:
        raise ValueError(
            f"{place}: expected a column for each item, got a column {value!r:.40}; if there is a "
            "row for each judge and item, name the columns judge, item and rank or rating."
        )
    if not all(name.isascii() and name.isdecimal() for name in header):
        return []
    listed = ", ".join(header)
    numbers = [int(name) for name in header]
    if numbers != sorted(numbers):
        raise ValueError(
            f"{place}: expected a header with the names of the items, got the numbers "
            f"{listed!r:.40}, which look like ranks."
        )
    return [f"the first row names the items, {listed:.40}"]


_READERS: dict[str, Callable[[Table], Orders]] = {
    "orders": _orders,
    "ranks": lambda table: _valued(table, 1.0),
    "ratings": lambda table: _valued(table, -1.0),
    "comparisons": _comparisons,
}
