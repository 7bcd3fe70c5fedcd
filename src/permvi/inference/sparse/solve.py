"""Marginals of a sparse matching problem: exact where parts are small, chains elsewhere."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from permvi._checks import whole
from permvi.inference.exact import solve_exact
from permvi.inference.exact.subset_dp import MAX_LABELS, cost_estimate
from permvi.inference.sparse.beliefs import log_bethe, propagate, scale_to_marginals
from permvi.inference.sparse.chains import ChainsResult, run_chains
from permvi.inference.sparse.problem import (
    Component,
    SparseProblem,
    best_matching,
    split,
    used_pairs,
)
from permvi.problem.unmatched import build_weights

# What all exact parts together may take.
_EXACT_SECONDS = 10.0
_EXACT_BYTES = 2**30
# Choices of each row, in all chains together.
_STEPS_PER_ROW = 10_000
_FEWEST_STEPS = 20_000_000
_TINY = 1e-300


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseOptions:
    """How to solve.

    Attributes:
        max_size: The most rows or columns, whichever are fewer, of a part that is solved exactly;
            0 leaves everything to chains.
        num_steps: How many choices of a row all chains make together, about; by default 10,000 for
            each row that is not in an exact part, and 20 million at least.
        num_chains: Independent chains, each in a thread of its own.
        num_draws: How many matchings to keep, at least.
    """

    max_size: int = 22
    num_steps: int | None = None
    num_chains: int = 2
    num_draws: int = 1000

    def __post_init__(self) -> None:
        if isinstance(self.max_size, bool) or not 0 <= self.max_size <= MAX_LABELS:
            raise ValueError(f"max_size must be in 0..{MAX_LABELS}, got {self.max_size!r}.")
        for name in ("num_chains", "num_draws"):
            whole(name, getattr(self, name))
        if self.num_steps is not None:
            whole("num_steps", self.num_steps)


class SparseResult(NamedTuple):
    """What is known of a sparse problem.

    Attributes:
        pairs: (E,) probabilities of the candidate pairs.
        rows: (n,) probabilities of rows being alone.
        cols: (m,) the same of columns.
        mode: (n,) the best matching, -1 for unmatched.
        log_evidence: The log evidence, or a lower bound where ``exact`` is False.
        draws: (num, n) matchings.
        exact_rows: (n,) whether a row is in a part that was solved exactly.
        sampling_error: (n,) expected total variation due to sampling, zero in exact parts.
        disagreement: (n,) total variation between the halves of the chains, beyond chance.
        belief_difference: (n,) total variation between chains and belief propagation.
        trust_in_beliefs: (n,) the weight of belief propagation in the answer.
        num_steps: How many choices the chains made.
        finished: Whether they ended as planned.
    """

    pairs: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    mode: np.ndarray
    log_evidence: float
    draws: np.ndarray
    exact_rows: np.ndarray
    sampling_error: np.ndarray
    disagreement: np.ndarray
    belief_difference: np.ndarray
    trust_in_beliefs: np.ndarray
    num_steps: int
    finished: bool

    @property
    def exact(self) -> bool:
        """Whether everything was solved exactly."""
        return bool(self.exact_rows.all())


def solve_sparse(
    problem: SparseProblem, options: SparseOptions | None = None, seed: int = 0
) -> SparseResult:
    """Split a problem into independent parts, solve small ones exactly and sample the others.

    Args:
        problem: The candidate pairs.
        options: Settings.
        seed: The same seed gives the same result.

    Raises:
        ValueError: No matching is feasible.
    """
    options = options or SparseOptions()
    best = best_matching(problem)
    parts = split(problem, used_pairs(problem, best))
    few, rest = _affordable(problem, parts, options.max_size)
    result = _all_alone(problem, parts, best, options.num_draws)
    rng = np.random.default_rng(seed)
    for part in few:
        result = _solve(problem, part, result, rng)
    return result if rest is None else _sample(problem, rest, result, options, seed)


def _affordable(
    problem: SparseProblem, parts: list[Component], max_size: int
) -> tuple[list[Component], Component | None]:
    """The parts that are cheap enough to solve exactly, and all others with pairs as one part."""
    costs = [(_cost(problem, part, max_size), k) for k, part in enumerate(parts) if len(part.pairs)]
    few: list[Component] = []
    rest: list[Component] = []
    seconds = 0.0
    for cost, k in sorted(costs):
        seconds += cost
        (few if seconds <= _EXACT_SECONDS else rest).append(parts[k])
    if not rest:
        return few, None
    return few, Component(*(np.sort(np.concatenate(arrays)) for arrays in zip(*rest, strict=True)))


def _cost(problem: SparseProblem, part: Component, max_size: int) -> float:
    """Seconds that an exact solution takes, infinite where it is out of reach."""
    if min(len(part.rows), len(part.cols)) > max_size:
        return np.inf
    memory, seconds = cost_estimate(build_weights(**_arguments(problem.part(*part))).table)
    return np.inf if memory > _EXACT_BYTES else seconds


def _arguments(problem: SparseProblem) -> dict[str, Any]:
    """A small problem as the exact engine takes it."""
    return {
        "scores": problem.table(),
        "row_unmatched": problem.row_alone,
        "col_unmatched": problem.col_alone,
    }


def _all_alone(
    problem: SparseProblem, parts: list[Component], best: np.ndarray, num_draws: int
) -> SparseResult:
    """The result of the parts without pairs, which are alone for certain; all else is added."""
    n, m = problem.shape
    alone = [part for part in parts if not len(part.pairs)]
    weights = [
        problem.row_alone[part.rows].sum() + problem.col_alone[part.cols].sum() for part in alone
    ]
    return SparseResult(
        pairs=np.zeros(len(problem.scores)),
        rows=np.ones(n),
        cols=np.ones(m),
        mode=best,
        log_evidence=float(sum(weights)),
        draws=np.full((num_draws, n), -1),
        exact_rows=np.ones(n, bool),
        sampling_error=np.zeros(n),
        disagreement=np.zeros(n),
        belief_difference=np.zeros(n),
        trust_in_beliefs=np.zeros(n),
        num_steps=0,
        finished=True,
    )


def _solve(
    problem: SparseProblem, part: Component, result: SparseResult, rng: np.random.Generator
) -> SparseResult:
    """The result with one part solved exactly; its arrays are filled in place."""
    inside = problem.part(*part)
    found = solve_exact(**_arguments(inside), max_size=MAX_LABELS)
    result.pairs[part.pairs] = found.marginals[inside.rows, inside.cols]
    result.rows[part.rows] = found.p_unmatched_rows
    result.cols[part.cols] = found.p_unmatched_cols
    local = found.sample(len(result.draws), rng)
    result.draws[:, part.rows] = np.append(part.cols, -1)[local]
    return result._replace(log_evidence=result.log_evidence + found.log_evidence)


def _sample(
    problem: SparseProblem,
    part: Component,
    result: SparseResult,
    options: SparseOptions,
    seed: int,
) -> SparseResult:
    """The result with the part that is left to chains; its arrays are filled in place."""
    inside = problem.part(*part)
    n, E = inside.shape[0], len(inside.scores)
    beliefs = propagate(inside)
    chains = run_chains(
        inside,
        beliefs.log_prices,
        np.where(result.mode < 0, -1, np.searchsorted(part.cols, result.mode))[part.rows],
        num_chains=options.num_chains,
        num_steps=options.num_steps or max(_STEPS_PER_ROW * n, _FEWEST_STEPS),
        num_draws=options.num_draws,
        seed=seed,
    )
    mean, alone = chains.frequencies.mean(axis=0), np.bincount(inside.rows, beliefs.pairs, n)
    believed = np.append(beliefs.pairs, np.clip(1.0 - alone, 0.0, 1.0))
    trust = _trust_in_beliefs(inside, mean - believed, chains) if beliefs.converged else np.zeros(n)
    by_choice = np.append(trust[inside.rows], trust)
    combined = by_choice * believed + (1.0 - by_choice) * mean
    of_cols = np.clip(1.0 - np.bincount(inside.cols, combined[:E], inside.shape[1]), 0.0, 1.0)
    # Rounding makes nothing alone that has to be matched.
    rows = np.where(inside.row_alone > -np.inf, combined[E:], 0.0)
    cols = np.where(inside.col_alone > -np.inf, of_cols, 0.0)
    marginals = scale_to_marginals(inside, combined[:E], rows, cols)
    for total, places, values in zip(
        (result.pairs, result.rows, result.cols),
        (part.pairs, part.rows, part.cols),
        marginals,
        strict=True,
    ):
        total[places] = values
    kept = np.linspace(0, len(chains.draws) - 1, len(result.draws)).round().astype(int)
    result.draws[:, part.rows] = np.append(part.cols, -1)[chains.draws[kept]]
    result.exact_rows[part.rows] = False

    def by_row(values: np.ndarray) -> np.ndarray:
        return 0.5 * (np.bincount(inside.rows, values[:E], n) + values[E:])

    # The mean of the absolute value of a normal variate; where a chain was lost, nothing is known.
    error = by_row(np.sqrt(2 / np.pi) * chains.standard_errors) if chains.finished else np.ones(n)
    result.sampling_error[part.rows] = np.sqrt(1.0 - trust) * error
    if options.num_chains > 1:
        half = options.num_chains // 2
        first, second = chains.frequencies[:half], chains.frequencies[half:]
        apart = np.abs(first.mean(axis=0) - second.mean(axis=0))
        # Chance takes hardly any of so many differences beyond this many standard errors.
        noise = np.sqrt(2 * np.log(E + n)) * 2 * chains.standard_errors
        result.disagreement[part.rows] = by_row(np.maximum(apart - noise, 0.0))
    result.belief_difference[part.rows] = by_row(np.abs(mean - believed))
    result.trust_in_beliefs[part.rows] = trust
    return result._replace(
        log_evidence=result.log_evidence + log_bethe(inside, *marginals),
        num_steps=chains.num_steps,
        finished=chains.finished,
    )


def _trust_in_beliefs(
    problem: SparseProblem, difference: np.ndarray, chains: ChainsResult
) -> np.ndarray:
    r"""(n,) the weight of belief propagation against chains in the answer, one for each part.

    With V the mean square standard error of the frequencies and D the mean square difference of
    the two, :math:`B = D - V` estimates the square error of the beliefs, and the mean of both with
    the weight :math:`V / (V + B)` for the beliefs has the least square error. B is taken to be at
    least as large as an estimate from so many rows can resolve.
    """
    n, E = problem.shape[0], len(problem.scores)
    label = np.zeros(n, int)
    for k, part in enumerate(split(problem, np.ones(E, bool))):
        label[part.rows] = k
    of_choice = np.append(label[problem.rows], label)
    V = np.bincount(of_choice, chains.standard_errors**2)
    B = np.bincount(of_choice, difference**2) - V
    weight = V / np.maximum(V + np.maximum(B, V * np.sqrt(2 / np.bincount(label))), _TINY)
    return weight[label]
