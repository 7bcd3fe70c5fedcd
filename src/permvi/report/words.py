"""Numbers and names as people read them."""

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from permvi.posterior.items import UNMATCHED

if TYPE_CHECKING:
    from permvi.posterior import Posterior

# Probabilities are carried in millionths; `percent` in assets/data.js writes them the same way.
MILLION = 1_000_000
# An item whose best label is at least this probable is called certain.
CERTAIN = 0.95


def percent(probability: float) -> str:
    """One decimal, and never "100%" or "0%" of what is only nearly so."""
    if probability >= 1 - 0.5 / MILLION:
        return "100%"
    if probability < 0.5 / MILLION:
        return "0%"
    if probability >= 0.9995:
        return "> 99.9%"
    if probability < 0.0005:
        return "< 0.1%"
    return f"{100 * probability:.1f}%"


def number(value: float, digits: int = 3) -> str:
    """A few significant digits, with a minus sign that is as wide as a plus."""
    if 0 < abs(value) < 1 / MILLION:
        return "about 0"
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")


def count(num: int, noun: str) -> str:
    """How many there are, as in "1 item" and "5,000 items"."""
    return f"{num:,} {noun}{'' if num == 1 else 's'}"


def sentence(text: str) -> str:
    """A clause with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def name(text: str) -> str:
    """A user's label as HTML: it stays text, and one written from right to left stays apart."""
    return f"<bdi>{escape(text)}</bdi>"


def row_name(posterior: "Posterior", row: int) -> str:
    """An item's label, or its index where it has none."""
    rows = posterior.labels[0]
    return str(row) if rows is None else rows[row]


def col_name(posterior: "Posterior", col: int) -> str:
    """A label, or its index where it has none, or "unmatched" for -1."""
    if col < 0:
        return UNMATCHED
    cols = posterior.labels[1]
    return str(col) if cols is None else cols[col]


def best_probabilities(posterior: "Posterior") -> np.ndarray:
    """(sites * n,) the probability of each item's best label, "unmatched" being one."""
    pairs = posterior.marginals.max(axis=-1)
    return np.maximum(pairs, posterior.p_unmatched_rows).reshape(-1)
