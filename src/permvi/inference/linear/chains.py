r"""Markov chains on sparse matchings by a worm algorithm without rejections.

A worm lifts a row i, which then chooses column j with probability proportional to
:math:`w_{ij} y_j`, or to stay unmatched in proportion to :math:`r_i`. If another row had that
column, that row is lifted next. Give the state with row i lifted and the others matched by M the
measure :math:`W(M) (r_i + \sum_j w_{ij} y_j)`, where W is the weight of all but row i. Then every
step is in detailed balance with its reverse for all prices y, and so is the chain of the matchings
between worms. There are two kinds of worms:

* An *open* worm lifts a random row, from column j with probability :math:`c_j y_j` only, and ends
  when a row stays unmatched or takes a free column. Prices are at most :math:`1 / c_j`.
* A *closed* worm lifts the row of a random column and ends when some row takes that column. Until
  then rows do not choose free columns, and none stays unmatched.

These are the directed loops of dimer models (Sandvik and Moessner 2006) with unequal weights. The
prices come from belief propagation.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from permvi.problem.candidates import Candidates, best_matching

# The standard error of a chain comes from the means of this many batches.
_NUM_BATCHES = 20
_WARM_UP = 0.1
# Closed worms run to measure their length. Open ones are short, so their number is squared.
_PILOT_WORMS = 30
# A chain gives up if its worms turn out this many times longer than the pilot worms.
_PATIENCE = 3


class ChainsResult(NamedTuple):
    """The result of the chains of one problem.

    Attributes:
        frequencies: (chains, E + n) frequencies of the pairs, then of unmatched rows.
        standard_errors: (E + n,) standard errors of their mean over chains, from batches.
        draws: (num, n) matchings, -1 for unmatched rows.
        num_steps: The number of choices in all chains.
        finished: Whether all chains finished all their worms.
    """

    frequencies: np.ndarray
    standard_errors: np.ndarray
    draws: np.ndarray
    num_steps: int
    finished: bool


class _Chain(NamedTuple):
    """The batch means (batches, E + n) of one chain; the other fields are as in `ChainsResult`."""

    means: np.ndarray
    draws: np.ndarray
    num_steps: int
    finished: bool


def run_chains(
    problem: Candidates,
    log_prices: np.ndarray,
    best: np.ndarray,
    *,
    num_chains: int,
    num_steps: int,
    num_draws: int,
    seed: int,
) -> ChainsResult:
    """Run one chain from the best matching (n,) and the others from random ones, a thread for each.

    The problem has no pairs that no matching uses. ``log_prices``, (m,), come from belief
    propagation. ``num_steps`` and ``num_draws`` are the approximate numbers of choices and of
    matchings to keep in all chains together. The same seed gives the same result.
    """
    sources = np.random.SeedSequence(seed).spawn(num_chains)
    rngs = [np.random.default_rng(source) for source in sources]
    starts = [best] + [_random_matching(problem, rng) for rng in rngs[1:]]
    walk = _Walk(problem, log_prices)
    # Rounded up to whole batches.
    of_each = _NUM_BATCHES * -(-num_draws // (num_chains * _NUM_BATCHES))
    steps = max(1, num_steps // num_chains)
    with ThreadPoolExecutor(num_chains) as pool:
        found = pool.map(lambda start, rng: walk.run(start, rng, steps, of_each), starts, rngs)
        chains = list(found)
    means = np.stack([chain.means for chain in chains])
    count = means.shape[0] * means.shape[1]
    spread = means - means.mean(axis=1, keepdims=True)
    return ChainsResult(
        means.mean(axis=1),
        np.sqrt((spread**2).sum(axis=(0, 1)) / max(count - len(means), 1) / count),
        np.concatenate([chain.draws for chain in chains]),
        sum(chain.num_steps for chain in chains),
        all(chain.finished for chain in chains),
    )


class _Walk:
    """The arguments of the compiled loop that all chains share."""

    def __init__(self, problem: Candidates, log_prices: np.ndarray) -> None:
        self._problem = problem
        offers = problem.scores + log_prices[problem.cols]
        largest = problem.row_alone.copy()
        np.maximum.at(largest, problem.rows, offers)
        # These are probabilities if prices are below one over the weight of an unused column.
        rates = np.minimum(np.exp(problem.col_alone + log_prices), 1.0)
        alone = np.exp(problem.row_alone - largest)
        sums = np.cumsum(np.exp(offers - largest[problem.rows]))
        # The running sum before each row begins.
        before = np.append(0.0, sums)[problem.row_ends[:-1]]
        sums = sums - before[problem.rows]
        self._arrays = (problem.row_ends, problem.cols, sums, alone, rates)
        self._may_be_open = bool(rates.any() or alone.any())

    def run(
        self, start: np.ndarray, rng: np.random.Generator, num_steps: int, num_draws: int
    ) -> _Chain:
        """Run a chain of about ``num_steps`` steps and at most ``num_draws`` draws.

        ``num_draws`` is a multiple of the number of batches.
        """
        problem = self._problem
        (n, m), E = problem.shape, len(problem.scores)
        pairs = problem.pairs_of(start)
        holder = np.full(m, -1)
        holder[start[start >= 0]] = np.flatnonzero(start >= 0)
        state = _ChainState(np.where(start < 0, E + np.arange(n), pairs), holder, rng)
        means, draws = np.zeros((_NUM_BATCHES, E + n)), [start]
        try:
            share, cost = self._pace(state, num_steps)
            self._worms(state, share, max(1, int(_WARM_UP * num_steps / cost)), num_steps)
            share, cost = self._pace(state, num_steps)
            num_worms = max(_NUM_BATCHES, int(num_steps / cost))
            per_batch = min(num_draws // _NUM_BATCHES, num_worms // _NUM_BATCHES)
            num_worms = num_worms // (per_batch * _NUM_BATCHES)
            limit = state.num_steps + int(_PATIENCE * num_worms * per_batch * _NUM_BATCHES * cost)
            for batch in means:
                for _ in range(per_batch):
                    counts = self._worms(state, share, num_worms, limit - state.num_steps)
                    batch += counts / (num_worms * per_batch)
                    draws.append(np.append(problem.cols, np.full(n, -1))[state.choice])
        except _LostError:
            return self._unfinished(np.array(draws), state.num_steps)
        return _Chain(means, np.stack(draws[1:]), state.num_steps, finished=True)

    def _pace(self, state: "_ChainState", num_steps: int) -> tuple[float, float]:
        """Return the share of closed worms that takes half of the steps, and the steps per worm."""
        closed = self._cost(state, 1.0, _PILOT_WORMS, num_steps)
        if not self._may_be_open:
            return 1.0, closed
        opened = self._cost(state, 0.0, _PILOT_WORMS**2, num_steps)
        share = opened / (opened + closed)
        return share, share * closed + (1.0 - share) * opened

    def _cost(self, state: "_ChainState", share: float, num_worms: int, limit: int) -> float:
        """Return the steps per worm, counting one step for worms that do not start."""
        before = state.num_steps
        self._worms(state, share, num_worms, _PATIENCE * limit)
        return 1.0 + (state.num_steps - before) / num_worms

    def _worms(self, state: "_ChainState", share: float, num_worms: int, limit: int) -> np.ndarray:
        """Run worms and return how often each choice was seen after a worm."""
        # Imported here because it loads numba.
        from permvi.inference.linear.worm_kernels import worm_steps

        counts = np.zeros(len(self._problem.scores) + len(state.choice))
        done, steps = worm_steps(
            *self._arrays, share, state.choice, state.holder, counts, num_worms, limit, state.rng
        )
        state.num_steps += steps
        if done < num_worms:
            raise _LostError
        return counts

    def _unfinished(self, draws: np.ndarray, num_steps: int) -> _Chain:
        """Return a chain that gave up, with the frequencies of the draws it had kept."""
        n, E = draws.shape[1], len(self._problem.scores)
        choices = np.where(draws < 0, E + np.arange(n), self._problem.pairs_of(draws))
        mean = np.bincount(choices.ravel(), minlength=E + n) / len(draws)
        return _Chain(np.tile(mean, (_NUM_BATCHES, 1)), draws, num_steps, finished=False)


class _LostError(Exception):
    """A worm did not end within the steps it was given."""


@dataclasses.dataclass
class _ChainState:
    """The state of a chain; the compiled loop changes the arrays in place."""

    choice: np.ndarray
    holder: np.ndarray
    rng: np.random.Generator
    num_steps: int = 0


def _random_matching(problem: Candidates, rng: np.random.Generator) -> np.ndarray:
    """Return a random feasible matching: the best one under random scores."""
    row, col = (
        np.where(weights > -np.inf, rng.gumbel(size=len(weights)), -np.inf)
        for weights in (problem.row_alone, problem.col_alone)
    )
    scores = rng.gumbel(size=len(problem.scores))
    return best_matching(Candidates(problem.rows, problem.cols, scores, row, col))
