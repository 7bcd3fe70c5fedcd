"""The most probable matchings, each shown by its differences from the best one."""

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from permvi.report.words import col_name, count, name, percent, row_name

if TYPE_CHECKING:
    from permvi.posterior import Posterior

_MAX_MATCHINGS = 10
_MAX_DIFFERENCES = 8
# Less probable matchings are not listed.
_LEAST_PROBABILITY = 5e-4
# Number of pairs of the best matching that are listed.
_MAX_PAIRS = 60
# Ranking matchings of more items than this would take longer than the fit did.
_MAX_ITEMS_TO_RANK = 1000
_SOURCES = {
    "exact": "Their probabilities are exact.",
    "tabular": "Their probabilities are exact.",
    "mallows": "Their probabilities are exact in the Mallows model that was fitted.",
    "draws": "Their probabilities are shares of the draws.",
    "family": "Their probabilities are shares of the weighted draws.",
}


def section(posterior: "Posterior") -> str:
    """The best matching, and the next ones if the method can rank matchings."""
    ranked, note = _ranked(posterior)
    return (
        "<section><h2>Most probable matchings</h2>"
        f'<p class="note">{note}</p>{ranked}{_best(posterior)}</section>'
    )


def _ranked(posterior: "Posterior") -> tuple[str, str]:
    """The list of matchings, and a note on it."""
    kind, draws = posterior.law.kind, getattr(posterior.law, "draws", None)
    if kind == "marginals":
        return "", (
            "This method gives probabilities of pairs only. It cannot tell which matchings are "
            "probable as a whole."
        )
    if draws is None and posterior.mode.size > _MAX_ITEMS_TO_RANK:
        return "", f"Matchings of more than {count(_MAX_ITEMS_TO_RANK, 'item')} are not ranked."
    if draws is not None and len(draws) == 1:
        return "", "This method gives one matching."
    top = posterior.top(_MAX_MATCHINGS)
    top = [best for best in top if best.probability >= _LEAST_PROBABILITY] or top[:1]
    # A share that a single draw can have says nothing about a matching.
    if draws is not None and top[0].probability <= 1.5 / len(draws):
        return "", "No matching was drawn twice: many are probable, and none stands out."
    held = min(1.0, sum(matching.probability for matching in top))
    rows = "".join(
        f"<li>{_bar(matching.probability)}<div>{_differences(posterior, matching.perm)}</div></li>"
        for matching in top
    )
    subject = "This one holds" if len(top) == 1 else f"These {len(top)} hold"
    note = (
        f"{subject} {percent(held)} of the probability. {_SOURCES.get(kind, '')} "
        "Each is shown by its differences from the most probable one found."
    )
    return f'<ol class="matchings">{rows}</ol>', note


def _bar(probability: float) -> str:
    return (
        f'<span class="bar"><span style="width:{100 * probability:.2f}%"></span></span>'
        f'<span class="number">{percent(probability)}</span>'
    )


def _differences(posterior: "Posterior", perm: np.ndarray) -> str:
    changed = np.argwhere(perm != posterior.mode)
    if not len(changed):
        return "<strong>The most probable matching</strong>"
    shown = [
        f'<span class="change">{_item(posterior, place)} is '
        f"<strong>{name(col_name(posterior, int(perm[tuple(place)])))}</strong></span>"
        for place in changed[:_MAX_DIFFERENCES]
    ]
    more = len(changed) - len(shown)
    rest = f'<span class="change">and {count(more, "more difference")}</span>' if more else ""
    return "".join(shown) + rest


def _best(posterior: "Posterior") -> str:
    places = list(np.ndindex(posterior.mode.shape))
    pairs = "".join(
        f"<li>{_item(posterior, np.array(place))} is "
        f"{name(col_name(posterior, int(posterior.mode[place])))}</li>"
        for place in places[:_MAX_PAIRS]
    )
    more = len(places) - _MAX_PAIRS
    rest = f"<li>and {more:,} more</li>" if more > 0 else ""
    return (
        "<details><summary>The most probable matching in full</summary>"
        f'<ul class="pairs">{pairs}{rest}</ul></details>'
    )


def _item(posterior: "Posterior", place: np.ndarray) -> str:
    shown = name(row_name(posterior, int(place[-1])))
    return shown if posterior.num_sites == 1 else f"{shown} (permutation {escape(str(place[0]))})"
