"""Read rankings, ranks and comparisons from CSV files."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from permvi._cli.csv_cells import (
    Numbers,
    Row,
    at,
    check_header,
    check_names,
    check_width,
    read_rows,
)
from permvi._cli.csv_tables import read_records
from permvi.models import Rankings
from permvi.models.rankings import Unranked, order_by_rank

_COMPARISON = ("winner", "loser")
# A first column with one of these names holds the judge; a column of counts has one of the others.
_JUDGES = ("judge", "voter", "ranking", "")
_COUNTS = ("count", "weight", "votes")


class _Found(NamedTuple):
    """The names of all items, and per row the items it ranks, best first, and its count."""

    items: list[str]
    orders: list[list[str]]
    counts: list[float]


def read_rankings(path: Path, *, as_ranks: bool, others_below: bool) -> Rankings:
    """Read rankings from a CSV file in one of three forms.

    * Orders: each row lists items, best first; the header may hold any text.
    * Ranks: a column for each item; rows hold its ranks, 1 for the best, empty if not ranked.
    * Comparisons: columns ``winner,loser`` and optionally a count.

    In orders and ranks, a first column named judge, voter, ranking or nothing is ignored, and a
    column count, weight or votes says how often a row counts. With ``as_ranks`` rows hold ranks
    rather than items. With ``others_below`` items that a row does not list come after those that it
    lists; without, they did not take part. Comparisons ignore it.
    """
    header = next(read_rows(path).rows)
    if tuple(cell.strip().lower() for cell in header.cells[:2]) == _COMPARISON:
        found = _from_comparisons(path)
        others_below = False
    elif as_ranks:
        found = _from_ranks(path)
    else:
        found = _from_orders(path)
    counted = [bool(order) and n > 0 for order, n in zip(found.orders, found.counts, strict=True)]
    if len(found.items) < 2 or not any(counted):
        raise ValueError(
            f"{path}: expected rankings of two items or more, got {sum(counted)} rankings of "
            f"{len(found.items)}."
        )
    unranked: Unranked = "below" if others_below else "absent"
    return Rankings(found.orders, found.items, found.counts, unranked)


def _from_comparisons(path: Path) -> _Found:
    records = read_records(path, _COMPARISON, numbers=(0, 1))
    orders, counts = [], []
    for record in records.rows:
        winner, loser = record.names.values()
        if winner == loser:
            raise ValueError(f"{records.at(record)}: expected two items, got {loser!r:.60} twice.")
        count = float(record.values[0]) if record.values.size else 1.0
        orders.append([winner, loser])
        counts.append(_checked_count(path, record.line, count))
    return _Found(_first_named(orders), orders, counts)


def _from_orders(path: Path) -> _Found:
    separator, rows = read_rows(path)
    columns = _columns(next(rows))
    orders, counts = [], []
    for row in rows:
        if len(row.cells) > len(columns.header.cells):
            check_width(path, row, len(columns.header.cells))
        order = [row.cells[k].strip() for k in columns.items if k < len(row.cells)]
        while order and not order[-1]:
            order.pop()
        for k, name in enumerate(order):
            if not name:
                raise ValueError(
                    f"{at(path, row.line)}: expected empty cells at the end only, got one before "
                    f"{order[k + 1]!r:.60}."
                )
            if name in order[:k]:
                raise ValueError(f"{at(path, row.line)}: expected {name!r:.60} once, got it again.")
        orders.append(order)
        counts.append(_count(path, separator, columns, row))
    return _Found(_first_named(orders), orders, counts)


def _from_ranks(path: Path) -> _Found:
    separator, rows = read_rows(path)
    columns = _columns(next(rows))
    header = columns.header
    check_header(path, header)
    items = check_names(path, [(header.line, k + 1, header.cells[k]) for k in columns.items])
    numbers = Numbers(path, separator, header.cells, skip=columns.first)
    orders, counts = [], []
    for row in rows:
        check_width(path, row, len(header.cells))
        ranks = numbers.of(row)[[k - columns.first for k in columns.items]]
        order, tie = order_by_rank(ranks)
        if tie is not None:
            raise ValueError(
                f"{at(path, row.line)}: expected different ranks, got {ranks[tie[0]]:g} for "
                f"{items[tie[0]]!r:.60} and {items[tie[1]]!r:.60}."
            )
        orders.append([items[i] for i in order])
        counts.append(_count(path, separator, columns, row))
    return _Found(list(items), orders, counts)


class _Columns(NamedTuple):
    """The columns of orders and ranks: items in those from ``first`` on, less that of counts."""

    header: Row
    first: int
    counts: int | None

    @property
    def items(self) -> list[int]:
        """The positions of the cells that hold items or ranks."""
        return [k for k in range(self.first, len(self.header.cells)) if k != self.counts]


def _columns(header: Row) -> _Columns:
    names = [cell.strip().lower() for cell in header.cells]
    counts = next((k for k, name in enumerate(names) if name in _COUNTS), None)
    return _Columns(header, int(names[0] in _JUDGES), counts)


def _count(path: Path, separator: str, columns: _Columns, row: Row) -> float:
    k = columns.counts
    if k is None:
        return 1.0
    count = np.nan
    if k < len(row.cells):
        numbers = Numbers(path, separator, columns.header.cells, skip=k)
        count = float(numbers.of(row._replace(cells=row.cells[: k + 1]))[0])
    return _checked_count(path, row.line, count)


def _checked_count(path: Path, line: int, count: float) -> float:
    if not 0 <= count < np.inf:
        got = "none" if np.isnan(count) else f"{count:g}"
        raise ValueError(f"{at(path, line)}: expected a count of at least 0, got {got}.")
    return count


def _first_named(orders: list[list[str]]) -> list[str]:
    """All items in the order in which they are first named."""
    return list(dict.fromkeys(name for order in orders for name in order))
