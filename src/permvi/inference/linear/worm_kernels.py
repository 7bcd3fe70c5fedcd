"""Compiled loops of belief propagation and of the worm algorithm; importing them imports numba."""

import numpy as np

from permvi._compiled import compiled

_NUM_TRIES = 20
# Messages stay below this: a row with one choice has infinite odds.
_LARGEST = 1e100


@compiled()
def update_messages(
    ends: np.ndarray,
    order: np.ndarray,
    alone: np.ndarray,
    weights: np.ndarray,
    incoming: np.ndarray,
    outgoing: np.ndarray,
    damping: float,
) -> None:
    """Update the messages of all rows (or columns) to their pairs.

    A message is one over the summed weights of all other choices of the row. ``order``, (E,), sorts
    the pairs by row, and ``ends``, (n+1,), has the place of the first pair of each row, and E.
    ``alone``, (n,), are weights of unmatched rows and ``weights``, (E,), those of the pairs;
    ``incoming``, (E,), are the messages from the other side. ``outgoing``, (E,), are changed in
    place; they keep a share ``damping`` of their old values.
    """
    longest = 0
    for i in range(len(alone)):
        longest = max(longest, ends[i + 1] - ends[i])
    terms, after = np.empty(longest), np.empty(longest + 1)
    for i in range(len(alone)):
        first, number = ends[i], ends[i + 1] - ends[i]
        for k in range(number):
            pair = order[first + k]
            terms[k] = weights[pair] * incoming[pair]
        # Sums from both ends avoid the cancellation of a difference from the total.
        after[number] = 0.0
        for k in range(number - 1, 0, -1):
            after[k] = after[k + 1] + terms[k]
        before = alone[i]
        for k in range(number):
            rest = before + after[k + 1]
            message = min(1.0 / rest, _LARGEST) if rest > 0.0 else _LARGEST
            pair = order[first + k]
            outgoing[pair] = damping * outgoing[pair] + (1.0 - damping) * message
            before += terms[k]


@compiled()
def alias_tables(
    ends: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return Walker's alias tables of all rows: (E,) probabilities and (E,) other pairs.

    A uniform pair e of a row is kept with its probability and else replaced by the other one, which
    draws pairs in proportion to their weights (E,).
    """
    keep, other = np.ones(len(weights)), np.arange(len(weights))
    stack = np.empty(len(weights), np.int64)
    for i in range(len(ends) - 1):
        first, last = ends[i], ends[i + 1]
        total, heaviest = 0.0, first
        for e in range(first, last):
            total += weights[e]
            if weights[e] > weights[heaviest]:
                heaviest = e
        if total == 0.0:
            continue
        small, large = first, last - 1
        # The stack holds small pairs from its beginning and large ones from its end.
        for e in range(first, last):
            keep[e] = weights[e] / total * (last - first)
            other[e] = heaviest
            if keep[e] < 1.0:
                stack[small] = e
                small += 1
            else:
                stack[large] = e
                large -= 1
        while small > first and large < last - 1:
            small -= 1
            e, big = stack[small], stack[large + 1]
            other[e] = big
            keep[big] -= 1.0 - keep[e]
            if keep[big] < 1.0:
                large += 1
                stack[small] = big
                small += 1
        # What is left is one but for rounding, unless its weight is zero.
        while large < last - 1:
            large += 1
            keep[stack[large]] = 1.0
        while small > first:
            small -= 1
            if weights[stack[small]] > 0.0:
                keep[stack[small]] = 1.0
    return keep, other


@compiled()
def _choose(
    first: int, last: int, keep: np.ndarray, other: np.ndarray, rng: np.random.Generator
) -> int:
    """Choose one of the pairs first..last-1 by their alias table."""
    place = rng.random() * (last - first)
    pair = int(place)
    return first + pair if place - pair < keep[first + pair] else other[first + pair]


@compiled()
def _choose_held(
    first: int,
    last: int,
    cols: np.ndarray,
    weights: np.ndarray,
    keep: np.ndarray,
    other: np.ndarray,
    holder: np.ndarray,
    hole: int,
    default: int,
    rng: np.random.Generator,
) -> int:
    """Choose a pair given that its column is held by some row or is the hole."""
    # Most columns are held, so rejection is faster than looking at all of them.
    for _ in range(_NUM_TRIES):
        pair = _choose(first, last, keep, other, rng)
        if holder[cols[pair]] >= 0 or cols[pair] == hole:
            return pair
    held = 0.0
    for pair in range(first, last):
        if holder[cols[pair]] >= 0 or cols[pair] == hole:
            held += weights[pair]
    place = rng.random() * held
    for pair in range(first, last):
        if (holder[cols[pair]] >= 0 or cols[pair] == hole) and weights[pair] > 0.0:
            place -= weights[pair]
            if place < 0.0:
                return pair
    return default


@compiled()
def worm_steps(
    ends: np.ndarray,
    cols: np.ndarray,
    weights: np.ndarray,
    keep: np.ndarray,
    other: np.ndarray,
    stay_rates: np.ndarray,
    start_rates: np.ndarray,
    closed_share: float,
    choice: np.ndarray,
    holder: np.ndarray,
    counts: np.ndarray,
    num_worms: int,
    max_length: int,
    rng: np.random.Generator,
) -> tuple[int, int]:
    r"""Run the worm algorithm on a matching; see `permvi.inference.linear.chains`.

    Args:
        ends: (n+1,) the first pair of each row, and E.
        cols: (E,) the column of each pair.
        weights: (E,) the weights by which a lifted row chooses.
        keep, other: (E,) their alias tables.
        stay_rates: (n,) the probability that a lifted row stays unmatched.
        start_rates: (m,) the probability with which an open worm lifts a row from a column.
        closed_share: The probability of a closed worm.
        choice: (n,) the pair of each row, E + i if it is unmatched; changed in place.
        holder: (m,) the row of each column, -1 if it is unused; changed in place.
        counts: (E + n,) the number of worms after which each choice was seen, added to; or (0,).
        num_worms: The number of worms to run.
        max_length: Undo a worm that has not ended after this many steps.
        rng: The source of randomness.

    Returns:
        The number of steps and the number of worms that were undone.
    """
    n, m, E = len(stay_rates), len(holder), len(cols)
    count = len(counts) > 0
    since = np.zeros(n, np.int64)
    lifted, before = np.empty(max_length, np.int64), np.empty(max_length, np.int64)
    steps = undone = 0
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
        length = 0
        while row >= 0:
            if length == max_length:
                # The way back has the same probability, so this keeps the balance.
                for k in range(length - 1, -1, -1):
                    choice[lifted[k]] = before[k]
                for k in range(length):
                    if choice[lifted[k]] < E:
                        holder[cols[choice[lifted[k]]]] = lifted[k]
                # The row that was displaced last has not chosen yet.
                if choice[row] < E:
                    holder[cols[choice[row]]] = row
                undone += 1
                break
            first, last = ends[row], ends[row + 1]
            new = choice[row]
            if hole >= 0:
                new = _choose_held(
                    first, last, cols, weights, keep, other, holder, hole, choice[row], rng
                )
            elif stay_rates[row] > 0.0 and rng.random() < stay_rates[row]:
                new = E + row
            elif last > first:
                new = _choose(first, last, keep, other, rng)
            lifted[length], before[length] = row, choice[row]
            length += 1
            if count and since[row] < t:
                counts[choice[row]] += t - since[row]
                since[row] = t
            choice[row] = new
            if new >= E:
                break
            col = cols[new]
            displaced = holder[col]
            holder[col] = row
            row = -1 if col == hole else displaced
        steps += length
    if count:
        for row in range(n):
            counts[choice[row]] += num_worms - since[row]
    return steps, undone


@compiled()
def watch_worms(
    ends: np.ndarray,
    cols: np.ndarray,
    weights: np.ndarray,
    keep: np.ndarray,
    other: np.ndarray,
    stay_rates: np.ndarray,
    start_rates: np.ndarray,
    closed_share: float,
    choice: np.ndarray,
    holder: np.ndarray,
    of_rows: np.ndarray,
    of_cols: np.ndarray,
    num_looks: int,
    num_worms: int,
    max_length: int,
    rng: np.random.Generator,
) -> tuple[float, float, int]:
    """Run worms and look at what is alone after every ``num_worms`` of them.

    ``of_rows``, (n,), and ``of_cols``, (m,), are values of being alone; the other arguments are
    those of `worm_steps`. Return the means over ``num_looks`` of the sum of these values and of the
    product of one minus them, and the number of steps.
    """
    sums = products = 0.0
    steps = 0
    nothing = np.zeros(0)
    for _ in range(num_looks):
        done, _ = worm_steps(
            ends, cols, weights, keep, other, stay_rates, start_rates, closed_share, choice, holder,
            nothing, num_worms, max_length, rng,
        )  # fmt: skip
        steps += done
        total, product = 0.0, 1.0
        for i in range(len(choice)):
            if choice[i] >= len(cols):
                total += of_rows[i]
                product *= 1.0 - of_rows[i]
        for j in range(len(holder)):
            if holder[j] < 0:
                total += of_cols[j]
                product *= 1.0 - of_cols[j]
        sums += total
        products += product
    return sums / num_looks, products / num_looks, steps
