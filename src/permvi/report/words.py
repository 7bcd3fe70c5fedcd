"""Formatting of numbers and names for readers."""

from html import escape
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from permvi.posterior.items import UNMATCHED

if TYPE_CHECKING:
    from permvi.posterior import Posterior

# Probabilities are carried in millionths; `percent` in assets/data.js writes them the same way.
MILLION = 1_000_000
# Numbers below this are written without a power of ten.
_MOST_DIGITS = 1e9
# An item whose best label is at least this probable is called certain.
CERTAIN = 0.95


def percent(probability: float) -> str:
    """Format with one decimal; "100%" and "0%" are used for exact values only."""
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
    """Format with a few significant digits, and a minus sign as wide as a plus."""
    if 0 < abs(value) < 1 / MILLION:
        return "about 0"
    text = f"{value:.{digits}g}"
    if "e" in text and abs(value) < _MOST_DIGITS:
        text = f"{float(text):,.0f}"
    return text.replace("-", "\N{MINUS SIGN}")


def count(num: int, noun: str) -> str:
    """Format a number with its noun, as in "1 item" and "5,000 items"."""
    return f"{num:,} {noun}{'' if num == 1 else 's'}"


def sentence(text: str) -> str:
    """Turn a clause into a sentence, with a capital letter and a full stop."""
    text = text.strip()
    # A p-value keeps its small letter.
    first = text[:1] if text.startswith("p =") else text[:1].upper()
    return first + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def name(text: str) -> str:
    """A user's label as HTML: escaped, and isolated if it is written from right to left."""
    return f"<bdi>{escape(text)}</bdi>"


def row_name(posterior: "Posterior", row: int) -> str:
    """An item's name, or its index if it has none."""
    rows = posterior.labels[0]
    return str(row) if rows is None else rows[row]


def col_name(posterior: "Posterior", col: int) -> str:
    """A label's name, or its index if it has none, or "unmatched" for -1."""
    if col < 0:
        return UNMATCHED
    cols = posterior.labels[1]
    return str(col) if cols is None else cols[col]


def best_probabilities(posterior: "Posterior") -> np.ndarray:
    """(sites * n,) the probability of each item's best label, including "unmatched"."""
    pairs = posterior.marginals.max(axis=-1)
    pairs = pairs.toarray() if issparse(pairs) else pairs
    return np.maximum(pairs, posterior.p_unmatched_rows).reshape(-1)
