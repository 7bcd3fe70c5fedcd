"""The compiled host solver: shortest augmenting paths, then the smallest of the tied optima.

Importing this module imports numba, so it is imported on first use. All compiled functions are in
this one file because numba's disk cache checks only this file to tell whether it is stale.
"""

import numba
import numpy as np

from permvi._assignment import HUGE, INFEASIBLE, NOT_FINITE, SHRINK, SOLVED, TIE_ULPS
from permvi._compiled import compiled

_TOLERANCE = TIE_ULPS * float(np.finfo(np.float64).eps)


# What only compiled code calls is kept on disk with its caller.
_inner = numba.njit
# Ignoring NaN and the sign of zero lets loops over a row become vector instructions.
_vectorised = numba.njit(fastmath={"nnan", "nsz"})


@compiled()
def solve_batch(
    scores: np.ndarray, mask: np.ndarray, sign: float, perm: np.ndarray, status: np.ndarray
) -> None:
    """Minimise ``sign * scores`` over assignments, one problem after another.

    Args:
        scores: (batch, n, m) floats.
        mask: True where allowed: (batch, n, m), or (1, n, m) for all, or (1, 0, 0) for no mask.
        sign: 1 to minimise, -1 to maximise.
        perm: (batch, n) integers to fill: the columns, -1 for rows left over (all if unsolved).
        status: (batch,) integers to fill: SOLVED, NOT_FINITE or INFEASIBLE.
    """
    batch, n, m = scores.shape
    cost = np.empty((n, m))
    transposed = np.empty((m, n) if n > m else (0, 0))
    u, v = np.empty(n), np.empty(m)
    col_of, row_of = np.empty(n, np.int64), np.empty(m, np.int64)
    for b in range(batch):
        status[b] = _load(scores[b], mask[min(b, len(mask) - 1)], sign, cost)
        if status[b] == SOLVED:
            if n > m:
                for i in range(n):
                    for j in range(m):
                        transposed[j, i] = cost[i, j]
                solved = _augment(transposed, v, u, row_of, col_of)
            else:
                solved = _augment(cost, u, v, col_of, row_of)
            if solved:
                _break_ties(cost, u, v, col_of, row_of)
            else:
                status[b] = INFEASIBLE
        for i in range(n):
            perm[b, i] = col_of[i] if status[b] == SOLVED else -1


@_inner
def _load(scores: np.ndarray, mask: np.ndarray, sign: float, cost: np.ndarray) -> int:
    """Fill ``cost``, with infinity where forbidden, and report whether the rest is finite."""
    n, m = cost.shape
    masked = mask.size > 0
    largest = 0.0
    for i in range(n):
        for j in range(m):
            if masked and not mask[i, j]:
                cost[i, j] = np.inf
            else:
                cost[i, j] = sign * scores[i, j]
                size = abs(cost[i, j])
                if not size < np.inf:
                    return NOT_FINITE
                largest = max(largest, size)
    if largest > HUGE:
        for i in range(n):
            for j in range(m):
                cost[i, j] *= SHRINK
    return SOLVED


@_inner
def _augment(
    cost: np.ndarray, u: np.ndarray, v: np.ndarray, col_of: np.ndarray, row_of: np.ndarray
) -> bool:
    """Match all n <= m rows at least cost, by Dijkstra from each row left by a greedy start.

    Fills the potentials (``cost - u - v >= 0``, zero on the matching; ``v <= 0`` and zero on free
    columns if n < m) and the matching, -1 for unmatched. Returns False if no matching is allowed.
    """
    n, m = cost.shape
    if not _start(cost, u, v, col_of, row_of):
        return False
    # Distances of the open columns; settled ones have infinity, and v = -inf keeps them closed.
    dist, open_v, reached_from = np.empty(m), np.empty(m), np.empty(m, np.int64)
    # The rows reached, after the root, and their distances.
    tree, tree_dist = np.empty(n, np.int64), np.empty(n)
    for root in range(n):
        if col_of[root] >= 0:
            continue
        for j in range(m):
            dist[j], open_v[j] = np.inf, v[j]
        row, low, num_tree = root, 0.0, 0
        while True:
            _relax(cost[row], open_v, low - u[row], row, dist, reached_from)
            low = _lowest(dist)
            if low == np.inf:
                return False
            column = -1
            for j in range(m):
                if dist[j] == low:
                    if row_of[j] < 0:
                        column = j
                        break
                    if column < 0:
                        column = j
            if row_of[column] < 0:
                break
            row = row_of[column]
            tree[num_tree], tree_dist[num_tree] = row, low
            num_tree += 1
            dist[column], open_v[column] = np.inf, -np.inf

        u[root] += low
        for k in range(num_tree):
            u[tree[k]] += low - tree_dist[k]
            v[col_of[tree[k]]] -= low - tree_dist[k]
        while True:
            row = reached_from[column]
            row_of[column] = row
            column, col_of[row] = col_of[row], column
            if row == root:
                break
    return True


@_vectorised
def _relax(
    cost: np.ndarray,
    v: np.ndarray,
    offset: float,
    row: int,
    dist: np.ndarray,
    reached_from: np.ndarray,
) -> None:
    """Reduce the distances of columns that are nearer through ``row``."""
    for j in range(len(dist)):
        length = offset + cost[j] - v[j]
        nearer = length < dist[j]
        dist[j] = length if nearer else dist[j]
        reached_from[j] = row if nearer else reached_from[j]


@_vectorised
def _lowest(values: np.ndarray) -> float:
    low = np.inf
    for j in range(len(values)):
        low = min(low, values[j])
    return low


@_inner
def _start(
    cost: np.ndarray, u: np.ndarray, v: np.ndarray, col_of: np.ndarray, row_of: np.ndarray
) -> bool:
    """Feasible potentials from row (and column) minima, and a greedy matching of tight entries.

    Returns False if a row has no allowed entry, or a column if all columns are needed.
    """
    n, m = cost.shape
    row_of[:] = -1
    col_of[:] = -1
    for i in range(n):
        u[i] = _lowest(cost[i])
        if u[i] == np.inf:
            return False
    v[:] = np.inf if n == m else 0.0
    if n == m:
        # A column may be raised only if it cannot be left free.
        for i in range(n):
            for j in range(m):
                v[j] = min(v[j], cost[i, j] - u[i])
        for j in range(m):
            if v[j] == np.inf:
                return False
    for i in range(n):
        for j in range(m):
            if row_of[j] < 0 and cost[i, j] - u[i] == v[j]:
                col_of[i], row_of[j] = j, i
                break
    return True


@_inner
def _break_ties(
    cost: np.ndarray, u: np.ndarray, v: np.ndarray, col_of: np.ndarray, row_of: np.ndarray
) -> None:
    """Replace an optimal matching by the lexicographically smallest one.

    Being unmatched becomes an entry like any other: column m is held by the rows that are left
    over (n > m), and row n holds the columns that are left over (n < m).
    """
    n, m = cost.shape
    tight, high_v = np.empty((n + 1, m + 1), np.bool_), np.empty(m)
    for j in range(m):
        matched = cost[row_of[j], j] if row_of[j] >= 0 else 0.0
        slack = _TOLERANCE * (abs(v[j]) + abs(matched))
        high_v[j] = v[j] + slack
        tight[n, j] = n < m and v[j] >= -slack
    for i in range(n):
        matched = cost[i, col_of[i]] if col_of[i] >= 0 else 0.0
        slack = _TOLERANCE * (abs(u[i]) + abs(matched))
        for j in range(m):
            tight[i, j] = cost[i, j] <= u[i] + slack + high_v[j]
        tight[i, m] = n > m and u[i] >= -slack
    tight[n, m] = False
    for i in range(n):
        if col_of[i] >= 0:
            tight[i, col_of[i]] = True
    for i in range(n):
        if col_of[i] < 0:
            col_of[i] = m
    for j in range(m):
        if row_of[j] < 0:
            row_of[j] = n
    fixed = np.empty(n + 1, np.bool_)
    if _fix_forced_rows(tight, col_of, row_of, fixed) <= n:
        _shift_to_smallest(tight, col_of, row_of, fixed)
    for i in range(n):
        if col_of[i] == m:
            col_of[i] = -1


@_inner
def _fix_forced_rows(
    tight: np.ndarray, col_of: np.ndarray, row_of: np.ndarray, fixed: np.ndarray
) -> int:
    """Mark rows that are the same in all optimal matchings (perhaps not all); return their number.

    A change needs a cycle of rows, each taking the next one's column. A column that no other row
    can take is in no cycle, so a row that holds only such columns keeps them.
    """
    n, m = len(col_of), len(row_of)
    takers, num_held = np.empty(m + 1, np.int64), np.empty(n + 1, np.int64)
    takers[:] = 0
    num_held[:] = 1
    fixed[:] = False
    for i in range(n + 1):
        for j in range(m + 1):
            takers[j] += tight[i, j]
    for i in range(n):
        takers[col_of[i]] -= 1
    for j in range(m):
        takers[j] -= row_of[j] == n
    num_held[n] = m - n
    fixed[n] = n >= m
    num_fixed = 1 if n >= m else 0
    settled, num_settled, num_done = np.empty(m + 1, np.int64), 0, 0
    for j in range(m + 1):
        if takers[j] == 0:
            settled[num_settled] = j
            num_settled += 1
    while num_done < num_settled:
        column = settled[num_done]
        num_done += 1
        start, stop = (0, n) if column == m else (row_of[column], row_of[column] + 1)
        for i in range(start, stop):
            if column == m and col_of[i] != m:
                continue
            num_held[i] -= 1
            if num_held[i] > 0:
                continue
            fixed[i] = True
            num_fixed += 1
            for j in range(m + 1):
                if tight[i, j] and (col_of[i] != j if i < n else row_of[j] != n):
                    takers[j] -= 1
                    if takers[j] == 0:
                        settled[num_settled] = j
                        num_settled += 1
    return num_fixed


@_inner
def _shift_to_smallest(
    tight: np.ndarray, col_of: np.ndarray, row_of: np.ndarray, fixed: np.ndarray
) -> None:
    """Row by row, take the smallest column that rows not yet fixed can give up; fix the row."""
    n, m = len(col_of), len(row_of)
    moves_to, waiting = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    given_by, queue = np.empty(m + 1, np.int64), np.empty(m + 1, np.int64)
    for i in range(n):
        if fixed[i]:
            continue
        fixed[i] = True
        old = col_of[i]
        first = 0
        while first < old and not (tight[i, first] and not fixed[row_of[first]]):
            first += 1
        if first == old:
            continue

        # Search backwards from the column that i would leave: rows that can move there, and so on.
        given_by[:] = -1
        given_by[old] = i
        queue[0] = old
        num_queue, num_done, num_waiting = 1, 0, 0
        for k in range(i + 1, n + 1):
            if not fixed[k]:
                waiting[num_waiting] = k
                num_waiting += 1
        while num_done < num_queue and given_by[first] < 0:
            j = queue[num_done]
            num_done += 1
            position = 0
            while position < num_waiting:
                k = waiting[position]
                if not tight[k, j]:
                    position += 1
                    continue
                num_waiting -= 1
                waiting[position] = waiting[num_waiting]
                moves_to[k] = j
                start, stop = (0, m) if k == n else (col_of[k], col_of[k] + 1)
                for held in range(start, stop):
                    if given_by[held] < 0 and (k < n or row_of[held] == n):
                        given_by[held] = k
                        queue[num_queue] = held
                        num_queue += 1

        j = first
        while j < old and not (tight[i, j] and given_by[j] >= 0):
            j += 1
        row = i
        while j != old:
            giver = given_by[j]
            _take(row, j, col_of, row_of)
            row, j = giver, moves_to[giver]
        if row != i:
            _take(row, old, col_of, row_of)


@_inner
def _take(row: int, column: int, col_of: np.ndarray, row_of: np.ndarray) -> None:
    if row < len(col_of):
        col_of[row] = column
    if column < len(row_of):
        row_of[column] = row
