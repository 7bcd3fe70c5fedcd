r"""Markov chains on matchings by a worm algorithm without rejections.

A worm lifts a row i, which then chooses column j with probability proportional to
:math:`B_{ij} y`, or to stay unmatched in proportion to :math:`r_i`, in the gauge of
`permvi.inference.linear.gauge`. If another row had that column, that row is lifted next. Give the
state with row i lifted and the others matched by M the measure
:math:`W(M) (r_i + y \sum_j B_{ij})`, where W is the weight of all but row i. Then every step is in
detailed balance with its reverse, and so is the chain of the matchings between worms. A worm that
becomes too long is undone, which keeps the balance, since its reverse is as long. There are two
kinds of worms:

* An *open* worm lifts a random row, from column j with probability :math:`c_j y` only, and ends
  when a row stays unmatched or takes a free column. The price y makes this at most one.
* A *closed* worm lifts the row of a random column and ends when some row takes that column. Until
  then rows do not choose free columns, and none stays unmatched.

These are the directed loops of dimer models (Sandvik and Moessner 2006) with unequal weights. Two
matchings differ by alternating cycles, and in the gauge a worm goes round a cycle of length L with
a probability of about 1/L: so modes that lie far apart are connected.

With *fugacity* :math:`\lambda` every row and column may stay alone, at weights
:math:`r_i + \lambda` and :math:`c_j + \lambda`. Chains at falling fugacities begin with nearly
empty matchings and end at independent draws; see `permvi.inference.linear.evidence`.
"""

from typing import NamedTuple

import numpy as np

from permvi.inference.interruptible import Stop
from permvi.inference.linear.gauge import Gauge

# Worms run to measure their length, this many at a time, until they have taken enough steps or
# there are enough of them: some are very long.
_PILOT_WORMS = 50
_PILOT_STEPS = 50_000
_MOST_PILOTS = 1_000
# A worm is undone after this many steps for each row and column, at least after the second number.
_LONGEST_PER_ITEM = 50
_LONGEST = 50_000
_MOST_STEPS = 2_000_000
# About the most steps before a chain looks whether it should stop.
_STEPS_BETWEEN_LOOKS = 1_000_000
EMPTY = np.zeros(0)


class Walk:
    """The arguments of the compiled loop that all chains of a problem share.

    Args:
        gauge: The scaled problem. All rows that have to be matched are matched in all states.
    """

    def __init__(self, gauge: Gauge) -> None:
        # Imported here because it loads numba.
        from permvi.inference.linear.worm_kernels import alias_tables

        self.gauge = gauge
        problem = gauge.problem
        n, m = problem.shape
        table = alias_tables(problem.row_ends, problem.cols, gauge.weights)
        self._pairs = (problem.row_ends, gauge.weights, table)
        self._sums = np.bincount(problem.rows, gauge.weights, n)
        self._max_length = min(max(_LONGEST, _LONGEST_PER_ITEM * (n + m)), _MOST_STEPS)

    def at(self, fugacity: float) -> "Rates":
        """Return the weights of staying alone, and the rates of open worms."""
        rows, cols = self.gauge.row_alone + fugacity, self.gauge.col_alone + fugacity
        price = 1.0 / (1.0 + fugacity)
        stays = rows / np.maximum(rows + price * self._sums, np.finfo(float).tiny)
        return Rates(stays, np.minimum(cols * price, 1.0), bool(rows.any() or cols.any()))

    def worms(
        self, state: "State", rates: "Rates", share: float, num_worms: int, counts: np.ndarray
    ) -> int:
        """Run worms, a ``share`` of them closed; add to ``counts`` and return the steps."""
        from permvi.inference.linear.worm_kernels import worm_steps

        steps, undone = worm_steps(
            *self._pairs,
            rates.stays,
            rates.starts,
            share,
            state.choice,
            state.holder,
            state.journal,
            counts,
            num_worms,
            state.rng,
        )
        state.num_steps += steps
        state.num_worms += num_worms
        state.num_undone += undone
        return steps

    def watch(
        self,
        state: "State",
        rates: "Rates",
        share: float,
        num_worms: int,
        num_looks: int,
        fugacity: float,
    ) -> tuple[float, float, int]:
        r"""Return means over looks of :math:`\sum \lambda / (x + \lambda)` over all that is alone.

        Also those of :math:`\prod x / (x + \lambda)`, and the number of steps.
        """
        from permvi.inference.linear.worm_kernels import watch_worms

        gauge = self.gauge
        return watch_worms(
            *self._pairs,
            rates.stays,
            rates.starts,
            share,
            state.choice,
            state.holder,
            state.journal,
            fugacity / (gauge.row_alone + fugacity),
            fugacity / (gauge.col_alone + fugacity),
            num_looks,
            num_worms,
            state.rng,
        )

    def pace(self, state: "State", rates: "Rates") -> tuple[float, float]:
        """Return the share of closed worms that takes half of the steps, and the steps per worm.

        Worms that do not start count as one step.
        """
        closed = self.cost(state, rates, 1.0)
        if not rates.may_be_open:
            return 1.0, closed
        opened = self.cost(state, rates, 0.0)
        share = opened / (opened + closed)
        return share, share * closed + (1.0 - share) * opened

    def cost(self, state: "State", rates: "Rates", share: float) -> float:
        """Return the mean number of steps of some worms."""
        steps = worms = 0
        while steps < _PILOT_STEPS and worms < _MOST_PILOTS:
            steps += self.worms(state, rates, share, _PILOT_WORMS, EMPTY)
            worms += _PILOT_WORMS
        return 1.0 + steps / worms

    def start(self, perm: np.ndarray, rng: np.random.Generator) -> "State":
        """Return the state of a chain at a matching (n,)."""
        problem = self.gauge.problem
        n, m = problem.shape
        holder = np.full(m, -1)
        holder[perm[perm >= 0]] = np.flatnonzero(perm >= 0)
        alone = len(problem.scores) + np.arange(n)
        journal = np.empty((self._max_length, 2), np.int64)
        choice = np.where(perm < 0, alone, problem.pairs_of(perm))
        return State(choice, holder, journal, rng)

    def matching(self, state: "State") -> np.ndarray:
        """Return the matching (n,) of a chain, -1 for unmatched rows."""
        cols = self.gauge.problem.cols
        matched = state.choice < len(cols)
        perm = np.full(len(matched), -1)
        perm[matched] = cols[state.choice[matched]]
        return perm


class Rates(NamedTuple):
    """What the fugacity determines.

    Attributes:
        stays: (n,) the probability that a lifted row stays unmatched.
        starts: (m,) the probability with which an open worm lifts a row from a column.
        may_be_open: Whether anything may stay alone.
    """

    stays: np.ndarray
    starts: np.ndarray
    may_be_open: bool


class State:
    """The state of a chain; the compiled loop changes the arrays in place.

    Attributes:
        choice: (n,) the pair of each row, E + i if it is unmatched.
        holder: (m,) the row of each column, -1 if it is unused.
        journal: (L, 2) room for the steps of a worm.
        rng: The source of randomness.
        num_steps, num_worms, num_undone: What the chain has done so far.
    """

    def __init__(
        self,
        choice: np.ndarray,
        holder: np.ndarray,
        journal: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self.choice, self.holder, self.journal, self.rng = choice, holder, journal, rng
        self.num_steps = self.num_worms = self.num_undone = 0


class Round(NamedTuple):
    """Means of a chain over batches of equal length.

    Attributes:
        mean: (E + n,) frequencies of the pairs, then of unmatched rows.
        squares: (E + n,) the sum over batches of squared deviations from the mean.
        draws: (num, n) matchings, -1 for unmatched rows.
    """

    mean: np.ndarray
    squares: np.ndarray
    draws: np.ndarray


def run_round(
    walk: Walk,
    state: State,
    *,
    num_steps: int,
    num_batches: int,
    draws_per_batch: int,
    stopped: Stop,
) -> Round | None:
    """Run a chain of about ``num_steps`` steps, or return None if it is told to stop."""
    rates = walk.at(0.0)
    share, cost = walk.pace(state, rates)
    pieces = num_batches * draws_per_batch
    num_worms = max(1, int(num_steps / cost / pieces))
    at_once = max(1, int(_STEPS_BETWEEN_LOOKS / cost))
    size = len(walk.gauge.weights) + len(state.choice)
    mean, squares = np.zeros(size), np.zeros(size)
    draws = []
    for batch in range(num_batches):
        counts = np.zeros(size)
        for _ in range(draws_per_batch):
            for begun in range(0, num_worms, at_once):
                some = min(at_once, num_worms - begun)
                if stopped(walk.worms(state, rates, share, some, counts)):
                    return None
            draws.append(walk.matching(state).astype(np.int32))
        counts /= num_worms * draws_per_batch
        # Welford's update of the mean and of the sum of squares.
        change = counts - mean
        mean += change / (batch + 1)
        squares += change * (counts - mean)
    return Round(mean, squares, np.stack(draws))
