"""Compiled loops of the frontier programme; importing them imports numba.

A *layer* is the list of states before a row: bit sets of the open columns that are used, by slot.
A state of weight F is looked up in a hash table with open addressing. A *plan* has for each row t

    row_ends[t] .. row_ends[t+1]    its pairs: ``slots`` and ``weights``
    stays[t]                        its weight of staying unmatched
    closing[t] .. closing[t+1]      slots of the columns that it closes, ``closed``, and the weight
                                    ``leaves`` with which each of them stays unused
"""

import numpy as np

from permvi._compiled import compiled

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@compiled()
def order_rows(
    ends: np.ndarray, cols: np.ndarray, col_ends: np.ndarray, rows_of: np.ndarray
) -> np.ndarray:
    """Order rows greedily so that few columns are open at a time: (n,).

    The next row is the one that opens the fewest columns less those that it closes; ``rows_of``
    holds the rows of column j in ``col_ends[j]..col_ends[j+1]``. Only rows that share an open
    column are looked at, or all if there are none.
    """
    n, m = len(ends) - 1, len(col_ends) - 1
    left = np.empty(m, np.int64)
    for j in range(m):
        left[j] = col_ends[j + 1] - col_ends[j]
    is_open = np.zeros(m, np.bool_)
    done = np.zeros(n, np.bool_)
    near = np.zeros(n, np.bool_)
    order = np.empty(n, np.int64)
    num_near = 0
    for t in range(n):
        best, best_cost = -1, 1 << 62
        for i in range(n):
            if done[i] or (num_near > 0 and not near[i]):
                continue
            cost = 0
            for e in range(ends[i], ends[i + 1]):
                if not is_open[cols[e]]:
                    cost += 1
                if left[cols[e]] == 1:
                    cost -= 1
            if cost < best_cost:
                best, best_cost = i, cost
        order[t] = best
        done[best] = True
        if near[best]:
            near[best] = False
            num_near -= 1
        for e in range(ends[best], ends[best + 1]):
            j = cols[e]
            left[j] -= 1
            if not is_open[j]:
                is_open[j] = True
                for k in range(col_ends[j], col_ends[j + 1]):
                    if not done[rows_of[k]] and not near[rows_of[k]]:
                        near[rows_of[k]] = True
                        num_near += 1
    return order


@compiled()
def _place(table_keys: np.ndarray, table_index: np.ndarray, key: np.uint64) -> int:
    """Return where a key is in the hash table, or the empty place where it belongs."""
    mask = len(table_keys) - 1
    place = np.int64((key * _MULTIPLIER) >> np.uint64(20)) & mask
    while table_index[place] >= 0 and table_keys[place] != key:
        place = (place + 1) & mask
    return int(place)


@compiled()
def _fill(
    table_keys: np.ndarray, table_index: np.ndarray, keys: np.ndarray, first: int, last: int
) -> None:
    """Put the states of a layer into the hash table."""
    table_index[:] = -1
    for s in range(first, last):
        place = _place(table_keys, table_index, keys[s])
        table_keys[place] = keys[s]
        table_index[place] = s


@compiled()
def _close(
    state: np.uint64, weight: float, closed: np.ndarray, leaves: np.ndarray, first: int, last: int
) -> tuple[np.uint64, float]:
    """Close columns: those that are not used cost their weight of staying unused."""
    for k in range(first, last):
        bit = np.uint64(1) << np.uint64(closed[k])
        if state & bit:
            state = state & ~bit
        else:
            weight *= leaves[k]
    return state, weight


@compiled()
def plan_rows(
    ends: np.ndarray,
    cols: np.ndarray,
    weights: np.ndarray,
    stays: np.ndarray,
    leaves: np.ndarray,
    num_slots: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Give columns slots while they are open, and bound what later rows can add.

    Rows are in their order: ``ends``, (n+1,), ``cols`` and ``weights``, (E,), ``stays``, (n,);
    ``leaves``, (m,), are the weights with which columns stay unused.

    Returns:
        ``slots`` (E,), empty if there are too few; ``closing`` (n+1,) and the columns ``closed``;
        ``log_rest`` (n+1,) and ``log_columns`` (n+1, num_slots), as `forward` needs them.
    """
    n, m = len(stays), len(leaves)
    first, last = np.full(m, -1, np.int64), np.full(m, -1, np.int64)
    for t in range(n):
        for e in range(ends[t], ends[t + 1]):
            if first[cols[e]] < 0:
                first[cols[e]] = t
            last[cols[e]] = t
    slot_of = np.full(m, -1, np.int64)
    holder = np.full((n + 1, num_slots), -1, np.int64)
    slots = np.empty(len(cols), np.int64)
    closing, closed = np.zeros(n + 1, np.int64), np.empty(m, np.int64)
    num_closed = 0
    taken = np.full(num_slots, -1, np.int64)
    for t in range(n):
        for e in range(ends[t], ends[t + 1]):
            j = cols[e]
            if first[j] == t:
                slot = 0
                while slot < num_slots and taken[slot] >= 0:
                    slot += 1
                if slot == num_slots:
                    return slots[:0], closing, closed, stays, holder * 0.0
                taken[slot] = j
                slot_of[j] = slot
            slots[e] = slot_of[j]
        for e in range(ends[t], ends[t + 1]):
            j = cols[e]
            if last[j] == t:
                taken[slot_of[j]] = -1
                closed[num_closed] = j
                num_closed += 1
        closing[t + 1] = num_closed
        holder[t + 1] = taken
    log_rest, log_columns = np.zeros(n + 1), np.zeros((n + 1, num_slots))
    sums = leaves.copy()
    rest = 0.0
    for t in range(n - 1, -1, -1):
        # A row that stays unmatched multiplies the bound by its weight if that is above one.
        rest += np.log(max(stays[t], 1.0))
        for e in range(ends[t], ends[t + 1]):
            j = cols[e]
            rest -= np.log(sums[j]) if last[j] > t else 0.0
            sums[j] += weights[e]
            rest += np.log(sums[j])
        log_rest[t] = rest
        for slot in range(num_slots):
            if holder[t, slot] >= 0:
                log_columns[t, slot] = np.log(sums[holder[t, slot]])
    return slots, closing, closed[:num_closed], log_rest, log_columns


@compiled()
def forward(
    row_ends: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    stays: np.ndarray,
    closing: np.ndarray,
    closed: np.ndarray,
    leaves: np.ndarray,
    log_rest: np.ndarray,
    log_columns: np.ndarray,
    log_floor: float,
    negligible: float,
    largest_loss: float,
    beam: int,
    max_work: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """Sum over all choices of the rows of a plan, one after the other.

    ``log_rest``, (n+1,), is the log of the product of the sums of all columns that are open or new
    after t rows, and ``log_columns``, (n+1, slots), that of the sum of the column in each slot.
    ``log_floor`` is a lower bound on the log of the result. A layer may always lose the share
    ``negligible`` of the result. Beyond that it keeps at most a ``beam`` of states. The programme
    gives up if ``largest_loss`` may be lost or after ``max_work`` steps.

    Returns:
        The states of all layers, their weights (each layer scaled by its largest one), the first
        state of each layer and the end, (n+2,), the log of the result, and the largest loss. The
        loss is infinite if the programme gave up.
    """
    n = len(stays)
    size, most = 256, 8 * beam
    table_keys, table_index = np.zeros(size, np.uint64), np.full(size, -1, np.int64)
    new_keys, new_weights = np.empty(most, np.uint64), np.empty(most)
    room = 1 << 16
    all_keys, all_weights = np.zeros(room, np.uint64), np.zeros(room)
    starts = np.zeros(n + 2, np.int64)
    all_weights[0] = 1.0
    starts[1] = 1
    offset, lost, work = 0.0, 0.0, 0
    bounds = np.empty(most)
    for t in range(n):
        count = 0
        for s in range(starts[t], starts[t + 1]):
            state, weight = all_keys[s], all_weights[s]
            work += row_ends[t + 1] - row_ends[t] + 1
            for e in range(row_ends[t], row_ends[t + 1] + 1):
                if e == row_ends[t + 1]:
                    target, product = state, weight * stays[t]
                else:
                    bit = np.uint64(1) << np.uint64(slots[e])
                    if state & bit:
                        continue
                    target, product = state | bit, weight * weights[e]
                target, product = _close(
                    target, product, closed, leaves, closing[t], closing[t + 1]
                )
                if product == 0.0:
                    continue
                place = _place(table_keys, table_index, target)
                if table_index[place] >= 0:
                    new_weights[table_index[place]] += product
                    continue
                if count == most:
                    # Too many states even before the least likely ones go.
                    return all_keys, all_weights, starts, 0.0, np.inf
                table_keys[place] = target
                table_index[place] = count
                new_keys[count], new_weights[count] = target, product
                count += 1
                if 2 * count > size:
                    size *= 4
                    table_keys, table_index = np.zeros(size, np.uint64), np.full(size, -1, np.int64)
                    _fill(table_keys, table_index, new_keys, 0, count)
        table_index[:] = -1
        if work > max_work or count == 0:
            return all_keys, all_weights, starts, 0.0, np.inf
        largest = 0.0
        for k in range(count):
            total = np.log(new_weights[k]) + offset + log_rest[t + 1] - log_floor
            state, slot = new_keys[k], 0
            while state:
                if state & np.uint64(1):
                    total -= log_columns[t + 1, slot]
                state = state >> np.uint64(1)
                slot += 1
            bounds[k] = np.exp(total)
        least = 0.0
        ranked = np.sort(bounds[:count])
        drop, allowed = 0, negligible
        while drop < count - 1 and ranked[drop] <= allowed:
            allowed -= ranked[drop]
            drop += 1
        drop = max(drop, count - beam)
        if drop > 0:
            least = ranked[drop - 1]
        kept = 0
        first = starts[t + 1]
        while first + count > room:
            room *= 2
            more_keys, more_weights = np.zeros(room, np.uint64), np.zeros(room)
            more_keys[:first], more_weights[:first] = all_keys[:first], all_weights[:first]
            all_keys, all_weights = more_keys, more_weights
        for k in range(count):
            if drop > 0 and bounds[k] <= least:
                lost += bounds[k]
                continue
            all_keys[first + kept], all_weights[first + kept] = new_keys[k], new_weights[k]
            largest = max(largest, new_weights[k])
            kept += 1
        if lost > largest_loss or kept == 0:
            return all_keys, all_weights, starts, 0.0, np.inf
        for k in range(first, first + kept):
            all_weights[k] /= largest
        offset += np.log(largest)
        starts[t + 2] = first + kept
    return all_keys, all_weights, starts, offset, lost


@compiled()
def backward(
    row_ends: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    stays: np.ndarray,
    closing: np.ndarray,
    closed: np.ndarray,
    leaves: np.ndarray,
    keys: np.ndarray,
    ahead: np.ndarray,
    starts: np.ndarray,
    num_draws: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the probabilities of pairs (E,) and of unmatched rows (n,), and draws (num, n).

    ``keys``, ``ahead`` (the weights) and ``starts`` come from `forward`. A draw is the place of a
    row's pair among its pairs, or the number of its pairs if it stays unmatched.
    """
    n = len(stays)
    longest = 0
    for t in range(n + 1):
        longest = max(longest, starts[t + 1] - starts[t])
    size = 1
    while size < 2 * longest:
        size *= 2
    table_keys = np.zeros(size, np.uint64)
    table_index = np.full(size, -1, np.int64)
    pairs, alone = np.zeros(len(weights)), np.zeros(n)
    behind = np.zeros(len(keys))
    behind[starts[n] : starts[n + 1]] = 1.0
    for t in range(n - 1, -1, -1):
        _fill(table_keys, table_index, keys, starts[t + 1], starts[t + 2])
        largest, total = 0.0, 0.0
        for s in range(starts[t], starts[t + 1]):
            for e in range(row_ends[t], row_ends[t + 1] + 1):
                product, target = _choice(
                    keys[s], t, e, row_ends, slots, weights, stays, closing, closed, leaves,
                    table_keys, table_index,
                )  # fmt: skip
                if target < 0:
                    continue
                product *= behind[target]
                behind[s] += product
                if e == row_ends[t + 1]:
                    alone[t] += ahead[s] * product
                else:
                    pairs[e] += ahead[s] * product
            largest = max(largest, behind[s])
            total += ahead[s] * behind[s]
        for e in range(row_ends[t], row_ends[t + 1]):
            pairs[e] /= total
        alone[t] /= total
        for s in range(starts[t], starts[t + 1]):
            behind[s] /= largest
    draws = np.zeros((num_draws, n), np.int64)
    states = np.zeros(num_draws, np.int64)
    for t in range(n):
        _fill(table_keys, table_index, keys, starts[t + 1], starts[t + 2])
        for d in range(num_draws):
            total = 0.0
            # Reservoir sampling: each choice replaces the last one in proportion to its weight.
            chosen, new_state = row_ends[t + 1], states[d]
            for e in range(row_ends[t], row_ends[t + 1] + 1):
                product, target = _choice(
                    keys[states[d]], t, e, row_ends, slots, weights, stays, closing, closed, leaves,
                    table_keys, table_index,
                )  # fmt: skip
                if target < 0:
                    continue
                product *= behind[target]
                total += product
                if product > 0.0 and rng.random() * total < product:
                    chosen, new_state = e, target
            draws[d, t] = chosen - row_ends[t]
            states[d] = new_state
    return pairs, alone, draws


@compiled()
def _choice(
    state: np.uint64,
    t: int,
    e: int,
    row_ends: np.ndarray,
    slots: np.ndarray,
    weights: np.ndarray,
    stays: np.ndarray,
    closing: np.ndarray,
    closed: np.ndarray,
    leaves: np.ndarray,
    table_keys: np.ndarray,
    table_index: np.ndarray,
) -> tuple[float, int]:
    """Return the weight of a choice and the state that it leads to, -1 if it is not possible."""
    if e == row_ends[t + 1]:
        target, product = state, stays[t]
    else:
        bit = np.uint64(1) << np.uint64(slots[e])
        if state & bit:
            return 0.0, -1
        target, product = state | bit, weights[e]
    target, product = _close(target, product, closed, leaves, closing[t], closing[t + 1])
    if product == 0.0:
        return 0.0, -1
    return product, table_index[_place(table_keys, table_index, target)]
