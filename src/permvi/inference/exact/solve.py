"""What exact inference returns."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike

from permvi._checks import check_matchings, whole
from permvi.inference.exact.blocks import Block, Decomposition, decompose
from permvi.inference.exact.enumeration import TabularSolution, count_bound, list_matchings
from permvi.inference.exact.subset_dp import MAX_LABELS, SubsetSolution, cost_estimate
from permvi.problem.unmatched import LogWeights, build_weights


@dataclass(frozen=True, eq=False)
class ExactResult:
    """The exact posterior over (partial) matchings of n rows and m columns.

    Attributes:
        log_evidence: Log of the sum of all weights, ``log sum_x exp(log density(x))``.
        marginals: (n, m) probabilities that row i is matched to column j.
        p_unmatched_rows: (n,) probabilities of staying unmatched; with a row of ``marginals`` they
            sum to one.
        p_unmatched_cols: (m,) likewise for columns.
        mode: (n,) the most probable matching, -1 for an unmatched row.
        mode_log_prob: Its log probability.
        entropy: ``-sum_x p(x) log p(x)`` in nats.
        block_sizes: Rows and columns of each independent block that was solved; what is settled
            by mask and known pairs alone belongs to none.
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
        """Exact independent draws.

        Args:
            num: How many.
            seed: An integer, or a NumPy generator to draw from.

        Returns:
            (num, n) integers, -1 for an unmatched row.
        """
        return self._draw(whole("num", num), np.random.default_rng(seed))

    def log_prob(self, perms: ArrayLike) -> np.ndarray:
        """Log probabilities of matchings, -inf for those that are not allowed.

        Args:
            perms: (..., n) integers, -1 for an unmatched row.

        Returns:
            (...) log probabilities.
        """
        return self._log_prob(check_matchings("perms", perms, self.marginals.shape))


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
    if whole("max_size", max_size) > MAX_LABELS:
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
    """The exact posterior of any log density, by evaluating it on every matching.

    Args:
        log_density: Maps a (batch, n) integer array of matchings (-1 for an unmatched row) to
            (batch,) unnormalised log densities; -inf is allowed.
        n: The number of rows.
        m: The number of columns, n by default. The surplus of the longer side stays unmatched.
        mask: (n, m) boolean, the pairs that are allowed.
        known: (n,) known columns, -1 for unknown.
        partial: Whether any row and any column may stay unmatched.
        chunk_size: How many matchings are evaluated per call.

    Returns:
        The posterior; its ``log_evidence`` is ``log sum_x exp(log_density(x))``.

    Raises:
        ValueError: There are too many matchings or none, or the density is NaN or +inf somewhere
            or zero everywhere.
    """
    shape = (whole("n", n), whole("m", n if m is None else m))
    if shape[0] * math.log2(shape[1] + 1) > 62:
        raise ValueError(f"n and m must let matchings be coded in 62 bits, got {n} and {m}.")
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
    probs = solution.probs
    log_probs = solution.log_weights - solution.log_total
    best = int(np.argmax(log_probs))
    return ExactResult(
        log_evidence=solution.log_total,
        marginals=marginals[:-1, :-1],
        p_unmatched_rows=marginals[:-1, -1],
        p_unmatched_cols=marginals[-1, :-1],
        mode=matchings[best].copy(),
        mode_log_prob=float(log_probs[best]),
        entropy=-float(probs[probs > 0] @ log_probs[probs > 0]),
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
