"""Lists of candidate pairs, for linear models whose tables would be too large."""

from typing import NamedTuple

import numpy as np

# Tables of more pairs than this are not made if a model gives a list of candidates.
MAX_TABLE = 5_000_000
# The largest list.
MAX_PAIRS = 50_000_000


class CandidatePairs(NamedTuple):
    """The pairs that may be matched; others are impossible or negligible.

    Attributes:
        rows: (E,) the row of each pair, in increasing order.
        cols: (E,) the column of each pair, in increasing order within a row.
        scores: (E,) the log weight of each pair.
        lost: A bound on what was left out, 0 if that is nothing; ``note`` says what it bounds.
        note: What was left out, as a clause for the reasons of a verdict; None if that is nothing.
    """

    rows: np.ndarray
    cols: np.ndarray
    scores: np.ndarray
    lost: float = 0.0
    note: str | None = None


def sorted_pairs(rows: np.ndarray, cols: np.ndarray, scores: np.ndarray) -> CandidatePairs:
    """Sort pairs by row and then by column."""
    order = np.lexsort((cols, rows))
    return CandidatePairs(rows[order], cols[order], scores[order])
