"""Linear problems: one assignment per site, and nothing left to search for."""

import numpy as np

from permvi.inference.map.result import MapResult
from permvi.inference.map.starts import solve


def solve_linear(
    scores: np.ndarray, mask: np.ndarray | None = None, constant: float = 0.0
) -> MapResult:
    """The best matching under (n, m) or (S, n, m) scores, for certain; no density is evaluated."""
    perm = solve(scores, mask)
    chosen = np.take_along_axis(scores, np.maximum(perm, 0)[..., None], axis=-1)[..., 0]
    value = constant + chosen[perm >= 0].sum()
    return MapResult(perm, np.array([value]), 0, optimal=True, finished=True)
