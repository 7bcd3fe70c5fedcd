"""Compiled chains over orders for Cayley's distance, whose moves exchange two items.

The rank in ballot r of the item at each place is a permutation, and Cayley's distance is the number
of its places less that of its cycles. An exchange of the items at two places splits a cycle that
has both, and joins two cycles otherwise. Each place is labelled with one of the places of its
cycle, so that what an exchange costs is known without following cycles, and only those of exchanges
that are made are followed.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled


@compiled()
def label_cycles(
    order: np.ndarray, ballots: np.ndarray, relative: np.ndarray, label: np.ndarray
) -> np.ndarray:
    """Write ranks (n, R) of the item at each place and labels (n, R); return (R,) distances."""
    num, n = ballots.shape
    distances = np.zeros(num)
    for r in range(num):
        for k in range(n):
            relative[k, r] = ballots[r, order[k]]
            label[k, r] = -1
        cycles = 0
        for k in range(n):
            if label[k, r] < 0:
                cycles += 1
                at = k
                while label[at, r] < 0:
                    label[at, r] = k
                    at = relative[at, r]
        distances[r] = n - cycles
    return distances


@compiled(fastmath=REORDERED_SUMS)
def exchange_cost(label: np.ndarray, counts: np.ndarray, a: int, b: int) -> float:
    """What exchanging the items at places a and b adds to Cayley's distances."""
    one, two = label[a], label[b]
    change = 0.0
    for r in range(counts.shape[0]):
        change += counts[r] if one[r] != two[r] else -counts[r]
    return change


@compiled()
def exchange(order: np.ndarray, relative: np.ndarray, label: np.ndarray, a: int, b: int) -> None:
    """Exchange the items at places a and b."""
    order[a], order[b] = order[b], order[a]
    for r in range(relative.shape[1]):
        joined = label[a, r] != label[b, r]
        relative[a, r], relative[b, r] = relative[b, r], relative[a, r]
        if joined:
            # What was the cycle of b now follows a.
            at, old = relative[a, r], label[a, r]
            while at != b:
                label[at, r] = old
                at = relative[at, r]
            label[b, r] = old
            continue
        # The part without the place that both were labelled with gets another label.
        old, at = label[a, r], a
        while at != old:
            at = relative[at, r]
            if at == a:
                break
        first = b if at == old else a
        label[first, r] = first
        at = relative[first, r]
        while at != first:
            label[at, r] = first
            at = relative[at, r]


@compiled()
def descend_exchanges(
    ballots: np.ndarray, counts: np.ndarray, order: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, float]:
    """Return an order (n,) that no exchange brings closer to ballots (R, n), and its distance.

    Pairs are tried in random order, so that ties are broken at random.
    """
    num, n = ballots.shape
    order = order.copy()
    relative, label = np.empty((n, num), np.int16), np.empty((n, num), np.int16)
    distance = (label_cycles(order, ballots, relative, label) * counts).sum()
    improved = True
    while improved:
        improved = False
        for a in rng.permutation(n):
            for b in rng.permutation(n):
                if a < b:
                    change = exchange_cost(label, counts, a, b)
                    if change < 0.0:
                        exchange(order, relative, label, a, b)
                        distance += change
                        improved = True
    return order, distance


@compiled()
def look_up(table: np.ndarray, most: float, energy: float) -> float:
    """A function of the energy from its values (T,) at energies most (k / (T - 1))^2."""
    last = table.shape[0] - 1
    place = np.sqrt(max(energy, 0.0) / most) * last
    k = min(int(place), last - 1)
    return table[k] + (place - k) * (table[k + 1] - table[k])


@compiled()
def temper(
    ballots: np.ndarray,
    counts: np.ndarray,
    table: np.ndarray,
    most: float,
    powers: np.ndarray,
    orders: np.ndarray,
    moves: np.ndarray,
    num_sweeps: int,
    num_burn: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Run chains for powers of the posterior that exchange their orders (parallel tempering).

    Args:
        ballots: (R, n) ballots.
        counts: (R,) how often each was given.
        table: (T,) log posterior densities of orders by energy; see `look_up`.
        most: The largest energy.
        powers: (K,) powers of the density, from 0 to 1; the first chain draws orders anew.
        orders: (K, n) first orders.
        moves: (K,) exchanges to try in each sweep.
        num_sweeps: Sweeps that count.
        num_burn: Sweeps before these.
        rng: Generator.

    Returns:
        (num_sweeps, K, n) orders and (num_sweeps, K) energies after each sweep, (K,) shares of
        exchanges made, and (K - 1,) shares of orders passed between neighbouring chains.
    """
    K, (num, n) = len(powers), ballots.shape
    orders = orders.copy()
    relative, label = np.empty((K, n, num), np.int16), np.empty((K, n, num), np.int16)
    energy, made, passed = np.zeros(K), np.zeros(K), np.zeros(K - 1)
    for k in range(K):
        energy[k] = (label_cycles(orders[k], ballots, relative[k], label[k]) * counts).sum()
    kept, energies = np.zeros((num_sweeps, K, n), np.int16), np.zeros((num_sweeps, K))
    # The states of the chains change places; who[level] is the one with that power.
    who = np.arange(K)
    for sweep in range(num_burn + num_sweeps):
        for level in range(K):
            k = who[level]
            order = orders[k]
            if level == 0:
                order[:] = rng.permutation(n)
                energy[k] = (label_cycles(order, ballots, relative[k], label[k]) * counts).sum()
            else:
                now = look_up(table, most, energy[k])
                for _ in range(moves[level]):
                    a, b = int(rng.random() * n), int(rng.random() * (n - 1))
                    b += b >= a
                    change = exchange_cost(label[k], counts, a, b)
                    then = look_up(table, most, energy[k] + change)
                    gain = powers[level] * (then - now)
                    if gain >= 0.0 or rng.random() < np.exp(gain):
                        exchange(order, relative[k], label[k], a, b)
                        energy[k] += change
                        now = then
                        made[level] += 1.0
            if sweep >= num_burn:
                kept[sweep - num_burn, level] = order
                energies[sweep - num_burn, level] = energy[k]
        for level in range(sweep % 2, K - 1, 2):
            one, two = who[level], who[level + 1]
            gain = look_up(table, most, energy[two]) - look_up(table, most, energy[one])
            gain *= powers[level] - powers[level + 1]
            if gain >= 0.0 or rng.random() < np.exp(gain):
                who[level], who[level + 1] = two, one
                passed[level] += 1.0
    total = num_burn + num_sweeps
    return kept, energies, made / (total * moves), passed / (0.5 * total)
