"""Linear problems: one assignment per site, and nothing left to search for."""

import numpy as np

from permvi.inference.exact.problem import LogWeights
from permvi.inference.map.result import MapResult
from permvi.inference.map.starts import solve
from permvi.inference.partial import best_matchings


def solve_linear(
    scores: np.ndarray, mask: np.ndarray | None = None, constant: float = 0.0
) -> MapResult:
    """The best matching under (n, m) or (S, n, m) scores, for certain; no density is evaluated."""
    perm = solve(scores, mask)
    chosen = np.take_along_axis(scores, np.maximum(perm, 0)[..., None], axis=-1)[..., 0]
    value = constant + chosen[perm >= 0].sum()
    return MapResult(perm, np.array([value]), 0, optimal=True, finished=True)


def solve_linear_partial(tables: np.ndarray, constant: float = 0.0) -> MapResult:
    """The best partial matching under grounded (S, n+1, m+1) tables, for certain.

    One assignment for each site, in which every row has a column of its own for being unmatched.
    """
    perms = best_matchings(tables)
    value = constant + sum(
        float(LogWeights(table).of(perm)) for table, perm in zip(tables, perms, strict=True)
    )
    perm = perms[0] if len(perms) == 1 else perms
    return MapResult(perm, np.array([value]), 0, optimal=True, finished=True)
