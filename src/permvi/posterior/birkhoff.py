r"""The Birkhoff-von Neumann decomposition: a doubly stochastic matrix as a mixture of permutations.

:math:`P = \sum_k w_k X_k`. Find a perfect matching in the support of P, take its smallest entry as
its weight and subtract that weight from all its entries. Replace entries that became zero along the
alternating path whose smallest entry is largest, and repeat. Every step removes an entry, so there
are at most n^2 - 2n + 2 steps (Marcus and Ree 1959), each O(n^2) per entry removed.
"""

import numpy as np
from scipy.optimize import linear_sum_assignment

from permvi._compiled import compiled

# Entries below this are zeros with rounding errors.
_ZERO = 1e-13


def decompose_birkhoff(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decompose P into permutations and weights whose mixture has the marginals P, up to rounding.

    Args:
        P: (n, n) doubly stochastic.

    Returns:
        (terms, n) permutations and (terms,) weights that sum to one. The first permutation has the
        largest product of entries.
    """
    n = len(P)
    rest = np.where(P < _ZERO, 0.0, P)
    with np.errstate(divide="ignore"):
        log_p = np.log(rest)
    first = linear_sum_assignment(log_p, maximize=True)[1]
    perms = np.empty((n * n + 1, n), dtype=np.int32)
    weights = np.empty(n * n + 1)
    count = _peel(rest, first.astype(np.int32), _ZERO, perms, weights)
    return perms[:count], weights[:count] / weights[:count].sum()


@compiled()
def _peel(
    rest: np.ndarray, column: np.ndarray, zero: float, perms: np.ndarray, weights: np.ndarray
) -> int:
    """Fill ``perms`` and ``weights`` and return the number of terms; ``rest`` is overwritten."""
    n = len(rest)
    row = np.empty(n, dtype=np.int32)
    for i in range(n):
        row[column[i]] = i
    count = 0
    while count < len(weights):
        weight = 1.0
        for i in range(n):
            weight = min(weight, rest[i, column[i]])
        perms[count] = column
        weights[count] = weight
        count += 1
        for i in range(n):
            rest[i, column[i]] -= weight
        for i in range(n):
            if rest[i, column[i]] > zero:
                continue
            rest[i, column[i]] = 0.0
            row[column[i]] = -1
            column[i] = -1
        for i in range(n):
            if column[i] < 0 and not _augment(rest, column, row, i):
                return count
    return count


@compiled()
def _augment(rest: np.ndarray, column: np.ndarray, row: np.ndarray, start: int) -> bool:
    """Match a free row along the widest alternating path (Dijkstra); False if there is none."""
    n = len(rest)
    width = rest[start].copy()
    before = np.full(n, start, dtype=np.int32)
    done = np.zeros(n, dtype=np.bool_)
    while True:
        j = -1
        for k in range(n):
            if not done[k] and width[k] > 0 and (j < 0 or width[k] > width[j]):
                j = k
        if j < 0:
            return False
        done[j] = True
        if row[j] < 0:
            break
        holder = row[j]
        for k in range(n):
            reach = min(width[j], rest[holder, k])
            if not done[k] and reach > width[k]:
                width[k] = reach
                before[k] = holder
    while True:
        i = before[j]
        given_up = column[i]
        column[i] = j
        row[j] = i
        if i == start:
            return True
        j = given_up
