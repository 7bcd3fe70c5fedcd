"""Rankings and comparisons from CSV files."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi._cli.csv_numbers import Numbers
from permvi._cli.csv_records import read_records
from permvi._cli.csv_rows import Row, at, check_width, read_rows
from permvi._cli.csv_tables import check_header, check_names

_PAIR = ("winner", "loser")
# A first column of this name says who ranks, one of these says how often a ranking counts.
_JUDGES = ("judge", "voter", "ranking", "")
_COUNTS = ("count", "weight", "votes")


class Ranking(NamedTuple):
    """A ranking.

    Attributes:
        items: Items by number, the best one first, all different.
        times: How often it counts, positive.
    """

    items: tuple[int, ...]
    times: float


class Rankings(NamedTuple):
    """Rankings of items.

    Attributes:
        items: (n,) names of all items, at least two.
        rankings: At least one.
        others_below: Whether items that a ranking does not list come after those that it does;
            else they did not take part.
    """

    items: tuple[str, ...]
    rankings: list[Ranking]
    others_below: bool


def read_rankings(path: Path, *, as_ranks: bool, others_below: bool) -> Rankings:
    """Rankings from a file, in one of three forms.

    * Orders: in each row items, the best one first, below a header that may say anything.
    * Ranks: a column for each item and its ranks in the rows, 1 for the best; empty for none.
    * Comparisons: ``winner,loser`` and perhaps how often, as the header says.

    In the first two a first column judge, voter, ranking or nothing is left out, and a column
    count, weight or votes says how often a row counts.

    Args:
        path: The file.
        as_ranks: Whether rows hold ranks; else they hold items.
        others_below: What it means if an item is not listed, see `Rankings`.

    Raises:
        ValueError: Something in the file is wrong; the message has the line.
        OSError: It cannot be read.
    """
    header = next(read_rows(path).rows)
    if tuple(cell.strip().lower() for cell in header.cells[:2]) == _PAIR:
        items, rankings = _from_pairs(path)
        others_below = False
    elif as_ranks:
        items, rankings = _from_ranks(path)
    else:
        items, rankings = _from_orders(path)
    rankings = [ranking for ranking in rankings if ranking.times > 0 and ranking.items]
    if len(items) < 2 or not rankings:
        raise ValueError(
            f"{path}: expected rankings of two items or more, got {len(rankings)} rankings of "
            f"{len(items)}."
        )
    return Rankings(items, rankings, others_below)


def _from_pairs(path: Path) -> tuple[tuple[str, ...], list[Ranking]]:
    records = read_records(path, _PAIR, numbers=(0, 1))
    place: dict[str, int] = {}
    rankings = []
    for record in records.rows:
        winner, loser = (place.setdefault(name, len(place)) for name in record.names.values())
        if winner == loser:
            raise ValueError(
                f"{records.at(record)}: expected two items, got {record.names['loser']!r:.60} "
                "twice."
            )
        times = float(record.values[0]) if record.values.size else 1.0
        _check_times(path, record.line, times)
        rankings.append(Ranking((winner, loser), times))
    return tuple(place), rankings


class _Form(NamedTuple):
    """What is where in a row: cells from ``first`` on, but for one that says how often."""

    header: Row
    first: int
    times: int | None

    @property
    def cells(self) -> list[int]:
        """The positions of the others."""
        return [k for k in range(self.first, len(self.header.cells)) if k != self.times]


def _form(header: Row) -> _Form:
    names = [cell.strip().lower() for cell in header.cells]
    times = next((k for k, name in enumerate(names) if name in _COUNTS), None)
    return _Form(header, int(names[0] in _JUDGES), times)


def _from_orders(path: Path) -> tuple[tuple[str, ...], list[Ranking]]:
    separator, rows = read_rows(path)
    form = _form(next(rows))
    place: dict[str, int] = {}
    rankings = []
    for row in rows:
        if len(row.cells) > len(form.header.cells):
            check_width(path, row, len(form.header.cells))
        listed = [row.cells[k].strip() for k in form.cells if k < len(row.cells)]
        while listed and not listed[-1]:
            listed.pop()
        for k, name in enumerate(listed):
            if not name:
                raise ValueError(
                    f"{at(path, row.line)}: expected empty cells at the end only, got one before "
                    f"{listed[k + 1]!r:.60}."
                )
            if name in listed[:k]:
                raise ValueError(f"{at(path, row.line)}: expected {name!r:.60} once, got it again.")
        items = tuple(place.setdefault(name, len(place)) for name in listed)
        rankings.append(Ranking(items, _times(path, separator, form, row)))
    return tuple(place), rankings


def _from_ranks(path: Path) -> tuple[tuple[str, ...], list[Ranking]]:
    separator, rows = read_rows(path)
    form = _form(next(rows))
    header = form.header
    check_header(path, header)
    names = [(header.line, k + 1, header.cells[k]) for k in form.cells]
    items = check_names(path, names)
    numbers = Numbers(path, separator, header.cells, skip=form.first)
    rankings = []
    for row in rows:
        check_width(path, row, len(header.cells))
        ranks = numbers.of(row)[[k - form.first for k in form.cells]]
        ranked = np.flatnonzero(~np.isnan(ranks))
        order = ranked[np.argsort(ranks[ranked], kind="stable")]
        tied = np.flatnonzero(np.diff(ranks[order]) == 0)
        if tied.size:
            first, second = (items[i] for i in order[tied[0] : tied[0] + 2])
            raise ValueError(
                f"{at(path, row.line)}: expected different ranks, got {ranks[order[tied[0]]]:g} "
                f"for {first!r:.60} and {second!r:.60}."
            )
        rankings.append(Ranking(tuple(order.tolist()), _times(path, separator, form, row)))
    return items, rankings


def _times(path: Path, separator: str, form: _Form, row: Row) -> float:
    k = form.times
    if k is None:
        return 1.0
    times = np.nan
    if k < len(row.cells):
        numbers = Numbers(path, separator, form.header.cells, skip=k)
        times = float(numbers.of(row._replace(cells=row.cells[: k + 1]))[0])
    _check_times(path, row.line, times)
    return times


def _check_times(path: Path, line: int, times: float) -> None:
    if not 0 <= times < np.inf:
        got = "none" if np.isnan(times) else f"{times:g}"
        raise ValueError(f"{at(path, line)}: expected a count of at least 0, got {got}.")
