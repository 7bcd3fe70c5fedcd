"""Compiled local search on the swap differences of quadratic problems; this imports numba.

``D[i, j]`` is the gain of swapping the columns of rows i < j. All gains cost O(n^3) once. After a
swap of u and v, those with u or v cost O(n) each and the others O(1) (Taillard 1991), so a step
costs O(n^2).
"""

import numpy as np

from permvi._compiled import compiled


@compiled()
def swap_difference(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, perm: np.ndarray, i: int, j: int
) -> float:
    """Return the gain in ``<A, X B X'> + <C, X>`` of swapping rows i and j, in O(n)."""
    a, b = perm[i], perm[j]
    total = (A[i, i] - A[j, j]) * (B[b, b] - B[a, a]) + (A[i, j] - A[j, i]) * (B[b, a] - B[a, b])
    total += C[i, b] + C[j, a] - C[i, a] - C[j, b]
    for k in range(perm.size):
        if k != i and k != j:
            p = perm[k]
            total += (A[i, k] - A[j, k]) * (B[b, p] - B[a, p])
            total += (A[k, i] - A[k, j]) * (B[p, b] - B[p, a])
    return total


@compiled()
def all_differences(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, perm: np.ndarray, D: np.ndarray
) -> None:
    """Fill the upper triangle of D, (n, n), with all swap differences."""
    for i in range(perm.size):
        for j in range(i + 1, perm.size):
            D[i, j] = swap_difference(A, B, C, perm, i, j)


@compiled()
def update_differences(
    A: np.ndarray, B: np.ndarray, C: np.ndarray, perm: np.ndarray, u: int, v: int, D: np.ndarray
) -> None:
    """Update D after rows u and v have swapped; ``perm`` is that after the swap."""
    pu, pv = perm[u], perm[v]
    for i in range(perm.size):
        pi = perm[i]
        touched = i in (u, v)
        for j in range(i + 1, perm.size):
            if touched or j in (u, v):
                D[i, j] = swap_difference(A, B, C, perm, i, j)
            else:
                pj = perm[j]
                D[i, j] += (A[u, i] - A[u, j] + A[v, j] - A[v, i]) * (
                    B[pv, pi] - B[pv, pj] + B[pu, pj] - B[pu, pi]
                ) + (A[i, u] - A[j, u] + A[j, v] - A[i, v]) * (
                    B[pi, pv] - B[pj, pv] + B[pj, pu] - B[pi, pu]
                )


@compiled()
def swap_ascent(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    allowed: np.ndarray,
    perm: np.ndarray,
    tolerance: float,
) -> int:
    """Take the best allowed swap, in place, while it gains more than the tolerance; count them."""
    n = perm.size
    D = np.zeros((n, n))
    all_differences(A, B, C, perm, D)
    num_swaps = 0
    while True:
        best, u, v = tolerance, -1, -1
        for i in range(n):
            for j in range(i + 1, n):
                if D[i, j] > best and allowed[i, perm[j]] and allowed[j, perm[i]]:
                    best, u, v = D[i, j], i, j
        if u < 0:
            return num_swaps
        perm[u], perm[v] = perm[v], perm[u]
        update_differences(A, B, C, perm, u, v, D)
        num_swaps += 1


@compiled()
def tabu_search(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
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
    D = np.zeros((n, n))
    all_differences(A, B, C, perm, D)
    until = np.zeros((n, n), np.int64)
    for i in range(n):
        for j in range(n):
            # Staggered, so that patience does not end for all at once.
            until[i, j] = -(n * i + j)
    best_perm, gain, best_gain, num_swaps = perm.copy(), 0.0, 0.0, 0
    for step in range(1, tenures.shape[0] + 1):
        u, v, chosen, urgent, possible = -1, -1, -np.inf, False, False
        for i in range(n):
            for j in range(i + 1, n):
                if not (allowed[i, perm[j]] and allowed[j, perm[i]]):
                    continue
                possible = True
                first, second = until[i, perm[j]], until[j, perm[i]]
                free = first < step or second < step
                aspired = gain + D[i, j] > best_gain or (
                    first < step - patience and second < step - patience
                )
                if (aspired and not urgent) or (
                    (aspired or (free and not urgent)) and D[i, j] > chosen
                ):
                    u, v, chosen = i, j, D[i, j]
                    urgent = urgent or aspired
        if not possible:
            break
        if u < 0:
            continue
        until[u, perm[u]] = step + tenures[step - 1, 0]
        until[v, perm[v]] = step + tenures[step - 1, 1]
        perm[u], perm[v] = perm[v], perm[u]
        gain += chosen
        num_swaps += 1
        update_differences(A, B, C, perm, u, v, D)
        if gain > best_gain:
            best_gain = gain
            best_perm[:] = perm
    return best_perm, num_swaps
