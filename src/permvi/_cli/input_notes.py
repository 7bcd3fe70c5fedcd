"""What a file looks like if it is not what a command takes it for, in notes to the user.

A note says what was assumed, what the input looks like, and which option would say so. It is
printed once on standard error, and part of JSON. Nothing is changed because of it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from permvi._cli.csv_tables import LIST_OF_PAIRS, PairList, Table, read_table
from permvi._cli.options import SCALED
from permvi._csv import is_number

if TYPE_CHECKING:
    from permvi._cli.match_inputs import Unpaired
    from permvi.posterior import Posterior

# Sums of rounded probabilities are this near to one, and sums of all of a table still nearer.
_NEAR_ONE, _NEARER = 0.01, 0.001
# An item is certain if its best label is this probable, and a table is of a scale that makes
# everything certain if its numbers are this far apart, e^30 to 1.
_CERTAIN = 1 - 1e-6
_FAR_APART = 30.0
# Numbers point to a matching if they do for this share of the items, and to none below the other;
# fewer items than this do so by chance.
_POINTING, _NOT_POINTING, _FEWEST = 0.85, 0.7, 10
# Names of columns that hold names.
_NAMING = ("", "id", "item", "items", "index", "name", "names", "row", "label", "no", "nr", "key")
# The share of right labels beyond --unmatched from which on a note says so.
_MANY_FAR = 0.05
# Features in one unit, such as coordinates, rarely spread by so many times more than others.
_UNLIKE = 30.0
_COST_WORDS = ("cost", "dist", "loss", "penalt", "error")
_TAKEN = "numbers are taken for scores (log weights, larger is better)"
# Names of rows and columns that hold sums.
_SUMS = ("total", "totals", "sum", "sums", "all")
# What detectors measure of a particle beside its place.
_NOT_PLACES = ("mass", "size", "ecc", "signal", "intensity", "quality", "area", "radius", "ep")


class _Numbers(NamedTuple):
    """The numbers of a table without its empty cells, and the row of each."""

    values: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    shape: tuple[int, int]

    def add_up_to(self, total: float, near: float = _NEAR_ONE) -> str | None:
        """Return whether every row, every column or all together add up to a number; None if not.

        ``near`` is the largest difference, relative to the number.
        """
        (n, m), values = self.shape, self.values
        if values.min() < 0:
            return None
        sides = ("every row", self.rows, n, m), ("every column", self.cols, m, n)
        for what, places, number, count in sides:
            sums = np.bincount(places, values, number)
            if count > 1 and abs(sums - total).max() < near * total:
                return what
        together = n * m > 1 and abs(values.sum() - total) < min(near, _NEARER) * total
        return "the whole table" if together else None

    @property
    def are_ranks(self) -> bool:
        """Whether the numbers of each row, or of all rows but for missing ones, are ranks."""
        m = self.shape[1]
        low, high = self.values.min(), self.values.max()
        whole = bool((self.values == np.rint(self.values)).all())
        if m < 3 or not whole or low not in (0, 1) or high - low + 1 != m:
            return False
        codes = self.rows * (m + 1) + self.values.astype(np.int64)
        return len(np.unique(codes)) == len(codes)


def of_distance(distance: float) -> list[str]:
    """Note if many right labels are further away than so many standard deviations."""
    from scipy.special import erfc

    far = float(erfc(distance / 2**0.5))
    share = f"{100 * far:.0f} % of right labels are further away"
    return [f"--unmatched {distance:g}: {share}; 3 leaves .3 %."] if far > _MANY_FAR else []


def of_spreads(items: Table, labels: Table, scale: str) -> list[str]:
    """Note if one scale is given for features some of which spread far more than others."""
    spreads = np.std(labels.aligned(labels.rows, items.cols).values, axis=0)
    most, least = int(np.argmax(spreads)), int(np.argmin(np.where(spreads > 0, spreads, np.inf)))
    if "," in scale or spreads[most] <= _UNLIKE * spreads[least]:
        return []
    ratio = spreads[most] / spreads[least]
    return [
        f"{labels.path}: values of {items.cols[most]!r} spread {ratio:,.0f} times as widely as "
        f"those of {items.cols[least]!r}, but --scale {scale} is one number for all; give one for "
        "each feature, separated by commas, or leave a feature out."
    ]


def _larger_is_better(table: Table | PairList) -> bool | None:
    """Return whether the largest or the smallest numbers of a table look like matches.

    Matches have different labels. So the largest numbers of the rows of a table of scores lie in
    different columns, and the smallest ones, which are far from any match, in a few that are far
    from most items; in a table of costs it is the other way round. None if neither is clear.
    """
    values: np.ndarray = table.values
    if values.ndim != 2 or min(values.shape) < _FEWEST:
        return None
    known = np.isfinite(values)
    rows = known.any(axis=1)
    num = min(int(rows.sum()), values.shape[1])
    shares = [
        len(np.unique(np.argmax(np.where(known, signed, -np.inf)[rows], axis=1))) / max(num, 1)
        for signed in (values, -values)
    ]
    for better, (this, other) in ((True, shares), (False, shares[::-1])):
        if this >= _POINTING and other <= _NOT_POINTING:
            return better
    return None


def _numbers(table: Table | PairList) -> _Numbers:
    shape = len(table.rows), len(table.cols)
    known = np.isfinite(table.values)
    pairs = np.argwhere(known) if isinstance(table, Table) else table.pairs[known]
    return _Numbers(table.values[known], pairs[:, 0], pairs[:, 1], shape)


def of_table(
    table: Table | PairList,
    kind: str | None,
    temperature: float | None,
    shape: tuple[int, int],
    unpaired: "Unpaired",
) -> list[str]:
    """Return notes on a table of pairs; ``kind`` and ``temperature`` are None if not given."""
    numbers = _numbers(table)
    notes = [
        *of_reading(table),
        *(_of_numbered_pairs(table) or of_names(table)),
        *_of_structure(table, unpaired),
        *of_gaps(table, unpaired),
        *of_sizes(table.path, shape, unpaired),
    ]
    if numbers.values.size < 2:
        return notes
    found = None
    if kind is None:
        found = _of_scores(table, numbers, temperature)
    elif kind == "probabilities" and (what := numbers.add_up_to(1.0, 1e-6)) is not None:
        found = (
            f"{what} adds up to 1: if it is one distribution, {_as_rows(what)}; this answer would "
            "be overconfident"
        )
    elif kind == "log-odds" and 0 <= numbers.values.min() and numbers.values.max() <= 1:
        found = (
            "all numbers lie between 0 and 1, as probabilities do, and are taken for log odds: if "
            "they are probabilities that a pair is a match, use --kind probabilities"
        )
    return [*notes, *([] if found is None else [f"{table.path}: {found}."])]


def of_prior(path: Path) -> list[str]:
    """Return notes on a table of prior numbers, which are taken for scores as no kind is given."""
    table = read_table(path)
    numbers = _numbers(table)
    found = None
    if numbers.values.size and numbers.values.min() >= 0:
        found = _of_sums(numbers) or (
            f"no number is negative, as in a table of probabilities or costs, but {_TAKEN}; say "
            "what they are with --kind"
        )
    text = "" if found is None else f"{path}: {found.replace('--kind', '--prior-kind')}."
    return [*of_reading(table), *([text] if text else [])]


def _of_sums(numbers: _Numbers) -> str | None:
    """Return what numbers look like that add up to 1 or to 100, None if they do not."""
    for total, like, first in (
        (1.0, "probabilities", ""),
        (100.0, "percentages", "divide by 100 and "),
    ):
        what = numbers.add_up_to(total)
        if what is not None:
            return (
                f"{what} adds up to {total:g}, as {like} do, but {_TAKEN}; {first}{_as_rows(what)}"
            )
    return None


def _as_rows(what: str) -> str:
    """Say how to give probabilities of which every row, every column or all add up to 1."""
    turn = "exchange rows and columns and " if what == "every column" else ""
    return f"{turn}use --kind row-probabilities"


def _of_scores(table: Table | PairList, numbers: _Numbers, temperature: float | None) -> str | None:
    """Return what a table looks like that is taken for scores because no kind is given."""
    low, high, taken = numbers.values.min(), numbers.values.max(), _TAKEN
    found = _of_sums(numbers)
    if found is not None:
        return found
    if numbers.are_ranks:
        return (
            f"each row holds ranks from {low:g} to {high:g}, but {taken}; if {low:g} is the best, "
            "use --kind costs"
        )
    if temperature is not None:
        return None
    for base in (2.0, 10.0):
        powers = numbers._replace(values=base ** np.minimum(numbers.values, 1.0))
        if powers.add_up_to(1.0, _NEARER) == "every row":
            return (
                f"every row adds up to 1 if numbers are logarithms to the base of {base:g}, but "
                f"{taken} to the base of e; use --temperature {1 / np.log(base):.4f}"
            )
    if 0 <= low and high <= 1:
        what = "0 or 1, as in a mask" if np.isin(numbers.values, (0, 1)).all() else "from 0 to 1"
        return (
            f"all numbers are {what}, as similarities or probabilities are, but {taken}, so that a "
            "pair weighs at most 2.7 times as much as another; use --kind probabilities, or "
            "--temperature 0.1 for similarities that mean more, or --kind scores if this is meant"
        )
    if -1 <= low and high <= 1:
        return (
            f"all numbers are from -1 to 1, as correlations are, but {taken}, so that a pair "
            "weighs at most 7.4 times as much as another; use --temperature 0.1 if similarities "
            "mean more, or --kind scores if this is meant"
        )
    names = {"the file": table.path.name, "the column of numbers": getattr(table, "what", "")}
    spoken = [
        f"the name of {where} speaks of {word!r}"
        for where, name in names.items()
        for word in _COST_WORDS
        if word in name.lower()
    ]
    larger_is_better = _larger_is_better(table)
    if larger_is_better is False:
        return (
            "the smallest numbers of the items belong to different labels, as the costs of matches "
            f"do, but {taken}; use --kind costs if smaller is better, else --kind scores"
        )
    # Where matches stand out as the largest numbers, there is nothing to ask.
    if (low >= 0 and larger_is_better is None) or spoken:
        why = "no number is negative, as in a table of costs or distances"
        if low >= 0 and high <= 100 and high > 50:
            why = "all numbers are from 0 to 100, as percentages, costs or distances are"
        why = next(iter(spoken), why)
        return f"{why}, but {taken}; use --kind costs if smaller is better, else --kind scores"
    return None


def of_reading(table: Table | PairList) -> list[str]:
    """Return what was assumed of the file and its numbers."""
    return [f"{table.path}: {note}." for note in table.notes]


def _of_numbered_pairs(table: Table | PairList) -> list[str]:
    """Return a note if a table of two labels looks like a list of pairs with numbers for names."""
    if not isinstance(table, Table) or len(table.cols) != 2:
        return []
    items = all(name.strip().isdecimal() for name in table.rows)
    first, second = (bool((column == np.rint(column)).all()) for column in table.values.T)
    if not (items and first) or (second and len(table.rows) == 2):
        return []
    return [
        f"{table.path}: the first two columns hold whole numbers, as a list of numbered pairs "
        f"does, but the first is taken for the names of items; {LIST_OF_PAIRS}."
    ]


def _of_structure(table: Table | PairList, unpaired: "Unpaired") -> list[str]:
    """Return notes on sums beside a table, and on a table of a set with itself."""
    if not isinstance(table, Table):
        return []
    inner = table.take(*unpaired.pairs_of(table))
    notes = []
    if len(inner.rows) > 2 and set(inner.rows) == set(inner.cols):
        values = inner.aligned(inner.rows, inner.rows).values
        if np.array_equal(values, values.T, equal_nan=True):
            notes.append(
                "rows and columns have the same names and numbers, as those of a set with itself, "
                "but are taken for two sets; for pairs within one, list them for --pairs --dedupe"
            )
    for what, taken, names, values in (
        ("row", "an item", inner.rows, inner.values),
        ("column", "a label", inner.cols, inner.values.T),
    ):
        *others, last = values
        called = names[-1].strip().lower() in _SUMS or min(values.shape) > 3
        if len(others) > 1 and called and last.any() and np.allclose(last, np.sum(others, axis=0)):
            notes.append(
                f"{what} {names[-1]!r:.40} holds the sums of the others, but is taken for {taken}; "
                "leave it out"
            )
    return [f"{table.path}: {note}." for note in notes]


def of_names(table: Table | PairList) -> list[str]:
    """Return a note if the first column holds numbers that do not look like names."""
    if not isinstance(table, Table) or not all(is_number(name) for name in table.rows):
        return []
    corner = table.corner
    values = np.array([float(name.replace(",", ".")) for name in table.rows])
    whole = bool((values == np.rint(values)).all())
    counted = whole and bool((np.diff(values) == 1).all()) and len(values) > 1
    if counted or (whole and corner.strip().lower() in _NAMING):
        return []
    column = f"the first column, {corner.strip()!r:.40}," if corner.strip() else "the first column"
    return [
        f"{table.path}: {column} holds numbers and is taken for the names of items; if it holds "
        "data, put a column of names before it."
    ]


def of_gaps(table: Table | PairList, unpaired: "Unpaired") -> list[str]:
    """Return a note if pairs of a table are empty, since a missing number is no forbidden pair."""
    if isinstance(table, PairList):
        return []
    rows, cols = unpaired.pairs_of(table)
    empty = np.isnan(table.values[np.ix_(rows, cols)])
    if not empty.any():
        return []
    is_are, their = ("is", "its pair is") if empty.sum() == 1 else ("are", "their pairs are")
    i, j = np.argwhere(empty)[0].tolist()
    return [
        f"{table.path}: {empty.sum():,} of {empty.size:,} cells {is_are} empty (the first: "
        f"{table.rows[rows[i]]!r:.40}, {table.cols[cols[j]]!r:.40}), so {their} forbidden; fill in "
        "a number if it is merely unknown."
    ]


def of_sizes(path: Path, shape: tuple[int, int], unpaired: "Unpaired") -> list[str]:
    """Return a note if there are more items than labels, and nothing says what that means."""
    n, m = shape
    if n <= m or any(given is not None for given in unpaired):
        return []
    return [
        f"{path}: there are {n:,} items and {m:,} label{'s' * (m != 1)}, so {n - m:,} of the items "
        f"{'stays' if n - m == 1 else 'stay'} unmatched and every label is used; --unmatched VALUE "
        "says how good a pair has to be."
    ]


def of_certainty(
    posterior: "Posterior", values: np.ndarray | None, kind: str | None, temperature: float | None
) -> list[str]:
    """Return a note if the scale of scores or costs makes every item certain.

    ``values`` are the numbers of the table, None if there is none.
    """
    if values is None or temperature is not None or (kind or "scores") not in SCALED:
        return []
    finite = values[np.isfinite(values)]
    if finite.size < 2 or np.ptp(finite) < _FAR_APART:
        return []
    from permvi.report.words import best_probabilities

    if len(posterior.mode) < 2 or best_probabilities(posterior).min() < _CERTAIN:
        return []
    return [
        f"every item is certain, because numbers that differ by {np.ptp(finite):.3g} make a pair "
        f"e^{np.ptp(finite):.3g} times as probable; unless they are log weights, divide them by "
        "the difference that you would call a likely one, with --temperature."
    ]


def of_rankings(name: str, note: str, *, given: bool) -> list[str]:
    """Return the note on how rankings were read, and another if they look like ratings.

    ``given`` tells whether the user said which form the file has.
    """
    notes = [f"{name}: {note}."]
    if not given and "read as ranks" in note and "tied items" in note:
        notes.append(
            f"{name}: rows repeat numbers, as ratings do, but 1 is taken for the best; use "
            "--format ratings if larger is better."
        )
    return notes


def of_scene(path: Path, axes: Sequence[str], notes: Sequence[str]) -> list[str]:
    """Return the notes on how points were read, and on coordinates that are no places."""
    listed = [f"{path}: {'; '.join(notes)}."] if notes else []
    odd = [axis for axis in axes if axis.strip().lower() in _NOT_PLACES]
    if odd:
        listed.append(
            f"{path}: {', '.join(odd)} is taken for a coordinate, although particles do not move "
            "in it; leave it out of --coords unless this is meant."
        )
    return listed
