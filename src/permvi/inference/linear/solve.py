"""Marginals of a sparse matching problem: exact in small parts, from chains in the others."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from permvi._checks import whole
from permvi.inference.exact import solve_exact
from permvi.inference.exact.subset_dp import MAX_LABELS, cost_estimate
from permvi.inference.linear.beliefs import log_bethe, propagate, scale_to_marginals
from permvi.inference.linear.chains import ChainsResult, run_chains
from permvi.problem.candidates import (
    Candidates,
    Component,
    best_matching,
    split,
    used_pairs,
)
from permvi.problem.unmatched import build_weights

# Limits for all exact parts together.
_EXACT_SECONDS = 10.0
_EXACT_BYTES = 2**30
# The number of choices, in all chains together.
_STEPS_PER_ROW = 10_000
_FEWEST_STEPS = 20_000_000
_TINY = 1e-300


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearOptions:
    """Options of method "linear".

    Attributes:
        max_size: The largest smaller side of a part that is solved exactly; 0 leaves everything to
            chains.
        num_steps: The approximate number of choices in all chains together; by default 10,000 for
            each row that is not in an exact part, and at least 20 million.
        num_chains: The number of independent chains, each in its own thread.
        num_draws: The number of matchings to keep.
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


class LinearResult(NamedTuple):
    """The solution of a sparse problem.

    Attributes:
        pairs: (E,) probabilities of the candidate pairs.
        rows: (n,) probabilities of rows being unmatched.
        cols: (m,) probabilities of columns being unused.
        mode: (n,) the best matching, -1 for unmatched.
        log_evidence: The log evidence, or a lower bound if ``exact`` is False.
        draws: (num, n) matchings.
        exact_rows: (n,) whether a row is in a part that was solved exactly.
        sampling_error: (n,) expected total variation due to sampling, zero in exact parts.
        disagreement: (n,) total variation between the halves of the chains, beyond chance.
        belief_difference: (n,) total variation between chains and belief propagation.
        trust_in_beliefs: (n,) the weight of belief propagation in the answer.
        num_steps: The number of choices in the chains.
        finished: Whether the chains ended as planned.
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


def solve_linear(
    problem: Candidates, options: LinearOptions | None = None, seed: int = 0
) -> LinearResult:
    """Split a problem into independent parts, solve small ones exactly and sample the others.

    The same seed gives the same result.

    Raises:
        ValueError: No matching is feasible.
    """
    options = options or LinearOptions()
    best = best_matching(problem)
    parts = split(problem, used_pairs(problem, best))
    few, rest = _affordable(problem, parts, options.max_size)
    result = _all_alone(problem, parts, best, options.num_draws)
    rng = np.random.default_rng(seed)
    for part in few:
        result = _solve(problem, part, result, rng)
    return result if rest is None else _sample(problem, rest, result, options, seed)


def _affordable(
    problem: Candidates, parts: list[Component], max_size: int
) -> tuple[list[Component], Component | None]:
    """Return the parts that are cheap enough to solve exactly, and all others joined into one."""
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


def _cost(problem: Candidates, part: Component, max_size: int) -> float:
    """Return the seconds that an exact solution takes, infinite if it is out of reach."""
    if min(len(part.rows), len(part.cols)) > max_size:
        return np.inf
    memory, seconds = cost_estimate(build_weights(**_arguments(problem.part(*part))).table)
    return np.inf if memory > _EXACT_BYTES else seconds


def _arguments(problem: Candidates) -> dict[str, Any]:
    """Return the arguments of `solve_exact` for a small problem."""
    alone = {"row_unmatched": problem.row_alone, "col_unmatched": problem.col_alone}
    return {"scores": problem.table(), **alone}


def _all_alone(
    problem: Candidates, parts: list[Component], best: np.ndarray, num_draws: int
) -> LinearResult:
    """Return the result of the parts without pairs, to which the other parts are added later."""
    n, m = problem.shape
    weights = [
        problem.row_alone[part.rows].sum() + problem.col_alone[part.cols].sum()
        for part in parts
        if not len(part.pairs)
    ]
    return LinearResult(
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
    problem: Candidates, part: Component, result: LinearResult, rng: np.random.Generator
) -> LinearResult:
    """Add one part, solved exactly, to the result; its arrays are changed in place."""
    inside = problem.part(*part)
    found = solve_exact(**_arguments(inside), max_size=MAX_LABELS)
    result.pairs[part.pairs] = found.marginals[inside.rows, inside.cols]
    result.rows[part.rows] = found.p_unmatched_rows
    result.cols[part.cols] = found.p_unmatched_cols
    local = found.sample(len(result.draws), rng)
    result.draws[:, part.rows] = np.append(part.cols, -1)[local]
    return result._replace(log_evidence=result.log_evidence + found.log_evidence)


def _sample(
    problem: Candidates, part: Component, result: LinearResult, options: LinearOptions, seed: int
) -> LinearResult:
    """Add the part that is left to chains to the result; its arrays are changed in place."""
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
    # Rounding must not leave unmatched what has to be matched.
    rows = np.where(inside.row_alone > -np.inf, combined[E:], 0.0)
    cols = np.where(inside.col_alone > -np.inf, of_cols, 0.0)
    marginals = scale_to_marginals(inside, combined[:E], rows, cols)
    result.pairs[part.pairs], result.rows[part.rows], result.cols[part.cols] = marginals
    kept = np.linspace(0, len(chains.draws) - 1, len(result.draws)).round().astype(int)
    result.draws[:, part.rows] = np.append(part.cols, -1)[chains.draws[kept]]
    result.exact_rows[part.rows] = False

    def by_row(values: np.ndarray) -> np.ndarray:
        return 0.5 * (np.bincount(inside.rows, values[:E], n) + values[E:])

    # The mean absolute value of a normal variate. If a chain gave up, the error is unknown.
    error = by_row(np.sqrt(2 / np.pi) * chains.standard_errors) if chains.finished else np.ones(n)
    result.sampling_error[part.rows] = np.sqrt(1.0 - trust) * error
    if options.num_chains > 1:
        half = options.num_chains // 2
        first, second = chains.frequencies[:half], chains.frequencies[half:]
        apart = np.abs(first.mean(axis=0) - second.mean(axis=0))
        # By chance, hardly any of this many differences exceeds this many standard errors.
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
    problem: Candidates, difference: np.ndarray, chains: ChainsResult
) -> np.ndarray:
    r"""Return (n,) the weight of belief propagation against chains, the same within each part.

    With V the mean squared standard error of the frequencies and D the mean squared difference
    between beliefs and frequencies, :math:`B = D - V` estimates the squared error of the beliefs.
    The average with weight :math:`V / (V + B)` for the beliefs has the least squared error. B is
    set to at least what an estimate from this many rows can resolve.
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
