"""Exact inference by listing every matching, for small problems with any log density."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# Enough for 9! permutations, but not for 10!, nor for the partial matchings of 9 rows and columns.
MAX_MATCHINGS = 2_000_000


@dataclass(frozen=True, eq=False)
class TabularSolution:
    """A distribution given by all matchings and their log weights.

    Attributes:
        matchings: (count, n) distinct matchings in lexicographic order, -1 for unmatched.
        log_weights: (count,) log weights, which may be -inf.
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
        """The probability of each matching, (count,)."""
        return np.exp(self.log_weights - self.log_total)

    @property
    def entropy(self) -> float:
        """The entropy in nats."""
        possible = self.probs > 0
        log_probs = self.log_weights[possible] - self.log_total
        # Rounding must not make the entropy of a certain matching negative.
        return max(0.0, -float(self.probs[possible] @ log_probs))

    def marginals(self) -> np.ndarray:
        """Return grounded marginals (n+1, m+1); the last row and column mean "unmatched"."""
        n, m = self.matchings.shape[1], self.num_cols
        probs = self.probs
        table = np.zeros((n + 1, m + 1))
        for i in range(n):
            table[i] = np.bincount(self.matchings[:, i] % (m + 1), weights=probs, minlength=m + 1)
        # A row with one choice has probability one, not what rounding leaves of it.
        table[:n] /= table[:n].sum(axis=1, keepdims=True)
        for j in range(m):
            table[n, j] = probs[(self.matchings != j).all(axis=1)].sum()
        return table

    def draw(self, num: int, generator: np.random.Generator) -> np.ndarray:
        """Return independent draws, (num, n)."""
        cumulative = np.cumsum(self.probs)
        uniforms = generator.random(num) * cumulative[-1]
        return self.matchings[np.searchsorted(cumulative, uniforms, side="right")]

    def log_prob(self, matchings: np.ndarray) -> np.ndarray:
        """Return log probabilities (...) of matchings (..., n), -inf for those not listed."""
        # Lexicographic order sorts the matchings as numbers in base m + 1.
        powers = (self.num_cols + 1) ** np.arange(self.matchings.shape[1])[::-1]
        codes, wanted = (self.matchings + 1) @ powers, (matchings + 1) @ powers
        place = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        found = self.log_weights[place] - self.log_total
        return np.where(codes[place] == wanted, found, -np.inf)


def count_bound(allowed: np.ndarray) -> int:
    """Return an upper bound, ignoring the mask, on the matchings of a boolean (n+1, m+1) table."""
    n, m = allowed.shape[0] - 1, allowed.shape[1] - 1
    fewest = max(np.count_nonzero(~allowed[:n, m]), np.count_nonzero(~allowed[n, :m]))
    return sum(math.comb(n, k) * math.perm(m, k) for k in range(fewest, min(n, m) + 1))


def list_matchings(allowed: np.ndarray) -> np.ndarray:
    """List the matchings of a grounded boolean table lexicographically: (n+1, m+1) -> (count, n).

    Raise ``ValueError`` if there may be more than ``MAX_MATCHINGS``.
    """
    n, m = allowed.shape[0] - 1, allowed.shape[1] - 1
    bound = count_bound(allowed)
    if bound > MAX_MATCHINGS:
        raise ValueError(
            f"enumeration takes at most {MAX_MATCHINGS:,} matchings (9 rows and columns if all "
            f"are matched), got {n} rows and {m} columns with up to {bound:.3g}."
        )
    required = np.flatnonzero(~allowed[n, :m])
    matchings = np.zeros((1, 0), dtype=np.int64)
    for i in range(n):
        # The ground, -1, comes first.
        options = np.flatnonzero(np.roll(allowed[i], 1)) - 1
        chosen = np.tile(options, len(matchings))[:, None]
        matchings = np.repeat(matchings, len(options), axis=0)
        possible = ((matchings != chosen) | (chosen < 0)).all(axis=1)
        matchings = np.concatenate([matchings, chosen], axis=1)[possible]
        # Drop matchings that can no longer give every required column a row.
        covered = np.isin(matchings, required).sum(axis=1)
        matchings = matchings[covered + (n - 1 - i) >= len(required)]
    return matchings
