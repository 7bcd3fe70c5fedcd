r"""Mallows models of ballots around an order, by distance.

The energies :math:`E_j` of an order are sums of costs of its pairs and of its places, and ballots
have the probability :math:`\exp(-\sum_j \theta_j E_j) / \prod_j Z_j(\theta_j)` given the order. All
orders are equally probable a priori, and :math:`\theta_j` has an exponential prior.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import BarycentricInterpolator

from permvi.models.rankings import Ballots
from permvi.models.rankings.ballots import log_geometric

# Sums over orders by subsets.
MAX_EXACT = 16
# Orders are listed one by one for models that no programme over subsets covers.
MAX_LISTED = 8
# The normaliser of Spearman's distance needs sums over subsets at many dispersions.
MAX_SPEARMAN = 22
# It is interpolated in log theta, on intervals of this width with so many nodes.
_PANEL, _PANEL_NODES = 2.0, 20
# Below the first dispersion, relative to the prior's, Spearman's distance is as good as normal, and
# above the second all random rankings are the centre.
_SMALL_THETA, _LARGE_THETA = 1e-3, 20.0
# Distances that are sums over items, of these functions of the differences of their ranks.
GAPS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"footrule": np.abs, "spearman": np.square}


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A Mallows model and its ballots.

    Attributes:
        name: The name of the model.
        pairs: (J, n, n) ``pairs[j, a, b]`` is what :math:`E_j` counts if a comes before b.
        places: (n, n) what :math:`E_0` counts for item i at place k.
        log_normaliser: (T,) dispersions -> (J, T) log normalisers of all ballots.
        rate: The rate of the exponential prior of each dispersion.
        ballots: (R, n) ranks of the items in each ballot, whose Cayley distances to the order
            :math:`E_0` adds up; None if energies are sums of costs alone.
        counts: (R,) how often each of these ballots was given.
    """

    name: str
    pairs: np.ndarray
    places: np.ndarray
    log_normaliser: Callable[[np.ndarray], np.ndarray]
    rate: float = 1.0
    ballots: np.ndarray | None = None
    counts: np.ndarray | None = None

    @property
    def num_items(self) -> int:
        """The number of items n."""
        return len(self.places)

    def energies(self, ranks: np.ndarray) -> np.ndarray:
        """(num, n) ranks from 0 -> (num, J) energies."""
        before = ranks[:, :, None] < ranks[:, None, :]
        found = np.einsum("kab,jab->kj", before, self.pairs)
        found[:, 0] += np.take_along_axis(self.places[None], ranks[:, :, None], 2).sum(axis=(1, 2))
        if self.ballots is not None:
            found[:, 0] += _cayley_distances(ranks, self.ballots) @ self.counts
        return found

    @property
    def exchanged(self) -> tuple[np.ndarray, np.ndarray]:
        """(R, n) ballots and (R,) counts for compiled chains, R = 0 if there are costs alone."""
        if self.ballots is None or self.counts is None:
            return np.zeros((0, self.num_items), np.int16), np.zeros(0)
        return self.ballots, self.counts.astype(float)

    @cached_property
    def listed(self) -> np.ndarray:
        """(n!, R) Cayley distances of all orders, in the order of `list_ranks`, to each ballot."""
        return _cayley_distances(list_ranks(self.num_items), self.exchanged[0])

    def log_joint(self, log_thetas: np.ndarray) -> np.ndarray:
        """(T,) -> (J, T) log densities of log theta, less the part of the energies."""
        thetas = np.exp(log_thetas)
        prior = np.log(self.rate) + log_thetas - self.rate * thetas
        return prior - self.log_normaliser(thetas)


def kendall(ballots: Ballots) -> Family:
    """Kendall's distance: pairs in the other order. Ties and gaps are summed over."""
    n = len(ballots.items)
    return Family(
        "mallows",
        ballots.against()[None],
        np.zeros((n, n)),
        lambda thetas: ballots.log_normaliser(thetas)[None],
    )


def generalised(ballots: Ballots) -> Family:
    """A dispersion for each place of a ballot (Fligner and Verducci 1986).

    The item at place j is a choice from those that are left; it costs the number of them that come
    before it in the true order.
    """
    if not ballots.is_staged:
        raise ValueError("generalised_mallows takes ties at the ends of rankings only, got others")
    n = len(ballots.items)
    choices = np.tensordot(ballots.counts, choices_by_place(ballots), 1)
    pairs = np.zeros((len(choices), n, n))
    for row, sizes, count in zip(ballots.levels, ballots.sizes, ballots.counts, strict=True):
        for place in range(len(sizes) - 1):
            pairs[place, np.flatnonzero(row > place), int(np.flatnonzero(row == place)[0])] += count
    return Family(
        "generalised_mallows",
        pairs,
        np.zeros((n, n)),
        lambda thetas: choices @ log_geometric(np.arange(1, n + 1), thetas),
    )


def choices_by_place(ballots: Ballots) -> np.ndarray:
    """(R, J, n) how often one of 1 to n items was chosen at each place of each ballot.

    Nothing is chosen from the last item, or from those that are tied at the end.
    """
    longest = max(len(sizes) for sizes in ballots.sizes) - 1
    found = np.zeros((len(ballots.levels), max(longest, 1), len(ballots.items)))
    for row, sizes in zip(found, ballots.sizes, strict=True):
        for place in range(len(sizes) - 1):
            row[place, sum(sizes) - place - 1] = 1.0
    return found


def footrule(ballots: Ballots) -> Family:
    """The footrule: the sum of the differences of ranks, without their signs."""
    from permvi.distributions._mallows import log_normalizer

    n, total = _complete(ballots, "footrule")
    return _by_places(
        "footrule",
        ballots,
        lambda thetas: total * log_normalizer(thetas, n, "footrule", np),
        (n * n - 1) / 3,
    )


def spearman(ballots: Ballots) -> Family:
    """Spearman's distance: the sum of the squared differences of ranks."""
    n, total = _complete(ballots, "spearman")
    if n > MAX_SPEARMAN:
        raise ValueError(f"spearman takes at most {MAX_SPEARMAN} items, got {n}")
    return _by_places(
        "spearman",
        ballots,
        lambda thetas: total * log_spearman(thetas, n),
        n * (n * n - 1) / 6,
    )


def log_spearman(thetas: np.ndarray, n: int) -> np.ndarray:
    r"""(T,) the log of :math:`\sum_\sigma \exp(-\theta \sum_i (\sigma_i - i)^2)` for n items.

    The sum is the permanent of :math:`\exp(-\theta (i - j)^2)`, which takes :math:`2^n n` steps, so
    that it is computed at Chebyshev nodes of log theta and interpolated. The distance has mean
    :math:`n (n^2 - 1) / 6`, a symmetric law and variance mean :math:`^2 / (n - 1)` (Kendall 1948),
    which is all that small dispersions see.
    """
    mean = n * (n * n - 1) / 6
    relative = mean / _mean_kendall(n)
    small = np.sum(np.log(np.arange(1, n + 1))) - thetas * mean
    if n > 1:
        small = small + 0.5 * (thetas * mean) ** 2 / (n - 1)
    found = np.where(thetas * relative < _SMALL_THETA, small, 0.0)
    inside = (thetas * relative >= _SMALL_THETA) & (thetas < _LARGE_THETA)
    logs = np.log(thetas[inside] * relative / _SMALL_THETA)
    values = np.zeros_like(logs)
    panels = (logs // _PANEL).astype(int)
    for panel in np.unique(panels).tolist():
        here = panels == panel
        values[here] = _spearman_panel(n, panel)(logs[here] - panel * _PANEL)
    found[inside] = values
    return found


@lru_cache(maxsize=256)
def _spearman_panel(n: int, panel: int) -> BarycentricInterpolator:
    """The interpolant of `log_spearman` on an interval of log theta, from its lower end."""
    from permvi.inference.rankings import subset_kernels

    nodes = 0.5 * _PANEL * (1 - np.cos(np.pi * (np.arange(_PANEL_NODES) + 0.5) / _PANEL_NODES))
    relative = n * (n * n - 1) / 6 / _mean_kendall(n)
    thetas = _SMALL_THETA / relative * np.exp(panel * _PANEL + nodes)
    squares = np.subtract.outer(np.arange(n), np.arange(n)).astype(float) ** 2
    values = [np.log(subset_kernels.permanent(np.exp(-theta * squares))) for theta in thetas]
    return BarycentricInterpolator(nodes, values)


def cayley(ballots: Ballots) -> Family:
    """Cayley's distance: the least number of exchanges of any two items."""
    from permvi.distributions._mallows import log_normalizer

    n, total = _complete(ballots, "cayley")
    mean = n - (1 / np.arange(1, n + 1)).sum()
    return Family(
        "cayley",
        np.zeros((1, n, n)),
        np.zeros((n, n)),
        lambda thetas: total * log_normalizer(thetas, n, "cayley", np)[None],
        mean / _mean_kendall(n),
        ballots.levels.astype(np.int16),
        ballots.counts,
    )


# Models by name; each raises ValueError for ballots that it does not take.
FAMILIES: dict[str, Callable[[Ballots], Family]] = {
    "mallows": kendall,
    "generalised_mallows": generalised,
    "footrule": footrule,
    "spearman": spearman,
    "cayley": cayley,
}


def list_ranks(n: int) -> np.ndarray:
    """(n!, n) the ranks of the items in all orders."""
    return np.array(list(itertools.permutations(range(n))))


def _by_places(
    name: str,
    ballots: Ballots,
    log_normaliser: Callable[[np.ndarray], np.ndarray],
    mean: float,
) -> Family:
    """A family whose distance is a sum over items; ``mean`` is that of random rankings.

    The prior of theta times the mean distance is that of Kendall's distance, so that no distance
    has an advantage.
    """
    n = len(ballots.items)
    places = np.stack(
        [ballots.counts @ GAPS[name](ballots.levels - float(place)) for place in range(n)], axis=1
    )
    return Family(
        name,
        np.zeros((1, n, n)),
        places,
        lambda thetas: log_normaliser(thetas)[None],
        mean / _mean_kendall(n),
    )


def _mean_kendall(n: int) -> float:
    return n * (n - 1) / 4


def _complete(ballots: Ballots, name: str) -> tuple[int, float]:
    """The number of items and of ballots, if all are complete and without ties."""
    if not ballots.is_strict:
        raise ValueError(f"{name} takes complete rankings without ties, got others")
    return len(ballots.items), float(ballots.counts.sum())


def _cayley_distances(ranks: np.ndarray, ballots: np.ndarray) -> np.ndarray:
    """(num, n) ranks and (R, n) ballots -> (num, R) distances."""
    distances = np.zeros((len(ranks), len(ballots)), np.int16)
    for k, row in enumerate(ballots):
        # The permutation that takes the true ranks to those of the ballot.
        relative = np.zeros_like(ranks)
        np.put_along_axis(relative, ranks, np.broadcast_to(row, ranks.shape).astype(ranks.dtype), 1)
        distances[:, k] = ranks.shape[1] - _num_cycles(relative)
    return distances


def _num_cycles(perms: np.ndarray) -> np.ndarray:
    """(num, n) permutations -> (num,) numbers of cycles, by the smallest item of each."""
    n = perms.shape[1]
    smallest = np.broadcast_to(np.arange(n), perms.shape).copy()
    place = perms.copy()
    for _ in range(n - 1):
        np.minimum(smallest, place, out=smallest)
        place = np.take_along_axis(perms, place, 1)
    return (smallest == np.arange(n)).sum(axis=1)
