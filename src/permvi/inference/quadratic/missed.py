"""What an ensemble that does not count may have found that those that count have not.

Its evidence is below theirs, since it has missed a part of the posterior. What it has seen is new
only where the others have not been, too. A chain goes by swaps, so that an ensemble which has seen
a permutation has seen those that are a swap away, as far as they matter.
"""

import numpy as np

from permvi.inference.quadratic.twins import Twins

# Rows that a swap changes.
_SWAP = 2
# The most draws that are looked for, and looked at.
_LOOKED_FOR, _LOOKED_AT = 200, 2000


def unseen(draws: np.ndarray, known: np.ndarray, twins: Twins) -> float:
    """Return the share of draws (k, N) that are more than a swap away from all ``known`` (m, N).

    Permutations that twins make of each other are one.
    """
    if len(draws) == 0:
        return 0.0
    wanted = twins.canonical(_some(draws, _LOOKED_FOR))
    seen = twins.canonical(_some(known, _LOOKED_AT))
    return float(np.mean([((seen != one).sum(axis=1) > _SWAP).all() for one in wanted]))


def _some(draws: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many draws, evenly spread."""
    return draws[np.unique(np.linspace(0, len(draws) - 1, most).round().astype(int))]
