"""Compiled messages and worms of sparse matching problems; importing this module imports numba."""

import numpy as np

from permvi._compiled import compiled

_NUM_TRIES = 20


@compiled()
def update_messages(
    ends: np.ndarray,
    order: np.ndarray,
    alone: np.ndarray,
    incoming: np.ndarray,
    outgoing: np.ndarray,
    damping: float,
    largest: float,
) -> None:
    """Messages of all rows (or columns) to their pairs: minus the log of the sum of all else.

    Args:
        ends: Where the pairs of each row begin in ``order``.
        order: (E,) the pairs sorted by row.
        alone: (n,) log weights of the rows being alone.
        incoming: (E,) log weights of the pairs with the messages from the other side.
        outgoing: (E,) the messages, changed in place.
        damping: The part of the old messages that stays.
        largest: Messages are kept within this: one that is alone has infinite odds.
    """
    longest = 0
    for i in range(len(alone)):
        longest = max(longest, ends[i + 1] - ends[i])
    terms, after = np.empty(longest), np.empty(longest + 1)
    for i in range(len(alone)):
        first, number = ends[i], ends[i + 1] - ends[i]
        best = alone[i]
        for k in range(number):
            terms[k] = incoming[order[first + k]]
            best = max(best, terms[k])
        if best == -np.inf:
            continue
        for k in range(number):
            terms[k] = np.exp(terms[k] - best)
        # Sums from both ends instead of a difference from the total: nothing cancels.
        after[number] = 0.0
        for k in range(number - 1, 0, -1):
            after[k] = after[k + 1] + terms[k]
        before = np.exp(alone[i] - best)
        for k in range(number):
            rest = before + after[k + 1]
            message = -largest if rest == 0.0 else best + np.log(rest)
            message = -min(max(message, -largest), largest)
            pair = order[first + k]
            outgoing[pair] = damping * outgoing[pair] + (1.0 - damping) * message
            before += terms[k]


@compiled()
def _choose(sums: np.ndarray, first: int, last: int, place: float) -> int:
    """The first pair in first..last-1 whose running sum is beyond ``place``, or ``last``."""
    pair = first
    while pair < last and place >= sums[pair]:
        pair += 1
    return pair


@compiled()
def _choose_held(
    sums: np.ndarray,
    first: int,
    last: int,
    total: float,
    cols: np.ndarray,
    holder: np.ndarray,
    hole: int,
    default: int,
    rng: np.random.Generator,
) -> int:
    """A pair as `_choose` does, given that its column is held by some row or is the hole."""
    # Most columns are held, so asking again is faster than looking at all of them.
    for _ in range(_NUM_TRIES):
        pair = _choose(sums, first, last, rng.random() * total)
        if pair < last and (holder[cols[pair]] >= 0 or cols[pair] == hole):
            return pair
    held, before = 0.0, 0.0
    for pair in range(first, last):
        if holder[cols[pair]] >= 0 or cols[pair] == hole:
            held += sums[pair] - before
        before = sums[pair]
    place, before = rng.random() * held, 0.0
    for pair in range(first, last):
        if holder[cols[pair]] >= 0 or cols[pair] == hole:
            place -= sums[pair] - before
            if place < 0.0:
                return pair
        before = sums[pair]
    return default


@compiled()
def worm_steps(
    ends: np.ndarray,
    cols: np.ndarray,
    sums: np.ndarray,
    alone: np.ndarray,
    start_rates: np.ndarray,
    closed_share: float,
    choice: np.ndarray,
    holder: np.ndarray,
    counts: np.ndarray,
    num_worms: int,
    max_steps: int,
    rng: np.random.Generator,
) -> tuple[int, int]:
    r"""Worms on matchings; see `permvi.inference.sparse.chains`.

    Args:
        ends: (n+1,) where the pairs of each row begin.
        cols: (E,) the column of each pair.
        sums: (E,) running sums over each row of what a row in hand chooses its pair by.
        alone: (n,) what it chooses to stay alone by.
        start_rates: (m,) the probability with which an open worm lifts a row from a column.
        closed_share: The probability of a closed worm.
        choice: (n,) the pair of each row, E + i where it is alone; changed in place.
        holder: (m,) the row of each column, -1 where it is alone; changed in place.
        counts: (E + n,) after how many worms each choice was seen; added to.
        num_worms: How many worms to run.
        max_steps: Give up within a worm after so many steps in all.
        rng: Where randomness comes from.

    Returns:
        How many worms were finished and how many steps all of them took. Where that is fewer worms
        than asked for, the state is not a matching.
    """
    n, m, E = len(alone), len(holder), len(cols)
    since = np.zeros(n, np.int64)
    steps = 0
    for t in range(num_worms):
        hole = -1
        if rng.random() < closed_share:
            hole = int(rng.random() * m)
            row = holder[hole]
            if row < 0:
                continue
            holder[hole] = -1
        else:
            row = int(rng.random() * n)
            pair = choice[row]
            if pair < E:
                if rng.random() >= start_rates[cols[pair]]:
                    continue
                holder[cols[pair]] = -1
        while row >= 0:
            if steps >= max_steps:
                return t, steps
            steps += 1
            first, last = ends[row], ends[row + 1]
            total = alone[row] + (sums[last - 1] if last > first else 0.0)
            if hole < 0:
                new = _choose(sums, first, last, rng.random() * total)
                if new == last:
                    # Rounding must not leave a row over that has to be matched.
                    new = E + row if alone[row] > 0.0 else choice[row]
            else:
                new = _choose_held(sums, first, last, total, cols, holder, hole, choice[row], rng)
            if since[row] < t:
                counts[choice[row]] += t - since[row]
                since[row] = t
            choice[row] = new
            if new >= E:
                break
            col = cols[new]
            displaced = holder[col]
            holder[col] = row
            row = -1 if col == hole else displaced
    for row in range(n):
        counts[choice[row]] += num_worms - since[row]
    return num_worms, steps
