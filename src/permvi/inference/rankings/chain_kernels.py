"""Compiled Markov chains over orders: an item is taken out and put back at a drawn place."""

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
        thetas: (J, T) grids of dispersions.
        log_weights: (J, T) their log weights, without the energies.
        order: (n,) items of the first order.
        num_sweeps: Sweeps that count, each with n insertions.
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
    for sweep in range(num_burn + num_sweeps):
        for j in range(num_thetas):
            energy[j] = 0.0
            for a in range(n):
                for b in range(a + 1, n):
                    energy[j] += pairs[j, order[a], order[b]]
        for a in range(n):
            energy[0] += places[order[a], a]
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
    scales: np.ndarray,
    order: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """(S,) means of the cost of an order under exp(-scale cost), the order carried along.

    The first fifth of the sweeps at each scale does not count.
    """
    n = order.shape[0]
    order = order.copy()
    scores = np.zeros(n)
    means = np.zeros(scales.shape[0])
    for s in range(scales.shape[0]):
        costs, scaled = scales[s] * pairs, scales[s] * places
        num_burn = num_sweeps // 5
        for sweep in range(num_sweeps + num_burn):
            for _ in range(n):
                insert(order, int(rng.random() * n), costs, scaled, scores, rng)
            if sweep < num_burn:
                continue
            total = 0.0
            for a in range(n):
                total += places[order[a], a]
                for b in range(a + 1, n):
                    total += pairs[order[a], order[b]]
            means[s] += total / num_sweeps
    return means
