"""Compiled moves of groups of voters with worths of the items: Plackett-Luce models."""

import numpy as np

from permvi._compiled import compiled
from permvi.inference.rankings.group_kernels import draw_members
from permvi.inference.rankings.worth_kernels import log_probability

# Metropolis steps of each group in a sweep, the last of them of the scale, and their sizes.
_STEPS = 3
_SIZES = np.array([0.1, 0.3, 1.0, 3.0])


@compiled()
def move_groups(
    items: np.ndarray,
    levels: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray,
    newest: int,
    part: float,
    log_worths: np.ndarray,
    sigmas: np.ndarray,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> None:
    """Move G groups of voters of each of P particles by Gibbs sampling.

    A sweep draws the group of each voter and the shares. In each group it then draws when items
    arrive (Caron and Doucet 2012), given which the worths are independent; the mean log worth, of
    which ballots say nothing; sigma; and it shifts the best items of a random ballot, with the
    times summed out, since times alone hold gaps between worths for long.

    Args:
        items: (R, k) items of the ballots, see `worth_kernels`.
        levels: (R, k) the number of each item's group.
        nodes: Nodes of the quadrature for ties.
        weights: Its weights.
        counts: (R,) how often each ballot was given.
        newest: The ballot of one more voter.
        part: The power, from 0 to below 1, to which the probability of that ballot is raised.
        log_worths: (P, G, n) changed in place.
        sigmas: (P, G) standard deviations of their priors; changed in place.
        shares: (P, G) shares of the groups; changed in place.
        log_likelihoods: (P, R, G) log probabilities of ballots in groups; changed in place.
        num_sweeps: The number of sweeps.
        rng: Generator.
    """
    for p in range(len(log_worths)):
        _move(
            items, levels, nodes, weights, counts, newest, part, log_worths[p], sigmas[p],
            shares[p], log_likelihoods[p], num_sweeps, rng,
        )  # fmt: skip


@compiled()
def _move(
    items: np.ndarray,
    levels: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    counts: np.ndarray,
    newest: int,
    part: float,
    log_worths: np.ndarray,
    sigmas: np.ndarray,
    shares: np.ndarray,
    log_likelihoods: np.ndarray,
    num_sweeps: int,
    rng: np.random.Generator,
) -> None:
    """Move the groups of one particle; see `move_groups`."""
    num_ballots, num_groups = log_likelihoods.shape
    n = log_worths.shape[1]
    voters = np.zeros((num_ballots, num_groups))
    chosen, times, moved = np.zeros(n), np.zeros(n), np.zeros(n)
    proposed = np.zeros(num_ballots)
    between = np.zeros(num_ballots, np.bool_)
    for r in range(num_ballots):
        last = levels[r].max()
        for k in range(1, items.shape[1]):
            between[r] |= levels[r, k] == levels[r, k - 1] and 0 <= levels[r, k] < last
    for _ in range(num_sweeps):
        draw_members(voters, counts, newest, part, shares, log_likelihoods, rng)
        for g in range(num_groups):
            own = log_worths[g]
            chosen[:] = 0.0
            times[:] = 0.0
            worths = np.exp(own)
            for r in range(num_ballots):
                # A power of the probability of ties is no mean over times.
                number = np.floor(voters[r, g]) if between[r] else voters[r, g]
                if number > 0:
                    _draw_times(
                        worths, items[r], levels[r], number, nodes, weights, chosen, times, rng
                    )
            for i in range(n):
                moved[i] = _slice(own[i], chosen[i], times[i], sigmas[g], rng)
            gain = 0.0
            if between[newest] and voters[newest, g] > np.floor(voters[newest, g]):
                tied = items[newest], levels[newest], nodes, weights
                gain = part * (
                    log_probability(np.exp(moved), *tied) - log_probability(worths, *tied)
                )
            if np.log(rng.random()) < gain:
                own[:] = moved
            own += rng.standard_normal() * sigmas[g] / np.sqrt(n) - own.mean()
            # With v = -2 log sigma the density of worths is of the same form.
            v = _slice(-2.0 * np.log(sigmas[g]), 0.5 * n, 0.5 * (own**2).sum(), 2.0, rng)
            sigmas[g] = np.exp(-0.5 * v)
            _score(items, levels, nodes, weights, own, log_likelihoods[:, g])
            for step in range(_STEPS):
                size = _SIZES[int(rng.random() * len(_SIZES))]
                if step == _STEPS - 1:
                    factor = np.exp(size * rng.standard_normal())
                    before, after = np.log(sigmas[g]), np.log(factor * sigmas[g])
                    moved[:] = factor * own
                    gain = 0.5 * (before**2 - after**2)
                else:
                    r = int(rng.random() * num_ballots)
                    # Where ballots say little, gaps are as large as sigma.
                    size *= sigmas[g] if rng.random() < 0.5 else 1.0
                    factor = 1.0
                    gain = _shift(items[r], levels[r], size, own, sigmas[g], moved, rng)
                _score(items, levels, nodes, weights, moved, proposed)
                gain += (voters[:, g] * (proposed - log_likelihoods[:, g])).sum()
                if np.log(rng.random()) < gain:
                    own[:] = moved
                    sigmas[g] *= factor
                    log_likelihoods[:, g] = proposed


@compiled()
def _shift(
    items: np.ndarray,
    levels: np.ndarray,
    size: float,
    log_worths: np.ndarray,
    sigma: float,
    moved: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Write log worths with the best items of a ballot shifted; return the gain of their prior."""
    moved[:] = log_worths
    best = int(rng.random() * levels.max())
    shift = size * rng.standard_normal()
    gain = 0.0
    for k in range(len(items)):
        if 0 <= levels[k] <= best:
            i = items[k]
            moved[i] += shift
            gain += (log_worths[i] ** 2 - moved[i] ** 2) / (2.0 * sigma**2)
    return gain


@compiled()
def score_groups(
    items: np.ndarray,
    levels: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    log_worths: np.ndarray,
    log_likelihoods: np.ndarray,
) -> None:
    """Compute the log probabilities (R, G) of ballots in groups; see `move_groups`."""
    for g in range(len(log_worths)):
        _score(items, levels, nodes, weights, log_worths[g], log_likelihoods[:, g])


@compiled()
def _score(
    items: np.ndarray,
    levels: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
    log_worths: np.ndarray,
    result: np.ndarray,
) -> None:
    """Write the log probability of each ballot given log worths (n,) to ``result`` (R,)."""
    # No sum of worths is 0.
    worths = np.exp(np.maximum(log_worths - log_worths.max(), -600.0))
    for r in range(len(items)):
        result[r] = log_probability(worths, items[r], levels[r], nodes, weights)


@compiled()
def _draw_times(
    worths: np.ndarray,
    items: np.ndarray,
    levels: np.ndarray,
    number: float,
    nodes: np.ndarray,
    weights: np.ndarray,
    chosen: np.ndarray,
    times: np.ndarray,
    rng: np.random.Generator,
) -> None:
    """Draw when items arrive for a number of voters with one ballot.

    Items arrive with rates equal to their worths, each group's before all later items. To
    ``chosen`` is added how often each item (n,) arrived, to ``times`` how long it was waited for.
    Nobody waits for the last group, whose probability is one.
    """
    end = items.shape[0]
    while end > 0 and items[end - 1] < 0:
        end -= 1
    first = 0
    cumulative = np.zeros(nodes.shape[0])
    while first < end and levels[first] < levels[end - 1]:
        stop = first
        while levels[stop] == levels[first]:
            chosen[items[stop]] += number
            stop += 1
        rest = 0.0
        for k in range(stop, end):
            rest += worths[items[k]]
        if stop == first + 1:
            waited = rng.standard_gamma(number) / (rest + worths[items[first]])
            for k in range(first, end):
                times[items[k]] += waited
            first = stop
            continue
        # When the first later item arrives, by the nodes of the quadrature.
        total = 0.0
        for q in range(nodes.shape[0]):
            product = weights[q]
            for k in range(first, stop):
                product *= -np.expm1(nodes[q] * worths[items[k]] / rest)
            total += product
            cumulative[q] = total
        for _ in range(int(number)):
            q = min(int(np.searchsorted(cumulative, rng.random() * total)), len(nodes) - 1)
            until = -nodes[q] / rest
            latest = 0.0
            for k in range(first, stop):
                worth = worths[items[k]]
                time = -np.log1p(rng.random() * np.expm1(-worth * until)) / worth
                times[items[k]] += time
                latest = max(latest, time)
            for k in range(stop, end):
                times[items[k]] += latest
        first = stop


@compiled()
def _slice(x: float, number: float, waited: float, sd: float, rng: np.random.Generator) -> float:
    """Draw x anew by slice sampling (Neal 2003) from exp(number x - waited e^x - x^2 / 2 sd^2)."""
    height = _log_density(x, number, waited, sd) + np.log(rng.random())
    width = 2.0 / np.sqrt(number + 1.0 / sd**2)
    low = x - width * rng.random()
    high = low + width
    while _log_density(low, number, waited, sd) > height:
        low -= width
    while _log_density(high, number, waited, sd) > height:
        high += width
    while True:
        new = low + (high - low) * rng.random()
        if _log_density(new, number, waited, sd) > height:
            return new
        if new < x:
            low = new
        else:
            high = new


@compiled()
def _log_density(x: float, number: float, waited: float, sd: float) -> float:
    return number * x - waited * np.exp(x) - 0.5 * (x / sd) ** 2
