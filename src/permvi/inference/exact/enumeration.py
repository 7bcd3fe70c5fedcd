"""Exact inference by listing every matching: small problems, and any log density at all."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from permvi.inference.exact.problem import build_weights, positive_int
from permvi.inference.exact.result import ExactResult

# 9! permutations fit, 10! do not; nor do the partial matchings of 9 rows and 9 columns.
MAX_MATCHINGS = 2_000_000


@dataclass(frozen=True, eq=False)
class TabularSolution:
    """A distribution given by all matchings and their log weights.

    Attributes:
        matchings: (count, n) distinct matchings in lexicographic order, -1 for unmatched.
        log_weights: (count,) log weights, -inf allowed.
        num_cols: The number of columns m.
    """

    matchings: np.ndarray
    log_weights: np.ndarray
    num_cols: int

    @cached_property
    def log_total(self) -> float:
        """``log sum exp(log_weights)``."""
        largest = self.log_weights.max()
        return float(largest + np.log(np.exp(self.log_weights - largest).sum()))

    @cached_property
    def probs(self) -> np.ndarray:
        """(count,) the probability of each matching."""
        return np.exp(self.log_weights - self.log_total)

    def marginals(self) -> np.ndarray:
        """(n+1, m+1) grounded marginals; the last row and column are 'unmatched'."""
        n, m = self.matchings.shape[1], self.num_cols
        probs = self.probs
        table = np.zeros((n + 1, m + 1))
        for i in range(n):
            table[i] = np.bincount(self.matchings[:, i] % (m + 1), weights=probs, minlength=m + 1)
        for j in range(m):
            table[n, j] = probs[(self.matchings != j).all(axis=1)].sum()
        return table

    def draw(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """(num, n) independent draws."""
        cumulative = np.cumsum(self.probs)
        uniforms = generator.random(num) * cumulative[-1]
        return self.matchings[np.searchsorted(cumulative, uniforms, side="right")]

    def log_prob(self, matchings: np.ndarray) -> np.ndarray:
        """(..., n) matchings -> (...) log probabilities, -inf for those not in the table."""
        # Lexicographic order is the order of the matchings read as numbers in base m + 1.
        powers = (self.num_cols + 1) ** np.arange(self.matchings.shape[1])[::-1]
        codes, wanted = (self.matchings + 1) @ powers, (matchings + 1) @ powers
        place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        found = self.log_weights[place] - self.log_total
        return np.where(codes[place] == wanted, found, -np.inf)


def count_bound(allowed: np.ndarray) -> int:
    """How many matchings a grounded (n+1, m+1) table can have at most, its mask left aside."""
    n, m = allowed.shape[0] - 1, allowed.shape[1] - 1
    fewest = max(np.count_nonzero(~allowed[:n, m]), np.count_nonzero(~allowed[n, :m]))
    return sum(math.comb(n, k) * math.perm(m, k) for k in range(fewest, min(n, m) + 1))


def list_matchings(allowed: np.ndarray) -> np.ndarray:
    """All matchings of a grounded boolean table in lexicographic order: (n+1, m+1) -> (count, n).

    Raises:
        ValueError: There may be more than ``MAX_MATCHINGS``.
    """
    n, m = allowed.shape[0] - 1, allowed.shape[1] - 1
    bound = count_bound(allowed)
    if bound > MAX_MATCHINGS:
        raise ValueError(
            f"enumeration takes at most {MAX_MATCHINGS:,} matchings (9 rows and columns where all "
            f"are matched), got {n} rows and {m} columns with up to {bound:.3g}."
        )
    required = np.flatnonzero(~allowed[n, :m])
    matchings = np.zeros((1, 0), dtype=np.int64)
    for i in range(n):
        # The ground comes first, as -1.
        options = np.flatnonzero(np.roll(allowed[i], 1)) - 1
        chosen = np.tile(options, len(matchings))[:, None]
        matchings = np.repeat(matchings, len(options), axis=0)
        possible = ((matchings != chosen) | (chosen < 0)).all(axis=1)
        matchings = np.concatenate([matchings, chosen], axis=1)[possible]
        # Drop what can no longer give every required column a row.
        covered = np.isin(matchings, required).sum(axis=1)
        matchings = matchings[covered + (n - 1 - i) >= len(required)]
    return matchings


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
    shape = (positive_int("n", n), positive_int("m", n if m is None else m))
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
