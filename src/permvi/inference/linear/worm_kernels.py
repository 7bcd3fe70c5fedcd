"""Compiled loops of belief propagation and of the worm algorithm; importing them imports numba."""

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
    """Update the messages of all rows (or columns) to their pairs.

    A message is minus the log of the summed weights of all other choices of the row. ``order``,
    (E,), sorts the pairs by row, and ``ends``, (n+1,), has the place of the first pair of each row,
    and E. ``alone``, (n,), are log weights of unmatched rows. ``incoming``, (E,), are log weights
    of the pairs plus the messages from the other side. ``outgoing``, (E,), are the messages,
    changed in place; they keep a share ``damping`` of their old values. Their absolute values are
    at most ``largest``, since a row with one choice has infinite odds.
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
        # Sums from both ends avoid the cancellation of a difference from the total.
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
    """Return the first pair in first..last-1 whose running sum exceeds ``place``, else ``last``."""
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
    """Choose a pair given that its column is held by some row or is the hole."""
    # Most columns are held, so rejection is faster than looking at all of them.
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
    r"""Run the worm algorithm on a matching; see `permvi.inference.linear.chains`.

    Args:
        ends: (n+1,) the first pair of each row, and E.
        cols: (E,) the column of each pair.
        sums: (E,) running sums over each row of the weights by which a lifted row chooses.
        alone: (n,) the weight with which a lifted row stays unmatched.
        start_rates: (m,) the probability with which an open worm lifts a row from a column.
        closed_share: The probability of a closed worm.
        choice: (n,) the pair of each row, E + i if it is unmatched; changed in place.
        holder: (m,) the row of each column, -1 if it is unused; changed in place.
        counts: (E + n,) the number of worms after which each choice was seen; added to.
        num_worms: The number of worms to run.
        max_steps: Give up after this many steps in all, even within a worm.
        rng: The source of randomness.

    Returns:
        The number of finished worms and the number of steps. If fewer worms than asked for were
        finished, the state is not a matching.
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
                    # Rounding must not leave a row unmatched that has to be matched.
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
