r"""Posteriors over orders for Cayley's distance, which are rough, by tempered chains.

With the dispersion integrated out, the density of an order depends on its energy E alone:
:math:`f(E) = \log \int p(\theta) e^{-\theta E} / Z(\theta)\, d\theta`. Chains for powers of this
density, from 0 to 1, exchange their orders, so that the last one does not stay at one mode. Orders
of the same energy are equally probable: the chain says how probable each energy is, and all
different orders that any chain has met at an energy share its probability.
"""

from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp, softmax

from permvi.inference.rankings.chains import NUM_CHAINS, Sampled
from permvi.inference.rankings.exact import Solved, log_factorial, trapezoid
from permvi.inference.rankings.families import Family
from permvi.posterior.laws import DrawsLaw

# Ballots from which descents begin.
_DESCENTS = 4
# Energies at which the integral is computed, and the size of the table that is read off between.
_NODES, _TABLE = 240, 1 << 14
# Pilot runs find the powers; so many chains at first, and at most.
_PILOTS, _PILOT_SWEEPS = 4, (10, 250)
_FIRST_POWERS, _MOST_POWERS = 10, 24
# Exchanges tried in a sweep, for each item: at least and at most.
_MOVES = (1, 8)
# Time is counted in steps along cycles: for each ballot, an exchange that is made takes a third as
# many as there are items, and one that is tried a fraction of one. Steps of all chains together,
# those of pilots, and the least and largest numbers of sweeps.
_TRIED = 0.2
_STEPS, _PILOT_STEPS = 500_000_000, 25_000_000
_SWEEPS = (100, 12_000)
# An order that was met so often on average is hardly the only one of its kind to be missed.
_MET_AGAIN = 20
_NUM_DRAWS = 10_000


class _Density(NamedTuple):
    """Log densities of orders by energy.

    Attributes:
        table: (T,) values at energies most (k / (T - 1))^2.
        most: The largest energy.
        roots: (m,) from 0 to 1, squares of which are energies as shares of the largest.
        moments: (m, 2) means of theta and of its square at these.
    """

    table: np.ndarray
    most: float
    roots: np.ndarray
    moments: np.ndarray

    def __call__(self, energies: np.ndarray) -> np.ndarray:
        place = np.sqrt(energies / self.most) * (len(self.table) - 1)
        return np.interp(place, np.arange(len(self.table)), self.table)

    def theta(self, energies: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(1, 2) the mean and the standard deviation of theta, for energies with weights."""
        at = np.sqrt(energies / self.most)
        mean, square = weights @ CubicSpline(self.roots, self.moments)(at)
        return np.array([[mean, np.sqrt(max(square - mean**2, 0.0))]])


def _density(family: Family) -> _Density:
    """Integrate the dispersion out at some energies, more of them where the energy is small."""
    most = float(family.exchanged[1].sum()) * max(family.num_items - 1, 1)
    roots = np.linspace(0.0, 1.0, _NODES)
    values, moments = [], []
    for energy in (most * roots**2).tolist():

        def log_density(u: float, energy: float = energy) -> float:
            return float(family.log_joint(np.array([u]))[0, 0]) - energy * float(np.exp(u))

        nodes, heights, step = trapezoid(log_density, family.rate)
        weights, thetas = softmax(heights), np.exp(nodes)
        values.append(logsumexp(heights) + np.log(step))
        moments.append([weights @ thetas, weights @ thetas**2])
    table = CubicSpline(roots, values)(np.linspace(0.0, 1.0, _TABLE))
    return _Density(table, most, roots, np.array(moments))


class _Ladder(NamedTuple):
    """Powers (K,) of the density, exchanges (K,) to try at each, and the steps of a sweep."""

    powers: np.ndarray
    moves: np.ndarray
    steps: float


def _ladder(family: Family, density: _Density, starts: np.ndarray, seed: int) -> _Ladder:
    """Choose powers between which orders are passed equally often, by short runs."""
    from permvi.inference.rankings import exchange_kernels

    ballots, counts = family.exchanged
    num, n = ballots.shape
    rng = np.random.default_rng([seed, NUM_CHAINS])
    powers = np.linspace(0.0, 1.0, _FIRST_POWERS)
    # As if half of the exchanges were made.
    steps = _FIRST_POWERS * n * num * (_TRIED + n / 6)
    sweeps = int(np.clip(_PILOT_STEPS / steps, *_PILOT_SWEEPS))
    for _ in range(_PILOTS):
        moves = np.full(len(powers), n)
        begun = starts[np.arange(len(powers)) % len(starts)]
        _, _, made, passed = exchange_kernels.temper(
            ballots, counts, density.table, density.most, powers, begun, moves,
            sweeps, sweeps, rng,
        )  # fmt: skip
        # Powers that halve the number of orders held back are near to the best (Syed et al. 2022).
        held = np.concatenate([[0.0], np.cumsum(np.maximum(1.0 - passed, 0.02))])
        size = int(np.clip(np.ceil(2.5 * held[-1]) + 2, 4, _MOST_POWERS))
        old, powers = powers, np.interp(np.linspace(0.0, held[-1], size), held, powers)
    made = np.interp(powers, old, made)
    cost = num * (_TRIED + made * n / 3)
    moves = np.clip(np.rint(n * cost.max() / cost), *(n * bound for bound in _MOVES)).astype(int)
    return _Ladder(powers, moves, float(moves @ cost))


def sample(family: Family, mode: np.ndarray, seed: int, num_sweeps: int | None = None) -> Sampled:
    """Run tempered chains, every other time from ``mode``, (n,) ranks, and from random orders.

    By default there are as many sweeps as a few seconds allow.
    """
    from permvi.inference.rankings import exchange_kernels

    n = family.num_items
    rng = np.random.default_rng(seed)
    best = np.argsort(mode)
    density = _density(family)
    random = np.array([best, *(rng.permutation(n) for _ in range(_MOST_POWERS - 1))])
    ladder = _ladder(family, density, random, seed)
    usual = int(np.clip(_STEPS / (ladder.steps * NUM_CHAINS), *_SWEEPS))
    sweeps = num_sweeps or usual
    runs = []
    for k in range(NUM_CHAINS):
        starts = np.repeat(best[None], len(ladder.powers), axis=0)
        if k % 2:
            starts = rng.permuted(starts, axis=1)
        orders, energies, _, _ = exchange_kernels.temper(
            *family.exchanged, density.table, density.most, ladder.powers, starts, ladder.moves,
            sweeps, sweeps // 4, np.random.default_rng([seed, k]),
        )  # fmt: skip
        runs.append((orders, energies))
    by_chain = np.stack([_Met.of([run]).marginals() for run in runs])
    met = _Met.of(runs)
    marginals = met.marginals()
    evidence = _log_evidence(runs, met, density, ladder.powers)
    draws = met.ranks[rng.choice(len(met.ranks), size=_NUM_DRAWS, p=met.probs)]
    found = met.ranks[np.lexsort((-met.probs, met.energies))[0]]
    both = np.stack([mode, found])
    energies = family.energies(both.astype(np.int64))[:, 0]
    solved = Solved(
        marginals,
        met.before(),
        draws,
        both[int(np.argmin(energies))].astype(np.int64),
        float(evidence.mean()),
        density.theta(met.energies, met.probs),
        DrawsLaw(draws),
    )
    error = float(evidence.std(ddof=1) / np.sqrt(NUM_CHAINS))
    return Sampled(solved, error, by_chain, _effective(marginals, by_chain))


# Orders, (S, K, n), and energies, (S, K), of chains for K powers.
_Runs = list[tuple[np.ndarray, np.ndarray]]


def _last_energies(runs: _Runs) -> np.ndarray:
    """(runs, S) energies of the last powers; sums of counts that are not whole are rounded."""
    return np.round([energies[:, -1] for _, energies in runs], 6)


class _Met(NamedTuple):
    """Different orders that chains met, as (num, n) ranks, their energies and probabilities."""

    ranks: np.ndarray
    energies: np.ndarray
    probs: np.ndarray

    @classmethod
    def of(cls, runs: _Runs) -> "_Met":
        """Share the probability of each energy among all orders met there."""
        levels, times = np.unique(_last_energies(runs), return_counts=True)
        orders, energies = [], []
        for run, values in runs:
            rounded = np.round(values, 6)
            seen = np.isin(rounded, levels)
            orders.append(run[seen])
            energies.append(rounded[seen])
        found, value = np.concatenate(orders), np.concatenate(energies)
        rows = np.ascontiguousarray(found).view(np.dtype((np.void, found.shape[1] * 2)))
        _, first = np.unique(rows.ravel(), return_index=True)
        level = np.searchsorted(levels, value[first])
        sizes = np.bincount(level, minlength=len(levels))
        probs = (times / times.sum() / sizes)[level]
        return cls(np.argsort(found[first], axis=1), value[first], probs / probs.sum())

    def marginals(self) -> np.ndarray:
        """(n, n) P(item i has rank k)."""
        n = self.ranks.shape[1]
        columns = [np.bincount(self.ranks[:, i], self.probs, minlength=n) for i in range(n)]
        return np.stack(columns)

    def before(self) -> np.ndarray:
        """(n, n) P(item i is before item j)."""
        ranks = self.ranks
        rows = [self.probs @ (ranks[:, i, None] < ranks) for i in range(ranks.shape[1])]
        return np.stack(rows)


def _log_evidence(runs: _Runs, met: _Met, density: _Density, powers: np.ndarray) -> np.ndarray:
    """(runs,) log evidences, the log mean of the density over all orders, found in one of two ways.

    If all orders of an energy are surely known, being met again and again, the share of the time
    that is spent there is their density over the evidence. Otherwise, and if it scatters less, it
    is the product of the ratios between neighbouring powers.
    """
    by_powers = np.array([_log_mean(density(energies), powers) for _, energies in runs])
    last = _last_energies(runs)
    levels, times = np.unique(last, return_counts=True)
    sizes = np.array([np.count_nonzero(met.energies == level) for level in levels])
    times[times < _MET_AGAIN * sizes] = 0
    k = int(np.argmax(times))
    shares = (last == levels[k]).mean(axis=1)
    if not times[k] or not shares.all():
        return by_powers
    there = float(density(levels[k : k + 1])[0] + np.log(sizes[k]))
    by_level = there - np.log(shares) - log_factorial(met.ranks.shape[1])
    return by_level if by_level.std() < by_powers.std() else by_powers


def _log_mean(values: np.ndarray, powers: np.ndarray) -> float:
    """The log mean of the density over all orders, from its logs (S, K) in chains for powers.

    The ratio of the sums of two powers is that of means of the square root of their quotient.
    """
    total = 0.0
    for k, step in enumerate(np.diff(powers).tolist()):
        up, down = 0.5 * step * values[:, k], -0.5 * step * values[:, k + 1]
        total += float(logsumexp(up) - logsumexp(down))
    return total


def _effective(marginals: np.ndarray, by_chain: np.ndarray) -> float:
    """The number of independent draws whose marginals would scatter as those of the chains do."""
    scatter = by_chain.var(axis=0, ddof=1).sum() / len(by_chain)
    return float((marginals * (1 - marginals)).sum() / max(scatter, 1e-12)) + 1.0


def nearest(
    ballots: np.ndarray, counts: np.ndarray, rng: np.random.Generator, *starts: np.ndarray
) -> np.ndarray:
    """(n,) ranks that no exchange brings closer to ballots (R, n) in Cayley's distance.

    Descents begin at the most frequent ballots, at the mean ranks, and at ``starts``, (n,) ranks.
    """
    from permvi.inference.rankings import exchange_kernels

    frequent = np.argsort(-counts, kind="stable")[:_DESCENTS]
    begun = [np.argsort(counts @ ballots, kind="stable"), *np.argsort(ballots[frequent], axis=1)]
    begun += [np.argsort(start) for start in starts]
    ends = [
        exchange_kernels.descend_exchanges(ballots, counts.astype(float), order, rng)
        for order in begun
    ]
    return np.argsort(min(ends, key=lambda end: end[1])[0])
