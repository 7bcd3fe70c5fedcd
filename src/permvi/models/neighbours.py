r"""Candidate pairs of points: those near enough to matter, found with k-d trees.

Each row i and column j has a price, and a pair is left out if its log weight is below the sum of
its two prices by at least a gap g. There are two kinds of prices:

- If all points may stay alone, with log weights :math:`r_i` and :math:`c_j`, these are the prices.
  Taking a pair of weight w out of a matching divides its probability by
  :math:`w / e^{r_i + c_j}`, so the pair has at most this probability. The probability that any
  pair left out is matched is at most the number of pairs times :math:`e^{-g}`.
- Else they are the prices that prove the best matching. Then a matching with a pair left out is at
  least :math:`e^g` times less probable than the best matching.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.spatial import KDTree

from permvi._assignment.lists import INFEASIBLE, Pairs, solve_pairs
from permvi.models import protocol
from permvi.models.protocol import CandidatePairs, sorted_pairs

# The number of pairs times exp(-gap).
LOST = 1e-6
# Nearest neighbours of each point in the first list that is searched for the best matching.
_NEIGHBOURS = 4
# Of the pairs that may improve the best matching, as many are added for each point at a time.
_MOST_ADDED = 6
# The first width of a group of prices, in nats; each further group is twice as wide.
_WIDTH = 4.0
# Leaving a point unmatched that has to be matched costs this much, in nats, at first and at last.
_FIRST_PENALTY, _LAST_PENALTY = 1e2, 1e12


class Geometry(NamedTuple):
    """Two sets of points, and the log weights of their pairs.

    Attributes:
        points: (n, d) the rows, in units of the noise.
        others: (m, d) the columns.
        score: ``(rows, cols) -> (E,)`` log weights of pairs, -inf for forbidden ones.
        reach: ``(log weight) -> distance``: pairs further apart have a smaller log weight.
    """

    points: np.ndarray
    others: np.ndarray
    score: Callable[[np.ndarray, np.ndarray], np.ndarray]
    reach: Callable[[float], float]


def near_pairs(geometry: Geometry, row_alone: np.ndarray, col_alone: np.ndarray) -> CandidatePairs:
    """Return all pairs but those that are too far apart to matter.

    Args:
        geometry: The points.
        row_alone: (n,) log weights of unmatched rows, -inf for those that have to be matched.
        col_alone: (m,) log weights of unused columns, likewise.

    Raises:
        ValueError: There are too many pairs, or no matching.
    """
    n, m = len(row_alone), len(col_alone)
    gap = float(np.log(n * m / LOST))
    local = bool(np.isfinite(row_alone).all() and np.isfinite(col_alone).all())
    prices = (row_alone, col_alone) if local else _optimal_prices(geometry, row_alone, col_alone)
    found = _pairs_above(geometry, *prices, gap)
    if local:
        what = f"the probability that any of them is matched is at most {LOST:.1g}"
    else:
        what = (
            f"a matching with one of them is at least {np.exp(gap):.1g} times less probable than "
            "the best matching"
        )
    note = f"{n * m - len(found.rows):,} of {n * m:,} pairs are too far apart to matter: {what}"
    return found._replace(lost=LOST, note=note)


def _optimal_prices(
    geometry: Geometry, row_alone: np.ndarray, col_alone: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return prices (n,) and (m,) that prove the best matching of all pairs.

    The best matching of a short list gives prices. Pairs that exceed them are added to the list
    until there are none. Meanwhile all points may stay alone at a penalty, which grows until those
    that have to be matched are.
    """
    n, m = len(row_alone), len(col_alone)
    must_rows, must_cols = np.isneginf(row_alone), np.isneginf(col_alone)
    if n == m and (must_rows.all() or must_cols.all()):
        must_rows, must_cols = np.ones(n, bool), np.ones(m, bool)
    listed = _nearest(geometry)
    penalty = _FIRST_PENALTY
    while True:
        alone = (
            np.where(must_rows, -penalty, row_alone),
            np.where(must_cols, -penalty, col_alone),
        )
        pairs = Pairs(listed.rows, listed.cols, listed.scores, *alone)
        perm, row_prices, col_prices = solve_pairs(pairs)
        found = _pairs_above(geometry, row_prices, col_prices, 0.0)
        excess = found.scores - row_prices[found.rows] - col_prices[found.cols]
        keys = listed.rows * m + listed.cols
        known = np.isin(found.rows * m + found.cols, keys)
        better = np.flatnonzero(~known & (excess > 0))
        if len(better):
            first = _first_of(found.rows[better], -excess[better], _MOST_ADDED)
            first |= _first_of(found.cols[better], -excess[better], _MOST_ADDED)
            new = better[first]
            listed = sorted_pairs(
                np.concatenate([listed.rows, found.rows[new]]),
                np.concatenate([listed.cols, found.cols[new]]),
                np.concatenate([listed.scores, found.scores[new]]),
            )
            continue
        used = np.zeros(m, bool)
        used[perm[perm >= 0]] = True
        if not ((must_rows & (perm < 0)).any() or (must_cols & ~used).any()):
            return row_prices, col_prices
        penalty *= 8.0
        if penalty > _LAST_PENALTY:
            raise ValueError(INFEASIBLE)


def _first_of(groups: np.ndarray, values: np.ndarray, most: int) -> np.ndarray:
    """Return (E,) whether each of E values is among the smallest ``most`` of its group."""
    order = np.lexsort((values, groups))
    ordered = groups[order]
    first = np.empty(len(groups), bool)
    first[order] = np.arange(len(groups)) - np.searchsorted(ordered, ordered) < most
    return first


def _nearest(geometry: Geometry) -> CandidatePairs:
    """Return the pairs of each point with its nearest neighbours on the other side."""
    n, m = len(geometry.points), len(geometry.others)
    few, many = min(_NEIGHBOURS, m), min(_NEIGHBOURS, n)
    _, cols = KDTree(geometry.others).query(geometry.points, k=range(1, few + 1))
    _, rows = KDTree(geometry.points).query(geometry.others, k=range(1, many + 1))
    keys = np.unique(
        np.concatenate(
            [
                np.repeat(np.arange(n), few) * m + cols.ravel(),
                rows.ravel() * m + np.repeat(np.arange(m), many),
            ]
        )
    )
    return _scored(geometry, keys // m, keys % m)


def _scored(geometry: Geometry, rows: np.ndarray, cols: np.ndarray) -> CandidatePairs:
    """Return pairs with their log weights, without those that are forbidden."""
    scores = geometry.score(rows, cols)
    allowed = scores > -np.inf
    return CandidatePairs(rows[allowed], cols[allowed], scores[allowed])


def _pairs_above(
    geometry: Geometry, row_prices: np.ndarray, col_prices: np.ndarray, gap: float
) -> CandidatePairs:
    """Return all pairs whose log weight is above the sum of their prices less ``gap``."""
    groups = [
        (rows, cols, geometry.reach(low_row + low_col - gap))
        for rows, low_row in _groups(row_prices)
        for cols, low_col in _groups(col_prices)
    ]
    trees: dict[tuple[int, int], KDTree] = {}

    def tree(side: int, places: np.ndarray) -> KDTree:
        points = (geometry.points, geometry.others)[side]
        key = side, int(places[0])
        if key not in trees:
            trees[key] = KDTree(points[places])
        return trees[key]

    total = sum(
        int(tree(0, rows).count_neighbors(tree(1, cols), radius)) for rows, cols, radius in groups
    )
    if total > protocol.MAX_PAIRS:
        raise ValueError(
            f"points must have at most {protocol.MAX_PAIRS:,} pairs that are near enough to "
            f"matter, got {total:,}; give a smaller scale or Gaussian noise, let points stay "
            "unmatched, or list the pairs in a SparseMatching."
        )
    parts = []
    for rows, cols, radius in groups:
        near = tree(0, rows).sparse_distance_matrix(tree(1, cols), radius, output_type="ndarray")
        part = _scored(geometry, rows[near["i"]], cols[near["j"]])
        above = part.scores > row_prices[part.rows] + col_prices[part.cols] - gap
        parts.append([array[above] for array in part[:3]])
    return sorted_pairs(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _groups(prices: np.ndarray) -> Iterator[tuple[np.ndarray, float]]:
    """Yield the members of groups of similar prices, and the lowest price of each.

    A few outliers have prices far below the others, and need a much larger radius.
    """
    label = np.floor(np.log2((prices.max() - prices) / _WIDTH + 1.0)).astype(np.int64)
    for group in np.unique(label):
        members = np.flatnonzero(label == group)
        yield members, float(prices[members].min())
