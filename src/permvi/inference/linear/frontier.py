r"""The frontier programme: sums over matchings in which few columns are open at a time.

Rows choose one after the other. A column is *open* from the first row that may take it to the last
one, and the past matters only through the set S of open columns that are used:

.. math:: F_{t+1}[S'] = \sum_{S \to S'} F_t[S] \, w,

where w is the weight of what row t chooses, times the weights of the columns that close unused. So
banded tables of any length are quick, and peaked ones of hundreds of items have few states.

A state may be dropped. In the gauge of `permvi.inference.linear.gauge` the choices that follow it
weigh at most the product of the sums of all columns that are not used, over the rows that are left.
The sum of these bounds over all dropped states, divided by the total weight that was found, bounds
the probability of all matchings that were lost.
"""

from typing import NamedTuple

import numpy as np

from permvi.inference.linear.gauge import Gauge

_NUM_SLOTS = 64
# The order of rows is found in a time that grows with the square of their number.
_MAX_ROWS = 5_000
# The share of the total that a layer may always lose.
_NEGLIGIBLE = 1e-13


class FrontierResult(NamedTuple):
    """The posterior of one connected problem.

    Attributes:
        pairs: (E,) probabilities.
        rows: (n,) probabilities of unmatched rows.
        log_total: The log of the total weight of the matchings that were summed, in the gauge.
        lost: A bound on the probability of those that were dropped.
        draws: (num, n) independent draws, -1 for unmatched rows.
        num_states: The number of states.
    """

    pairs: np.ndarray
    rows: np.ndarray
    log_total: float
    lost: float
    draws: np.ndarray
    num_states: int


def solve_frontier(
    gauge: Gauge,
    *,
    num_draws: int,
    rng: np.random.Generator,
    largest_loss: float = 1e-4,
    beam: int = 20_000,
    max_work: int = 30_000_000,
) -> FrontierResult | None:
    """Return the posterior, or None if it takes more than a ``beam`` of states or ``max_work``.

    It is also None if more than ``largest_loss`` might be lost.
    """
    # Imported here because it loads numba.
    from permvi.inference.linear import frontier_kernels as kernels

    problem = gauge.problem
    n, _ = problem.shape
    if n > _MAX_ROWS or np.diff(problem.row_ends).max() > _NUM_SLOTS:
        return None
    order = kernels.order_rows(
        problem.row_ends, problem.cols, problem.col_ends, problem.rows[problem.by_col]
    )
    place = np.argsort(order)
    # The pairs by the order of their rows.
    pairs = np.argsort(place[problem.rows], kind="stable")
    ends = np.searchsorted(place[problem.rows][pairs], np.arange(n + 1))
    weights, stays = gauge.weights[pairs], gauge.row_alone[order]
    with np.errstate(divide="ignore"):
        slots, closing, closed, log_rest, log_columns = kernels.plan_rows(
            ends, problem.cols[pairs], weights, stays, gauge.col_alone, _NUM_SLOTS
        )
    if len(slots) < len(pairs):
        return None
    slot_of = np.zeros(problem.shape[1], np.int64)
    slot_of[problem.cols[pairs]] = slots
    plan = (ends, slots, weights, stays, closing, slot_of[closed], gauge.col_alone[closed])
    keys, ahead, starts, log_total, lost = kernels.forward(
        *plan, log_rest, log_columns, gauge.log_floor, _NEGLIGIBLE, largest_loss, beam, max_work
    )
    if not np.isfinite(lost):
        return None
    keys, ahead = keys[: starts[-1]], ahead[: starts[-1]]
    by_pair, by_row, drawn = kernels.backward(*plan, keys, ahead, starts, num_draws, rng)
    found, rows = np.empty(len(pairs)), np.empty(n)
    found[pairs], rows[order] = by_pair, by_row
    draws = np.full((num_draws, n), -1)
    chosen = np.minimum(ends[:-1] + drawn, len(pairs) - 1)
    alone = drawn == np.diff(ends)
    draws[:, order] = np.where(alone, -1, problem.cols[pairs][chosen])
    # Relative to what was found, instead of its lower bound.
    lost = min(1.0, lost * float(np.exp(min(0.0, gauge.log_floor - log_total))))
    return FrontierResult(found, rows, log_total, lost, draws, len(keys))
