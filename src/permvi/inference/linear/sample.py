"""Marginals of a problem that is too large for exact programmes, from chains and beliefs."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from permvi._threads import pool as threads
from permvi.inference.interruptible import Stop
from permvi.inference.linear.beliefs import Beliefs, propagate, scale_to_marginals
from permvi.inference.linear.chains import Round, State, Walk, run_round
from permvi.inference.linear.evidence import Descent, build_ladder, descend, log_evidence
from permvi.inference.linear.gauge import Gauge
from permvi.problem.candidates import Candidates, far_matching, split

# The standard error of a chain comes from the means of this many batches in each round.
_NUM_BATCHES = 20
# Steps of the first round of all chains, at least and for each row; every further round is half as
# long as all before it.
_FIRST_ROUND = 2_000_000
_FIRST_PER_ROW = 400
# The most steps by default: for each row, at least, and at most.
_STEPS_PER_ROW = 30_000
_FEWEST_STEPS = 36_000_000
_MOST_STEPS = 500_000_000
# There may be more of them for each row up to this many rows, and then ever fewer; steps on tables
# that do not stay in the processor's cache, of more than so many pairs, are slower.
_FEW_ROWS = 1_000
_CACHED_PAIRS = 500_000
_CACHED_STEPS_PER_ROW = 240_000
_OTHER_STEPS_PER_ROW = 360_000
# Steps that estimate the evidence: at least, and for each row.
_EVIDENCE_STEPS = 4_000_000
_EVIDENCE_PER_ROW = 1_500
# Beyond this many rows, two descents have to do.
_MANY_ROWS = 20_000
_WARM_UP = 0.1
# The scaled weight for each row of the pairs that chains do without.
_IMPLAUSIBLE = 1e-6
# How far sums of marginals may be off.
_SUMS = 1e-8
_TINY = 1e-300


class Sampled(NamedTuple):
    """The result; see `LinearResult`.

    ``marginals`` are those of pairs (E,), unmatched rows (n,) and unused columns (m,).
    """

    marginals: tuple[np.ndarray, np.ndarray, np.ndarray]
    draws: np.ndarray
    log_evidence: float
    log_evidence_se: float
    sampling_error: np.ndarray
    disagreement: np.ndarray
    belief_difference: np.ndarray
    trust_in_beliefs: np.ndarray
    num_steps: int
    undone: float
    finished: bool


def sample(
    gauge: Gauge,
    *,
    num_chains: int,
    num_steps: int | None,
    num_draws: int,
    tolerance: float,
    seed: int,
    stop: Stop,
) -> Sampled:
    """Run chains in rounds until their sampling error is below ``tolerance`` or steps run out.

    One chain begins at the best matching, one at the best matching that shares as few pairs with
    it as possible, and the others where descents from the empty matching end.
    """
    problem, (n, m) = gauge.problem, gauge.problem.shape
    kept = _plausible(gauge)
    if len(kept) < len(problem.scores):
        gauge = gauge.part(np.arange(n), np.arange(m), kept).polished()
    beliefs = propagate(gauge, gauge.row_alone, gauge.col_alone)
    limit = num_steps or _most_steps(n, len(kept))
    first = num_steps or min(max(_FIRST_ROUND, _FIRST_PER_ROW * n), limit)
    of_evidence = max(_EVIDENCE_STEPS, _EVIDENCE_PER_ROW * n) if num_steps is None else limit // 4
    num_descents = 2 * num_chains if n <= _MANY_ROWS else min(num_chains, 2)
    stop.plan(limit + of_evidence)
    walk, rngs = Walk(gauge), _generators(seed, num_descents + num_chains)
    ladder = build_ladder(gauge, stop)
    with threads(num_chains) as pool:
        # Of large lists this takes longer than a descent.
        far = pool.submit(far_matching, gauge.problem, gauge.best, stop.flag)
        descents = _gather(
            pool.map(
                lambda rng: descend(walk, ladder, rng, of_evidence // num_descents, stop),
                rngs[:num_descents],
            )
        )
        try:
            starts = [gauge.best, far.result()]
        except KeyboardInterrupt:
            starts = [gauge.best]
            stop(0)
        chains = _starts(walk, starts, descents, rngs[num_descents:])
        tally = _Tally(walk, beliefs, num_chains)
        per_batch = max(1, -(-num_draws // (num_chains * _NUM_BATCHES)))
        planned, ahead = 0, first
        while ahead and not stop.asked:
            steps = ahead // num_chains
            if not planned:
                _warm_up(walk, chains, int(_WARM_UP * steps), pool, stop)
            rounds = _gather(
                pool.map(
                    lambda state, steps=steps: run_round(
                        walk, state, num_steps=steps, num_batches=_NUM_BATCHES,
                        draws_per_batch=per_batch, stopped=stop,
                    ),
                    chains,
                )
            )  # fmt: skip
            if len(rounds) < num_chains:
                break
            tally.add(rounds, ahead)
            planned += ahead
            # Some worms are much longer than those that the plan was made with.
            done = max(planned, sum(chain.num_steps for chain in chains))
            ahead = max(0, min(planned // 2, limit - done))
            if num_steps is None:
                error = tally.error().mean()
                if error <= tolerance:
                    break
                stop.plan(of_evidence + _expected(planned, limit, (error / tolerance) ** 2))
    value, se = log_evidence(ladder, descents) if descents else (np.nan, np.inf)
    finished = not stop.asked and len(descents) == num_descents
    found = tally.result(num_draws, gauge.log_factor + value, se, chains, finished=finished)
    pairs = np.zeros(len(problem.scores))
    pairs[kept] = found.marginals[0]
    return found._replace(marginals=(pairs, *found.marginals[1:]))


def _expected(planned: int, limit: int, factor: float) -> int:
    """Return the steps at the end of the round that will probably be the last one."""
    total = planned
    while total < min(factor * planned, limit):
        total += min(total // 2, limit - total)
    return total


def _most_steps(n: int, num_pairs: int) -> int:
    """Return the most steps of all chains for n rows with so many pairs."""
    per_row = _CACHED_STEPS_PER_ROW if num_pairs <= _CACHED_PAIRS else _OTHER_STEPS_PER_ROW
    of_few = int(per_row * n * min(1.0, _FEW_ROWS / n) ** 2)
    return min(max(_STEPS_PER_ROW * n, of_few, _FEWEST_STEPS), _MOST_STEPS)


def _plausible(gauge: Gauge) -> np.ndarray:
    """Return the pairs that chains need to know: the others weigh hardly anything all together.

    This is an estimate, far below the sampling error, and not a proof. Scaled weights serve for it,
    since belief propagation may be certain where the posterior has modes that lie far apart.
    """
    order = np.argsort(gauge.weights, kind="stable")
    few = np.cumsum(gauge.weights[order]) <= _IMPLAUSIBLE * gauge.problem.shape[0]
    dropped = np.zeros(len(order), bool)
    dropped[order[few]] = True
    dropped[gauge.problem.pairs_of(gauge.best)[gauge.best >= 0]] = False
    return np.flatnonzero(~dropped)


def _generators(seed: int, num: int) -> list[np.random.Generator]:
    return [np.random.default_rng(source) for source in np.random.SeedSequence(seed).spawn(num)]


def _gather(results: Any) -> list[Any]:
    """Return the results that are there; a chain that was told to stop has none."""
    return [result for result in results if result is not None]


def _warm_up(
    walk: Walk, chains: list[State], num_steps: int, pool: ThreadPoolExecutor, stop: Stop
) -> None:
    """Let chains forget where they began."""
    for _ in pool.map(
        lambda state: run_round(
            walk, state, num_steps=num_steps, num_batches=1, draws_per_batch=10, stopped=stop
        ),
        chains,
    ):
        pass


def _starts(
    walk: Walk,
    matchings: list[np.ndarray],
    descents: list[Descent],
    rngs: list[np.random.Generator],
) -> list[State]:
    """Return chains that begin at given matchings, and then where descents end."""
    ends = [walk.matching(d.start) for d in descents if d.start is not None]
    starts = [*matchings, *ends[::-1], *[walk.gauge.best] * len(rngs)]
    return [walk.start(perm, rng) for perm, rng in zip(starts, rngs, strict=False)]


class _Tally:
    """The estimates from all rounds so far, combined with belief propagation."""

    def __init__(self, walk: Walk, beliefs: Beliefs, num_chains: int) -> None:
        self._walk, self._problem = walk, walk.gauge.problem
        self._num_chains = num_chains
        n, E = self._problem.shape[0], len(self._problem.scores)
        self._believed = np.append(beliefs.pairs, beliefs.rows)
        self._converged = beliefs.converged
        self._means = np.zeros((num_chains, E + n))
        self._variance = np.zeros(E + n)
        self._steps = 0
        self._draws = np.zeros((0, n), np.int32)
        self._label = np.zeros(n, int)
        for k, part in enumerate(split(self._problem, np.ones(E, bool))):
            self._label[part.rows] = k

    def add(self, rounds: list[Round], steps: int) -> None:
        """Add a round of all chains."""
        share = steps / (self._steps + steps)
        means = np.stack([r.mean for r in rounds])
        self._means += share * (means - self._means)
        count = len(rounds) * (_NUM_BATCHES - 1) * len(rounds) * _NUM_BATCHES
        variance = sum(r.squares for r in rounds) / count
        self._variance = (1.0 - share) ** 2 * self._variance + share**2 * variance
        self._steps += steps
        # The last round is long enough, and the draws of all rounds may not fit into memory.
        self._draws = np.concatenate([r.draws for r in rounds])

    def _spread(self) -> np.ndarray:
        """Return (E + n,) variances of the mean of all chains.

        They come from batches. If chains differ more than their batches say, on the whole, the
        variances are scaled up accordingly.
        """
        if self._num_chains == 1:
            return self._variance
        between = self._means.var(axis=0, ddof=1).sum() / self._num_chains
        return self._variance * max(1.0, between / max(self._variance.sum(), _TINY))

    def _by_row(self, values: np.ndarray) -> np.ndarray:
        n, E = self._problem.shape[0], len(self._problem.scores)
        return 0.5 * (np.bincount(self._problem.rows, values[:E], n) + values[E:])

    def error(self) -> np.ndarray:
        """Return (n,) the expected total variation of each row."""
        if not self._steps:
            return np.ones(self._problem.shape[0])
        trust = self._trust()
        # The mean absolute value of a normal variate.
        return np.sqrt(1.0 - trust) * self._by_row(np.sqrt(2 / np.pi * self._spread()))

    def _trust(self) -> np.ndarray:
        r"""Return (n,) the weight of beliefs against chains, the same within each part.

        With V the mean squared standard error of the frequencies and D the mean squared difference
        between beliefs and frequencies, :math:`B = D - V` estimates the squared error of the
        beliefs. The average with weight :math:`V / (V + B)` for the beliefs has the least squared
        error. B is set to at least what an estimate from this many rows can resolve.
        """
        problem = self._problem
        n = problem.shape[0]
        if not self._steps:
            return np.ones(n)
        if not self._converged:
            return np.zeros(n)
        label = self._label
        of_choice = np.append(label[problem.rows], label)
        V = np.bincount(of_choice, self._spread())
        B = np.bincount(of_choice, (self._means.mean(axis=0) - self._believed) ** 2) - V
        weight = V / np.maximum(V + np.maximum(B, V * np.sqrt(2 / np.bincount(label))), _TINY)
        return weight[label]

    def _combined(self, trust: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return averages of beliefs, with weights ``trust``, (n,), and frequencies."""
        problem, E = self._problem, len(self._problem.scores)
        by_choice = np.append(trust[problem.rows], trust)
        combined = by_choice * self._believed + (1.0 - by_choice) * self._means.mean(axis=0)
        of_cols = np.clip(1.0 - np.bincount(problem.cols, combined[:E], problem.shape[1]), 0.0, 1.0)
        # Rounding must not leave unmatched what has to be matched.
        rows = np.where(problem.row_alone > -np.inf, combined[E:], 0.0)
        cols = np.where(problem.col_alone > -np.inf, of_cols, 0.0)
        return scale_to_marginals(problem, combined[:E], rows, cols)

    def result(
        self,
        num_draws: int,
        value: float,
        value_error: float,
        chains: list[State],
        *,
        finished: bool,
    ) -> Sampled:
        """Return the combined answer."""
        problem = self._problem
        n, E = problem.shape[0], len(problem.scores)
        trust = self._trust()
        mean = self._means.mean(axis=0)
        marginals = self._combined(trust)
        if not _sum_to_one(problem, marginals):
            # Frequencies do; before the first round they are those of the chains' states.
            if not self._steps:
                states = [np.bincount(chain.choice, minlength=E + n) for chain in chains]
                self._means = np.stack(states).astype(float)
            trust = np.zeros(n)
            marginals = self._combined(trust)
        disagreement = np.zeros(n)
        if self._num_chains > 1 and self._steps:
            half = self._num_chains // 2
            apart = np.abs(self._means[:half].mean(axis=0) - self._means[half:].mean(axis=0))
            # By chance, hardly any of this many differences exceeds this many standard errors.
            noise = np.sqrt(2 * np.log(E + n)) * 2 * np.sqrt(self._variance)
            # Only the chains' share of the answer is affected.
            disagreement = (1.0 - trust) * self._by_row(np.maximum(apart - noise, 0.0))
        draws = self._draws
        if not len(draws):
            draws = np.stack([self._walk.matching(chain) for chain in chains])
        kept = np.linspace(0, len(draws) - 1, num_draws).round().astype(int)
        worms = sum(chain.num_worms for chain in chains)
        return Sampled(
            marginals,
            draws[kept],
            value,
            value_error,
            self.error(),
            disagreement,
            self._by_row(np.abs(mean - self._believed)) if self._steps else np.zeros(n),
            trust,
            sum(chain.num_steps for chain in chains),
            sum(chain.num_undone for chain in chains) / max(worms, 1),
            finished and bool(self._steps),
        )


def _sum_to_one(problem: Candidates, marginals: tuple[np.ndarray, ...]) -> bool:
    """Return whether rows and columns of marginals sum to one."""
    pairs, rows, cols = marginals
    by_row = rows + np.bincount(problem.rows, pairs, len(rows))
    by_col = cols + np.bincount(problem.cols, pairs, len(cols))
    return all(bool(np.abs(sums - 1.0).max() <= _SUMS) for sums in (by_row, by_col))
