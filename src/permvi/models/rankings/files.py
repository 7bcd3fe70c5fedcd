"""Read ballots from files: PrefLib, lines with arrows, and CSV files of several forms."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from permvi._checks import one_of
from permvi._csv import Numbers, Row, at, check_names, check_width, is_number, read_rows
from permvi.models.rankings import arrows, preflib
from permvi.models.rankings.ballots import Ballots, Group, Unranked, is_ranking, order_by_rank

FORMATS = ("auto", "preflib", "arrows", "orders", "ranks", "ratings", "comparisons")

# Names of columns, in lower case.
_JUDGES = (
    "", "judge", "voter", "ranking", "ballot", "user", "rater", "assessor", "reviewer",
    "respondent", "participant", "subject", "ranker", "id", "voter_id", "user_id", "judge_id",
)  # fmt: skip
_COUNTS = ("count", "counts", "weight", "weights", "votes", "voters", "frequency", "freq", "times")
_GAMES = ("games", "matches", "wins", "number", "n")
_ITEMS = ("item", "alternative", "candidate", "option", "object")
_VALUES = {"rank": "ranks", "ranking": "ranks", "position": "ranks"}
_VALUES |= dict.fromkeys(("rating", "score", "ratings", "scores", "stars", "points"), "ratings")
# What stands for an empty cell among numbers.
_MISSING = ("na", "n/a", "nan", "none", "null", "-", "?")
_TIES = ("tie", "tied", "draw")
_FALSE = ("", "0", "no", "false", "n")
# Names of places in an order: "1st", "rank 2", "third".
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth best worst last"
_PLACE = re.compile(
    r"((rank|place|position|pos|choice|pref|preference|rk)[ _.-]*)\d+|\d+(st|nd|rd|th)|"
    + "|".join(_ORDINALS.split())
)
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


class _Found(NamedTuple):
    """The names of all items; for each row its groups of item numbers and its count; notes."""

    items: Sequence[str]
    groups: Sequence[Sequence[Group]]
    counts: Sequence[float]
    notes: Sequence[str] = ()


def read(path: Path, format: str = "auto", unranked: Unranked = "absent") -> Read:
    """Read ballots from a file; "auto" finds out which form it has, and the note says which.

    Raises:
        ValueError: A line is not what the form has there, or the form cannot be told.
    """
    one_of("format", format, FORMATS)
    if format == "preflib" or (format == "auto" and preflib.is_preflib(path)):
        kind, meaning = "a file of PrefLib", ""
        found = _Found(*preflib.read(path))
    elif format == "arrows" or (format == "auto" and arrows.is_arrows(path)):
        kind, meaning = "lines with arrows", " (the best first, '=' for ties)"
        found = _Found(*arrows.read(path))
    else:
        table = _Table.of(path)
        kind = table.form() if format == "auto" else format
        meaning = f" ({_MEANING[kind]})"
        if table.long:
            meaning = meaning.replace("a column for each item", "a row for each judge and item")
        if kind == "orders" and table.arrows is not None:
            found = table.as_arrows(table.arrows)
        else:
            found = table.as_long(kind, *table.long) if table.long else _READERS[kind](table)
        found = found._replace(notes=[*table.notes, *found.notes])
    listed = [groups for groups, n in zip(found.groups, found.counts, strict=True) if groups and n]
    if len(found.items) < 2 or not listed:
        raise ValueError(
            f"{path}: expected rankings of two items or more, got {len(listed)} rankings of "
            f"{len(found.items)}."
        )
    ballots = Ballots.of(found.items, found.groups, np.array(found.counts), unranked)
    total = ballots.counts.sum()
    rankings = "1 ranking" if total == 1 else f"{total:,.10g} rankings"
    notes = [f"read as {kind}{meaning}: {rankings} of {len(found.items):,} items"]
    notes += found.notes
    if kind != "comparisons":
        if any(sum(map(len, groups)) < len(found.items) for groups in listed):
            absent = "did not take part (--others-below or unranked='below' puts them last)"
            meant = "come after the listed ones" if unranked == "below" else absent
            notes.append(f"items that a row does not list {meant}")
        if any(len(group) > 1 for groups in listed for group in groups):
            notes.append("tied items are in an unknown order")
    return Read(ballots, "; ".join(notes))


class _Table:
    """The rows of a CSV file, and which of its columns hold items, a judge or counts."""

    def __init__(self, path: Path, separator: str, header: Row, rows: list[Row]) -> None:
        self.path, self.separator, self.header, self.rows = path, separator, header, rows
        self.notes: list[str] = []
        self.names = [cell.strip().lower() for cell in header.cells]
        self.count = next((k for k, name in enumerate(self.names) if name in _COUNTS), None)
        self.judge = 0 if self.names[0] in _JUDGES else None
        if self.judge is None and self._first_is_text():
            self.judge = 0
            self.notes.append(f"column {header.cells[0].strip()!r:.40} names the judges")

    @classmethod
    def of(cls, path: Path) -> "_Table":
        separator, rows = read_rows(path)
        kept = list(rows)
        comments = 0
        while comments < len(kept) and kept[comments].cells[0].lstrip().startswith("#"):
            comments += 1
        if len(kept) < comments + 2:
            raise ValueError(f"{path}: expected a header and rows, got {len(kept)} rows.")
        table = cls(path, separator, kept[comments], kept[comments + 1 :])
        if comments:
            table.notes.append(f"skipped {comments} lines that begin with #")
        return table

    @property
    def columns(self) -> list[int]:
        """The columns that hold items, ranks or ratings."""
        return [k for k in range(len(self.names)) if k not in (self.judge, self.count)]

    @property
    def long(self) -> tuple[int, int, int] | None:
        """The columns of a judge, an item and its rank or rating, by their names; None if not so.

        "ranking" may be the name of the first or of the last.
        """
        judge = next((k for k, name in enumerate(self.names) if name and name in _JUDGES), None)
        item = next((k for k, name in enumerate(self.names) if name in _ITEMS), None)
        values = [k for k, name in enumerate(self.names) if name in _VALUES and k != judge]
        if judge is None or item is None or not values:
            return None
        return judge, item, values[0]

    @property
    def arrows(self) -> int | None:
        """The column whose cells are whole rankings with arrows, if there is one."""
        for k in range(len(self.names)):
            if all(k < len(row.cells) and ">" in row.cells[k] for row in self.rows):
                return k
        return None

    def as_arrows(self, column: int) -> _Found:
        """Read rankings such as ``A > B = C`` in one column."""
        lines = [(row.line, row.cells[column].strip()) for row in self.rows]
        found = arrows.parse(self.path, lines)
        counts = [own * self.counted(row) for own, row in zip(found.counts, self.rows, strict=True)]
        others = set(range(len(self.names))) - {column, self.judge, self.count}
        notes = [f"ignored column {self.header.cells[k].strip()!r:.40}" for k in sorted(others)]
        return _Found(found.items, found.groups, counts, notes)

    def _first_is_text(self) -> bool:
        """Whether the first column alone has no numbers: then it names the judges."""
        return (
            len(self.names) > 2
            and not any(is_number(row.cells[0]) for row in self.rows)
            and all(
                is_number(cell) or not cell.strip() for row in self.rows for cell in row.cells[1:]
            )
        )

    def form(self) -> Literal["orders", "ranks", "ratings", "comparisons"]:
        """Tell the form of the file.

        Numbers from 1 to the number of columns are ranks, unless the header names places. Other
        numbers are items if the header names places, and ratings if a row repeats one or they are
        not whole. Texts are items.
        """
        if {"winner", "loser"} <= set(self.names):
            return "comparisons"
        if self.long:
            return "ranks" if _VALUES[self.names[self.long[2]]] == "ranks" else "ratings"
        columns = self.columns
        cells = [[row.cells[k].strip() for k in columns if k < len(row.cells)] for row in self.rows]
        filled = [[cell for cell in row if cell and not _is_missing(cell)] for row in cells]
        if self.arrows is not None or not all(is_number(cell) for row in filled for cell in row):
            self._check_items()
            return "orders"
        values = [[float(cell.replace(",", ".")) for cell in row] for row in filled]
        whole = all(value == int(value) for row in values for value in row if np.isfinite(value))
        named_places = all(_PLACE.fullmatch(self.names[k]) for k in columns)
        repeats = any(len(set(row)) < len(row) for row in values)
        if whole and named_places and not repeats:
            return "orders"
        if whole and all(is_ranking(row, len(columns)) for row in values):
            return "ranks"
        # With a single 1 in every row, these may be ranks with gaps.
        if not whole or (repeats and not all(row.count(1.0) == 1 for row in values if row)):
            return "ratings"
        raise ValueError(
            f"{self.path}: expected to tell orders, ranks and ratings apart, got whole numbers "
            f"other than ranks from 1 to {len(columns)} under names that are no places; give the "
            "format."
        )

    def _check_items(self) -> None:
        """Refuse tables whose cells are texts and numbers, since they hardly list items.

        Raises:
            ValueError: A column of names is next to one of numbers, or there are a few texts in a
                table of numbers.
        """
        columns = [k for k in self.columns if k != self.arrows]
        kinds: dict[int, list[bool]] = {k: [] for k in columns}
        texts = []
        for row in self.rows:
            for k in columns:
                cell = row.cells[k].strip() if k < len(row.cells) else ""
                if cell and not _is_missing(cell):
                    kinds[k].append(is_number(cell))
                    texts += [] if kinds[k][-1] else [(row, k)]
        name = {k: f"{self.header.cells[k].strip()!r:.40}" for k in columns}
        numbers = [k for k in columns if kinds[k] and all(kinds[k])]
        words = [k for k in columns if kinds[k] and not any(kinds[k])]
        if numbers and words and self.arrows is None:
            raise ValueError(
                f"{self.path}: expected items, ranks or ratings in all columns, got names in "
                f"column {name[words[0]]} and numbers in column {name[numbers[0]]}; name the "
                "columns judge, item and rank or rating, or winner and loser, or give the format."
            )
        total = sum(map(len, kinds.values()))
        places = all(_PLACE.fullmatch(self.names[k]) for k in columns)
        if not places and 0 < len(texts) < 0.5 * total:
            row, k = texts[0]
            raise ValueError(
                f"{at(self.path, row.line)}, column {k + 1} ({name[k]}): expected a number as in "
                f"most cells, got {row.cells[k].strip()!r:.40}; if the cells are items, give the "
                "format orders."
            )

    def counted(self, row: Row) -> float:
        """The number of times that a row counts."""
        k = self.count
        if k is None:
            return 1.0
        value = np.nan
        if k < len(row.cells):
            numbers = Numbers(self.path, self.separator, self.header.cells, skip=k)
            value = float(numbers.of(row._replace(cells=row.cells[: k + 1]))[0])
        return _checked_count(self.path, row.line, value)

    def as_long(self, kind: str, judge: int, item: int, value: int) -> _Found:
        """Read rows of a judge, an item and its rank or rating, in these columns."""
        items: dict[str, int] = {}
        judges: dict[str, dict[int, float]] = {}
        numbers = Numbers(self.path, self.separator, self.header.cells, skip=value)
        for row in self.rows:
            check_width(self.path, row, len(self.names))
            (found,) = numbers.of(row._replace(cells=row.cells[: value + 1]))
            name, place = row.cells[item].strip(), at(self.path, row.line)
            given = judges.setdefault(row.cells[judge].strip(), {})
            number = items.setdefault(name, len(items))
            if not name or np.isnan(found):
                raise ValueError(f"{place}: expected an item and a number, got an empty cell.")
            if number in given:
                raise ValueError(f"{place}: expected {name!r:.60} once, got it again.")
            given[number] = found if kind == "ranks" else -found
        rows = [
            np.array([given.get(k, np.nan) for k in range(len(items))]) for given in judges.values()
        ]
        ignored = set(range(len(self.names))) - {judge, item, value}
        notes = [f"ignored column {self.header.cells[k].strip()!r:.40}" for k in sorted(ignored)]
        return _Found(list(items), [order_by_rank(row) for row in rows], [1.0] * len(rows), notes)


def _comparisons(table: _Table) -> _Found:
    names = table.names
    if not {"winner", "loser"} <= set(names):
        raise ValueError(
            f"{at(table.path, table.header.line)}: expected columns winner and loser, got "
            f"{', '.join(table.header.cells)!r:.60}."
        )
    tie = next((k for k, name in enumerate(names) if name in _TIES), None)
    sides = [names.index("winner"), names.index("loser")]
    others = [k for k in range(len(names)) if k not in (*sides, tie)]
    notes = []
    if table.count is None and others == [len(names) - 1] and max(sides) < others[0]:
        table.count = others[0]
        if names[table.count] not in _GAMES:
            notes.append(f"column {table.header.cells[-1].strip()!r:.40} counts the comparisons")
    ignored = [table.header.cells[k].strip() for k in others if k != table.count]
    notes += [f"ignored column {name!r:.40}" for name in ignored]
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
        first, second = (items.setdefault(name, len(items)) for name in pair)
        tied = tie is not None and row.cells[tie].strip().lower() not in _FALSE
        groups.append([(first, second)] if tied else [(first,), (second,)])
        counts.append(table.counted(row))
    return _Found(list(items), groups, counts, notes)


def _orders(table: _Table) -> _Found:
    path, columns = table.path, table.columns
    items: dict[str, int] = {}
    groups, counts = [], []
    for row in table.rows:
        if len(row.cells) > len(table.names):
            check_width(path, row, len(table.names))
        entries = arrows.entries(
            path, row.line, [row.cells[k] for k in columns if k < len(row.cells)]
        )
        listed: list[str] = [name for group in entries for name in group]
        for k, name in enumerate(listed):
            if name in listed[:k]:
                raise ValueError(f"{at(path, row.line)}: expected {name!r:.60} once, got it again.")
        groups.append([tuple(items.setdefault(name, len(items)) for name in g) for g in entries])
        counts.append(table.counted(row))
    if len(groups) > 1 and len(items) == sum(len(group) for row in groups for group in row):
        raise ValueError(
            f"{path}: expected rankings of the same items, got rows that have no item in common."
        )
    header = [table.header.cells[k].strip() for k in columns]
    notes = []
    if len(set(header)) == len(header) > 1 and all(name in items for name in header):
        groups.insert(0, [(items[name],) for name in header])
        counts.insert(0, 1.0)
        notes.append("the first row lists items, so it is a ranking and not a header")
    return _Found(list(items), groups, counts, notes)


def _valued(table: _Table, sign: float) -> _Found:
    path, header = table.path, table.header
    columns, width = table.columns, len(table.names)
    if columns and all(is_number(header.cells[k]) and "." in header.cells[k] for k in columns):
        raise ValueError(
            f"{at(path, header.line)}: expected a header with the names of the columns, got the "
            f"numbers {', '.join(header.cells)!r:.40}."
        )
    items = check_names(path, [(header.line, k + 1, header.cells[k]) for k in columns])
    first = min(columns)
    numbers = Numbers(path, table.separator, header.cells, skip=first)
    groups, counts = [], []
    notes: list[str] = []
    for row in table.rows:
        check_width(path, row, width)
        missing = [cell.strip() for cell in row.cells[first:] if _is_missing(cell)]
        if missing:
            row = row._replace(cells=["" if _is_missing(cell) else cell for cell in row.cells])
            notes = notes or [f"cells such as {missing[0]!r} are taken for empty ones"]
        values = numbers.of(row)[[k - first for k in columns]]
        groups.append(order_by_rank(sign * values))
        counts.append(table.counted(row))
    return _Found(items, groups, counts, notes)


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in _MISSING


def _checked_count(path: Path, line: int, count: float) -> float:
    if not 0 <= count < np.inf:
        got = "none" if np.isnan(count) else f"{count:g}"
        raise ValueError(f"{at(path, line)}: expected a count of at least 0, got {got}.")
    return count


_READERS: dict[str, Callable[[_Table], _Found]] = {
    "orders": _orders,
    "ranks": lambda table: _valued(table, 1.0),
    "ratings": lambda table: _valued(table, -1.0),
    "comparisons": _comparisons,
}
