r"""Posteriors over orders by Markov chains, where sums over all orders are out of reach.

Items are inserted by Gibbs sampling, and each dispersion is drawn from a grid given its energy. The
evidence follows from a point :math:`\hat\theta` of high density (Chib 1995): the joint density at
it, which needs the sum :math:`S(\hat\theta)` over all orders, over its posterior density, which is
a mean over the chain. :math:`\log S` comes from a programme over subsets, or by integrating the
mean energy along :math:`s \hat\theta`, s from 0 to 1 (thermodynamic integration).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from permvi.inference.rankings.consensus import descend
from permvi.inference.rankings.exact import Solved, log_factorial, trapezoid
from permvi.inference.rankings.families import MAX_EXACT, Family
from permvi.posterior.laws import DrawsLaw

NUM_CHAINS = 4
# Insertions of all chains together; a sweep has n of them.
_INSERTIONS = 1_000_000
_INSERTIONS_PER_SCALE = 20_000
_SWEEPS = (8_000, 100_000)
_KEPT = 2_500
_PILOT = 500
_GRID = 96
# Nodes, sweeps and repetitions of thermodynamic integration.
_SCALES = 24
_REPEATS = 5
_SWEEPS_PER_SCALE = (200, 1_000)


class Sampled(NamedTuple):
    """A posterior over orders from chains.

    Attributes:
        solved: The posterior; its evidence is an estimate.
        evidence_se: The standard error of the log evidence, from separate chains.
        by_chain: (chains, n, n) marginals of each chain.
        effective: The smallest effective number of draws of an item's rank.
    """

    solved: Solved
    evidence_se: float
    by_chain: np.ndarray
    effective: float


def sample(family: Family, mode: np.ndarray, seed: int, num_sweeps: int | None = None) -> Sampled:
    """Run chains from the best order known, of ranks ``mode``, and from random orders.

    By default there are as many sweeps as a second or two allows.
    """
    from permvi.inference.rankings import chain_kernels

    n = family.num_items
    rng = np.random.default_rng(seed)
    best = np.argsort(mode)
    starts = [best if k % 2 == 0 else rng.permutation(n) for k in range(NUM_CHAINS)]
    grids, log_weights = _grids(family, best, seed)
    sweeps = num_sweeps or int(np.clip(_INSERTIONS // (n * NUM_CHAINS), *_SWEEPS))
    thin = max(1, sweeps * NUM_CHAINS // _KEPT // NUM_CHAINS)
    runs = [
        chain_kernels.run(
            family.pairs, family.places, grids, log_weights, start, sweeps, sweeps // 5, thin,
            np.random.default_rng([seed, k]),
        )
        for k, start in enumerate(starts)
    ]  # fmt: skip
    by_chain = np.stack([run[0] for run in runs])
    ranks, thetas, energies = (np.concatenate([run[k] for run in runs]) for k in (2, 3, 4))
    evidence, error = _evidence(family, grids, log_weights, thetas, energies, best, seed)
    moments = np.stack([thetas.mean(axis=0), thetas.std(axis=0)], axis=1)
    solved = Solved(
        by_chain.mean(axis=0),
        np.mean([run[1] for run in runs], axis=0),
        ranks,
        _most_probable(family, mode, ranks, grids, log_weights),
        evidence,
        moments,
        DrawsLaw(ranks),
    )
    effective = _effective(np.stack([run[2] for run in runs]).astype(float))
    return Sampled(solved, error, by_chain, effective)


def _grids(family: Family, order: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Grids (J, T) of dispersions that cover the posterior, and their log weights."""
    from permvi.inference.rankings import chain_kernels

    num, rng = len(family.pairs), np.random.default_rng(seed)
    energies = family.energies(np.argsort(order)[None])[0]
    low, high = energies.copy(), energies.copy()
    for _ in range(2):
        grids, weights = [], []
        for j in range(num):
            ends = []
            for energy in (low[j], high[j]):

                def log_density(u: float, energy: float = energy, j: int = j) -> float:
                    joint = family.log_joint(np.array([u]))[j, 0]
                    return float(joint) - energy * float(np.exp(u))

                nodes, _, _ = trapezoid(log_density, family.rate)
                ends += [nodes[0], nodes[-1]]
            nodes = np.linspace(min(ends), max(ends), _GRID)
            grids.append(np.exp(nodes))
            weights.append(family.log_joint(nodes)[j])
        thetas, log_weights = np.array(grids), np.array(weights)
        # A short chain finds how far above the best order the energies are.
        pilot = chain_kernels.run(
            family.pairs,
            family.places,
            thetas,
            log_weights,
            order,
            _PILOT,
            _PILOT,
            1,
            rng,
        )
        low, high = np.minimum(low, pilot[4].min(axis=0)), np.maximum(high, pilot[4].max(axis=0))
    return thetas, log_weights


def _evidence(
    family: Family,
    grids: np.ndarray,
    log_weights: np.ndarray,
    thetas: np.ndarray,
    energies: np.ndarray,
    order: np.ndarray,
    seed: int,
) -> tuple[float, float]:
    """The log evidence by Chib's identity, and its standard error."""
    # The nodes of the grids that are nearest to the posterior means.
    node = np.abs(np.log(grids) - np.log(thetas).mean(axis=0)[:, None]).argmin(axis=1)
    chosen = np.arange(len(grids))
    point, at_point = grids[chosen, node], log_weights[chosen, node]
    log_step = np.log(np.diff(np.log(grids[:, :2]), axis=1)[:, 0])
    # (num,) log densities of the point given the energies of each draw.
    norms = logsumexp(log_weights[None] - grids[None] * energies[:, :, None], axis=2)
    density = (at_point - point * energies - norms - log_step).sum(axis=1)
    log_sum, error = _log_sum(family, point, order, seed)
    evidence = at_point.sum() + log_sum - (logsumexp(density) - np.log(len(density)))
    spread = np.std([logsumexp(part) for part in np.array_split(density, NUM_CHAINS)])
    return (
        float(evidence) - log_factorial(family.num_items),
        float(np.hypot(error, spread / np.sqrt(NUM_CHAINS))),
    )


def _log_sum(
    family: Family, point: np.ndarray, order: np.ndarray, seed: int
) -> tuple[float, float]:
    """The log of the sum over all orders at fixed dispersions, and its standard error."""
    pairs = np.einsum("j,jab->ab", point, family.pairs)
    places = point[0] * family.places
    n = family.num_items
    if n <= MAX_EXACT:
        from permvi.inference.rankings import subset_kernels

        before, _, _ = subset_kernels.optima(pairs, places, 1e-9)
        return float(subset_kernels.partition(pairs, places, 1.0, before)), 0.0
    from permvi.inference.rankings import chain_kernels

    # Energies fall fastest at small scales: Gauss-Legendre nodes of a fourth root.
    roots, weights = np.polynomial.legendre.leggauss(_SCALES)
    roots, weights = (roots + 1) / 2, weights / 2
    scales = roots**4
    sweeps = int(np.clip(_INSERTIONS_PER_SCALE // n, *_SWEEPS_PER_SCALE))
    sums, rng = [], np.random.default_rng([seed, NUM_CHAINS])
    for _ in range(_REPEATS):
        backwards = scales[::-1].copy()
        means = chain_kernels.mean_energies(pairs, places, backwards, order, sweeps, rng)[::-1]
        sums.append(log_factorial(n) - float(weights @ (4 * roots**3 * means)))
    return float(np.mean(sums)), float(np.std(sums, ddof=1) / np.sqrt(_REPEATS))


def _most_probable(
    family: Family,
    mode: np.ndarray,
    ranks: np.ndarray,
    grids: np.ndarray,
    log_weights: np.ndarray,
) -> np.ndarray:
    """The most probable of the draws and the best order known, dispersions integrated out."""
    candidates = np.concatenate([mode[None], np.unique(ranks, axis=0)]).astype(np.int64)
    energies = family.energies(candidates)
    values = logsumexp(log_weights[None] - grids[None] * energies[:, :, None], axis=2).sum(axis=1)
    return candidates[int(np.argmax(values))]


def best_known(family: Family) -> np.ndarray:
    """(n,) ranks of a good order: for costs of places exactly, for others by descent."""
    from scipy.optimize import linear_sum_assignment

    if family.places.any():
        return linear_sum_assignment(family.places)[1]
    pairs = family.pairs.sum(axis=0)
    return np.argsort(descend(pairs, np.argsort((pairs - pairs.T).sum(axis=1), kind="stable")))


def _effective(ranks: np.ndarray) -> float:
    """The smallest effective number of draws of any item, from ranks (chains, num, n)."""
    num_chains, num, _ = ranks.shape
    within = ranks.var(axis=1, ddof=1).mean(axis=0)
    # Means of batches show how slowly the chains move.
    size = max(1, int(np.sqrt(num)))
    batches = ranks[:, : num // size * size].reshape(num_chains, -1, size, ranks.shape[2])
    means = batches.mean(axis=2).reshape(-1, ranks.shape[2])
    variance = size * means.var(axis=0, ddof=1)
    moving = within > 1e-12
    if not moving.any():
        return float(num_chains * num)
    return float(num_chains * num * np.min(within[moving] / np.maximum(variance[moving], 1e-12)))
