"""What exact inference returns."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from permvi.inference.exact.problem import check_matchings, positive_int


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
        return self._draw(positive_int("num", num), np.random.default_rng(seed))

    def log_prob(self, perms: ArrayLike) -> np.ndarray:
        """Log probabilities of matchings, -inf for those that are not allowed.

        Args:
            perms: (..., n) integers, -1 for an unmatched row.

        Returns:
            (...) log probabilities.
        """
        return self._log_prob(check_matchings("perms", perms, self.marginals.shape))
