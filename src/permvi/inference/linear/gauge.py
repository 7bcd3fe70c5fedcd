r"""A gauge in which sums over matchings neither overflow nor vanish, with bounds and pruning.

Multiplying the weights of row i by :math:`a_i` and those of column j by :math:`b_j`, staying alone
included, multiplies the weight of every matching by :math:`\prod_i a_i \prod_j b_j`. Sinkhorn's
steps find factors for which the pairs B of a row (column) and its weight r' (c') of staying alone
sum to one. Then the total weight Z' of all matchings has the bounds

.. math:: \prod_{ij} (1 - B_{ij})^{1 - B_{ij}} \le Z' \le 1.

The lower one is that of Schrijver and Gurvits (2011), the Bethe free energy of B, which holds with
items that stay alone, too (Lelarge 2017). For the upper one, multiply out the product of the row
sums: it has a term for every matching, since no c' exceeds one. The same holds without row i and
column j, so

.. math:: P(i \text{ is } j) \le B_{ij} / Z'_{\text{lower}}, \qquad
          P(i \text{ is } j) \le \frac{w_{ij}}{w_{ij} + r_i c_j},

where the second bound compares each matching that has the pair with the one that does without it.
"""

import dataclasses
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import xlog1py

from permvi.problem.candidates import Candidates

# Steps of Sinkhorn's: at most, and the most pairs that all of them look at.
_SINKHORN_STEPS = 1000
_SINKHORN_WORK = 50_000_000
_FEWEST_STEPS = 30
_TOLERANCE = 1e-10
# Sums that are off by no more than this count as exact in the lower bound.
_EXACT = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Gauge:
    r"""Scaled weights of a problem.

    Attributes:
        problem: The candidate pairs.
        best: (n,) the matching of largest weight.
        log_rows: (n,) :math:`\log a_i`.
        log_cols: (m,) :math:`\log b_j`.
        weights: (E,) scaled weights B of the pairs.
        row_alone: (n,) scaled weights r' of unmatched rows.
        col_alone: (m,) scaled weights c' of unused columns, at most one.
    """

    problem: Candidates
    best: np.ndarray
    log_rows: np.ndarray
    log_cols: np.ndarray
    weights: np.ndarray
    row_alone: np.ndarray
    col_alone: np.ndarray

    @property
    def log_factor(self) -> float:
        """The log evidence less log Z'."""
        return -float(self.log_rows.sum() + self.log_cols.sum())

    @cached_property
    def row_sums(self) -> np.ndarray:
        """(n,) the sums of pairs and r' over each row: one if Sinkhorn's steps converged."""
        return self.row_alone + np.bincount(self.problem.rows, self.weights, len(self.best))

    @cached_property
    def col_sums(self) -> np.ndarray:
        """(m,) the sums of pairs and c' over each column."""
        return self.col_alone + np.bincount(self.problem.cols, self.weights, len(self.col_alone))

    @cached_property
    def log_floor(self) -> float:
        """A lower bound on log Z'."""
        floor = self.problem.log_weight(self.best) - self.log_factor
        if max(np.abs(sums - 1.0).max() for sums in (self.row_sums, self.col_sums)) <= _EXACT:
            inside = np.minimum(self.weights, 1.0)
            floor = max(floor, float(xlog1py(1.0 - inside, -inside).sum()))
        return floor

    @property
    def log_ceiling(self) -> float:
        """An upper bound on log Z'."""
        return float(np.log(self.row_sums).sum())

    def part(self, rows: np.ndarray, cols: np.ndarray, pairs: np.ndarray) -> "Gauge":
        """Return the gauge of some rows and columns and of pairs among them, all sorted.

        They include all partners of these rows in the best matching.
        """
        return Gauge(
            self.problem.part(rows, cols, pairs),
            np.where(self.best < 0, -1, np.searchsorted(cols, self.best))[rows],
            self.log_rows[rows],
            self.log_cols[cols],
            self.weights[pairs],
            self.row_alone[rows],
            self.col_alone[cols],
        )

    def polished(self) -> "Gauge":
        """Return the gauge after more of Sinkhorn's steps."""
        # Imported here because it loads numba.
        from permvi.inference.linear.gauge_kernels import sinkhorn_steps

        problem, (n, m) = self.problem, self.problem.shape
        a, b = np.ones(n), np.ones(m)
        steps = max(_FEWEST_STEPS, _SINKHORN_WORK // max(len(self.weights), 1))
        arrays = problem.row_ends, problem.cols, self.weights, self.row_alone, self.col_alone
        with np.errstate(all="ignore"):
            sinkhorn_steps(*arrays, a, b, min(steps, _SINKHORN_STEPS), _TOLERANCE)
            return Gauge(
                problem,
                self.best,
                self.log_rows + np.log(a),
                self.log_cols + np.log(b),
                self.weights * a[problem.rows] * b[problem.cols],
                self.row_alone * a,
                np.minimum(self.col_alone * b, 1.0),
            )


def scale(problem: Candidates, best: np.ndarray) -> Gauge:
    """Scale a problem given its best matching (n,). Every pair has to be in some matching.

    First subtract optimal prices (see `permvi._assignment.duality`): then no log weight is above 0,
    and those of the best matching are 0.
    """
    from permvi.inference.linear.gauge_kernels import shortest_prices

    n, m = problem.shape
    alone = problem.row_alone, problem.col_alone
    if n == m and any((weights == -np.inf).all() for weights in alone):
        # Then nothing stays alone, and Sinkhorn's steps converge faster if they know.
        alone = np.full(n, -np.inf), np.full(m, -np.inf)
        problem = Candidates(problem.rows, problem.cols, problem.scores, *alone)
    distance = shortest_prices(
        problem.row_ends, problem.cols, problem.scores, *alone, best, n + m + 2
    )
    prices = distance - distance[m]
    pairs = problem.pairs_of(best)
    held = np.where(best < 0, problem.row_alone, np.append(problem.scores, 0.0)[pairs])
    start = np.where(best < 0, 0.0, prices[best])
    rows, cols = problem.rows, problem.cols
    # Differences first: scores and prices may be large where their reduced values are small.
    scores = (problem.scores - held[rows]) + (prices[cols] - start[rows])
    reduced = scores, (problem.row_alone - held) - start, problem.col_alone + prices[:m]
    with np.errstate(under="ignore"):
        weights = (np.exp(np.minimum(array, 0.0)) for array in reduced)
        return Gauge(problem, best, -held - start, prices[:m], *weights).polished()


class Pruned(NamedTuple):
    """Which pairs are left, and how much probability the others can have had.

    Attributes:
        kept: (E,) booleans.
        lost: A bound on the probability that a matching has any pair that was dropped.
    """

    kept: np.ndarray
    lost: float


def prune(gauge: Gauge, budget: float) -> Pruned:
    """Drop the most improbable pairs until the sum of their bounds reaches ``budget``."""
    problem = gauge.problem
    B = gauge.weights
    # An upper bound of the minor without row i: the row sums of all other rows.
    with np.errstate(under="ignore", over="ignore", divide="ignore", invalid="ignore"):
        ratio = np.exp(gauge.log_ceiling - gauge.log_floor)
        bound = B * ratio / gauge.row_sums[problem.rows]
        local = B / (B + gauge.row_alone[problem.rows] * gauge.col_alone[problem.cols])
    # Weights that underflow have neither ratio; they stay.
    bound = np.fmin(np.nan_to_num(bound, nan=np.inf), local)
    bound[problem.pairs_of(gauge.best)[gauge.best >= 0]] = np.inf
    order = np.argsort(bound, kind="stable")
    total = np.cumsum(bound[order])
    count = int(np.searchsorted(total, budget, side="right"))
    kept = np.ones(len(B), bool)
    kept[order[:count]] = False
    return Pruned(kept, float(total[count - 1]) if count else 0.0)
