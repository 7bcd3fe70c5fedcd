"""Where to start from: doubly stochastic matrices and permutations that respect a mask."""

import numpy as np

from permvi import assignment

# Starts need not be doubly stochastic to the last digit.
_SINKHORN_STEPS = 100


def relaxed_starts(
    num: int, shape: tuple[int, ...], mask: np.ndarray | None, rng: np.random.Generator
) -> np.ndarray:
    """(num, ..., n, m) relaxed matchings: the centre first, then random ones halfway to it.

    The centre has equal entries where there is no mask, and is the matrix of largest entropy where
    there is one. The random ones are scaled matrices of uniform numbers (Vogelstein et al. 2015).

    Args:
        num: How many.
        shape: (n, m), or (S, n, m) for several sites.
        mask: Booleans of that shape (or of (n, m)), pruned, or None.
        rng: The source of randomness.
    """
    n, m = shape[-2:]
    size = max(n, m)
    square = (*shape[:-2], size, size)
    allowed = np.ones(square)
    if mask is not None:
        allowed[..., :n, :m] = mask
    centre = _scaled(allowed)
    starts = (centre + _scaled(allowed * rng.random((num, *square)))) / 2
    starts[0] = centre
    return starts[..., :n, :m]


def _scaled(matrix: np.ndarray) -> np.ndarray:
    """Sinkhorn's scaling of numbers of order one: no logarithms, and nothing to compile."""
    for _ in range(_SINKHORN_STEPS):
        matrix = matrix / matrix.sum(axis=-1, keepdims=True)
        matrix = matrix / matrix.sum(axis=-2, keepdims=True)
    return matrix


def solve(scores: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """The best matchings (..., n) under scores (..., n, m), on the host."""
    return np.asarray(assignment.solve(scores, mask, backend="host"), dtype=np.int64)
