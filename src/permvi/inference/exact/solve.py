"""Exact posteriors of linear models by blocks, and of any log density by enumeration."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import check_matchings, one_of, whole
from permvi.inference.exact.blocks import Block, Decomposition, decompose
from permvi.inference.exact.enumeration import TabularSolution, count_bound, list_matchings
from permvi.inference.exact.subset_dp import MAX_LABELS, SubsetSolution, cost_estimate
from permvi.problem.unmatched import LogWeights, build_weights


@dataclass(frozen=True, eq=False)
class ExactResult:
    """The exact posterior over (partial) matchings of n rows and m columns.

    Attributes:
        log_evidence: The log of the sum of all weights, ``log sum_x exp(log density(x))``.
        marginals: (n, m) probabilities that row i is matched to column j.
        p_unmatched_rows: (n,) probabilities that row i stays unmatched. Row i of ``marginals`` and
            this probability sum to one.
        p_unmatched_cols: (m,) probabilities that column j stays unused.
        mode: (n,) the most probable matching, -1 for an unmatched row.
        mode_log_prob: The log probability of the mode.
        entropy: ``-sum_x p(x) log p(x)`` in nats.
        block_sizes: The rows and columns of each independent block that was solved. Rows and
            columns settled by mask and known pairs alone are in no block.
    """

    log_evidence: float
    marginals: np.ndarray
    p_unmatched_rows: np.ndarray
    p_unmatched_cols: np.ndarray
    mode: np.ndarray
    mode_log_prob: float
    entropy: float
    block_sizes: tuple[tuple[int, int], ...]
    _draw: Callable[[int, np.random.Generator], np.ndarray] = field(repr=False)
    _log_prob: Callable[[np.ndarray], np.ndarray] = field(repr=False)

    def sample(self, num: int, seed: int | np.random.Generator) -> np.ndarray:
        """Return exact independent draws: (num, n) integers, -1 for an unmatched row.

        ``seed`` is an integer or a NumPy generator.
        """
        return self._draw(whole("num", num), np.random.default_rng(seed))

    def log_prob(self, perms: ArrayLike) -> np.ndarray:
        """Return log probabilities (...) of matchings, -inf for those that are not allowed.

        ``perms`` holds (..., n) integers, -1 for an unmatched row.
        """
        return self._log_prob(check_matchings("perms", perms, self.marginals.shape))


Method = Literal["auto", "dp", "enumeration"]
_BlockSolution = TabularSolution | SubsetSolution

# Up to this many matchings, listing them is as fast as the subset programme and needs no numba.
_SMALL_TABLE = 2_000
_SIZE_BEYOND_ESTIMATES = 64


def solve_exact(
    scores: ArrayLike,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
    row_unmatched: ArrayLike | None = None,
    col_unmatched: ArrayLike | None = None,
    method: Method = "auto",
    max_size: int = 24,
) -> ExactResult:
    """Return the exact posterior over matchings whose log density is linear.

    ``log p(x) = sum over pairs of scores[i, j] + sum over unmatched rows of row_unmatched[i] + sum
    over unused columns of col_unmatched[j] - log_evidence``.

    Known pairs and masks reduce the problem, and independent blocks are solved one by one. A block
    with sides N <= M costs O(2^N N) if N = M and all rows and columns are matched, and O(2^N N M)
    otherwise. Everything is computed in float64 on the host.

    Args:
        scores: (n, m) log weights of pairs; -inf forbids a pair.
        mask: (n, m) boolean, the pairs that are allowed. Scores of other pairs are ignored.
        known: (n,) the known columns, -1 for unknown. Their scores count in the evidence.
        row_unmatched: Scalar or (n,) log weights of leaving a row unmatched, -inf where it has to
            be matched. By default a row has to be matched unless there are more rows than columns;
            then any of them may be left over, with log weight 0.
        col_unmatched: Scalar or (m,) log weights of leaving a column unused. By default a column
            has to be used unless there are more columns than rows or ``row_unmatched`` is given.
        method: "dp" for the subset programme, "enumeration" for a list of all matchings of each
            block (at most 9 rows and columns), or "auto" for whichever suits each block.
        max_size: The largest N that the subset programme accepts, at most 24.

    Raises:
        ValueError: No matching is feasible, or a block is too large.
    """
    one_of("method", method, get_args(Method))
    if whole("max_size", max_size) > MAX_LABELS:
        raise ValueError(f"max_size must be at most {MAX_LABELS}, got {max_size}.")
    weights = build_weights(scores, mask, known, row_unmatched, col_unmatched)
    return solve_weights(weights, method, max_size)


def solve_weights(weights: LogWeights, method: Method, max_size: int) -> ExactResult:
    """Return what `solve_exact` does, given the log weights of all pairs and of the unmatched."""
    problem = decompose(weights)
    limit = {"auto": _SMALL_TABLE, "dp": -1, "enumeration": math.inf}[method]
    plan = [(block, count_bound(np.isfinite(block.table)) <= limit) for block in problem.blocks]
    for block, tabular in plan:
        if not tabular:
            _refuse_large(block, max_size)
    solved = [_list(block) if tabular else SubsetSolution(block.table) for block, tabular in plan]
    return _combine(problem, solved)


def _list(block: Block) -> TabularSolution:
    matchings = list_matchings(np.isfinite(block.table))
    return TabularSolution(matchings, LogWeights(block.table).of(matchings), len(block.cols))


def _combine(problem: Decomposition, solutions: list[_BlockSolution]) -> ExactResult:
    n, m = problem.reduced.shape
    marginals = np.zeros((n + 1, m + 1))
    marginals[np.arange(n), problem.best] = 1.0
    marginals[n, np.setdiff1d(np.arange(m), problem.best)] = 1.0
    for block, solution in zip(problem.blocks, solutions, strict=True):
        grounded = np.ix_(np.append(block.rows, n), np.append(block.cols, m))
        marginals[grounded] = solution.marginals()
    log_total = sum(solution.log_total for solution in solutions)
    # H = log Z - E[log weight]. With reduced weights, all terms of the sum are non-negative.
    possible = marginals > 0
    entropy = log_total - float(marginals[possible] @ problem.reduced.table[possible])

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
        entropy=max(entropy, 0.0),
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
        needs = "more memory and time than any computer has"
    else:
        memory, seconds = cost_estimate(block.table)
        needs = f"about {memory / 2**30:.2g} GiB and {_duration(seconds)}"
    advice = f"pass max_size={size} or " if size <= MAX_LABELS else ""
    raise ValueError(
        f"scores must split into blocks of at most max_size={max_size} rows or columns, got a "
        f"block of {rows} by {cols} that would need {needs}; {advice}use method='linear'."
    )


def _duration(seconds: float) -> str:
    for unit, length in (("years", 3.15e7), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.2g} {unit}"
    return f"{max(seconds, 0.1):.2g} seconds"


def enumerate_log_density(
    log_density: Callable[[np.ndarray], ArrayLike],
    n: int,
    m: int | None = None,
    *,
    mask: ArrayLike | None = None,
    known: ArrayLike | None = None,
    partial: bool = False,
    chunk_size: int = 65_536,
) -> ExactResult:
    """Return the exact posterior of any log density by evaluating it on every matching.

    Args:
        log_density: Maps matchings, (batch, n) integers with -1 for an unmatched row, to (batch,)
            unnormalised log densities, which may be -inf.
        n: The number of rows.
        m: The number of columns, n by default. The surplus of the longer side stays unmatched.
        mask: (n, m) boolean, the pairs that are allowed.
        known: (n,) known columns, -1 for unknown.
        partial: Whether any row may stay unmatched and any column unused.
        chunk_size: The number of matchings in a call of ``log_density``.

    Raises:
        ValueError: There are too many matchings or none, or the density is NaN or +inf somewhere
            or zero everywhere.
    """
    shape = (whole("n", n), whole("m", n if m is None else m))
    if shape[0] * math.log2(shape[1] + 1) > 62:
        raise ValueError(f"n and m must let a matching fit into 62 bits, got {n} and {m}.")
    alone = 0.0 if partial else None
    weights = build_weights(np.zeros(shape), mask, known, alone, alone)
    matchings = list_matchings(np.isfinite(weights.table))
    if not len(matchings):
        raise ValueError("mask and known must leave a feasible matching, got none.")
    values = [
        _evaluate(log_density, matchings[k : k + chunk_size])
        for k in range(0, len(matchings), chunk_size)
    ]
    solution = TabularSolution(matchings, np.concatenate(values), shape[1])
    if solution.log_weights.max() == -np.inf:
        raise ValueError("log_density must be finite for some matching, got -inf for all of them.")
    marginals = solution.marginals()
    best = int(np.argmax(solution.log_weights))
    return ExactResult(
        log_evidence=solution.log_total,
        marginals=marginals[:-1, :-1],
        p_unmatched_rows=marginals[:-1, -1],
        p_unmatched_cols=marginals[-1, :-1],
        mode=matchings[best].copy(),
        mode_log_prob=float(solution.log_weights[best] - solution.log_total),
        entropy=solution.entropy,
        block_sizes=(shape,),
        _draw=solution.draw,
        _log_prob=solution.log_prob,
    )


def _evaluate(log_density: Callable[[np.ndarray], ArrayLike], batch: np.ndarray) -> np.ndarray:
    values = np.asarray(log_density(batch), dtype=np.float64)
    if values.shape != (len(batch),):
        raise ValueError(
            f"log_density must map {batch.shape} matchings to {(len(batch),)} values, "
            f"got shape {values.shape}."
        )
    bad = np.flatnonzero(np.isnan(values) | (values == np.inf))
    if len(bad):
        raise ValueError(
            f"log_density must be finite or -inf, got {values[bad[0]]} at {batch[bad[0]].tolist()}."
        )
    return values
