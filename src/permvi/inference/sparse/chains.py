r"""Chains on sparse matchings by worms that choose locally and reject nothing.

A worm takes a row in hand, which chooses a column j with probability proportional to
:math:`w_{ij} y_j`, or to stay alone in proportion to :math:`r_i`; if another row had that column,
that row is now in hand. With row i in hand and the others at M, let the state have the measure
:math:`W(M) (r_i + \sum_j w_{ij} y_j)`, W being the weight of all but row i. Then every step is in
detailed balance with its reverse for all prices y, and so is the chain of the matchings that worms
leave behind:

* An *open* worm lifts a random row, from column j with probability :math:`c_j y_j` only, and ends
  where a row stays alone or takes a free column. Prices are at most :math:`1 / c_j`.
* A *closed* worm lifts the row of a random column and ends when some row takes that column. Rows do
  not choose free columns meanwhile, and none stays alone.

These are the directed loops of dimer models (Sandvik and Moessner 2006) with unequal weights. The
prices come from belief propagation: what competes for a column makes it dear.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from permvi.inference.sparse.problem import SparseProblem, best_matching

# Batches of a chain, whose means tell its standard error.
_NUM_BATCHES = 20
_WARM_UP = 0.1
# Closed worms that tell how long they are; open ones are short, and there are the square of these.
_PILOT_WORMS = 30
# Worms are counted, not steps: a chain gives up where they turn out so much longer than at first.
_PATIENCE = 3


class ChainsResult(NamedTuple):
    """What chains found of one problem.

    Attributes:
        frequencies: (chains, E + n) of the pairs, then of rows being alone.
        standard_errors: (E + n,) of their mean, from batches.
        draws: (num, n) matchings, -1 for unmatched rows.
        num_steps: How many choices all chains made.
        finished: Whether all chains took all the worms they were meant to.
    """

    frequencies: np.ndarray
    standard_errors: np.ndarray
    draws: np.ndarray
    num_steps: int
    finished: bool


class _Chain(NamedTuple):
    """Means of batches (batches, E + n) and the rest as in `ChainsResult`."""

    means: np.ndarray
    draws: np.ndarray
    num_steps: int
    finished: bool


def run_chains(
    problem: SparseProblem,
    log_prices: np.ndarray,
    best: np.ndarray,
    *,
    num_chains: int,
    num_steps: int,
    num_draws: int,
    seed: int,
) -> ChainsResult:
    """Run chains from the best and from random matchings, each in a thread of its own.

    Args:
        problem: The problem, without pairs that no matching uses.
        log_prices: (m,) as belief propagation has them.
        best: (n,) the best matching.
        num_chains: How many chains.
        num_steps: About how many choices all chains make together.
        num_draws: How many matchings to keep of all chains together, about.
        seed: The same seed gives the same result.
    """
    sources = np.random.SeedSequence(seed).spawn(num_chains)
    rngs = [np.random.default_rng(source) for source in sources]
    starts = [best] + [_random_matching(problem, rng) for rng in rngs[1:]]
    walk = _Walk(problem, log_prices)
    # Rounded up to whole batches.
    of_each = _NUM_BATCHES * -(-num_draws // (num_chains * _NUM_BATCHES))
    with ThreadPoolExecutor(num_chains) as pool:
        chains = list(
            pool.map(
                lambda start, rng: walk.run(start, rng, max(1, num_steps // num_chains), of_each),
                starts,
                rngs,
            )
        )
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
    """The arrays that the compiled loop wants, the same for all chains."""

    def __init__(self, problem: SparseProblem, log_prices: np.ndarray) -> None:
        self._problem = problem
        offers = problem.scores + log_prices[problem.cols]
        largest = problem.row_alone.copy()
        np.maximum.at(largest, problem.rows, offers)
        # With prices below one over the weight of being alone these are probabilities.
        rates = np.minimum(np.exp(problem.col_alone + log_prices), 1.0)
        alone = np.exp(problem.row_alone - largest)
        sums = np.cumsum(np.exp(offers - largest[problem.rows]))
        # What was summed up before a row began.
        before = np.append(0.0, sums)[problem.row_ends[:-1]]
        sums = sums - before[problem.rows]
        self._arrays = (problem.row_ends, problem.cols, sums, alone, rates)
        self._may_be_open = bool(rates.any() or alone.any())

    def run(
        self, start: np.ndarray, rng: np.random.Generator, num_steps: int, num_draws: int
    ) -> _Chain:
        """A chain of about so many steps and at most so many draws, a multiple of the batches."""
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
        """The share of closed worms that takes half of the steps, and the steps per worm."""
        if not self._may_be_open:
            return 1.0, self._cost(state, 1.0, _PILOT_WORMS, num_steps)
        closed = self._cost(state, 1.0, _PILOT_WORMS, num_steps)
        opened = self._cost(state, 0.0, _PILOT_WORMS**2, num_steps)
        share = opened / (opened + closed)
        return share, share * closed + (1.0 - share) * opened

    def _cost(self, state: "_ChainState", share: float, num_worms: int, limit: int) -> float:
        """Steps per worm; those that do not start count as one."""
        before = state.num_steps
        self._worms(state, share, num_worms, _PATIENCE * limit)
        return 1.0 + (state.num_steps - before) / num_worms

    def _worms(self, state: "_ChainState", share: float, num_worms: int, limit: int) -> np.ndarray:
        """Run worms and return how often each choice was seen after one."""
        # Only now: this loads numba.
        from permvi.inference.sparse.worm_kernels import worm_steps

        counts = np.zeros(len(self._problem.scores) + len(state.choice))
        done, steps = worm_steps(
            *self._arrays, share, state.choice, state.holder, counts, num_worms, limit, state.rng
        )
        state.num_steps += steps
        if done < num_worms:
            raise _LostError
        return counts

    def _unfinished(self, draws: np.ndarray, num_steps: int) -> _Chain:
        """A chain one of whose worms got lost, as the frequencies of what it had seen."""
        n, E = draws.shape[1], len(self._problem.scores)
        choices = np.where(draws < 0, E + np.arange(n), self._problem.pairs_of(draws))
        mean = np.bincount(choices.ravel(), minlength=E + n) / len(draws)
        return _Chain(np.tile(mean, (_NUM_BATCHES, 1)), draws, num_steps, finished=False)


class _LostError(Exception):
    """A worm found no end within the steps it was given."""


@dataclasses.dataclass
class _ChainState:
    """Where a chain is; the compiled loop changes the arrays in place."""

    choice: np.ndarray
    holder: np.ndarray
    rng: np.random.Generator
    num_steps: int = 0


def _random_matching(problem: SparseProblem, rng: np.random.Generator) -> np.ndarray:
    """A feasible matching: the best one under random scores."""
    row, col = (
        np.where(weights > -np.inf, rng.gumbel(size=len(weights)), -np.inf)
        for weights in (problem.row_alone, problem.col_alone)
    )
    scores = rng.gumbel(size=len(problem.scores))
    return best_matching(SparseProblem(problem.rows, problem.cols, scores, row, col))
