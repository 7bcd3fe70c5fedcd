"""Compiled Markov chains over orders.

An item is taken out and put back at a drawn place; for Cayley's distance, two items are exchanged.
"""

import numpy as np

from permvi._compiled import compiled


@compiled()
def insert(
    order: np.ndarray,
    item_place: int,
    pairs: np.ndarray,
    places: np.ndarray,
    scores: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Take out the item at a place of an order (n,) and put it back, given all others (Gibbs).

    ``pairs`` and ``places`` are costs times dispersions; ``scores`` is room for n numbers. The cost
    at each place follows from that at the one before.
    """
    n = order.shape[0]
    item = order[item_place]
    for k in range(item_place, n - 1):
        order[k] = order[k + 1]
    cost = places[item, 0]
    for k in range(n - 1):
        cost += pairs[item, order[k]] + places[order[k], k + 1]
    least = cost
    scores[0] = cost
    for k in range(n - 1):
        other = order[k]
        cost += pairs[other, item] - pairs[item, other]
        cost += places[other, k] - places[other, k + 1] + places[item, k + 1] - places[item, k]
        scores[k + 1] = cost
        least = min(least, cost)
    total = 0.0
    for k in range(n):
        scores[k] = np.exp(least - scores[k])
        total += scores[k]
    left = rng.random() * total
    chosen = n - 1
    for k in range(n):
        left -= scores[k]
        if left <= 0:
            chosen = k
            break
    for k in range(n - 1, chosen, -1):
        order[k] = order[k - 1]
    order[chosen] = item


@compiled()
def relative_ranks(ballots: np.ndarray, order: np.ndarray) -> np.ndarray:
    """(R, n) the rank in each ballot of the item at each place of an order (n,)."""
    relative = np.empty_like(ballots)
    for r in range(ballots.shape[0]):
        for k in range(order.shape[0]):
            relative[r, k] = ballots[r, order[k]]
    return relative


@compiled()
def cayley_energy(relative: np.ndarray, counts: np.ndarray) -> float:
    """The sum of Cayley's distances of ballots: items less cycles of the relative ranks (R, n)."""
    num, n = relative.shape
    seen = np.zeros(n, np.bool_)
    energy = 0.0
    for r in range(num):
        seen[:] = False
        cycles = 0
        for k in range(n):
            if not seen[k]:
                cycles += 1
                at = k
                while not seen[at]:
                    seen[at] = True
                    at = relative[r, at]
        energy += counts[r] * (n - cycles)
    return energy


@compiled()
def exchange_cost(relative: np.ndarray, counts: np.ndarray, a: int, b: int) -> float:
    """What exchanging the items at places a and b adds to Cayley's distances.

    An exchange splits a cycle that has both places, and joins two cycles otherwise.
    """
    change = 0.0
    for r in range(relative.shape[0]):
        at = relative[r, a]
        while at != a and at != b:
            at = relative[r, at]
        change += counts[r] if at == a else -counts[r]
    return change


@compiled()
def swap_places(order: np.ndarray, relative: np.ndarray, a: int, b: int) -> None:
    """Exchange the items at places a and b, in the order and in the relative ranks."""
    order[a], order[b] = order[b], order[a]
    for r in range(relative.shape[0]):
        relative[r, a], relative[r, b] = relative[r, b], relative[r, a]


@compiled()
def try_exchange(
    order: np.ndarray,
    relative: np.ndarray,
    counts: np.ndarray,
    theta: float,
    rng: np.random.Generator,
) -> float:
    """Exchange two random items by Metropolis' rule; return the change of Cayley's distances."""
    n = order.shape[0]
    a, b = int(rng.random() * n), int(rng.random() * (n - 1))
    b += b >= a
    change = exchange_cost(relative, counts, a, b)
    if change > 0.0 and rng.random() >= np.exp(-theta * change):
        return 0.0
    swap_places(order, relative, a, b)
    return change


@compiled()
def descend_exchanges(
    ballots: np.ndarray, counts: np.ndarray, order: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return an order (n,) that no exchange of two items brings closer to ballots (R, n).

    Pairs are tried in random order, so that ties are broken at random.
    """
    n = order.shape[0]
    order = order.copy()
    relative = relative_ranks(ballots, order)
    improved = True
    while improved:
        improved = False
        first = rng.permutation(n)
        for a in first:
            for b in rng.permutation(n):
                if a < b and exchange_cost(relative, counts, a, b) < 0.0:
                    swap_places(order, relative, a, b)
                    improved = True
    return order


@compiled()
def draw_index(
    log_weights: np.ndarray,
    theta: np.ndarray,
    energy: float,
    weights: np.ndarray,
    rng: np.random.Generator,
) -> int:
    """Draw an index with log weights (T,) less the dispersion (T,) times an energy.

    ``weights`` is room for T numbers.
    """
    most = -np.inf
    for t in range(log_weights.shape[0]):
        weights[t] = log_weights[t] - theta[t] * energy
        most = max(most, weights[t])
    total = 0.0
    for t in range(log_weights.shape[0]):
        weights[t] = np.exp(weights[t] - most)
        total += weights[t]
    left = rng.random() * total
    for t in range(log_weights.shape[0]):
        left -= weights[t]
        if left <= 0:
            return t
    return log_weights.shape[0] - 1


@compiled()
def run(
    pairs: np.ndarray,
    places: np.ndarray,
    ballots: np.ndarray,
    counts: np.ndarray,
    thetas: np.ndarray,
    log_weights: np.ndarray,
    order: np.ndarray,
    num_sweeps: int,
    num_burn: int,
    thin: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, ...]:
    """Alternate between the order and its dispersions.

    Args:
        pairs: (J, n, n) costs of pairs.
        places: (n, n) costs of places, part of the first energy.
        ballots: (R, n) ballots for Cayley's distance, which is all of the first energy then.
        counts: (R,) how often each was given.
        thetas: (J, T) grids of dispersions.
        log_weights: (J, T) their log weights, without the energies.
        order: (n,) items of the first order.
        num_sweeps: Sweeps that count, each with n insertions or exchanges.
        num_burn: Sweeps before these.
        thin: Sweeps between draws that are kept.
        rng: Generator.

    Returns:
        (n, n) shares of sweeps with item i at place k, (n, n) shares with i before j, kept ranks
        (num, n), kept dispersions (num, J) and kept energies (num, J).
    """
    num_thetas, n = pairs.shape[0], pairs.shape[1]
    order = order.copy()
    scores = np.zeros(n)
    weights = np.zeros(thetas.shape[1])
    at_place = np.zeros((n, n))
    earlier = np.zeros((n, n))
    kept = num_sweeps // thin
    ranks = np.zeros((kept, n), np.int16)
    kept_thetas = np.zeros((kept, num_thetas))
    kept_energies = np.zeros((kept, num_thetas))
    theta = np.zeros(num_thetas)
    energy = np.zeros(num_thetas)
    costs = np.zeros((n, n))
    scaled = np.zeros((n, n))
    relative = relative_ranks(ballots, order)
    distance = cayley_energy(relative, counts)
    for sweep in range(num_burn + num_sweeps):
        for j in range(num_thetas):
            energy[j] = 0.0
            for a in range(n):
                for b in range(a + 1, n):
                    energy[j] += pairs[j, order[a], order[b]]
        for a in range(n):
            energy[0] += places[order[a], a]
        energy[0] += distance
        costs[:] = 0.0
        for j in range(num_thetas):
            theta[j] = thetas[j, draw_index(log_weights[j], thetas[j], energy[j], weights, rng)]
            costs += theta[j] * pairs[j]
        scaled[:] = theta[0] * places
        counted = sweep - num_burn
        if counted >= 0 and counted % thin == 0 and counted // thin < kept:
            row = counted // thin
            for a in range(n):
                ranks[row, order[a]] = a
            kept_thetas[row] = theta
            kept_energies[row] = energy
        for _ in range(n):
            if len(ballots):
                distance += try_exchange(order, relative, counts, theta[0], rng)
            else:
                insert(order, int(rng.random() * n), costs, scaled, scores, rng)
        if counted >= 0:
            for a in range(n):
                at_place[order[a], a] += 1.0
                for b in range(a + 1, n):
                    earlier[order[a], order[b]] += 1.0
    return at_place / num_sweeps, earlier / num_sweeps, ranks, kept_thetas, kept_energies


@compiled()
def mean_energies(
    pairs: np.ndarray,
    places: np.ndarray,
    ballots: np.ndarray,
    counts: np.ndarray,
    scales: np.ndarray,
    order: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """(S,) means of the cost of an order under exp(-scale cost), the order carried along.

    The first fifth of the sweeps at each scale does not count. Cayley's distances to ``ballots``
    are part of the cost.
    """
    n = order.shape[0]
    order = order.copy()
    relative = relative_ranks(ballots, order)
    distance = cayley_energy(relative, counts)
    scores = np.zeros(n)
    means = np.zeros(scales.shape[0])
    for s in range(scales.shape[0]):
        costs, scaled = scales[s] * pairs, scales[s] * places
        num_burn = num_sweeps // 5
        for sweep in range(num_sweeps + num_burn):
            for _ in range(n):
                if len(ballots):
                    distance += try_exchange(order, relative, counts, scales[s], rng)
                else:
                    insert(order, int(rng.random() * n), costs, scaled, scores, rng)
            if sweep < num_burn:
                continue
            total = distance
            for a in range(n):
                total += places[order[a], a]
                for b in range(a + 1, n):
                    total += pairs[order[a], order[b]]
            means[s] += total / num_sweeps
    return means
