"""Compiled Markov chains over orders: an item is taken out and put back at a drawn place."""

import numpy as np

from permvi._compiled import compiled

# The range of log theta in slices, far beyond what ballots can tell from its ends.
_LOWEST, _HIGHEST = np.log(1e-9), np.log(200.0)


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


@compiled()
def move_groups(
    levels: np.ndarray,
    choices: np.ndarray,
    counts: np.ndarray,
    orders: np.ndarray,
    thetas: np.ndarray,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> None:
    """Move G groups of voters by Gibbs sampling.

    A sweep draws the group of each voter, the shares of the groups, and the order and dispersion of
    each group given its voters.

    Args:
        levels: (R, n) ballots, -1 for items that a ballot does not have.
        choices: (R, n) how often sums of 1 to n terms are part of each ballot's normaliser.
        counts: (R,) how often each ballot was given.
        orders: (G, n) the items of each group's order, the best first; changed in place.
        thetas: (G,) dispersions; changed in place.
        shares: (G,) shares of the groups; changed in place.
        log_likelihoods: (R, G) log probabilities of ballots in groups; changed in place.
        num_sweeps: The number of sweeps.
        rng: Generator.
    """
    num_ballots, n = levels.shape
    num_groups = len(thetas)
    voters = np.zeros((num_ballots, num_groups))
    tables = np.zeros((num_groups, n, n))
    weights, scores, nothing = np.zeros(num_groups), np.zeros(n), np.zeros((n, n))
    for _ in range(num_sweeps):
        voters[:] = 0.0
        for r in range(num_ballots):
            _draw_voters(voters[r], counts[r], shares, log_likelihoods[r], weights, rng)
        total = 0.0
        for g in range(num_groups):
            shares[g] = rng.standard_gamma(1.0 + voters[:, g].sum())
            total += shares[g]
        shares /= total
        tables[:] = 0.0
        for r in range(num_ballots):
            for i in range(n):
                for j in range(n):
                    if 0 <= levels[r, j] < levels[r, i]:
                        for g in range(num_groups):
                            tables[g, i, j] += voters[r, g]
        for g in range(num_groups):
            costs = thetas[g] * tables[g]
            for _ in range(n):
                insert(orders[g], int(rng.random() * n), costs, nothing, scores, rng)
            energy = 0.0
            for a in range(n):
                for b in range(a + 1, n):
                    energy += tables[g, orders[g, a], orders[g, b]]
            sums = np.zeros(n)
            for r in range(num_ballots):
                if voters[r, g] > 0:
                    sums += voters[r, g] * choices[r]
            thetas[g] = np.exp(_slice_log_theta(np.log(thetas[g]), energy, sums, rng))
        score_groups(levels, choices, orders, thetas, log_likelihoods)


@compiled()
def _draw_voters(
    voters: np.ndarray,
    count: float,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    weights: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Draw the groups (G,) of all voters who gave one ballot; ``weights`` is room for G numbers."""
    most = log_likelihoods.max()
    total = 0.0
    for g in range(len(weights)):
        total += shares[g] * np.exp(log_likelihoods[g] - most)
        weights[g] = total
    for _ in range(int(count)):
        place, g = rng.random() * total, 0
        while g < len(weights) - 1 and place >= weights[g]:
            g += 1
        voters[g] += 1.0


@compiled()
def score_groups(
    levels: np.ndarray,
    choices: np.ndarray,
    orders: np.ndarray,
    thetas: np.ndarray,
    log_likelihoods: np.ndarray,
) -> None:
    """Compute the log probabilities (R, G) of ballots in groups; see `move_groups`."""
    num_ballots, n = levels.shape
    for g in range(len(thetas)):
        log_sums = _log_geometric(n, thetas[g])
        for r in range(num_ballots):
            reversed_pairs, log_sum = 0, 0.0
            for a in range(n):
                mine = levels[r, orders[g, a]]
                for b in range(a + 1, n):
                    if 0 <= levels[r, orders[g, b]] < mine:
                        reversed_pairs += 1
                log_sum += choices[r, a] * log_sums[a]
            log_likelihoods[r, g] = -thetas[g] * reversed_pairs - log_sum


@compiled()
def _log_geometric(n: int, theta: float) -> np.ndarray:
    """(n,) logs of 1 + exp(-theta) + ... with 1 to n terms."""
    sums = np.zeros(n)
    for k in range(n):
        sums[k] = np.log(np.expm1(-(k + 1) * theta) / np.expm1(-theta))
    return sums


@compiled()
def _log_density(u: float, energy: float, sums: np.ndarray) -> float:
    """The log density of u = log theta: an exponential prior, an energy and normalisers."""
    if not _LOWEST <= u <= _HIGHEST:
        return -np.inf
    theta = np.exp(u)
    return u - theta * (1.0 + energy) - (sums * _log_geometric(len(sums), theta)).sum()


@compiled()
def _slice_log_theta(u: float, energy: float, sums: np.ndarray, rng: np.random.Generator) -> float:
    """Draw log theta by slice sampling with steps out (Neal 2003)."""
    height = _log_density(u, energy, sums) + np.log(rng.random())
    # About the width of the posterior: a voter's pairs tell log theta to within one.
    width = 2.0 / np.sqrt(1.0 + sums.sum())
    low = u - width * rng.random()
    high = low + width
    while _log_density(low, energy, sums) > height:
        low -= width
    while _log_density(high, energy, sums) > height:
        high += width
    while True:
        new = low + (high - low) * rng.random()
        if _log_density(new, energy, sums) > height:
            return new
        if new < u:
            low = new
        else:
            high = new
