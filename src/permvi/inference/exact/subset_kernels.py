"""Compiled inner loops of the subset programme. Importing this module imports numba.

A set of used labels is the integer whose bits are its members; tables have a float for each of the
2^N sets. A layer has sets of the sizes ``low <= size <= high``, its *window* (low, high), and the
loops visit only those. Entries of other sizes belong to other layers, so a neighbouring layer is
read only within its own window. Item t takes label j with weight ``moves[j]``, (N,), and stays
unmatched with weight ``stay``.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled

_compile = compiled(fastmath=REORDERED_SUMS)


@_compile
def _next_set(members: int) -> int:
    """Return the next larger integer with as many bits (Gosper); for 0, one beyond any table."""
    if members == 0:
        return 1 << 62
    lowest = members & -members
    ripple = members + lowest
    return (((ripple ^ members) >> 2) // lowest) | ripple


@_compile
def step_back(
    table: np.ndarray, moves: np.ndarray, stay: float, window: np.ndarray, next_window: np.ndarray
) -> None:
    """Replace B_{t+1} by ``B_t[S] = stay B_{t+1}[S] + sum_{j not in S} moves[j] B_{t+1}[S + j]``.

    Changes ``table`` in place, from the window of layer t+1, ``next_window``, to that of layer t.
    """
    for size in range(window[0], window[1] + 1):
        may_stay = next_window[0] <= size <= next_window[1]
        may_move = next_window[0] <= size + 1 <= next_window[1]
        members = (1 << size) - 1
        while members < table.size:
            total = stay * table[members] if may_stay else 0.0
            if may_move:
                # With this entry zero, a label already in the set adds nothing: no branch needed.
                table[members] = 0.0
                for j in range(moves.size):
                    total += moves[j] * table[members | (1 << j)]
            table[members] = total
            members = _next_set(members)


@_compile
def step_forward(
    table: np.ndarray,
    backward: np.ndarray,
    moves: np.ndarray,
    stay: float,
    window: np.ndarray,
    last_window: np.ndarray,
    sums: np.ndarray,
) -> None:
    """Replace F_t by F_{t+1} in ``table`` and sum the marginals of item t.

    ``F_{t+1}[S] = stay F_t[S] + sum_{j in S} moves[j] F_t[S - j]``. ``backward`` is B_{t+1},
    ``window`` that of layer t+1 and ``last_window`` that of layer t. ``sums``, (N+1,), receives
    ``sum_S F_t[S - j] B_{t+1}[S]`` for each label j, and ``sum_S F_t[S] B_{t+1}[S]`` last.
    """
    for size in range(window[1], window[0] - 1, -1):
        may_stay = last_window[0] <= size <= last_window[1]
        may_move = last_window[0] <= size - 1 <= last_window[1]
        members = (1 << size) - 1
        while members < table.size:
            after = backward[members]
            total = 0.0
            if may_stay:
                total = stay * table[members]
                sums[moves.size] += table[members] * after
            if may_move:
                table[members] = 0.0
                for j in range(moves.size):
                    before = table[members & ~(1 << j)]
                    total += moves[j] * before
                    sums[j] += before * after
            table[members] = total
            members = _next_set(members)


@_compile
def add_leftovers(
    forward: np.ndarray, backward: np.ndarray, window: np.ndarray, sums: np.ndarray
) -> None:
    """Sum, for each label j, the weight of the matchings that leave it unused.

    ``sums``, (N,), receives ``sum over S without j of F_M[S] B_M[S]``; ``forward`` is F_M,
    ``backward`` B_M and ``window`` that of layer M.
    """
    for size in range(window[0], window[1] + 1):
        members = (1 << size) - 1
        while members < forward.size:
            joint = forward[members] * backward[members]
            for j in range(sums.size):
                sums[j] += joint * (1 - ((members >> j) & 1))
            members = _next_set(members)


@_compile
def step_draw(
    used: np.ndarray,
    uniforms: np.ndarray,
    backward: np.ndarray,
    moves: np.ndarray,
    stay: float,
    window: np.ndarray,
    chosen: np.ndarray,
) -> None:
    """Draw the label of item t for many independent matchings at once.

    ``used``, (num,), holds the sets of labels used so far and is changed in place; ``chosen``,
    (num,), receives the labels, -1 for none. ``uniforms``, (num,), are variates in [0, 1),
    ``backward`` is B_{t+1} and ``window`` that of layer t+1.
    """
    size = moves.size
    weights = np.zeros(size + 1)
    for k in range(used.size):
        members = used[k]
        count = 0
        for j in range(size):
            count += (members >> j) & 1
        weights[size] = stay * backward[members] if window[0] <= count <= window[1] else 0.0
        total = weights[size]
        may_move = window[0] <= count + 1 <= window[1]
        for j in range(size):
            free = may_move and not (members >> j) & 1
            weights[j] = moves[j] * backward[members | (1 << j)] if free else 0.0
            total += weights[j]
        left = uniforms[k] * total
        pick = -1
        for j in range(size + 1):
            # Rounding must never pick an option of weight zero.
            if weights[j] > 0.0:
                pick = j
                left -= weights[j]
                if left < 0.0:
                    break
        if pick == size:
            chosen[k] = -1
        else:
            chosen[k] = pick
            used[k] = members | (1 << pick)
