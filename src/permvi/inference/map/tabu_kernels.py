"""Compiled local search on the swap differences of quadratic problems; this imports numba.

``D[i, j]`` is the gain of swapping the columns of rows i < j. All gains cost O(n^3) once. After a
swap of u and v, those with u or v cost O(n) each and the others O(1) (Taillard 1991), so a step
costs O(n^2). ``P[i, k] = B[perm[i], perm[k]]`` is kept beside D, so that all loops run along rows.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled

# There are no NaNs, and the sign of zero does not matter: maxima can use vector instructions.
_FINITE = REORDERED_SUMS | {"nnan", "nsz"}


@compiled(fastmath=REORDERED_SUMS)
def _difference(
    A: np.ndarray,
    P: np.ndarray,
    C: np.ndarray,
    perm: np.ndarray,
    i: int,
    j: int,
    symmetric: bool,  # noqa: FBT001 (numba)
) -> float:
    """Return the gain in ``<A, X B X'> + <C, X>`` of swapping rows i and j, in O(n)."""
    total = 0.0
    for k in range(perm.size):
        total += (A[i, k] - A[j, k]) * (P[j, k] - P[i, k])
    # The rows i and j are no others.
    total -= (A[i, i] - A[j, i]) * (P[j, i] - P[i, i]) + (A[i, j] - A[j, j]) * (P[j, j] - P[i, j])
    if symmetric:
        total *= 2.0
    else:
        for k in range(perm.size):
            if k != i and k != j:
                total += (A[k, i] - A[k, j]) * (P[k, j] - P[k, i])
    total += (A[i, i] - A[j, j]) * (P[j, j] - P[i, i]) + (A[i, j] - A[j, i]) * (P[j, i] - P[i, j])
    a, b = perm[i], perm[j]
    return total + C[i, b] + C[j, a] - C[i, a] - C[j, b]


@compiled()
def all_differences(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    perm: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    P: np.ndarray,
    D: np.ndarray,
) -> None:
    """Fill P, (n, n), and the upper triangle of D, (n, n), with all swap differences.

    ``symmetric`` says that A and B are, which saves half of the work.
    """
    n = perm.size
    for i in range(n):
        for k in range(n):
            P[i, k] = B[perm[i], perm[k]]
    for i in range(n):
        for j in range(i + 1, n):
            D[i, j] = _difference(A, P, C, perm, i, j, symmetric)


@compiled(fastmath=REORDERED_SUMS)
def take_swap(
    A: np.ndarray,
    C: np.ndarray,
    perm: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    u: int,
    v: int,
    P: np.ndarray,
    D: np.ndarray,
) -> None:
    """Swap rows u and v of a permutation, and update P and D."""
    n = perm.size
    perm[u], perm[v] = perm[v], perm[u]
    for k in range(n):
        P[u, k], P[v, k] = P[v, k], P[u, k]
    for k in range(n):
        P[k, u], P[k, v] = P[k, v], P[k, u]
    a, p = np.empty(n), np.empty(n)
    for k in range(n):
        a[k], p[k] = A[u, k] - A[v, k], P[v, k] - P[u, k]
    if symmetric:
        for i in range(n):
            # The sums of out- and inwards edges are the same.
            ai, pi = 2.0 * a[i], p[i]
            for j in range(i + 1, n):
                D[i, j] += (ai - 2.0 * a[j]) * (pi - p[j])
    else:
        c, q = np.empty(n), np.empty(n)
        for k in range(n):
            c[k], q[k] = A[k, u] - A[k, v], P[k, v] - P[k, u]
        for i in range(n):
            for j in range(i + 1, n):
                D[i, j] += (a[i] - a[j]) * (p[i] - p[j]) + (c[i] - c[j]) * (q[i] - q[j])
    for k in range(n):
        if k != u:
            D[min(k, u), max(k, u)] = _difference(A, P, C, perm, min(k, u), max(k, u), symmetric)
        if k not in (u, v):
            D[min(k, v), max(k, v)] = _difference(A, P, C, perm, min(k, v), max(k, v), symmetric)


@compiled()
def swap_ascent(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    allowed: np.ndarray,
    perm: np.ndarray,
    tolerance: float,
) -> int:
    """Take the best allowed swap, in place, while it gains more than the tolerance; count them."""
    n = perm.size
    D, P = np.zeros((n, n)), np.empty((n, n))
    all_differences(A, B, C, perm, symmetric, P, D)
    num_swaps = 0
    while True:
        best, u, v = tolerance, -1, -1
        for i in range(n):
            for j in range(i + 1, n):
                if D[i, j] > best and allowed[i, perm[j]] and allowed[j, perm[i]]:
                    best, u, v = D[i, j], i, j
        if u < 0:
            return num_swaps
        take_swap(A, C, perm, symmetric, u, v, P, D)
        num_swaps += 1


@compiled(fastmath=_FINITE)
def _largest(values: np.ndarray) -> float:
    """Return the largest of some finite numbers, -inf if there are none."""
    best = -np.inf
    for k in range(values.size):
        best = max(best, values[k])
    return best


@compiled()
def tabu_search(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    allowed: np.ndarray,
    perm: np.ndarray,
    tenures: np.ndarray,
    patience: int,
) -> tuple[np.ndarray, int]:
    """Run robust tabu search (Taillard 1991), in one pass over random tenures (steps, 2).

    Every step takes the best allowed swap that does not bring two rows back to columns that both
    have left recently, unless it leads to the best matching so far. The two columns that a swap
    leaves stay forbidden for as many steps as its tenures. A swap whose rows have stayed away from
    its columns for longer than ``patience`` steps goes first. ``perm`` changes in place; return the
    best permutation (n,) seen, and how many swaps were made.
    """
    n = perm.size
    D, P = np.zeros((n, n)), np.empty((n, n))
    all_differences(A, B, C, perm, symmetric, P, D)
    until = np.zeros((n, n), np.int64)
    for i in range(n):
        for j in range(n):
            # Staggered, so that patience does not end for all at once.
            until[i, j] = -(n * i + j)
    free = allowed.all()
    best_perm, gain, best_gain, num_swaps = perm.copy(), 0.0, 0.0, 0
    for step in range(1, tenures.shape[0] + 1):
        u, v, chosen, urgent, possible = -1, -1, -np.inf, False, False
        old, missing = step - patience, best_gain - gain
        # Nothing can have waited for too long in the first steps.
        early = step < patience - n * n
        for i in range(n):
            pi = perm[i]
            # Most swaps, and most rows, are no better than the one chosen so far.
            if (urgent or early) and _largest(D[i, i + 1 :]) <= chosen:
                continue
            for j in range(i + 1, n):
                d = D[i, j]
                if d <= chosen and (urgent or early):
                    continue
                if not free and not (allowed[i, perm[j]] and allowed[j, pi]):
                    continue
                possible = True
                first, second = until[i, perm[j]], until[j, pi]
                aspired = d > missing or (first < old and second < old)
                if (aspired and not urgent) or (
                    (aspired or (not urgent and (first < step or second < step))) and d > chosen
                ):
                    u, v, chosen = i, j, d
                    urgent = urgent or aspired
        if not possible:
            break
        if u < 0:
            continue
        until[u, perm[u]] = step + tenures[step - 1, 0]
        until[v, perm[v]] = step + tenures[step - 1, 1]
        take_swap(A, C, perm, symmetric, u, v, P, D)
        gain += chosen
        num_swaps += 1
        if gain > best_gain:
            best_gain = gain
            best_perm[:] = perm
    return best_perm, num_swaps
