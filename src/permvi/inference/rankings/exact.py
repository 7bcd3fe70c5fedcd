r"""Posteriors over orders by sums over all of them, with the dispersion integrated out.

Given :math:`\theta`, sums over all orders come from a programme over subsets. The posterior of
:math:`\log\theta` is smooth and falls off at least exponentially on both sides, so the trapezoidal
rule converges geometrically (Trefethen and Weideman 2014).
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from permvi.inference.rankings.families import MAX_EXACT, MAX_LISTED, Family, list_ranks
from permvi.posterior.laws import DrawsLaw, Law, register_law

# The range of log(rate theta): from almost no agreement to almost no disagreement.
LOG_THETAS = (float(np.log(1e-7)), float(np.log(60.0)))
# Quadrature: the distance of nodes in standard deviations, and the log density where they end.
_STEP = 0.45
# With many items each node takes longer, and the posterior is closer to a normal one.
_MANY_ITEMS, _WIDE_STEP = 13, 0.8
_TAIL = 30.0
_MAX_NODES = 400
_NUM_DRAWS = 10_000


class Solved(NamedTuple):
    """A posterior over orders.

    Attributes:
        marginals: (n, n) P(item i has rank k).
        before: (n, n) P(item i is before item j).
        draws: (num, n) ranks.
        mode: (n,) the ranks of the most probable order.
        log_evidence: The log probability of the ballots.
        thetas: (J, 2) means and standard deviations of the dispersions.
        law: The law that a posterior keeps.
    """

    marginals: np.ndarray
    before: np.ndarray
    draws: np.ndarray
    mode: np.ndarray
    log_evidence: float
    thetas: np.ndarray
    law: Law


@register_law
class OrdersLaw(DrawsLaw):
    """Orders whose energies are sums of costs, given a grid of dispersions; draws are exact.

    Args:
        draws: (num, n) ranks.
        pairs: (n, n) costs of pairs.
        places: (n, n) costs of places.
        thetas: (T,) dispersions.
        log_weights: (T,) log weights, normalised with the sums over orders.
    """

    kind: ClassVar[str] = "orders"

    def __init__(
        self,
        draws: np.ndarray,
        pairs: np.ndarray,
        places: np.ndarray,
        thetas: np.ndarray,
        log_weights: np.ndarray,
    ) -> None:
        super().__init__(draws)
        self._parts = {
            "pairs": pairs, "places": places, "thetas": thetas, "weights_of_thetas": log_weights,
        }  # fmt: skip
        self._family = Family("", pairs[None], places, lambda thetas: thetas[None])

    def log_prob(self, perms: np.ndarray) -> np.ndarray:
        """Return the log probabilities (...) of ranks (..., n)."""
        flat = np.asarray(perms).reshape(-1, perms.shape[-1])
        energies = self._family.energies(flat)
        exponents = self._parts["weights_of_thetas"] - energies * self._parts["thetas"]
        return np.asarray(logsumexp(exponents, axis=1)).reshape(perms.shape[:-1])

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k most probable of all draws, with their exact probabilities."""
        perms = self._distinct[0].astype(np.int64)
        probs = np.exp(self.log_prob(perms))
        best = np.argsort(-probs, kind="stable")[:k]
        return perms[best], probs[best]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return draws, costs and the grid of dispersions."""
        return {"draws": self.draws, **self._parts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Rebuild the law from its arrays."""
        names = ("draws", "pairs", "places", "thetas", "weights_of_thetas")
        return cls(*(arrays[name] for name in names))


def is_affordable(family: Family) -> bool:
    """Return whether sums over all orders take seconds."""
    by_subsets = family.ballots is None and len(family.pairs) == 1
    return family.num_items <= (MAX_EXACT if by_subsets else MAX_LISTED)


def solve(family: Family, seed: int) -> Solved:
    """Compute the posterior of one of the families, by subsets or order by order."""
    if family.ballots is None and len(family.pairs) == 1:
        return _by_subsets(family, seed)
    return _by_listing(family, seed)


class _Integral(NamedTuple):
    """The quadrature of a family with one dispersion: costs, optima, nodes and log densities."""

    pairs: np.ndarray
    before: np.ndarray
    after: np.ndarray
    nodes: np.ndarray
    values: np.ndarray
    log_evidence: float

    @classmethod
    def of(cls, family: Family) -> "_Integral":
        from permvi.inference.rankings import subset_kernels

        pairs, places = np.ascontiguousarray(family.pairs[0]), family.places
        before, after, _ = subset_kernels.optima(pairs, places, 0.0)

        def log_density(u: float) -> float:
            sums = subset_kernels.partition(pairs, places, float(np.exp(u)), before)
            return float(family.log_joint(np.array([u]))[0, 0]) + sums

        wide = _WIDE_STEP if family.num_items >= _MANY_ITEMS else _STEP
        nodes, values, step = trapezoid(log_density, family.rate, wide)
        evidence = float(logsumexp(values) + np.log(step)) - log_factorial(family.num_items)
        return cls(pairs, before, after, nodes, values, evidence)


def log_evidence(family: Family) -> float:
    """Return the log evidence alone, which takes less time than all of `solve`."""
    if family.ballots is None and len(family.pairs) == 1:
        return _Integral.of(family).log_evidence
    return _by_listing(family, 0).log_evidence


def _by_subsets(family: Family, seed: int) -> Solved:
    from permvi.inference.rankings import subset_kernels

    pairs, before, after, nodes, values, evidence = _Integral.of(family)
    places = family.places
    weights = softmax(values)
    rng = np.random.default_rng(seed)
    draws_of = rng.multinomial(_NUM_DRAWS, weights)
    n = family.num_items
    marginals, earlier = np.zeros((2, n, n))
    draws = []
    for k, (u, weight) in enumerate(zip(nodes, weights, strict=True)):
        found = subset_kernels.summary(
            pairs, places, float(np.exp(u)), before, after, int(draws_of[k]), rng
        )
        marginals += weight * found[0]
        earlier += weight * found[1]
        draws.append(found[2])
    thetas = np.exp(nodes)
    all_draws = np.concatenate(draws)
    # Weights of the grid relative to single orders, not to their sums.
    log_weights = family.log_joint(nodes)[0] - logsumexp(values)
    mode = np.argsort(subset_kernels.optimal_order(pairs, places, before))
    law = OrdersLaw(all_draws, pairs, places, thetas, log_weights)
    return Solved(
        _normalised(marginals), earlier, all_draws, mode, evidence, _moments(weights, thetas), law
    )


def _by_listing(family: Family, seed: int) -> Solved:
    """Sum over a list of all orders, with each dispersion integrated out on its own."""
    from permvi.inference.exact.laws import TabularLaw

    n = family.num_items
    ranks = list_ranks(n)
    energies = family.energies(ranks)
    log_density = np.zeros(len(ranks))
    tables = []
    for j in range(energies.shape[1]):
        distinct, place = np.unique(energies[:, j], return_inverse=True)
        nodes, values, step = _for_energies(family, j, distinct)
        integrals = logsumexp(values[None] - np.outer(distinct, np.exp(nodes)), axis=1)
        log_density += (integrals + np.log(step))[place]
        tables.append((np.exp(nodes), values, distinct, place))
    probs = softmax(log_density)
    moments = []
    for thetas, values, distinct, place in tables:
        mass = np.bincount(place, probs, minlength=len(distinct))
        weights = mass @ softmax(values[None] - np.outer(distinct, thetas), axis=1)
        moments.append(_moments(weights, thetas)[0])
    marginals = np.stack([np.bincount(ranks[:, i], probs, minlength=n) for i in range(n)])
    earlier = np.einsum("k,kij->ij", probs, ranks[:, :, None] < ranks[:, None, :])
    law = TabularLaw(ranks, log_density, n)
    rng = np.random.default_rng(seed)
    draws = ranks[rng.choice(len(ranks), size=_NUM_DRAWS, p=probs)]
    evidence = float(logsumexp(log_density)) - log_factorial(n)
    return Solved(
        marginals, earlier, draws, ranks[int(np.argmax(probs))], evidence, np.array(moments), law
    )


def _for_energies(
    family: Family, j: int, energies: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """A grid of log theta that serves all energies, its log densities without them, its step."""
    ends = []
    for energy in (float(energies.min()), float(energies.max())):

        def log_density(u: float, energy: float = energy) -> float:
            return float(family.log_joint(np.array([u]))[j, 0]) - energy * float(np.exp(u))

        nodes, _, step = trapezoid(log_density, family.rate)
        ends.append((nodes[0], nodes[-1], step))
    step = min(end[2] for end in ends)
    grid = np.arange(min(end[0] for end in ends), max(end[1] for end in ends) + step, step)
    return grid, family.log_joint(grid)[j], step


def trapezoid(
    log_density: Callable[[float], float], rate: float = 1.0, step: float = _STEP
) -> tuple[np.ndarray, np.ndarray, float]:
    """Place nodes for the trapezoidal rule where a log density of log theta is not negligible.

    Returns:
        (T,) nodes, (T,) log densities, and the distance of nodes, ``step`` standard deviations.
    """
    low, high = (bound - float(np.log(rate)) for bound in LOG_THETAS)
    coarse = np.linspace(low, high, 13)
    values = [log_density(u) for u in coarse.tolist()]
    best = int(np.argmax(values))
    around = coarse[max(best - 1, 0)], coarse[min(best + 1, len(coarse) - 1)]
    found = minimize_scalar(
        lambda u: -log_density(u), bounds=around, method="bounded", options={"xatol": 1e-3}
    )
    mode, peak = float(found.x), -float(found.fun)
    sd = _width(log_density, mode, peak, high - low)
    step *= sd
    nodes, heights = [mode], [peak]
    for direction in (1.0, -1.0):
        u = mode
        for _ in range(_MAX_NODES):
            u += direction * step
            if not low - 5 <= u <= high + 1:
                break
            value = log_density(u)
            nodes.append(u)
            heights.append(value)
            if value < peak - _TAIL:
                break
    order = np.argsort(nodes)
    return np.array(nodes)[order], np.array(heights)[order], step


def _width(log_density: Callable[[float], float], mode: float, peak: float, most: float) -> float:
    """The distance at which a log density has fallen by a half, the smaller of both sides."""
    widths = []
    for direction in (1.0, -1.0):
        inside, outside = 0.0, 0.01
        while outside < most and log_density(mode + direction * outside) > peak - 0.5:
            inside, outside = outside, 2 * outside
        for _ in range(6):
            middle = (inside + outside) / 2
            if log_density(mode + direction * middle) > peak - 0.5:
                inside = middle
            else:
                outside = middle
        widths.append(outside)
    return min(widths)


def log_factorial(n: int) -> float:
    """The log of n!."""
    return float(np.log(np.arange(1, n + 1)).sum())


def _moments(weights: np.ndarray, thetas: np.ndarray) -> np.ndarray:
    """(1, 2) the mean and the standard deviation of a dispersion."""
    mean = float(weights @ thetas / weights.sum())
    return np.array([[mean, np.sqrt(weights @ (thetas - mean) ** 2 / weights.sum())]])


def _normalised(marginals: np.ndarray) -> np.ndarray:
    return marginals / marginals.sum(axis=1, keepdims=True)
