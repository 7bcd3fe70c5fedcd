"""Compiled moves of groups of voters: their orders, dispersions and members."""

import numpy as np

from permvi._compiled import compiled
from permvi.inference.rankings.chain_kernels import insert

# The range of log theta in slices, far beyond what ballots can tell from its ends.
_LOWEST, _HIGHEST = np.log(1e-9), np.log(200.0)


@compiled()
def move_groups(
    levels: np.ndarray,
    choices: np.ndarray,
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
    """Move G groups of voters by Gibbs sampling.

    A sweep draws the group of each voter, the shares of the groups, and the order and dispersion of
    each group given its voters.

    Args:
        levels: (R, n) ballots, -1 for items that a ballot does not have.
        choices: (R, n) how often sums of 1 to n terms are part of each ballot's normaliser.
        counts: (R,) how often each ballot was given.
        newest: The ballot of one more voter.
        part: The power, from 0 to below 1, to which the probability of that ballot is raised.
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
    scores, nothing = np.zeros(n), np.zeros((n, n))
    for _ in range(num_sweeps):
        draw_members(voters, counts, newest, part, shares, log_likelihoods, rng)
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
