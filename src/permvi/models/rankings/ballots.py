"""Ballots: what judges said about the order of some items, with ties and gaps."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from permvi._checks import one_of
from permvi.models import _arguments
from permvi.models.labels import distinct, is_frame

Unranked = Literal["absent", "below"]

# The level of an item that a ballot does not rank.
ABSENT = -1
# Items of one level: a tie.
Group = tuple[int, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Ballots:
    """Different ballots on n items, and how often each was given.

    A ballot is a sequence of groups, the best one first; items of a group are tied. A complete
    ranking has groups of one item each, and a list of the best k of n ends with a group of n - k.

    Attributes:
        items: (n,) names.
        levels: (R, n) the number of each item's group, 0 for the best, -1 for items that did not
            take part.
        counts: (R,) how often each ballot was given, above 0.
    """

    items: tuple[str, ...]
    levels: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(
        cls,
        items: Sequence[str],
        groups: Sequence[Sequence[Group]],
        counts: np.ndarray,
        unranked: Unranked = "absent",
    ) -> "Ballots":
        """Collect ballots given as groups of item numbers; equal ones are counted together.

        Items that a ballot does not list did not take part, or with ``unranked="below"`` form one
        more group. Ballots of count 0 and those without items are left out.
        """
        one_of("unranked", unranked, get_args(Unranked))
        found: dict[bytes, float] = {}
        for ballot, count in zip(groups, counts.tolist(), strict=True):
            if not ballot or count == 0:
                continue
            last = len(ballot) if unranked == "below" else ABSENT
            levels = np.full(len(items), last, np.int32)
            for level, group in enumerate(ballot):
                levels[list(group)] = level
            key = levels.tobytes()
            found[key] = found.get(key, 0.0) + count
        if len(items) < 2 or not found:
            raise ValueError(
                "orders must hold at least one ranking and two items, got "
                f"{len(found)} rankings of {len(items)} items."
            )
        rows = [np.frombuffer(key, np.int32) for key in found]
        return cls(tuple(items), np.array(rows), np.array(list(found.values())))

    @property
    def groups(self) -> list[list[Group]]:
        """Each ballot as its groups of item numbers, the best one first."""
        return [
            [tuple(np.flatnonzero(row == level).tolist()) for level in range(row.max() + 1)]
            for row in self.levels
        ]

    @cached_property
    def sizes(self) -> list[tuple[int, ...]]:
        """The sizes of the groups of each ballot, the best one first."""
        return [tuple(np.bincount(row[row >= 0]).tolist()) for row in self.levels]

    @property
    def orders(self) -> np.ndarray:
        """(R, k) item numbers, the best first, padded with -1; tied items are in no order."""
        listed = self.levels >= 0
        width = int(listed.sum(axis=1).max())
        key = np.where(listed, self.levels, len(self.items))
        order = np.argsort(key, axis=1, kind="stable")[:, :width]
        return np.where(np.take_along_axis(listed, order, 1), order, ABSENT)

    @cached_property
    def is_strict(self) -> bool:
        """Whether every ballot ranks all items, without ties."""
        n = len(self.items)
        return bool((np.sort(self.levels, axis=1) == np.arange(n)).all())

    @cached_property
    def is_staged(self) -> bool:
        """Whether ties are at the ends of ballots only: best-of lists or complete rankings."""
        return all(size == 1 for sizes in self.sizes for size in sizes[:-1])

    def against(self, weights: np.ndarray | None = None) -> np.ndarray:
        """(n, n) how often j was ranked before i, with other ``weights`` than the counts."""
        weights = self.counts if weights is None else weights
        n = len(self.items)
        table = np.zeros((n, n))
        for i in range(n):
            mine = self.levels[:, [i]]
            before = (self.levels >= 0) & (self.levels < mine)
            table[i] = weights @ before
        return table

    @cached_property
    def choices(self) -> np.ndarray:
        """(R, n) how often a sum of 1 to n terms is part of the normaliser of each ballot."""
        # Z_m is a product over sizes up to m: those up to r count, and those up to b do not.
        choices = np.zeros((len(self.levels), len(self.items) + 1))
        for row, sizes in zip(choices, self.sizes, strict=True):
            row[1 : sum(sizes) + 1] += 1
            for size in sizes:
                row[1 : size + 1] -= 1
        return choices[:, 1:]

    def log_normaliser(self, thetas: np.ndarray) -> np.ndarray:
        r"""(T,) dispersions of Kendall's distance -> (T,) log normalisers of all ballots together.

        Rankings of r items that agree with groups of tied ones weigh :math:`Z_{b_1} Z_{b_2} \cdots
        / Z_r` relative to the one that is nearest to the true order.
        """
        total = self.counts @ self.choices
        return total @ log_geometric(np.arange(1, len(self.items) + 1), thetas)

    def resampled(self, rng: np.random.Generator) -> np.ndarray:
        """(R,) counts of as many ballots, drawn with replacement (Poisson if not whole)."""
        total = self.counts.sum()
        if (self.counts == np.rint(self.counts)).all():
            return rng.multinomial(int(total), self.counts / total).astype(float)
        return rng.poisson(self.counts).astype(float)


def log_geometric(sizes: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """(S,) numbers of terms, (T,) dispersions -> (S, T) logs of 1 + exp(-theta) + ..."""
    return np.log(np.expm1(-np.outer(sizes, thetas)) / np.expm1(-thetas))


def order_by_rank(ranks: np.ndarray) -> list[Group]:
    """The groups of a row of ranks (n,), smallest first; NaN where an item has none."""
    ranked = np.flatnonzero(~np.isnan(ranks))
    return [tuple(ranked[ranks[ranked] == rank].tolist()) for rank in np.unique(ranks[ranked])]


def rows_of(name: str, value: Any) -> list[list[Any]]:
    """A list of lists from an array, a DataFrame or any sequence of sequences."""
    if is_frame(value):
        value = value.to_numpy()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(f"{name} must be a sequence of sequences of items, got {value!r:.60}.")
    rows = []
    for k, row in enumerate(value):
        if isinstance(row, str) or not hasattr(row, "__iter__"):
            raise TypeError(f"{name}[{k}] must be a sequence of items, got {row!r:.60}.")
        rows.append(list(row))
    if not rows:
        raise ValueError(f"{name} must have at least one row, got none.")
    return rows


def numbered(
    name: str, orders: Any, items: Sequence[Any] | None
) -> tuple[tuple[str, ...], list[list[Group]]]:
    """The names of all items, and the rankings as groups of item numbers without padding."""
    lists = rows_of(name, orders)
    for listed in lists:
        while listed and _is_padding(listed[-1]):
            listed.pop()
    ballots = [[_group(entry) for entry in listed] for listed in lists]
    entries = [entry for ballot in ballots for group in ballot for entry in group]
    place: dict[str, int] = {}
    if items is not None:
        place = {item: k for k, item in enumerate(distinct("items", items))}
    elif all(_is_integer(entry) for entry in entries):
        place = {str(k): k for k in range(max(entries, default=-1) + 1)}
    else:
        for entry in entries:
            place.setdefault(str(entry), len(place))
    return tuple(place), [_numbers(f"{name}[{k}]", b, place) for k, b in enumerate(ballots)]


def _group(entry: Any) -> tuple[Any, ...]:
    """The items of one entry of a ranking: several in a tuple, a list or a set, else one."""
    return tuple(entry) if isinstance(entry, list | tuple | set | frozenset) else (entry,)


def _numbers(name: str, ballot: Iterable[tuple[Any, ...]], place: dict[str, int]) -> list[Group]:
    seen: set[int] = set()
    groups = []
    for group in ballot:
        numbers = []
        for entry in group:
            number = place.get(str(entry))
            if number is None and _is_integer(entry) and 0 <= entry < len(place):
                number = int(entry)
            if number is None:
                raise ValueError(f"{name} must hold items or their numbers, got {entry!r:.60}.")
            if number in seen:
                raise ValueError(f"{name} must list each item once, got {entry!r:.60} twice.")
            seen.add(number)
            numbers.append(number)
        if numbers:
            groups.append(tuple(numbers))
    return groups


def checked_counts(name: str, counts: Any, size: int) -> np.ndarray:
    """(size,) how often each ranking was given."""
    if counts is None:
        return np.ones(size)
    times = _arguments.real(name, counts, (1,))
    if times.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got shape {times.shape}.")
    bad = times[~((times >= 0) & (times < np.inf))]
    if bad.size:
        raise ValueError(f"{name} must be finite and at least 0, got {bad[0]:g}.")
    return times


def named_columns(name: str, table: Any, items: Sequence[Any] | None) -> tuple[str, ...]:
    """The names of the columns of a table of ranks or ratings."""
    width = np.shape(table)[1]
    if items is None:
        items = list(table.columns) if is_frame(table) else range(width)
    names = distinct("items", items)
    if len(names) != width:
        raise ValueError(f"items must name each of {width} columns of {name}, got {len(names)}.")
    return names


def _is_integer(entry: Any) -> bool:
    return isinstance(entry, int | np.integer) and not isinstance(entry, bool)


def _is_padding(entry: Any) -> bool:
    empty = entry is None or (isinstance(entry, float) and math.isnan(entry))
    return empty or (_is_integer(entry) and entry == -1)


def is_ranking(values: list[float], n: int) -> bool:
    """Whether numbers are ranks of up to n items.

    Tied items have the number of distinct better ranks and one, the number of better items and one,
    the number of items that are not worse, or the mean of the last two. A judge may rank some of
    the items only.
    """
    if not all(1 <= value <= n for value in values):
        return False
    ranks = np.array(values)
    if len(set(values)) == len(values) and (ranks == np.rint(ranks)).all():
        return True
    better = (ranks[None] < ranks[:, None]).sum(axis=1)
    dense = np.unique(ranks, return_inverse=True)[1]
    last = (ranks[None] <= ranks[:, None]).sum(axis=1) - 1
    mean = 0.5 * (better + last)
    return any((ranks - 1 == expected).all() for expected in (better, dense, last, mean))
