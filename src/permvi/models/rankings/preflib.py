"""Files of PrefLib: strict and tied, complete and incomplete orders (soc, soi, toc, toi).

Files of today begin with lines ``# KEY: value`` and have ballots ``count: 3,{1,2},4``. Those before
2022 begin with the number of items, then number and name of each, then the totals, and have ballots
``count,3,{1,2},4`` (Mattei and Walsh 2013).
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from permvi._csv import at, read_lines
from permvi._sources import cells, content, kind_of

KINDS = ("soc", "soi", "toc", "toi")

_NAME = re.compile(r"ALTERNATIVE NAME (\d+)$")
# A comment that begins a file of PrefLib.
_HEADER = re.compile(
    r"#\s*(FILE NAME|TITLE|DATA TYPE|NUMBER ALTERNATIVES|ALTERNATIVE NAME \d+)\s*:", re.IGNORECASE
)
# Totals of the old form: voters, orders, different orders.
_TOTALS = re.compile(r"\s*\d+\s*,\s*\d+\s*,\s*\d+\s*")
_ENTRY = re.compile(r"\{([^{}]*)\}|([^{},\s]+)")
# What a list of entries may look like; anything else has a brace or a comma too many.
_LIST = re.compile(r"\s*(\{[^{}]*\}|[^{},\s]+)(\s*,\s*(\{[^{}]*\}|[^{},\s]+))*\s*")


class Orders(NamedTuple):
    """The ballots of a file: names of items, groups of item numbers, counts, and what was odd."""

    items: list[str]
    groups: list[list[tuple[int, ...]]]
    counts: list[float]
    notes: list[str]


def is_preflib(path: Path) -> bool:
    """Return whether a file is one of PrefLib's, by its name or its first lines."""
    if kind_of(path).removeprefix(".") in KINDS:
        return True
    if cells(path, content(path)) is not None:
        return False
    lines = [*filter(str.strip, read_lines(path)), "", ""]
    comments = takewhile(lambda line: line.lstrip().startswith("#"), lines)
    old = re.fullmatch(r"\s*\d+\s*", lines[0]) and re.match(r"\s*1\s*,\s*\S", lines[1])
    return bool(old) or any(_HEADER.match(line.lstrip()) for line in comments)


def read(path: Path) -> Orders:
    """Read a file of PrefLib.

    Raises:
        ValueError: A line is not what such a file holds there; the message names it.
    """
    lines = [(k, line.strip()) for k, line in enumerate(read_lines(path), 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path}: expected a file of PrefLib, got an empty file.")
    if lines[0][1].startswith("#"):
        return _read_today(path, lines)
    return _read_old(path, lines)


def _read_today(path: Path, lines: Sequence[tuple[int, str]]) -> Orders:
    names: dict[int, str] = {}
    kind, size, voters = kind_of(path).removeprefix("."), None, None
    # The lines that hold the type and the number of items.
    typed, sized = lines[0][0], lines[0][0]
    ballots = []
    for line, text in lines:
        if not text.startswith("#"):
            count, separator, rest = text.partition(":")
            if not separator:
                raise ValueError(f"{at(path, line)}: expected 'count: order', got {text!r:.60}.")
            ballots.append((line, count, rest))
            continue
        key, _, value = (part.strip() for part in text[1:].partition(":"))
        named = _NAME.match(key.upper())
        if named:
            if int(named[1]) in names:
                raise ValueError(
                    f"{at(path, line)}: expected one name of item {int(named[1])}, got another, "
                    f"{value!r:.60}."
                )
            names[int(named[1])] = _unquoted(value)
        elif key.upper() == "DATA TYPE":
            kind, typed = value.lower(), line
        elif key.upper() == "NUMBER ALTERNATIVES":
            size, sized = _whole(path, line, value, "a number of alternatives"), line
        elif key.upper() == "NUMBER VOTERS":
            voters = _whole(path, line, value, "a number of voters")
    if kind not in KINDS:
        raise ValueError(
            f"{at(path, typed)}: expected a file of PrefLib of type {', '.join(KINDS)}, got "
            f"{kind!r:.20}."
        )
    if size is not None and names and len(names) != size:
        raise ValueError(
            f"{at(path, sized)}: expected the number of names in the header, {len(names)}, got "
            f"{size}."
        )
    _check_ballots(path, lines, ballots)
    found = _collect(path, kind, names, size, voters, ballots)
    ending = kind_of(path).removeprefix(".")
    if ending in KINDS and ending != kind:
        found.notes.append(f"the header says {kind}, the name of the file {ending}")
    return found


def _read_old(path: Path, lines: Sequence[tuple[int, str]]) -> Orders:
    (line, first), *rest = lines
    size = _whole(path, line, first, "the number of items or a line '# KEY: value'")
    names = {}
    for line, text in rest[:size]:
        number, separator, name = text.partition(",")
        if not separator:
            raise ValueError(f"{at(path, line)}: expected 'number,name', got {text!r:.60}.")
        item = _whole(path, line, number, "the number of an item")
        if not 1 <= item <= size or item in names:
            raise ValueError(
                f"{at(path, line)}: expected the names of items 1 to {size}, got {text!r:.60}."
            )
        names[item] = _unquoted(name.strip())
    if len(rest) <= size:
        raise ValueError(
            f"{at(path, lines[-1][0])}: expected totals and orders after {size} names, got no more."
        )
    line, totals = rest[size]
    if not _TOTALS.fullmatch(totals):
        raise ValueError(
            f"{at(path, line)}: expected the numbers of voters, orders and different orders, got "
            f"{totals!r:.60}."
        )
    voters = _whole(path, line, totals.split(",")[0], "the number of voters")
    ballots = []
    for line, text in rest[size + 1 :]:
        count, _, order = text.partition(",")
        ballots.append((line, count, order))
    _check_ballots(path, lines, ballots)
    return _collect(path, kind_of(path).removeprefix("."), names, size, voters, ballots)


def _check_ballots(
    path: Path, lines: Sequence[tuple[int, str]], ballots: Sequence[tuple[int, str, str]]
) -> None:
    if not ballots:
        raise ValueError(f"{at(path, lines[-1][0])}: expected orders after the header, got none.")


def _collect(
    path: Path,
    kind: str,
    names: dict[int, str],
    size: int | None,
    voters: int | None,
    ballots: Sequence[tuple[int, str, str]],
) -> Orders:
    numbers = sorted(names) or list(range(1, (size or 0) + 1))
    notes = []
    items: list[str] = []
    for number in numbers:
        name = names.get(number) or str(number)
        if name in items:
            notes.append(f"item {number} is called {name!r:.40} like another one")
            name = f"{name} ({number})"
        items.append(name)
    place = {number: k for k, number in enumerate(numbers)}
    groups, counts = [], []
    for line, count, order in ballots:
        # Some programs write 3.0.
        count = re.sub(r"\.0+\s*$", "", count)
        counts.append(float(_whole(path, line, count, "a count")))
        groups.append(_order(path, line, order, place))
        tied = any(len(group) > 1 for group in groups[-1])
        listed = sum(len(group) for group in groups[-1])
        if tied and kind.startswith("so"):
            raise ValueError(f"{at(path, line)}: expected no ties in a file of type {kind}.")
        if listed < len(items) and kind.endswith("oc"):
            raise ValueError(
                f"{at(path, line)}: expected all {len(items)} items in a file of type {kind}, got "
                f"{listed}."
            )
    if voters is not None and voters != sum(counts):
        notes.append(f"the header counts {voters:,} voters and the orders {sum(counts):,.0f}")
    return Orders(items, groups, counts, notes)


def _order(path: Path, line: int, text: str, place: dict[int, int]) -> list[tuple[int, ...]]:
    """Parse ``3,{1,2},4``; raise an error that names the line."""
    if not _LIST.fullmatch(text):
        raise ValueError(
            f"{at(path, line)}: expected item numbers with ties in braces, got "
            f"{text.strip()!r:.60}."
        )
    groups, seen = [], set()
    for tied, alone in _ENTRY.findall(text):
        group = []
        for entry in (tied or alone).split(","):
            if not alone and not entry.strip():
                continue
            number = _whole(path, line, entry, "the number of an item")
            if number not in place:
                raise ValueError(f"{at(path, line)}: expected items of the header, got {number}.")
            if number in seen:
                raise ValueError(f"{at(path, line)}: expected item {number} once, got it again.")
            seen.add(number)
            group.append(place[number])
        if group:
            groups.append(tuple(group))
    return groups


def _unquoted(name: str) -> str:
    """Return a name without quotes around all of it; those inside belong to it, once or doubled."""
    inside = name[1:-1].replace('""', "")
    quoted = len(name) > 1 and name[0] == name[-1] == '"' and '"' not in inside
    return name[1:-1].replace('""', '"') if quoted else name


def _whole(path: Path, line: int, text: str, what: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{at(path, line)}: expected {what}, got {text!r:.60}.")
    return int(text)
