"""Exact inference for linear models: the front of the exact engine."""

from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike

from permvi.inference.exact.blocks import Block, Decomposition, decompose
from permvi.inference.exact.enumeration import TabularSolution, count_bound, list_matchings
from permvi.inference.exact.problem import LogWeights, build_weights, positive_int
from permvi.inference.exact.result import ExactResult
from permvi.inference.exact.subset_dp import MAX_LABELS, SubsetSolution, cost_estimate

Method = Literal["auto", "dp", "enumeration"]

# Below this many matchings a table is as fast as the subset programme and needs no compiler.
_SMALL_TABLE = 2_000
_SIZE_BEYOND_ESTIMATES = 64


class BlockSolution(Protocol):
    """The distribution of one block."""

    @property
    def log_total(self) -> float:
        """Log of the sum of all weights."""

    def marginals(self) -> np.ndarray:
        """(n+1, m+1) grounded marginals."""

    def draw(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """(num, n) independent draws."""


def solve_exact(
    scores: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
    row_unmatched: ArrayLike | None = None,
    col_unmatched: ArrayLike | None = None,
    method: Method = "auto",
    max_size: int = 22,
) -> ExactResult:
    """The exact posterior over matchings whose log density is linear.

    ``log p(x) = sum over pairs of scores[i, j] + sum over unmatched rows of row_unmatched[i] + sum
    over unmatched columns of col_unmatched[j] - log_evidence``.

    Known pairs and masks reduce the problem, independent blocks are solved one by one, and each
    costs O(2^N N) for N rows and columns that are all matched, O(2^N N M) otherwise, with N and M
    its smaller and larger side. Everything is computed in float64 on the host.

    Args:
        scores: (n, m) log weights of pairs; -inf forbids a pair.
        mask: (n, m) boolean, the pairs that are allowed; scores outside are ignored.
        known: (n,) the known columns, -1 for unknown. Their scores count in the evidence.
        row_unmatched: Scalar or (n,) log weights of leaving a row unmatched, -inf where it has to
            be matched. None: all rows are matched, unless there are more of them than columns;
            then which are left over is free (log weight 0).
        col_unmatched: Scalar or (m,), likewise for columns. Where n = m, rows can only stay
            unmatched if columns can too: give both.
        method: "dp", the subset programme; "enumeration", a list of all matchings of each block
            (at most 9 rows and columns); "auto", whichever suits each block.
        max_size: The largest N that the subset programme takes on, at most 24.

    Returns:
        The posterior.

    Raises:
        ValueError: No matching is feasible, or a block is too large.
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}, got {method!r}.")
    if positive_int("max_size", max_size) > MAX_LABELS:
        raise ValueError(f"max_size must be at most {MAX_LABELS}, got {max_size}.")
    weights = build_weights(scores, mask, known, row_unmatched, col_unmatched)
    problem = decompose(weights)
    use_table = [_use_table(block, method) for block in problem.blocks]
    for block, tabular in zip(problem.blocks, use_table, strict=True):
        if not tabular:
            _refuse_large(block, max_size)
    solutions: list[BlockSolution] = [
        _list(block) if tabular else SubsetSolution(block.table)
        for block, tabular in zip(problem.blocks, use_table, strict=True)
    ]
    return _combine(problem, solutions)


def _use_table(block: Block, method: Method) -> bool:
    if method == "auto":
        return count_bound(np.isfinite(block.table)) <= _SMALL_TABLE
    return method == "enumeration"


def _list(block: Block) -> TabularSolution:
    matchings = list_matchings(np.isfinite(block.table))
    return TabularSolution(matchings, LogWeights(block.table).of(matchings), len(block.cols))


def _combine(problem: Decomposition, solutions: list[BlockSolution]) -> ExactResult:
    n, m = problem.reduced.shape
    marginals = np.zeros((n + 1, m + 1))
    marginals[np.arange(n), problem.best] = 1.0
    marginals[n, np.setdiff1d(np.arange(m), problem.best)] = 1.0
    for block, solution in zip(problem.blocks, solutions, strict=True):
        grounded = np.ix_(np.append(block.rows, n), np.append(block.cols, m))
        marginals[grounded] = solution.marginals()
    log_total = sum(solution.log_total for solution in solutions)
    # H = log Z - E[log weight], with reduced weights a sum of terms that are all non-negative.
    possible = marginals > 0
    entropy = log_total - float(marginals[possible] @ problem.reduced.table[possible])
    entropy = max(entropy, 0.0)

    def draw(num: int, generator: np.random.Generator) -> np.ndarray:
        samples = np.tile(problem.best, (num, 1))
        for block, solution in zip(problem.blocks, solutions, strict=True):
            local = solution.draw(num, generator)
            samples[:, block.rows] = np.append(block.cols, -1)[local]
        return samples

    return ExactResult(
        log_evidence=problem.best_log_weight + log_total,
        marginals=marginals[:n, :m],
        p_unmatched_rows=marginals[:n, m],
        p_unmatched_cols=marginals[n, :m],
        mode=problem.best.copy(),
        mode_log_prob=-log_total,
        entropy=entropy,
        block_sizes=tuple((len(block.rows), len(block.cols)) for block in problem.blocks),
        _draw=draw,
        _log_prob=lambda perms: problem.reduced.of(perms) - log_total,
    )


def _refuse_large(block: Block, max_size: int) -> None:
    rows, cols = len(block.rows), len(block.cols)
    size = min(rows, cols)
    if size <= max_size:
        return
    if size > _SIZE_BEYOND_ESTIMATES:
        needs = "more memory and time than there is"
    else:
        memory, seconds = cost_estimate(block.table)
        needs = f"about {memory / 2**30:.2g} GiB and {_duration(seconds)}"
    advice = f"pass max_size={size} or " if size <= MAX_LABELS else ""
    raise ValueError(
        f"scores must split into blocks of at most max_size={max_size} rows or columns, got a "
        f"block of {rows} by {cols} that would need {needs}; {advice}use an approximate method."
    )


def _duration(seconds: float) -> str:
    for unit, length in (("years", 3.15e7), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{max(seconds, 0.1):.2g} seconds"
