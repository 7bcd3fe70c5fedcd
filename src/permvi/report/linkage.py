"""The report of a linkage: what to expect of it, and the components worth a clerical look."""

import csv
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permvi._files import check_target, write_text
from permvi.report import page, sections
from permvi.report.words import count

if TYPE_CHECKING:
    from permvi.linkage import Linkage

# Components, their pairs and columns that are shown.
_MOST_COMPONENTS = 25
_MOST_PAIRS = 40
_MOST_COLUMNS = 8
# Pairs that are less probable than this, both by themselves and linked, are counted only.
_LEAST_SHOWN = 5e-4
_EVERY = 5


def write(
    found: "Linkage", path: str | PathLike[str], settings: Mapping[str, Any] | None = None
) -> Path:
    """Write the report as one HTML file without scripts; no incomplete file is ever left.

    Args:
        found: The linkage.
        path: The HTML file; an existing one is replaced.
        settings: What the head of the page tells: ``input`` files and the ``command``.
    """
    # Before the work is done.
    target = check_target(Path(path))
    return write_text(target, render(found, settings, datetime.now().astimezone()))


def render(
    found: "Linkage",
    settings: Mapping[str, Any] | None = None,
    written: datetime | None = None,
) -> str:
    """Return the report as text; the same arguments give the same text."""
    summary = found.summary
    body = [
        sections.section("What to expect", _expected(found)),
        sections.section("Components worth a look, most informative first", _reviews(found)),
        sections.section("What it rests on", _facts(found)),
    ]
    low, high = summary["expected_matches_interval"]
    lead = (
        f"{count(summary['pairs'], 'candidate pair')} in "
        f"{count(summary['components'], 'component')}, linked "
        f"{escape(summary['rule'])}. About <strong>{summary['expected_matches']:,.0f}</strong> are "
        f"matches (95 %: {low:,} to {high:,})."
    )
    reasons = [
        f"{count(num, 'component')} with the verdict {name!r}"
        for name, num in summary["verdicts"].items()
        if num
    ]
    title = f"A linking of {count(summary['pairs'], 'pair')}"
    solved = summary["solved_exactly"]
    method = "exact" if solved == summary["components"] else "mcmc" if not solved else "exact, mcmc"
    source = sections.source(settings or {}, method, written)
    return page.render_plain(title, lead, sections.badge(summary["verdict"], reasons), body, source)


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def _expected(found: "Linkage") -> str:
    suggested = found.summary["suggested"]
    note = (
        f"<p>Linking pairs with at least {suggested['threshold']:.4g} has the largest expected F1, "
        f"{suggested['f1']:.3f}.</p>"
    )
    rows = [row for k, row in enumerate(_rows(found.folder / "thresholds.csv")) if k % _EVERY == 0]
    shown = []
    # Thresholds that link the same pairs share a row.
    for links, group in itertools.groupby(rows, lambda row: int(row["num_links"])):
        first, *others = group
        upto = f" to {others[-1]['threshold']}" if others else ""
        quality = (_rounded(first[name]) for name in ("precision", "recall", "f1"))
        shown.append((first["threshold"] + upto, f"{links:,}", *quality))
    return note + _scrolled(("threshold", "links", "precision", "recall", "F1"), shown)


def _rounded(cell: str) -> str:
    return f"{float(cell):.3f}" if cell else ""


def _reviews(found: "Linkage") -> str:
    reviews = list(_rows(found.folder / "review.csv"))
    if not reviews:
        return "<p>No component is likely to have a wrong link.</p>"
    shown = reviews[:_MOST_COMPONENTS]
    pairs = _pairs_of(found, [int(row["component"]) for row in shown])
    parts = []
    if len(reviews) > len(shown):
        parts.append(f"<p>The first {len(shown)} of {len(reviews)}; review.csv has all.</p>")
    for row in shown:
        ask = f"{escape(row['ask_left'])} and {escape(row['ask_right'])}"
        parts.append(
            f"<h3>Component {row['component']}: {count(int(row['records']), 'record')}, "
            f"{count(int(row['pairs']), 'pair')}</h3>"
            f"<p>The best linking is expected to be wrong about {float(row['expected_wrong']):.2f} "
            f"of these pairs. Ask first about {ask}, which match with probability "
            f"{float(row['p_link']):.2f}.</p>"
        )
        parts.append(_pair_table(pairs.get(int(row["component"]), [])))
    return "".join(parts)


def _pairs_of(found: "Linkage", components: list[int]) -> dict[int, list[dict[str, Any]]]:
    """Return the rows of the pairs of some components."""
    from permvi.linkage.sources import arrow

    folder = found.folder / "pairs"
    names = arrow().parquet.read_schema(next(iter(sorted(folder.iterdir())))).names
    # The last of the columns that linkage adds but for the verdict; it may have a prefix.
    column = names[-2]
    table = arrow().parquet.read_table(folder, filters=[(column, "in", components)])
    grouped: dict[int, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        grouped.setdefault(row[column], []).append(row)
    return grouped


def _pair_table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    *given, own, linked, best, _, _ = names
    shown = given[:_MOST_COLUMNS]
    likely = [row for row in rows if max(row[own], row[linked]) >= _LEAST_SHOWN]
    ordered = sorted(likely, key=lambda row: -row[linked])[:_MOST_PAIRS]

    def cells(row: dict[str, Any]) -> Iterable[str]:
        # First, since the others may be beyond the edge of a narrow screen.
        yield f"{row[linked]:.3f}"
        for name in shown:
            value = row[name]
            yield escape(f"{value:.4g}" if isinstance(value, float) else str(value))
        yield from (f"{row[own]:.3f}", "yes" if row[best] else "")

    head = ["linked", *map(escape, shown), "by itself", "best linking"]
    left = len(rows) - len(ordered)
    more = f"<p>{count(left, 'less probable pair')} not shown.</p>" if left else ""
    return _scrolled(head, [list(cells(row)) for row in ordered]) + more


def _scrolled(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of numbers that scrolls on narrow screens."""
    return sections.scrolled(head, rows, "numbers")


def _facts(found: "Linkage") -> str:
    summary = found.summary
    facts = [("assumed", escape(text)) for text in found.assumptions]
    facts.append(
        ("solved exactly", f"{summary['solved_exactly']:,} of {summary['components']:,} components")
    )
    facts += [
        (
            f"huge component {huge['component']}",
            f"{huge['records']:,} records, held together by "
            + escape(
                "; ".join(f"{g['left']} - {g['right']}" for g in huge["glue"]) or "many pairs"
            ),
        )
        for huge in summary["huge_components"]
    ]
    if "calibration" in summary:
        fit = summary["calibration"]
        facts.append((
            "calibration",
            f"temperature {fit['temperature']:.3g} ± {fit['temperature_se']:.2g}, offset "
            f"{fit['offset']:.3g} ± {fit['offset_se']:.2g}",
        ))  # fmt: skip
    return sections.facts_of(facts)
