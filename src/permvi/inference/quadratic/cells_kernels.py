"""Compiled functions of cells of rows: which rows are twins, and draws from a reference.

Importing them imports numba.
"""

import numpy as np

from permvi._compiled import compiled


@compiled()
def _are_twins(
    A: np.ndarray,
    spread: float,
    C: np.ndarray,
    allowed: np.ndarray,
    perm: np.ndarray,
    most: tuple[float, float],
    i: int,
    j: int,
) -> bool:
    """Return whether rows i and j are twins, see `twins.Twins.of`."""
    n = len(A)
    # Edges first, since they tell most rows apart after few steps.
    change = abs(A[i, i] - A[j, j]) + abs(A[i, j] - A[j, i])
    for k in range(n):
        if k != i and k != j:
            change += abs(A[i, k] - A[j, k]) + abs(A[k, i] - A[k, j])
        if change * spread > most[0]:
            return False
    low, high = np.inf, -np.inf
    for k in range(n):
        if allowed[i, k] != allowed[j, k]:
            return False
        if allowed[i, k] and (perm.size == 0 or k == perm[i] or k == perm[j]):
            low, high = min(low, C[i, k] - C[j, k]), max(high, C[i, k] - C[j, k])
            if high - low > most[1]:
                return False
    return True


@compiled()
def twin_classes(
    A: np.ndarray,
    spread: float,
    C: np.ndarray,
    allowed: np.ndarray,
    perm: np.ndarray,
    most: tuple[float, float],
) -> np.ndarray:
    """Return (n,) for each row the first one that is its twin.

    ``spread`` is the difference between the largest and the smallest entry of B, and ``perm`` is
    (n,), or (0,) for twins in all permutations.
    """
    n = len(A)
    labels = np.arange(n)
    for i in range(n):
        for j in range(i):
            if labels[j] == j and _are_twins(A, spread, C, allowed, perm, most, i, j):
                labels[i] = j
                break
    return labels


@compiled()
def _shuffle(items: np.ndarray, count: int, rng: np.random.Generator) -> None:
    for i in range(count - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        items[i], items[j] = items[j], items[i]


@compiled()
def _draw(log_weights: np.ndarray, rng: np.random.Generator) -> int:
    """Draw an index with given log probabilities."""
    left, found = rng.random(), 0
    for k in range(log_weights.size):
        p = np.exp(log_weights[k])
        if p > 0.0:
            left, found = left - p, k
        if left < 0.0:
            break
    return found


@compiled()
def draw_reference(
    log_sums: np.ndarray,
    log_sizes: np.ndarray,
    log_terms: np.ndarray,
    members: np.ndarray,
    bounds: np.ndarray,
    centre: np.ndarray,
    perms: np.ndarray,
    rng: np.random.Generator,
) -> None:
    r"""Draw from the reference, :math:`p(\pi) \propto \exp \sum_i \lambda_i 1[\pi(i) \in r(c_i)]`.

    With :math:`e^{\lambda} = 1 + w` the product is a sum over sets of pairs that are held, each
    inside a cell and with weight w; all other rows are shuffled.

    Args:
        log_sums: (cells+1, n+1) at (c, k): log weight of holding k pairs of the first c cells.
        log_sizes: (n+1,) log probabilities of holding k pairs.
        log_terms: (n + cells,) log weights of holding 0 to all pairs of each cell, one by one.
        members: (n,) rows, cell by cell.
        bounds: (cells+1,) where the rows of each cell begin.
        centre: (n,) the permutation r.
        perms: (num, n) the result.
        rng: The source of randomness.
    """
    for perm in perms:
        left, count = _draw(log_sizes, rng), 0
        rows, cols = members.copy(), centre[members]
        free_rows, free_cols = np.empty_like(rows), np.empty_like(cols)
        for c in range(bounds.size - 2, -1, -1):
            begin, size = bounds[c], bounds[c + 1] - bounds[c]
            most = min(size, left)
            terms = log_terms[begin + c : begin + c + most + 1] - log_sums[c + 1, left]
            for k in range(most + 1):
                terms[k] += log_sums[c, left - k]
            held = _draw(terms, rng)
            left -= held
            _shuffle(rows[begin : begin + size], size, rng)
            _shuffle(cols[begin : begin + size], size, rng)
            for k in range(begin, begin + held):
                perm[rows[k]] = cols[k]
            for k in range(begin + held, begin + size):
                free_rows[count], free_cols[count] = rows[k], cols[k]
                count += 1
        _shuffle(free_cols, count, rng)
        for k in range(count):
            perm[free_rows[k]] = free_cols[k]
