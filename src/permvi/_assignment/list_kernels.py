"""Compiled search for the best matching of lists of pairs; importing this imports numba."""

from heapq import heappop, heappush

import numpy as np

from permvi._compiled import compiled

# Bids for each row. Those that are still free then would mostly outbid each other.
_BIDS = 20


@compiled()
def _bid(
    starts: np.ndarray,
    cols: np.ndarray,
    scores: np.ndarray,
    row_alone: np.ndarray,
    row_price: np.ndarray,
    col_price: np.ndarray,
    col_of: np.ndarray,
    row_of: np.ndarray,
) -> None:
    """Match rows with columns by bids, in place, as far as that goes quickly.

    A free row takes the column it gains most from and raises its price until the next best choice
    is as good; the row that held the column is free again. So prices prove at any time that those
    who are matched are matched best: this is the row reduction of Jonker and Volgenant (1987). A
    row with two choices that are equally good does not displace anybody.
    """
    n = len(row_alone)
    waiting, after = np.arange(n), np.empty(n, np.int64)
    num_waiting, left = n, _BIDS * n
    while 0 < num_waiting <= left:
        left -= num_waiting
        num_after = 0
        for k in range(num_waiting):
            row = waiting[k]
            price, second, col = row_alone[row], -np.inf, np.int64(-1)
            for e in range(starts[row], starts[row + 1]):
                value = scores[e] - col_price[cols[e]]
                if value > price or (value == price and col >= 0 and row_of[col] >= 0):
                    price, second, col = value, price, cols[e]
                elif value > second:
                    second = value
            row_price[row] = price
            if col < 0:
                continue
            held_by = row_of[col]
            if held_by >= 0:
                if second == price or second == -np.inf:
                    continue
                col_of[held_by] = -1
                after[num_after] = held_by
                num_after += 1
            if second > -np.inf:
                row_price[row] = second
                col_price[col] += price - second
            col_of[row], row_of[col] = col, row
        waiting, after, num_waiting = after, waiting, num_after


@compiled()
def match_rows(
    starts: np.ndarray,
    cols: np.ndarray,
    scores: np.ndarray,
    row_alone: np.ndarray,
    col_alone: np.ndarray,
    stopped: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the matching (n,) of largest weight, -1 for unmatched rows, and its prices.

    A -2 stands for a row that can neither be matched nor stay unmatched. Most rows are matched by
    bids. The others are added one by one, each along a shortest path of changes in the graph of
    pairs, found by Dijkstra's algorithm with prices that keep all lengths non-negative. A path ends
    at an unused column or at a row that becomes unmatched. ``starts``, (n+1,), has the first pair
    of each row. A row with ``row_alone`` -inf has to be matched. All of ``col_alone`` are finite.
    Another thread ends the search by setting ``stopped``, (1,), to True.
    """
    n, m = len(row_alone), len(col_alone)
    row_price, col_price = np.zeros(n), col_alone.copy()
    col_of, row_of = np.full(n, -1, np.int64), np.full(m, -1, np.int64)
    _bid(starts, cols, scores, row_alone, row_price, col_price, col_of, row_of)
    distance, before = np.full(m, np.inf), np.full(m, -1, np.int64)
    done = np.zeros(m, np.bool_)
    touched = np.empty(m, np.int64)
    for added in range(n):
        if stopped[0]:
            break
        if col_of[added] >= 0:
            continue
        price = row_alone[added]
        for e in range(starts[added], starts[added + 1]):
            price = max(price, scores[e] - col_price[cols[e]])
        if price == -np.inf:
            col_of[added] = -2
            return col_of, row_price, col_price
        row_price[added] = price
        num_touched = 0
        heap = [(0.0, np.int64(-1))]
        heap.pop()
        length, last_row, last_col = price - row_alone[added], added, np.int64(-1)
        row, so_far = added, 0.0
        while True:
            for e in range(starts[row], starts[row + 1]):
                col = cols[e]
                if done[col]:
                    continue
                reached = so_far + max(row_price[row] + col_price[col] - scores[e], 0.0)
                if reached < distance[col] and reached < length:
                    if distance[col] == np.inf:
                        touched[num_touched] = col
                        num_touched += 1
                    distance[col] = reached
                    before[col] = row
                    heappush(heap, (reached, np.int64(col)))
            nearest, col = np.inf, np.int64(-1)
            while len(heap):
                nearest, col = heappop(heap)
                if not done[col] and nearest <= distance[col]:
                    break
                nearest, col = np.inf, np.int64(-1)
            if col < 0 or nearest >= length:
                break
            if row_of[col] < 0:
                length, last_col = nearest, col
                break
            done[col] = True
            row, so_far = row_of[col], nearest
            alone = so_far + row_price[row] - row_alone[row]
            if alone < length:
                length, last_row = alone, row
        if length == np.inf:
            col_of[added] = -2
            return col_of, row_price, col_price
        row_price[added] -= length
        for t in range(num_touched):
            col = touched[t]
            if done[col]:
                row_price[row_of[col]] -= length - distance[col]
                col_price[col] += length - distance[col]
        col = last_col
        if last_col < 0:
            col = col_of[last_row]
            col_of[last_row] = -1
        while col >= 0:
            row = before[col]
            following = col_of[row]
            col_of[row], row_of[col] = col, row
            col = following
        for t in range(num_touched):
            distance[touched[t]] = np.inf
            done[touched[t]] = False
    return col_of, row_price, col_price
