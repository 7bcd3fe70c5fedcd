"""The report of a ranking: items by mean rank, who comes before whom, and what it rests on."""

from datetime import datetime
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from permvi._files import check_target, write_text
from permvi.report import page, sections
from permvi.report.words import count, number, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from permvi._rank import RankedItem, Ranking
    from permvi.inference.rankings.groups import Groups

# The plot of intervals and the heatmap, in pixels.
_WIDTH, _CELL = 320, 22
_MAX_NAME = 18
# The width of a letter, and up to how many items cells are larger and show their numbers.
_LETTER, _NUMBERED, _LARGE_CELL = 7.2, 15, 34


def write(found: "Ranking", path: str | PathLike[str], level: float = 0.95) -> Path:
    """Write the report as one HTML file without scripts; no incomplete file is ever left."""
    # Before the work is done.
    target = check_target(Path(path))
    return write_text(target, render(found, level, datetime.now().astimezone()))


def render(found: "Ranking", level: float = 0.95, written: datetime | None = None) -> str:
    """Return the report as text; the same arguments give the same text."""
    rows = found.table(level)
    body = [
        sections.section(
            "Items by rank",
            _items(rows, level),
            sections.save_table("ranks.csv", rows[0]._fields, rows)
            + sections.save_picture("ranks.png", found.plot(level).figure),
        ),
        sections.section("Which item is better?", _heatmap(found)),
        *(
            []
            if found.groups is None
            else [sections.section("Groups of voters", _groups(found, found.groups))]
        ),
        sections.section("What it rests on", _facts(found)),
        sections.latents(found.posterior, {"log_worth": found.items}),
        sections.settings(found.posterior),
    ]
    title = f"The order of {count(len(rows), 'item')}"
    source = sections.source(found.posterior.settings, found.posterior.method, written)
    verdict = sections.verdict(found.posterior)
    return page.render_plain(title, _lead(found, rows), verdict, body, source)


def _lead(found: "Ranking", rows: "Sequence[RankedItem]") -> str:
    first = rows[0]
    total = float(np.asarray(found.rankings.counts).sum())
    return (
        f"{total:,.10g} rankings, model <strong>{escape(found.model)}</strong>. "
        f"<strong>{escape(first.item)}</strong> is first with probability "
        f"{_percent(first.p_first)}; the whole order has probability {_percent(found.p_order)}. "
        f"A probability is {escape(found.shown_as)}."
    )


def _items(rows: "Sequence[RankedItem]", level: float) -> str:
    cells = [
        (
            str(row.rank),
            escape(row.item),
            _bar(row, len(rows)),
            f"{row.mean:.1f}",
            str(row.low) if row.low == row.high else f"{row.low} to {row.high}",
            _percent(row.probability),
            _percent(row.p_first),
            _percent(row.p_top3),
            "" if row.p_before_next is None else _percent(row.p_before_next),
        )
        for row in rows
    ]
    header = ("Rank", "Item", "Mean and interval", "Mean", f"{100 * level:g}% ranks", "This rank")
    return sections.scrolled((*header, "First", "Top 3", "Before the next"), cells, "ranks")


def _bar(row: "RankedItem", size: int) -> str:
    """A line from the best to the worst rank of the interval with a dot at the mean."""

    def x(rank: float) -> float:
        return 8 + (rank - 1) * (_WIDTH / 2 - 16) / max(size - 1, 1)

    return (
        f'<svg width="{_WIDTH // 2}" height="16" role="img" aria-label="ranks {row.low} to '
        f'{row.high}, mean {row.mean:.1f}"><line x1="{x(row.low) - 3:.1f}" '
        f'x2="{x(row.high) + 3:.1f}" y1="8" y2="8" stroke="currentColor" stroke-width="3" '
        f'opacity=".45"/><circle cx="{x(row.mean):.1f}" cy="8" r="4" fill="currentColor"/></svg>'
    )


def _heatmap(found: "Ranking") -> str:
    """P(row is better than column), both in the order of the ranking."""
    order = found.order
    table = found.before[np.ix_(order, order)]
    names = [_short(found.items[i]) for i in order]
    numbered = len(order) <= _NUMBERED
    side = _LARGE_CELL if numbered else _CELL
    first = round(14 + _LETTER * max(map(len, names)))
    size = first + side * len(order)
    parts = [
        f'<svg viewBox="0 0 {size} {size}" width="{size}" role="img" aria-label="Probability that '
        'the item of a row is better than that of a column" font-size="12" fill="currentColor">'
    ]
    for a, name in enumerate(names):
        y = first + side * (a + 0.5)
        parts.append(
            f'<text x="{first - 6}" y="{y + 4:.0f}" text-anchor="end">{escape(name)}</text>'
            f'<text transform="translate({y + 4:.0f},{first - 6}) rotate(-90)">{escape(name)}'
            "</text>"
        )
        for b in range(len(names)):
            if a == b:
                continue
            p = float(table[a, b])
            label = f"{found.items[order[a]]} before {found.items[order[b]]}"
            x = first + side * b
            parts.append(
                f'<rect x="{x}" y="{first + side * a}" width="{side - 1}" height="{side - 1}" '
                f'class="better" fill-opacity="{0.75 * p:.3f}">'
                f"<title>{escape(label)}: {_percent(p)}</title></rect>"
            )
            if numbered and p >= 0.005:
                text = f"{p:.2f}".removeprefix("0")
                parts.append(
                    f'<text x="{x + side / 2:.0f}" y="{y + 4:.0f}" text-anchor="middle" '
                    f'font-size="11">{text}</text>'
                )
    note = (
        "<p class='note'>The stronger the colour of a cell, the more probably its row is better "
        "than its column.</p>"
    )
    return f"{note}<div class='scrolled'>{''.join(parts)}</svg></div>"


def _groups(found: "Ranking", parts: "Groups") -> str:
    """Return a table of the groups with their orders, and the evidence for their number."""
    rows = [
        (
            str(k + 1),
            f"{_percent(share)} ({_percent(low)} to {_percent(high)})",
            parts.scale_in_words(k),
            escape(" > ".join(found.group_order(k))),
            escape(parts.orders[k].diagnostics.verdict),
        )
        for k, (share, low, high) in enumerate(parts.shares.tolist())
    ]
    header = ("Group", "Share of the voters (95%)", parts.scale.capitalize(), "Order", "Verdict")
    text = sections.scrolled(header, rows, "groups")
    if found.compared_groups:
        tried = [
            (str(one.num_groups), escape(one.model), f"{one.log_evidence:.1f} ± {one.se:.2g}")
            for one in found.compared_groups
        ]
        text += sections.table_of(("Number of groups", "Model", "Log evidence"), tried, "numbers")
    return text


def _facts(found: "Ranking") -> str:
    facts = [("Probabilities", escape(sentence(f"each is {found.shown_as}")))]
    posterior = found.posterior
    kind = f"{posterior.method}, log evidence {posterior.log_evidence_kind}"
    facts.append(("Computation", escape(sentence(kind))))
    facts.append(("Kemeny order", escape(sentence(found.kemeny_in_words))))
    if found.rankings.note:
        facts.append(("File", escape(sentence(found.rankings.note))))
    models = [
        (
            escape(one.name),
            "" if one.log_evidence is None else number(one.log_evidence, 6),
            escape(one.note),
        )
        for one in found.compared
    ]
    return sections.facts_of(facts) + sections.table_of(
        ("Model", "Log evidence", ""), models, "models"
    )


def _percent(p: float) -> str:
    return f"{100 * p:.1f}%"


def _short(name: str) -> str:
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"
