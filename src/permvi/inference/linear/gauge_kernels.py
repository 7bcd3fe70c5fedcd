"""Compiled loops over candidate pairs: optimal prices and Sinkhorn steps; they import numba."""

import numpy as np

from permvi._compiled import compiled


@compiled()
def shortest_prices(
    ends: np.ndarray,
    cols: np.ndarray,
    scores: np.ndarray,
    row_alone: np.ndarray,
    col_alone: np.ndarray,
    best: np.ndarray,
    max_rounds: int,
) -> np.ndarray:
    """Return (m+1,) shortest distances in the residual graph of the best matching (n,).

    Node j is column j and node m the ground, the partner of what stays alone. The edge c -> d has
    the length of what the row that holds c loses by taking d. There are no cycles of negative
    length, so rounds of Bellman and Ford end; ``max_rounds`` guards against rounding.
    """
    n, m = len(row_alone), len(col_alone)
    distance = np.zeros(m + 1)
    held = np.zeros(n)
    used = np.zeros(m, np.bool_)
    for i in range(n):
        if best[i] < 0:
            held[i] = row_alone[i]
            continue
        used[best[i]] = True
        for e in range(ends[i], ends[i + 1]):
            if cols[e] == best[i]:
                held[i] = scores[e]
    for _ in range(max_rounds):
        changed = False
        for i in range(n):
            here = best[i] if best[i] >= 0 else m
            start = distance[here] + held[i]
            for e in range(ends[i], ends[i + 1]):
                reached = start - scores[e]
                if reached < distance[cols[e]] - 1e-12 * abs(reached):
                    distance[cols[e]] = reached
                    changed = True
            if start - row_alone[i] < distance[m] - 1e-12 * abs(start):
                distance[m] = start - row_alone[i]
                changed = True
        for j in range(m):
            if not used[j] and distance[j] + col_alone[j] < distance[m]:
                distance[m] = distance[j] + col_alone[j]
                changed = True
            if distance[m] - col_alone[j] < distance[j]:
                distance[j] = distance[m] - col_alone[j]
                changed = True
        if not changed:
            break
    return distance


@compiled()
def sinkhorn_steps(
    ends: np.ndarray,
    cols: np.ndarray,
    weights: np.ndarray,
    row_alone: np.ndarray,
    col_alone: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    num_steps: int,
    tolerance: float,
) -> float:
    """Scale rows by ``a`` and columns by ``b``, in place, until rows sum to one.

    Each step ends with the columns, so they sum to one. A row sums over its pairs and its weight of
    staying alone. Stop after ``num_steps`` or when no row is off by more than ``tolerance``; return
    how far the worst row was off before the last step.
    """
    n, m = len(a), len(b)
    sums = np.empty(m)
    worst = np.inf
    for _ in range(num_steps):
        worst = 0.0
        for j in range(m):
            sums[j] = col_alone[j]
        for i in range(n):
            total = row_alone[i]
            for e in range(ends[i], ends[i + 1]):
                total += weights[e] * b[cols[e]]
            worst = max(worst, abs(total * a[i] - 1.0))
            a[i] = 1.0 / total
            for e in range(ends[i], ends[i + 1]):
                sums[cols[e]] += weights[e] * a[i]
        for j in range(m):
            b[j] = 1.0 / sums[j]
        if worst <= tolerance:
            break
    return worst
