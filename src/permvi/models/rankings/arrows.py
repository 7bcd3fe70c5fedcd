"""Ballots as people write them: ``3: Rome > Paris = Lima`` in a line, ``A,{B,C}`` in cells."""

import re
from collections.abc import Sequence
from pathlib import Path

from permvi import _sources
from permvi._csv import at, read_lines
from permvi.models.rankings.preflib import Orders

# What joins tied items: "=", or "~" between spaces.
_TIED = re.compile(r"=|\s~\s")
# A count in front of a ballot, "12:" or "12 x".
_COUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?::|[x×]\s)\s*(.*)")
# What is no part of an item's name if the rest is one: "3,", "x,", "2." or "2)" in front.
_PREFIX = re.compile(r"(?:[^,]*,|\d+[.)]?\s)\s*(.+)")


def is_arrows(path: Path) -> bool:
    """Return whether the first line of a text file and most others have an arrow.

    Comments do not count.
    """
    if _sources.cells(path, _sources.content(path)) is not None:
        return False
    lines = _ballots(path)
    arrows = [">" in line for _, line in lines]
    return any(arrows[:1]) and sum(arrows) > 0.5 * len(arrows)


def read(path: Path) -> Orders:
    """Read a file whose lines list items, the best first, between arrows, with ties.

    Raises:
        ValueError: A line has an arrow without an item, an item twice, or is no ballot.
    """
    return parse(path, _ballots(path))


def parse(path: Path, lines: list[tuple[int, str]]) -> Orders:
    """Read ballots that are given with the numbers of their lines, as `read` does."""
    items: dict[str, int] = {}
    groups, counts, firsts = [], [], []
    for number, line in lines:
        counted = _COUNT.fullmatch(line)
        text = counted[2] if counted else line
        if ">" not in text and not _TIED.search(text):
            raise ValueError(
                f"{at(path, number)}: expected items between '>', the best first, got {line!r:.60}."
            )
        listed = [[name.strip() for name in _TIED.split(part)] for part in text.split(">")]
        names = [name for group in listed for name in group]
        if not all(names):
            raise ValueError(
                f"{at(path, number)}: expected an item on either side of '>' and '=', got "
                f"{line!r:.60}."
            )
        for k, name in enumerate(names):
            if name in names[:k]:
                raise ValueError(f"{at(path, number)}: expected {name!r:.60} once, got it again.")
        firsts.append(names[0])
        groups.append([tuple(items.setdefault(name, len(items)) for name in g) for g in listed])
        counts.append(float(counted[1]) if counted else 1.0)
    for (number, _), ballot in zip(lines, firsts, strict=True):
        prefixed = _PREFIX.fullmatch(ballot)
        if prefixed and prefixed[1] in items:
            raise ValueError(
                f"{at(path, number)}: expected an item before the first '>', got {ballot!r:.60} "
                f"where {prefixed[1]!r:.60} is one; write '3: A > B' for a count, and leave other "
                "things out."
            )
    return Orders(list(items), groups, counts, [])


def _ballots(path: Path) -> list[tuple[int, str]]:
    """Return the number and text of all lines that are neither empty nor comments."""
    lines = enumerate((line.strip() for line in read_lines(path)), 1)
    return [(k, line) for k, line in lines if line and not line.startswith("#")]


def entries(path: Path, line: int, cells: Sequence[str]) -> list[list[str]]:
    """The groups of names in the cells of an order; braces hold tied ones, as in ``A,{B,C}``."""
    found: list[list[str]] = []
    names = [cell.strip() for cell in cells]
    while names and not names[-1]:
        names.pop()
    is_open = False
    for k, cell in enumerate(names):
        # A quoted cell may hold a whole group.
        for part in cell.split(",") if cell[:1] == "{" or is_open else [cell]:
            name = part.strip().removeprefix("{").removesuffix("}").strip()
            if not name:
                then = next(other for other in names[k:] if other) if any(names[k:]) else ""
                raise ValueError(
                    f"{at(path, line)}: expected empty cells at the end only, got one before "
                    f"{then!r:.60}."
                )
            if is_open:
                found[-1].append(name)
            else:
                found.append([name])
            is_open = (is_open or part.strip().startswith("{")) and not part.strip().endswith("}")
    if is_open:
        raise ValueError(f"{at(path, line)}: expected a brace at the end of a tie, got none.")
    return found
