"""Two posteriors of the same items and labels side by side, in numbers and as a page."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from permvi._files import check_target, write_text
from permvi.report import diagnosis
from permvi.report.page import render_plain
from permvi.report.sections import (
    facts_of,
    save_picture,
    save_table,
    section,
    source,
    table_of,
)
from permvi.report.words import col_name, count, name, number, percent, row_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from permvi.posterior import Posterior

# The most cells a side of a picture, and the most items in the table of the page.
_MOST_CELLS = 100
_MOST_ROWS = 200
# The largest cell of a picture, in pixels.
_LARGEST_CELL = 40
# Smaller differences are not worth a word.
_NOTICED = 0.01


class Row(NamedTuple):
    """An item in both posteriors; a label of None means "unmatched".

    Attributes:
        item: Its name.
        best_a: Its most probable label in the first posterior.
        probability_a: The probability of that label.
        best_b: Its most probable label in the second posterior.
        probability_b: The probability of that label.
        difference: The total variation distance between the two distributions of its label.
    """

    item: str
    best_a: str | None
    probability_a: float
    best_b: str | None
    probability_b: float
    difference: float


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Two posteriors, and what differs.

    Attributes:
        posteriors: Both; if one has no names of items or labels, it has those of the other.
        names: What they are called.
        rows: (n,) all items, those that differ most first.
        tables: Both tables (n, m + 1) of probabilities, in the order of the first posterior,
            "unmatched" last.
    """

    posteriors: tuple["Posterior", "Posterior"]
    names: tuple[str, str]
    rows: list[Row]
    tables: tuple[Any, Any]

    @property
    def mean_difference(self) -> float:
        """The mean difference of an item."""
        return float(np.mean([row.difference for row in self.rows]))

    @property
    def summary(self) -> str:
        """The difference in a sentence."""
        other = sum(row.best_a != row.best_b for row in self.rows)
        return (
            f"mean difference of an item: {self.mean_difference:.3g}; {other:,} of "
            f"{count(len(self.rows), 'item')} {'has' if other == 1 else 'have'} another best label"
        )


def compare(first: "Posterior", second: "Posterior", names: Sequence[str]) -> Comparison:
    """Compare two posteriors of one permutation each, by the names of items and labels.

    An item's difference is ``max over sets S of labels |P_a(S) - P_b(S)|``, half of the sum of all
    absolute differences, with "unmatched" as a label.

    Raises:
        ValueError: The posteriors are of different items or labels, or of several permutations.
    """
    for one in (first, second):
        if one.num_sites > 1:
            raise ValueError(
                f"posteriors must be of one permutation to be compared, got {one.num_sites}."
            )
    if first.shape != second.shape:
        raise ValueError(
            f"posteriors must be of the same items and labels, got {first.shape} and "
            f"{second.shape}."
        )
    rows, cols = (
        _places(what, mine, other)
        for what, mine, other in zip(("items", "labels"), first.labels, second.labels, strict=True)
    )
    first, second = _with_names_of(first, second), _with_names_of(second, first)
    m = first.shape[1]
    a, b = _states(first), _states(second)
    b = b[slice(None) if rows is None else rows]
    b = b if cols is None else b[:, np.append(cols, m)]
    difference = np.asarray(abs(a - b).sum(axis=1)).ravel() / 2
    best = [_best(table) for table in (a, b)]

    def label(k: int) -> str | None:
        return None if k == m else col_name(first, k)

    listed = [
        Row(
            row_name(first, i),
            label(int(best[0][0][i])),
            float(best[0][1][i]),
            label(int(best[1][0][i])),
            float(best[1][1][i]),
            float(difference[i]),
        )
        for i in np.argsort(-difference, kind="stable").tolist()
    ]
    return Comparison((first, second), (names[0], names[1]), listed, (a, b))


def _places(
    what: str, mine: Sequence[str] | None, other: Sequence[str] | None
) -> np.ndarray | None:
    """Return where names are in the other posterior; None if the order is the same."""
    if mine == other or mine is None or other is None:
        return None
    place = {text: k for k, text in enumerate(other)}
    missing = next((text for text in mine if text not in place), None)
    if missing is not None:
        raise ValueError(
            f"posteriors must be of the same {what}, got {missing!r:.60} in the first only."
        )
    return np.array([place[text] for text in mine])


def _with_names_of(posterior: "Posterior", other: "Posterior") -> "Posterior":
    """Return a posterior with the names of another one where it has none."""
    rows, cols = (
        mine or theirs for mine, theirs in zip(posterior.labels, other.labels, strict=True)
    )
    return dataclasses.replace(posterior, labels=(rows, cols))


def _states(posterior: "Posterior") -> Any:
    """Return the (n, m + 1) probabilities of all labels, "unmatched" last."""
    alone = posterior.p_unmatched_rows[:, None]
    if issparse(posterior.marginals):
        return csr_array(hstack([posterior.marginals, csr_array(alone)]))
    return np.concatenate([posterior.marginals, alone], axis=1)


def _best(table: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the most probable state of each row, and its probability."""
    places = np.asarray(table.argmax(axis=1)).ravel()
    top = table.max(axis=1)
    return places, np.asarray(top.toarray() if issparse(top) else top).ravel()


def write(found: Comparison, path: str | PathLike[str], command: str | None = None) -> Path:
    """Write the comparison as one HTML file, and return its path; its head shows the command."""
    target = check_target(Path(path))
    n, m = found.posteriors[0].shape
    title = f"{found.names[0]} and {found.names[1]}: {count(n, 'item')}, {count(m, 'label')}"
    lead = f"{escape(found.summary[0].upper() + found.summary[1:])}."
    settings = {"input": list(found.names), "command": command}
    by = " and ".join(dict.fromkeys(one.method for one in found.posteriors))
    head = source(settings, by, datetime.now().astimezone())
    return write_text(target, render_plain(title, lead, "", [_pair(found), _table(found)], head))


def _pair(found: Comparison) -> str:
    """Return facts and pictures of both, side by side."""
    order = _order(found)
    parts = []
    for called, one, table in zip(found.names, found.posteriors, found.tables, strict=True):
        word, _ = diagnosis.VERDICTS[one.diagnostics.verdict]
        facts = [("Method", escape(one.method)), ("Verdict", f"<strong>{word}</strong>")]
        if one.log_evidence is not None:
            facts.append(
                ("Log evidence", f"{number(one.log_evidence, 6)} ({one.log_evidence_kind})")
            )
        right = one.shape[0] - one.expected_loss("hamming").expected_loss
        facts.append(("Items right on average", f"{number(right, 4)} of {one.shape[0]:,}"))
        picture = _picture(table, order, f"Probabilities of all pairs in {called}")
        parts.append(f"<div><h3>{name(called)}</h3>{facts_of(facts)}{picture}</div>")
    note = (
        '<p class="note">Rows are items in the order of the labels that the first posterior gives '
        "them, columns are labels and, where items may be unmatched, a last one for that. The "
        "stronger the colour, the more probable.</p>"
    )
    pictures = f'<div class="pair-of">{"".join(parts)}</div>{note}'
    return section("Side by side", pictures, save_picture("comparison.png", draw(found)))


def draw(found: Comparison) -> "Figure":
    """Plot both tables of probabilities side by side, as the page does."""
    from matplotlib.figure import Figure

    from permvi import _figures

    order = _order(found)
    with _figures.styled():
        figure = Figure(figsize=(9.0, 4.6), layout="constrained")
        for k, (called, table) in enumerate(zip(found.names, found.tables, strict=True)):
            ax = figure.add_subplot(1, 2, k + 1)
            ax.imshow(_binned(table, order), cmap=_figures.PROBABILITY, vmin=0, vmax=1)
            ax.set(title=_figures.plain(called), xlabel="label", ylabel="item")
            ax.set(xticks=[], yticks=[])
    return figure


def _order(found: Comparison) -> np.ndarray:
    """Return the items in the order of the labels of the first posterior's mode."""
    mode = found.posteriors[0].mode
    return np.argsort(np.where(mode < 0, np.inf, mode))


def _binned(table: Any, order: np.ndarray) -> np.ndarray:
    """Return a picture of probabilities; a cell of many pairs shows the largest of them."""
    if not table[:, [-1]].sum():
        # Nothing stays unmatched.
        table = table[:, :-1]
    height, width = (min(size, _MOST_CELLS) for size in table.shape)
    ordered = table[order]
    pairs = ordered.tocoo() if issparse(ordered) else csr_array(ordered).tocoo()
    cells = np.zeros((height, width))
    rows = pairs.coords[0].astype(np.int64) * height // table.shape[0]
    cols = pairs.coords[1].astype(np.int64) * width // table.shape[1]
    np.maximum.at(cells, (rows, cols), pairs.data)
    return cells


def _picture(table: Any, order: np.ndarray, words: str) -> str:
    """Return a table of probabilities as a picture of cells."""
    cells = _binned(table, order)
    height, width = cells.shape
    drawn = "".join(
        f'<rect x="{j}" y="{i}" width="1" height="1" fill-opacity="{cells[i, j]:.2f}"/>'
        for i, j in np.argwhere(cells >= 0.005).tolist()
    )
    return (
        f'<svg class="cells" viewBox="0 0 {width} {height}" role="img" '
        f'style="max-width:{_LARGEST_CELL * width}px" '
        f'aria-label="{escape(words)}">{drawn}</svg>'
    )


def _table(found: Comparison) -> str:
    shown = [row for row in found.rows if row.difference >= _NOTICED][:_MOST_ROWS]
    if not shown:
        return section("Items", '<p class="note">No item differs by 1% or more.</p>')
    rows = [
        (
            name(row.item),
            *(
                f'{name(label or "unmatched")} <span class="dim number">{percent(p)}</span>'
                for label, p in (
                    (row.best_a, row.probability_a),
                    (row.best_b, row.probability_b),
                )
            ),
            f'<span class="bar"><span style="width:{100 * row.difference:.1f}%"></span></span> '
            f'<span class="number">{percent(row.difference)}</span>',
        )
        for row in shown
    ]
    left = len(found.rows) - len(shown)
    note = (
        f"Those that differ most come first; {count(left, 'item')} more are not listed."
        if left
        else ""
    )
    heads = ("Item", *map(name, found.names), "Difference")
    table = f'<p class="note">{note}</p>{table_of(heads, rows, "compared")}'
    saved = save_table("differences.csv", Row._fields, found.rows)
    return section("Items", table, saved)
