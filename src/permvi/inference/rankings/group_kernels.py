"""Compiled moves of groups of voters with Mallows models: orders, dispersions and members."""

import numpy as np

from permvi._compiled import compiled
from permvi.inference.rankings.chain_kernels import insert
from permvi.inference.rankings.exchange_kernels import exchange, exchange_cost, label_cycles

# What distances add up: pairs in the other order, gaps between places, or exchanges.
PAIRS, PLACES, EXCHANGES = range(3)
# The range of log theta in slices, far beyond what ballots can tell from its ends.
LOWEST, HIGHEST = np.log(1e-9), np.log(200.0)


@compiled()
def move_groups(
    kind: int,
    levels: np.ndarray,
    gaps: np.ndarray,
    choices: np.ndarray,
    splines: np.ndarray,
    rate: float,
    counts: np.ndarray,
    newest: int,
    part: float,
    orders: np.ndarray,
    thetas: np.ndarray,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> None:
    """Move G groups of voters of each of P particles by Gibbs sampling.

    A sweep draws the group of each voter, the shares of the groups, and the order and dispersions
    of each group given its voters. Items are put back at drawn places, or exchanged where distances
    count exchanges.

    Args:
        kind: What distances add up.
        levels: (R, n) ballots, -1 for items that a ballot does not have.
        gaps: (n, n) the distance of two places, for distances that are sums of these.
        choices: (R, J, K) how often each of K functions of dispersion j is part of the log
            normaliser of a ballot.
        splines: (S, 4, K) coefficients of these functions of log theta, cubic on S intervals.
        rate: The rate of the exponential prior of dispersions.
        counts: (R,) how often each ballot was given.
        newest: The ballot of one more voter.
        part: The power, from 0 to below 1, to which the probability of that ballot is raised.
        orders: (P, G, n) the items of each group's order, the best first; changed in place.
        thetas: (P, G, J) dispersions; changed in place.
        shares: (P, G) shares of the groups; changed in place.
        log_likelihoods: (P, R, G) log probabilities of ballots in groups; changed in place.
        num_sweeps: The number of sweeps.
        rng: Generator.
    """
    for p in range(len(orders)):
        _move(
            kind, levels, gaps, choices, splines, rate, counts, newest, part, orders[p], thetas[p],
            shares[p], log_likelihoods[p], num_sweeps, rng,
        )  # fmt: skip


@compiled()
def _move(
    kind: int,
    levels: np.ndarray,
    gaps: np.ndarray,
    choices: np.ndarray,
    splines: np.ndarray,
    rate: float,
    counts: np.ndarray,
    newest: int,
    part: float,
    orders: np.ndarray,
    thetas: np.ndarray,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> None:
    """Move the groups of one particle; see `move_groups`."""
    num_groups, num_thetas = thetas.shape
    voters = np.zeros((len(levels), num_groups))
    distances = np.zeros((len(levels), num_thetas))
    for _ in range(num_sweeps):
        draw_members(voters, counts, newest, part, shares, log_likelihoods, rng)
        for g in range(num_groups):
            members = np.flatnonzero(voters[:, g] > 0)
            numbers = voters[members, g]
            if kind == EXCHANGES:
                _exchange_items(levels[members], numbers, thetas[g, 0], orders[g], rng)
            else:
                _insert_items(kind, levels[members], gaps, numbers, thetas[g], orders[g], rng)
            _measure(kind, levels, gaps, orders[g], distances)
            for j in range(num_thetas):
                energy, sums = 0.0, np.zeros(choices.shape[2])
                for k, r in enumerate(members):
                    energy += numbers[k] * distances[r, j]
                    sums += numbers[k] * choices[r, j]
                u = _slice_log_theta(np.log(thetas[g, j]), rate + energy, sums, splines, rng)
                thetas[g, j] = np.exp(u)
            _score(distances, choices, splines, thetas[g], log_likelihoods[:, g])


@compiled()
def score_groups(
    kind: int,
    levels: np.ndarray,
    gaps: np.ndarray,
    choices: np.ndarray,
    splines: np.ndarray,
    orders: np.ndarray,
    thetas: np.ndarray,
    log_likelihoods: np.ndarray,
) -> None:
    """Compute the log probabilities (R, G) of ballots in groups; see `move_groups`."""
    distances = np.zeros((len(levels), thetas.shape[1]))
    for g in range(len(thetas)):
        _measure(kind, levels, gaps, orders[g], distances)
        _score(distances, choices, splines, thetas[g], log_likelihoods[:, g])


@compiled()
def _insert_items(
    kind: int,
    levels: np.ndarray,
    gaps: np.ndarray,
    numbers: np.ndarray,
    thetas: np.ndarray,
    order: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Move the order (n,) of a group, given how many voters it has of each ballot (R,)."""
    n = len(order)
    pairs, places, scores = np.zeros((n, n)), np.zeros((n, n)), np.zeros(n)
    for r in range(len(levels)):
        for i in range(n):
            for j in range(n):
                if kind == PLACES:
                    places[i, j] += thetas[0] * numbers[r] * gaps[levels[r, i], j]
                elif 0 <= levels[r, j] < levels[r, i]:
                    pairs[i, j] += thetas[min(levels[r, j], len(thetas) - 1)] * numbers[r]
    for _ in range(n):
        insert(order, int(rng.random() * n), pairs, places, scores, rng)


@compiled()
def _exchange_items(
    levels: np.ndarray,
    numbers: np.ndarray,
    theta: float,
    order: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Move the order (n,) of a group by exchanges of two items, as many as there are pairs."""
    n = len(order)
    relative, label = np.empty((n, len(levels)), np.int16), np.empty((n, len(levels)), np.int16)
    label_cycles(order, levels, relative, label)
    for _ in range(n * (n - 1) // 2):
        a, b = int(rng.random() * n), int(rng.random() * (n - 1))
        b += b >= a
        if np.log(rng.random()) < -theta * exchange_cost(label, numbers, a, b):
            exchange(order, relative, label, a, b)


@compiled()
def _measure(
    kind: int, levels: np.ndarray, gaps: np.ndarray, order: np.ndarray, distances: np.ndarray
) -> None:
    """Write the distances (R, J) of ballots to an order (n,), one for each dispersion."""
    num_ballots, n = levels.shape
    if kind == EXCHANGES:
        relative = np.empty((n, num_ballots), np.int16)
        distances[:, 0] = label_cycles(order, levels, relative, np.empty_like(relative))
        return
    distances[:] = 0.0
    last = distances.shape[1] - 1
    for r in range(num_ballots):
        for a in range(n):
            mine = levels[r, order[a]]
            if kind == PLACES:
                distances[r, 0] += gaps[mine, a]
                continue
            for b in range(a + 1, n):
                level = levels[r, order[b]]
                if 0 <= level < mine:
                    distances[r, min(level, last)] += 1.0


@compiled()
def _score(
    distances: np.ndarray,
    choices: np.ndarray,
    splines: np.ndarray,
    thetas: np.ndarray,
    result: np.ndarray,
) -> None:
    """Write the log probabilities (R,) of ballots at distances (R, J)."""
    result[:] = 0.0
    for j in range(len(thetas)):
        u = np.log(thetas[j])
        for r in range(len(result)):
            log_z = _log_normaliser(u, choices[r, j], splines)
            result[r] -= thetas[j] * distances[r, j] + log_z


@compiled()
def _log_normaliser(u: float, sums: np.ndarray, splines: np.ndarray) -> float:
    """Add up functions of u = log theta as often as ``sums`` (K,) say, by splines (S, 4, K)."""
    place = (u - LOWEST) / (HIGHEST - LOWEST) * len(splines)
    s = min(max(int(place), 0), len(splines) - 1)
    x, total = place - s, 0.0
    for k in range(len(sums)):
        if sums[k] != 0.0:
            high, low = splines[s, 0, k] * x + splines[s, 1, k], splines[s, 2, k]
            total += sums[k] * ((high * x + low) * x + splines[s, 3, k])
    return total


@compiled()
def draw_members(
    voters: np.ndarray,
    counts: np.ndarray,
    newest: int,
    part: float,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Draw how many voters of each ballot are in each group (R, G), then shares given these.

    Voters and shares (G,) are changed in place; the newest voter counts in part.
    """
    num_groups = len(shares)
    weights, members = np.zeros(num_groups), np.ones(num_groups)
    voters[:] = 0.0
    if num_groups == 1:
        voters[:, 0] = counts
    for r in range(len(counts) if num_groups > 1 else 0):
        _add_up(shares, log_likelihoods[r], 1.0, weights)
        for _ in range(int(counts[r])):
            voters[r, _drawn(weights, rng)] += 1.0
    for g in range(num_groups):
        members[g] += voters[:, g].sum()
    if part > 0:
        _add_up(shares, log_likelihoods[newest], part, weights)
        g = _drawn(weights, rng)
        voters[newest, g] += part
        members[g] += 1.0
    for g in range(num_groups):
        shares[g] = rng.standard_gamma(members[g])
    shares /= shares.sum()


@compiled()
def _add_up(
    shares: np.ndarray, log_likelihoods: np.ndarray, power: float, weights: np.ndarray
) -> None:
    """Write the cumulative weights (G,) of the groups of a voter to ``weights``."""
    most, total = log_likelihoods.max(), 0.0
    for g in range(len(shares)):
        total += shares[g] * np.exp(power * (log_likelihoods[g] - most))
        weights[g] = total


@compiled()
def _drawn(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    place, g = rng.random() * cumulative[-1], 0
    while g < len(cumulative) - 1 and place >= cumulative[g]:
        g += 1
    return g


@compiled()
def _log_density(u: float, energy: float, sums: np.ndarray, splines: np.ndarray) -> float:
    """The log density of u = log theta: an energy, that of the prior included, and normalisers."""
    if not LOWEST <= u <= HIGHEST:
        return -np.inf
    return u - np.exp(u) * energy - _log_normaliser(u, sums, splines)


@compiled()
def _slice_log_theta(
    u: float, energy: float, sums: np.ndarray, splines: np.ndarray, rng: np.random.Generator
) -> float:
    """Draw log theta by slice sampling with steps out (Neal 2003)."""
    height = _log_density(u, energy, sums, splines) + np.log(rng.random())
    # About the width of the posterior: a voter's pairs tell log theta to within one.
    width = 2.0 / np.sqrt(1.0 + sums.sum())
    low = u - width * rng.random()
    high = low + width
    while _log_density(low, energy, sums, splines) > height:
        low -= width
    while _log_density(high, energy, sums, splines) > height:
        high += width
    while True:
        new = low + (high - low) * rng.random()
        if _log_density(new, energy, sums, splines) > height:
            return new
        if new < u:
            low = new
        else:
            high = new
