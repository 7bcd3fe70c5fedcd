"""Marginals of a linear matching problem: exact where possible, from chains elsewhere."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from permvi._checks import positive_number, whole
from permvi.inference.exact import solve_exact
from permvi.inference.exact.subset_dp import MAX_LABELS, cost_estimate
from permvi.inference.interruptible import Stop
from permvi.inference.linear.frontier import solve_frontier
from permvi.inference.linear.gauge import Gauge, prune, scale
from permvi.inference.linear.sample import Sampled, sample
from permvi.problem.candidates import (
    Candidates,
    Component,
    best_matching,
    split,
    used_pairs,
)
from permvi.problem.unmatched import build_weights

# Limits of the subset programme for all parts together.
_EXACT_SECONDS = 3.0
_EXACT_BYTES = 2**30
# Parts this small are solved by the subset programme right away.
_SMALL = 8
# The probability that pruning and dropping states may lose in all.
_PRUNED = 1e-9
_LARGEST_LOSS = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearOptions:
    """Options of method "linear".

    Attributes:
        max_size: The largest smaller side of a part for the subset programme; 0 does without it.
        max_states: The most states of the frontier programme; 0 does without it, which leaves to
            chains what the subset programme does not solve.
        tolerance: The sampling error, as mean total variation of an item, at which chains end.
        num_steps: The approximate number of steps in all chains together, whatever their error; by
            default as many as ``tolerance`` takes, up to a limit that grows with the problem.
        num_chains: The number of independent chains.
        num_draws: The number of matchings to keep.
    """

    max_size: int = MAX_LABELS
    max_states: int = 20_000
    tolerance: float = 0.004
    num_steps: int | None = None
    num_chains: int = 4
    num_draws: int = 1000

    def __post_init__(self) -> None:
        if isinstance(self.max_size, bool) or not 0 <= self.max_size <= MAX_LABELS:
            raise ValueError(f"max_size must be in 0..{MAX_LABELS}, got {self.max_size!r}.")
        whole("max_states", self.max_states, 0)
        positive_number("tolerance", self.tolerance)
        for name in ("num_chains", "num_draws"):
            whole(name, getattr(self, name))
        if self.num_steps is not None:
            whole("num_steps", self.num_steps)


class LinearResult(NamedTuple):
    """The solution of a linear problem.

    Attributes:
        pairs: (E,) probabilities of the pairs.
        rows: (n,) probabilities that rows stay unmatched.
        cols: (m,) probabilities that columns stay unused.
        mode: (n,) the most probable matching, -1 for unmatched rows.
        log_evidence: The log of the sum of all weights.
        log_evidence_se: Its standard error, zero if everything was solved exactly.
        draws: (num, n) matchings, -1 for unmatched rows.
        exact_rows: (n,) whether a row is in a part that was solved exactly.
        proven_error: A bound on the probability of all matchings that exact parts left out.
        sampling_error: (n,) expected total variation of each row due to sampling.
        disagreement: (n,) total variation between the halves of the chains, beyond chance, times
            the weight of the chains in the answer.
        belief_difference: (n,) total variation between chains and belief propagation.
        trust_in_beliefs: (n,) the weight of belief propagation in the answer.
        num_steps: The number of steps of the chains.
        undone: The share of the worms that became too long and were undone.
        finished: Whether the chains ended as planned; if not, they were interrupted.
    """

    pairs: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    mode: np.ndarray
    log_evidence: float
    log_evidence_se: float
    draws: np.ndarray
    exact_rows: np.ndarray
    proven_error: float
    sampling_error: np.ndarray
    disagreement: np.ndarray
    belief_difference: np.ndarray
    trust_in_beliefs: np.ndarray
    num_steps: int
    undone: float
    finished: bool

    @property
    def exact(self) -> bool:
        """Whether everything was solved exactly, up to ``proven_error``."""
        return bool(self.exact_rows.all())


def solve_linear(
    problem: Candidates,
    options: LinearOptions | None = None,
    seed: int = 0,
    stop: Stop | None = None,
) -> LinearResult:
    """Split a problem into independent parts, solve what is possible exactly and sample the rest.

    The same seed gives the same result, unless ``stop`` was asked to end it early.

    Raises:
        ValueError: No matching is feasible.
    """
    solver = _Solver(problem, options or LinearOptions(), seed, stop or Stop())
    return solver.run()


class _Solver:
    """A problem and the result so far; parts are added one by one."""

    def __init__(self, problem: Candidates, options: LinearOptions, seed: int, stop: Stop) -> None:
        self.problem, self.options, self.seed, self.stop = problem, options, seed, stop
        self.rng = np.random.default_rng(seed)
        self.best = best_matching(problem)
        self.seconds = 0.0
        n, m = problem.shape
        self.result = LinearResult(
            pairs=np.zeros(len(problem.scores)),
            rows=np.ones(n),
            cols=np.ones(m),
            mode=self.best,
            log_evidence=0.0,
            log_evidence_se=0.0,
            draws=np.full((options.num_draws, n), -1, np.int32),
            exact_rows=np.ones(n, bool),
            proven_error=0.0,
            sampling_error=np.zeros(n),
            disagreement=np.zeros(n),
            belief_difference=np.zeros(n),
            trust_in_beliefs=np.zeros(n),
            num_steps=0,
            undone=0.0,
            finished=True,
        )

    def run(self) -> LinearResult:
        """Solve all parts."""
        problem = self.problem
        left: list[tuple[Component, Gauge]] = []
        for part in split(problem, used_pairs(problem, self.best)):
            if not self._solve_small(part):
                left += self._prune(part)
        rest = [
            part
            for part, gauge in left
            if not (self._solve_subsets(part) or self._frontier(part, gauge))
        ]
        if len(rest) == 1:
            self._sample(rest[0], next(gauge for part, gauge in left if part is rest[0]))
        elif rest:
            arrays = (np.sort(np.concatenate(group)) for group in zip(*rest, strict=True))
            whole_rest = Component(*arrays)
            self._sample(whole_rest, self._gauge(whole_rest))
        return self.result

    def _solve_small(self, part: Component) -> bool:
        """Solve a part without pairs, or with few items."""
        if not len(part.pairs):
            alone = self.problem.row_alone[part.rows], self.problem.col_alone[part.cols]
            self._add(sum(float(weights.sum()) for weights in alone))
            return True
        few = min(len(part.rows), len(part.cols)) <= min(_SMALL, self.options.max_size)
        return few and self._solve_subsets(part)

    def _prune(self, part: Component) -> list[tuple[Component, Gauge]]:
        """Drop pairs that are proven to be improbable, and split what is left."""
        gauge = self._gauge(part)
        found = prune(gauge, _PRUNED * len(part.rows) / self.problem.shape[0])
        if found.kept.all():
            return [(part, gauge)]
        self._add(0.0, lost=found.lost)
        rows, cols = np.arange(len(part.rows)), np.arange(len(part.cols))
        fewer = gauge.part(rows, cols, np.flatnonzero(found.kept))
        kept = part.pairs[found.kept]
        left = []
        for inner in split(fewer.problem, used_pairs(fewer.problem, fewer.best)):
            outer = Component(part.rows[inner.rows], part.cols[inner.cols], kept[inner.pairs])
            if not self._solve_small(outer):
                left.append((outer, fewer.part(*inner).polished()))
        return left

    def _solve_subsets(self, part: Component) -> bool:
        """Solve a part by the subset programme if that is affordable."""
        if min(len(part.rows), len(part.cols)) > self.options.max_size:
            return False
        inside = self.problem.part(*part)
        alone = {"row_unmatched": inside.row_alone, "col_unmatched": inside.col_alone}
        arguments: dict[str, Any] = {"scores": inside.table(), **alone}
        memory, seconds = cost_estimate(build_weights(**arguments).table)
        if memory > _EXACT_BYTES or self.seconds + seconds > _EXACT_SECONDS:
            return False
        self.seconds += seconds
        found = solve_exact(**arguments, max_size=MAX_LABELS)
        result = self.result
        result.pairs[part.pairs] = found.marginals[inside.rows, inside.cols]
        result.rows[part.rows] = found.p_unmatched_rows
        result.cols[part.cols] = found.p_unmatched_cols
        self._put_draws(part, found.sample(len(result.draws), self.rng))
        self._add(found.log_evidence)
        return True

    def _frontier(self, part: Component, gauge: Gauge) -> bool:
        """Solve a part by the frontier programme if it has few states."""
        if not self.options.max_states:
            return False
        found = solve_frontier(
            gauge,
            num_draws=len(self.result.draws),
            rng=self.rng,
            largest_loss=_LARGEST_LOSS,
            beam=self.options.max_states,
        )
        if found is None:
            return False
        result, inside = self.result, gauge.problem
        result.pairs[part.pairs], result.rows[part.rows] = found.pairs, found.rows
        used = np.bincount(inside.cols, found.pairs, inside.shape[1])
        may = inside.col_alone > -np.inf
        result.cols[part.cols] = np.where(may, np.clip(1.0 - used, 0.0, 1.0), 0.0)
        self._put_draws(part, found.draws)
        self._add(gauge.log_factor + found.log_total, lost=found.lost)
        return True

    def _sample(self, part: Component, gauge: Gauge) -> None:
        """Sample what is left."""
        options = self.options
        found: Sampled = sample(
            gauge,
            num_chains=options.num_chains,
            num_steps=options.num_steps,
            num_draws=options.num_draws,
            tolerance=options.tolerance,
            seed=self.seed,
            stop=self.stop,
        )
        result, rows = self.result, part.rows
        result.pairs[part.pairs], result.rows[rows], result.cols[part.cols] = found.marginals
        self._put_draws(part, found.draws)
        result.exact_rows[rows] = False
        result.sampling_error[rows] = found.sampling_error
        result.disagreement[rows] = found.disagreement
        result.belief_difference[rows] = found.belief_difference
        result.trust_in_beliefs[rows] = found.trust_in_beliefs
        self._add(found.log_evidence)
        self.result = self.result._replace(
            log_evidence_se=found.log_evidence_se,
            num_steps=found.num_steps,
            undone=found.undone,
            finished=found.finished,
        )

    def _gauge(self, part: Component) -> Gauge:
        inside = self.problem.part(*part)
        best = np.where(self.best < 0, -1, np.searchsorted(part.cols, self.best))[part.rows]
        return scale(inside, best)

    def _put_draws(self, part: Component, local: np.ndarray) -> None:
        self.result.draws[:, part.rows] = np.append(part.cols, -1)[local]

    def _add(self, log_evidence: float, lost: float = 0.0) -> None:
        self.result = self.result._replace(
            log_evidence=self.result.log_evidence + log_evidence,
            proven_error=self.result.proven_error + lost,
        )
