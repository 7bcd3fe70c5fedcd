"""Compiled loops of belief propagation and of the worm algorithm; importing them imports numba."""

import numpy as np

from permvi._compiled import compiled

_NUM_TRIES = 20
# A difference from a total is not smaller than this share of it, which is rounding.
_ROUNDING = 1e-15
# Probabilities of alias tables are multiples of one over this.
_UNIT = 2.0**31 - 1.0


@compiled()
def belief_steps(
    ends: np.ndarray,
    cols: np.ndarray,
    weights: np.ndarray,
    row_alone: np.ndarray,
    col_alone: np.ndarray,
    u: np.ndarray,
    damping: float,
    num_steps: int,
    tolerance: float,
) -> bool:
    """Update the messages u of rows to their pairs, (E,), in place; return whether they converged.

    Both sides are updated in one pass over the rows: a message is one over the total of its row or
    column less its own term. They have converged once no message changes the belief in its pair by
    more than ``tolerance``. A share ``damping`` of the old message is kept.
    """
    n, m = len(row_alone), len(col_alone)
    totals, new_totals = col_alone.copy(), np.empty(m)
    for e in range(len(cols)):
        totals[cols[e]] += weights[e] * u[e]
    longest = 0
    for i in range(n):
        longest = max(longest, ends[i + 1] - ends[i])
    terms = np.empty(longest)
    for _ in range(num_steps):
        worst = 0.0
        new_totals[:] = col_alone
        for i in range(n):
            first = ends[i]
            total = row_alone[i]
            for e in range(first, ends[i + 1]):
                j = cols[e]
                rest = max(totals[j] - weights[e] * u[e], col_alone[j], _ROUNDING * totals[j])
                terms[e - first] = weights[e] / rest
                total += terms[e - first]
            for e in range(first, ends[i + 1]):
                rest = max(total - terms[e - first], row_alone[i], _ROUNDING * total)
                message = damping * u[e] + (1.0 - damping) / rest
                worst = max(worst, abs(message - u[e]) / message * terms[e - first] / total)
                u[e] = message
                new_totals[cols[e]] += weights[e] * message
        totals, new_totals = new_totals, totals
        if worst <= tolerance:
            return True
    return False


@compiled()
def beliefs(
    ends: np.ndarray,
    cols: np.ndarray,
    weights: np.ndarray,
    row_alone: np.ndarray,
    col_alone: np.ndarray,
    u: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the beliefs in pairs (E,), unmatched rows (n,) and unused columns (m,)."""
    n, m = len(row_alone), len(col_alone)
    totals = col_alone.copy()
    for e in range(len(cols)):
        totals[cols[e]] += weights[e] * u[e]
    pairs, rows, unused = np.empty(len(cols)), np.empty(n), np.empty(m)
    for i in range(n):
        total = row_alone[i]
        for e in range(ends[i], ends[i + 1]):
            j = cols[e]
            rest = max(totals[j] - weights[e] * u[e], col_alone[j], _ROUNDING * totals[j])
            total += weights[e] / rest
            odds = weights[e] * u[e] / rest
            pairs[e] = odds / (1.0 + odds)
        rows[i] = row_alone[i] / total if total > 0.0 else 1.0
    for j in range(m):
        unused[j] = col_alone[j] / totals[j] if totals[j] > 0.0 else 1.0
    return pairs, rows, unused


@compiled()
def alias_tables(ends: np.ndarray, cols: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return Walker's alias tables of all rows in one array, (E, 4).

    A uniform pair e of a row is kept with a probability and else replaced by another one, which
    draws pairs in proportion to their weights (E,). Entry e has that probability in units of
    ``_UNIT``, the column of e, the other pair, and its column, so that a choice is one look at
    memory.
    """
    E = len(weights)
    keep, other = np.ones(E), np.arange(E)
    stack = np.empty(E, np.int64)
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
    table = np.empty((E, 4), np.int32)
    for e in range(E):
        table[e, 0] = int(keep[e] * _UNIT)
        table[e, 1] = cols[e]
        table[e, 2] = other[e]
        table[e, 3] = cols[other[e]]
    return table


@compiled()
def _choose(table: np.ndarray, first: int, last: int, rng: np.random.Generator) -> tuple[int, int]:
    """Choose one of the pairs first..last-1 by their alias table; return it and its column."""
    place = rng.random() * (last - first)
    pair = int(place)
    entry = table[first + pair]
    if (place - pair) * _UNIT < entry[0]:
        return first + pair, entry[1]
    return entry[2], entry[3]


@compiled()
def _choose_held(
    table: np.ndarray,
    weights: np.ndarray,
    first: int,
    last: int,
    holder: np.ndarray,
    hole: int,
    rng: np.random.Generator,
) -> tuple[int, int]:
    """Choose a pair given that its column is held by some row or is the hole."""
    # Most columns are held, so rejection is faster than looking at all of them.
    for _ in range(_NUM_TRIES):
        pair, col = _choose(table, first, last, rng)
        if holder[col] >= 0 or col == hole:
            return pair, col
    held = 0.0
    for pair in range(first, last):
        col = table[pair, 1]
        if holder[col] >= 0 or col == hole:
            held += weights[pair]
    place, found = rng.random() * held, -1
    for pair in range(first, last):
        col = table[pair, 1]
        if weights[pair] > 0.0 and (holder[col] >= 0 or col == hole):
            found = pair
            place -= weights[pair]
            if place < 0.0:
                break
    return found, table[found, 1]


@compiled()
def worm_steps(
    ends: np.ndarray,
    weights: np.ndarray,
    table: np.ndarray,
    stay_rates: np.ndarray,
    start_rates: np.ndarray,
    closed_share: float,
    choice: np.ndarray,
    holder: np.ndarray,
    journal: np.ndarray,
    counts: np.ndarray,
    num_worms: int,
    rng: np.random.Generator,
) -> tuple[int, int]:
    r"""Run the worm algorithm on a matching; see `permvi.inference.linear.chains`.

    Args:
        ends: (n+1,) the first pair of each row, and E.
        weights: (E,) the weights by which a lifted row chooses.
        table: (E, 4) their alias tables.
        stay_rates: (n,) the probability that a lifted row stays unmatched.
        start_rates: (m,) the probability with which an open worm lifts a row from a column.
        closed_share: The probability of a closed worm.
        choice: (n,) the pair of each row, E + i if it is unmatched; changed in place.
        holder: (m,) the row of each column, -1 if it is unused; changed in place.
        journal: (L, 2) room for the steps of a worm. A longer one is undone.
        counts: (E + n,) the number of worms after which each choice was seen, added to; or (0,).
        num_worms: The number of worms to run.
        rng: The source of randomness.

    Returns:
        The number of steps and the number of worms that were undone.
    """
    n, m, E = len(stay_rates), len(holder), len(table)
    count = len(counts) > 0
    since = np.zeros(n, np.int64)
    steps = undone = 0
    for t in range(num_worms):
        hole = -1
        if closed_share == 1.0 or rng.random() < closed_share:
            hole = int(rng.random() * m)
            row = holder[hole]
            if row < 0:
                continue
            holder[hole] = -1
        else:
            row = int(rng.random() * n)
            pair = choice[row]
            if pair < E:
                col = table[pair, 1]
                if rng.random() >= start_rates[col]:
                    continue
                holder[col] = -1
        length = 0
        while row >= 0:
            if length == len(journal):
                _undo(table, choice, holder, journal, row)
                undone += 1
                break
            first, last = ends[row], ends[row + 1]
            old = choice[row]
            if hole >= 0:
                new, col = _choose_held(table, weights, first, last, holder, hole, rng)
            elif last == first or (stay_rates[row] > 0.0 and rng.random() < stay_rates[row]):
                new, col = E + row, -1
            else:
                new, col = _choose(table, first, last, rng)
            journal[length, 0], journal[length, 1] = row, old
            length += 1
            if count and since[row] < t:
                counts[old] += t - since[row]
                since[row] = t
            choice[row] = new
            if col < 0:
                break
            displaced = holder[col]
            holder[col] = row
            row = -1 if col == hole else displaced
        steps += length
    if count:
        for row in range(n):
            counts[choice[row]] += num_worms - since[row]
    return steps, undone


@compiled()
def _undo(
    table: np.ndarray, choice: np.ndarray, holder: np.ndarray, journal: np.ndarray, row: int
) -> None:
    """Undo all steps of a journal; ``row`` was displaced last and has not chosen yet.

    The way back has the same probability, so this keeps the balance.
    """
    for k in range(len(journal) - 1, -1, -1):
        choice[journal[k, 0]] = journal[k, 1]
    for k in range(len(journal) + 1):
        lifted = journal[k, 0] if k < len(journal) else row
        if choice[lifted] < len(table):
            holder[table[choice[lifted], 1]] = lifted


@compiled()
def watch_worms(
    ends: np.ndarray,
    weights: np.ndarray,
    table: np.ndarray,
    stay_rates: np.ndarray,
    start_rates: np.ndarray,
    closed_share: float,
    choice: np.ndarray,
    holder: np.ndarray,
    journal: np.ndarray,
    of_rows: np.ndarray,
    of_cols: np.ndarray,
    num_looks: int,
    num_worms: int,
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
            ends, weights, table, stay_rates, start_rates, closed_share, choice, holder, journal,
            nothing, num_worms, rng,
        )  # fmt: skip
        steps += done
        total, product = 0.0, 1.0
        for i in range(len(choice)):
            if choice[i] >= len(table):
                total += of_rows[i]
                product *= 1.0 - of_rows[i]
        for j in range(len(holder)):
            if holder[j] < 0:
                total += of_cols[j]
                product *= 1.0 - of_cols[j]
        sums += total
        products += product
    return sums / num_looks, products / num_looks, steps
