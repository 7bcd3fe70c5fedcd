"""The columns of CSV files of ballots: which hold items, a judge or counts, and what form it is."""

import re
from collections import Counter
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np

from permvi._csv import Numbers, Row, at, check_width, is_number, read_rows
from permvi.models.rankings import arrows
from permvi.models.rankings.ballots import is_ranking, order_by_rank
from permvi.models.rankings.preflib import Orders

# Names of columns, in lower case; those of judges and items without spaces and underscores.
_JUDGES = (
    "", "judge", "voter", "ranking", "ballot", "user", "rater", "assessor", "reviewer",
    "respondent", "participant", "subject", "ranker", "id", "voterid", "userid", "judgeid",
    "ballotid", "raterid", "reviewerid", "respondentid", "participantid", "subjectid",
)  # fmt: skip
_COUNTS = ("count", "counts", "weight", "weights", "votes", "voters", "frequency", "freq", "times")
GAMES = ("games", "matches", "wins", "number", "n")
ITEMS = (
    "item", "alternative", "candidate", "option", "object", "product", "movie", "itemid",
    "alternativeid", "candidateid", "optionid", "objectid", "productid", "movieid",
)  # fmt: skip
VALUES = {"rank": "ranks", "ranking": "ranks", "position": "ranks"}
VALUES |= dict.fromkeys(("rating", "score", "ratings", "scores", "stars", "points"), "ratings")
# Names of a first column that forms save with each answer, in lower case without spaces.
_STAMPS = ("timestamp", "date", "time", "submitted", "email", "emailaddress")
# Names of a first column that programs save with a table: numbers of rows, or names of judges.
_INDEX = ("", "unnamed: 0", "index")
# What stands for an empty cell among numbers.
_MISSING = ("na", "n/a", "nan", "none", "null", "-", "?")
# What stands for no item in the columns of a ballot.
SKIPPED = (*_MISSING, "skipped", "undervote", "blank")
TIES = ("tie", "tied", "draw")
_RESULTS = ("result", "results", "outcome")
# What a column of winners holds if there was none.
NOBODY = ("", "none", "both", *TIES)
TRUE = (*TIES, "1", "1.0", "yes", "true", "y", "t", "x")
FALSE = ("", "0", "0.0", "no", "false", "n", "f")
# Names of places in an order: "1st", "rank 2", "third choice".
_ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
    "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth best worst last"
)
_KINDS = "rank|place|position|pos|choice|pref|preference|rk|pick|vote"
_PLACE = re.compile(
    rf"({_KINDS})[ _.-]*\d+|(\d+(st|nd|rd|th)|{'|'.join(_ORDINALS.split())})([ _.-]*({_KINDS}))?"
)
_ORDINAL = re.compile(rf"(\d+(?=st|nd|rd|th)|{'|'.join(_ORDINALS.split()[:20])})\D*")
_FEWEST_JUDGES = 3
# If this share of all rows are complete rankings, the others are mistakes or sums.
_MOST_ROWS = 0.7


class Table:
    """The rows of a CSV file, and which of its columns hold items, a judge or counts."""

    def __init__(self, path: Path, separator: str, header: Row, rows: list[Row]) -> None:
        self.path, self.separator, self.header, self.rows = path, separator, header, rows
        self.notes: list[str] = []
        self.names = [cell.strip().lower() for cell in header.cells]
        self.plain = [re.sub(r"[ _.-]", "", name) for name in self.names]
        self.count = next((k for k, name in enumerate(self.names) if name in _COUNTS), None)
        self.index = 0 if self._first_counts_rows() else None
        first = 0 if self.index is None else 1
        self._number_places()
        usual = _JUDGES if first else (*_JUDGES, *_INDEX)
        self.judge = first if self.plain[first] in (*usual, *_STAMPS) else None
        if self.judge is not None and self.plain[first] in _STAMPS:
            self.notes.append(f"ignored column {header.cells[first].strip()!r:.40}")
        if self.judge is None and self.long is None and self._is_text(first):
            self.judge = first
            self.notes.append(f"column {header.cells[first].strip()!r:.40} names the judges")

    @classmethod
    def of(cls, path: Path) -> "Table":
        separator, rows, notes = read_rows(path, several=True)
        kept = list(rows)
        comments = 0
        while comments < len(kept) and kept[comments].cells[0].lstrip().startswith("#"):
            comments += 1
        if len(kept) < comments + 2:
            raise ValueError(f"{path}: expected a header and rows, got {len(kept)} rows.")
        table = cls(path, separator, kept[comments], kept[comments + 1 :])
        table.notes.extend(notes)
        if comments:
            lines = "a line that begins" if comments == 1 else f"{comments} lines that begin"
            table.notes.append(f"skipped {lines} with #")
        return table

    def _number_places(self) -> None:
        """Replace cells such as ``1st`` or ``second choice`` by ranks, below names of items."""
        columns = range(len(self.names))
        cells = {k: [row.cells[k].strip().lower() for row in self.rows if k < len(row.cells)]
                 for k in columns}  # fmt: skip
        ranked = [
            k
            for k in columns
            if any(cells[k])
            and not _PLACE.fullmatch(self.names[k])
            and all(not cell or (_PLACE.fullmatch(cell) and _ORDINAL.fullmatch(cell))
                    for cell in cells[k])
        ]  # fmt: skip
        if len(ranked) < 2:
            return
        shown = next(cell for cell in cells[ranked[0]] if cell)
        self.notes.append(f"cells such as {shown!r:.40} are taken for ranks")
        for place, row in enumerate(self.rows):
            own = [_rank(cell) if k in ranked else cell for k, cell in enumerate(row.cells)]
            self.rows[place] = row._replace(cells=own)

    @property
    def columns(self) -> list[int]:
        """The columns that hold items, ranks or ratings."""
        return [k for k in range(len(self.names)) if k not in (self.index, self.judge, self.count)]

    @cached_property
    def places(self) -> list[int]:
        """The columns named as places in an order, if there are two or more."""
        found = [k for k in self.columns if _PLACE.fullmatch(self.names[k])]
        return found if len(found) > 1 else []

    @cached_property
    def listed(self) -> list[int]:
        """The columns that hold items if each row lists items: those named as places, if any."""
        columns = self.places or self.columns
        return columns[1:] if not self.places and self._first_is_judges(columns) else columns

    def _first_is_judges(self, columns: list[int]) -> bool:
        """Whether the first of these has each entry once and nowhere else, unlike all others."""
        rows = [[row.cells[k].strip() for k in columns if k < len(row.cells)] for row in self.rows]
        if len(columns) < 3 or len(rows) < _FEWEST_JUDGES:
            return False
        first = {row[0] for row in rows if row}
        times = Counter(name for row in rows for name in set(row[1:]) if name)
        header = {self.header.cells[k].strip() for k in columns}
        return (
            len(first) == len(rows)
            and not first & times.keys()
            and not header & times.keys()
            and min(times.values(), default=0) > 1
        )

    @cached_property
    def sides(self) -> tuple[int, int] | None:
        """Two columns that a column of winners chooses from in each row, if none has losers."""
        if "winner" not in self.names or "loser" in self.names:
            return None
        winner = self.names.index("winner")
        others = [k for k in range(len(self.names)) if k not in (winner, self.index, self.count)]
        for pair in combinations(others, 2):
            rows = [(row.cells[winner].strip(), [row.cells[k].strip() for k in pair])
                    for row in self.rows if len(row.cells) == len(self.names)]  # fmt: skip
            if rows and all(won in items or won.lower() in NOBODY for won, items in rows):
                return pair
        return None

    @property
    def long(self) -> tuple[int, int, int] | None:
        """The columns of a judge, an item and its rank or rating, by their names; None if not so.

        "ranking" may be the name of the first or of the last.
        """
        judge = next((k for k, name in enumerate(self.plain) if name and name in _JUDGES), None)
        item = next((k for k, name in enumerate(self.plain) if name in ITEMS), None)
        values = [k for k, name in enumerate(self.names) if name in VALUES and k != judge]
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

    def as_arrows(self, column: int) -> Orders:
        """Read rankings such as ``A > B = C`` in one column."""
        lines = [(row.line, row.cells[column].strip()) for row in self.rows]
        found = arrows.parse(self.path, lines)
        counts = [own * self.counted(row) for own, row in zip(found.counts, self.rows, strict=True)]
        others = set(range(len(self.names))) - {column, self.index, self.judge, self.count}
        notes = [f"ignored column {self.header.cells[k].strip()!r:.40}" for k in sorted(others)]
        return Orders(found.items, found.groups, counts, notes)

    def _first_counts_rows(self) -> bool:
        """Whether the first column is a saved index: it counts the rows, from 0 or 1."""
        if len(self.names) < 3 or self.names[0] not in _INDEX:
            return False
        cells = [row.cells[0].strip() for row in self.rows]
        return any(cells == [str(k + n) for k in range(len(cells))] for n in (0, 1))

    def _is_text(self, k: int) -> bool:
        """Whether column k alone has no numbers, as the names of judges have none."""
        return (
            len(self.names) > k + 2
            and not any(is_number(row.cells[k]) for row in self.rows if len(row.cells) > k)
            and all(
                is_number(cell) or not cell.strip()
                for row in self.rows
                for cell in row.cells[k + 1 :]
            )
        )

    def form(self) -> Literal["orders", "ranks", "ratings", "comparisons"]:
        """Tell the form of the file.

        Numbers from 1 to the number of columns are ranks, unless the header names places. Other
        numbers are items if the header names places, and ratings if a row repeats one or they are
        not whole. Texts are items.
        """
        if {"winner", "loser"} <= set(self.names) or self.sides:
            return "comparisons"
        if self.long:
            return "ranks" if VALUES[self.names[self.long[2]]] == "ranks" else "ratings"
        if self.places and self._number_items(self.places):
            return "orders"
        filled = self._filled(self.listed)
        if any(cell.endswith("%") for row in filled for cell in row) and all(
            is_number(cell.removesuffix("%")) for row in filled for cell in row
        ):
            return "ratings"
        if self.arrows is not None or not all(is_number(cell) for row in filled for cell in row):
            self._check_items()
            return "orders"
        size = len(self.columns)
        values = [[_number(cell) for cell in row] for row in self._filled(self.columns)]
        whole = all(value == int(value) for row in values for value in row if np.isfinite(value))
        repeats = any(len(set(row)) < len(row) for row in values)
        if all(is_ranking(row, size) for row in values):
            return "ranks"
        self._check_sides(values)
        complete = [sorted(row) == list(range(1, size + 1)) for row in values]
        if sum(complete) >= max(_FEWEST_JUDGES, _MOST_ROWS * len(complete)):
            place = at(self.path, self.rows[complete.index(False)].line)
            raise ValueError(
                f"{place}: expected ranks from 1 to {size} as in most rows, got others; leave the "
                "row out, or give the format."
            )
        # With a single 1 in every row, these may be ranks with gaps.
        if not whole or (repeats and not all(row.count(1.0) == 1 for row in values if row)):
            self._check_wins()
            return "ratings"
        odd = next(k for k, row in enumerate(values) if not is_ranking(row, size))
        raise ValueError(
            f"{at(self.path, self.rows[odd].line)}: expected to tell orders, ranks and ratings "
            f"apart, got whole numbers other than ranks from 1 to {size} under names that are no "
            "places; give the format."
        )

    def _check_wins(self) -> None:
        """Refuse a table with a row and a column for each item, unless its rows are judges'."""
        if self.judge is None or self._names_judges:
            return
        rows = sorted(row.cells[self.judge].strip() for row in self.rows)
        if rows == sorted(self.header.cells[k].strip() for k in self.columns):
            raise ValueError(
                f"{at(self.path, self.header.line)}: expected a row for each judge, got one for "
                "each item, as in a table of wins; give them in columns winner, loser and count, "
                "or name the first column judge."
            )

    def _check_sides(self, values: list[list[float]]) -> None:
        """Refuse a table whose columns, and not its rows, are rankings, unless rows are judges'."""
        if self._names_judges:
            return
        ranks = list(range(1, 1 + len(values)))
        full = len(ranks) > 2 and all(len(row) == len(self.columns) for row in values)
        if full and all(sorted(column) == ranks for column in zip(*values, strict=True)):
            raise ValueError(
                f"{self.path}: expected a row for each judge and a column for each item, got "
                f"columns that rank the rows from 1 to {len(ranks)}; turn the table, or give the "
                "format."
            )

    @property
    def _names_judges(self) -> bool:
        """Whether a column says by its name that rows are those of judges."""
        return self.judge is not None and self.plain[self.judge] in _JUDGES[1:]

    def _filled(self, columns: list[int]) -> list[list[str]]:
        """The cells of some columns in each row, without those that hold nothing."""
        cells = [[row.cells[k].strip() for k in columns if k < len(row.cells)] for row in self.rows]
        return [[cell for cell in row if cell and not is_missing(cell)] for row in cells]

    def _number_items(self, columns: list[int]) -> bool:
        """Whether columns list items by their numbers: whole ones, each once in a row."""
        rows = self._filled(columns)
        return all(
            is_number(cell) and _number(cell).is_integer() for row in rows for cell in row
        ) and all(len(set(map(_number, row))) == len(row) for row in rows)

    def _check_items(self) -> None:
        """Refuse tables whose cells are texts and numbers, since they hardly list items.

        Raises:
            ValueError: A column of names is next to one of numbers, or there are a few texts in a
                table of numbers.
        """
        columns = [k for k in self.listed if k != self.arrows]
        kinds: dict[int, list[bool]] = {k: [] for k in columns}
        texts = []
        for row in self.rows:
            for k in columns:
                cell = row.cells[k].strip() if k < len(row.cells) else ""
                if cell and not is_missing(cell):
                    kinds[k].append(is_number(cell))
                    texts += [] if kinds[k][-1] else [(row, k)]
        name = {k: f"{self.header.cells[k].strip()!r:.40}" for k in columns}
        numbers = [k for k in columns if kinds[k] and all(kinds[k])]
        words = [k for k in columns if kinds[k] and not any(kinds[k])]
        result = next((k for k in columns if self.names[k] in (*VALUES, *_RESULTS)), None)
        if result is not None and self.arrows is None:
            raise ValueError(
                f"{at(self.path, self.header.line)}: expected items in all columns, got a column "
                f"{name[result]}; name the columns winner and loser, or judge, item and rank or "
                "rating, or give the format."
            )
        if numbers and words and self.arrows is None:
            raise ValueError(
                f"{at(self.path, self.header.line)}: expected items, ranks or ratings in all "
                "columns, got names in "
                f"column {name[words[0]]} and numbers in column {name[numbers[0]]}; name the "
                "columns judge, item and rank or rating, or winner and loser, or give the format."
            )
        total = sum(map(len, kinds.values()))
        if not self.places and 0 < len(texts) < 0.5 * total:
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

    def as_long(self, kind: str, judge: int, item: int, value: int) -> Orders:
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
        notes += numbers.notes
        return Orders(list(items), [order_by_rank(row) for row in rows], [1.0] * len(rows), notes)


def _rank(cell: str) -> str:
    """``2nd choice`` or ``second`` -> ``2``; nothing for an empty cell."""
    found = _ORDINAL.fullmatch(cell.strip().lower())
    if found is None:
        return ""
    return found[1] if found[1].isdecimal() else str(_ORDINALS.split().index(found[1]) + 1)


def _number(cell: str) -> float:
    return float(cell.replace(",", "."))


def is_missing(cell: str) -> bool:
    """Whether a cell says that a number is missing."""
    return cell.strip().lower() in _MISSING


def _checked_count(path: Path, line: int, count: float) -> float:
    if not 0 <= count < np.inf:
        got = "none" if np.isnan(count) else f"{count:g}"
        raise ValueError(f"{at(path, line)}: expected a count of at least 0, got {got}.")
    return count
