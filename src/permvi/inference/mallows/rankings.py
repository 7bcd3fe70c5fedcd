r"""Maximum likelihood of a Mallows model from rankings.

The likelihood of K rankings is :math:`-\theta \sum_k d(\sigma_k, \sigma_0) - K \log Z(\theta)`, so
the best centre minimises the sum of distances whatever :math:`\theta` is, and :math:`\theta` then
makes the expected distance equal to the mean one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment, minimize_scalar

from permvi import permutations
from permvi._checks import one_of
from permvi.distributions._mallows_normalizers import DISTANCES, log_normalizer
from permvi.distributions.mallows import Distance

MAX_THETA = 50.0
"""The largest dispersion that fits return: at this one no draw ever leaves the centre."""

_MAX_CANDIDATES = 200


class MallowsFit(NamedTuple):
    """A Mallows model fitted to rankings.

    Attributes:
        centre: (n,) the central permutation.
        theta: The dispersion, at most `MAX_THETA`.
        distance: The distance.
        mean_distance: Of the rankings from the centre.
        log_likelihood: Of all rankings.
    """

    centre: np.ndarray
    theta: float
    distance: str
    mean_distance: float
    log_likelihood: float


def fit_rankings(perms: ArrayLike, distance: Distance = "footrule") -> MallowsFit:
    """The Mallows model of largest likelihood.

    The centre is exact for "footrule" and "hamming", where it is a linear assignment. For "kendall"
    (Kemeny's rule, NP-hard) and "cayley" it is a local optimum: no item can be moved elsewhere, or
    no two swapped, with gain.

    Args:
        perms: (K, n) permutations, ``perm[i]`` the rank of item i.
        distance: "footrule", "kendall", "cayley" or "hamming".

    Raises:
        ValueError: They are no permutations.
    """
    one_of("distance", distance, DISTANCES)
    rankings = np.asarray(perms)
    if rankings.ndim != 2 or 0 in rankings.shape or rankings.dtype.kind not in "iu":
        raise ValueError(
            f"perms must be integers of shape (K, n), got dtype {rankings.dtype} and shape "
            f"{rankings.shape}."
        )
    if not (np.sort(rankings, axis=1) == np.arange(rankings.shape[1])).all():
        raise ValueError("perms must hold each of 0 to n-1 once, got something else.")
    centre = _CENTRES[distance](rankings)
    mean = float(_distances(rankings, centre, distance).mean())
    theta = _best_theta(mean, rankings.shape[1], distance)
    log_z = float(log_normalizer(theta, rankings.shape[1], distance, np))
    return MallowsFit(centre, theta, distance, mean, -len(rankings) * (theta * mean + log_z))


def _best_theta(mean_distance: float, n: int, distance: str) -> float:
    """The minimum of ``theta * mean_distance + log Z(theta)``, which is convex."""
    found = minimize_scalar(
        lambda theta: theta * mean_distance + log_normalizer(theta, n, distance, np),
        bounds=(0.0, MAX_THETA),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return float(found.x)


def _distances(rankings: np.ndarray, centre: np.ndarray, distance: str) -> np.ndarray:
    return np.asarray(getattr(permutations, distance)(rankings, centre))


def _footrule_centre(rankings: np.ndarray) -> np.ndarray:
    ranks = np.arange(rankings.shape[1])
    return linear_sum_assignment(np.abs(rankings[..., None] - ranks).sum(axis=0))[1]


def _hamming_centre(rankings: np.ndarray) -> np.ndarray:
    ranks = np.arange(rankings.shape[1])
    return linear_sum_assignment((rankings[..., None] != ranks).sum(axis=0))[1]


def _kendall_centre(rankings: np.ndarray) -> np.ndarray:
    """Borda's order, improved by moving one item at a time to its best place."""
    n = rankings.shape[1]
    # against[i, k]: how many rankings have k before i, the price of putting i before k.
    against = np.stack([(rankings < rankings[:, [i]]).sum(axis=0) for i in range(n)])
    order = np.argsort(rankings.mean(axis=0), kind="stable").tolist()
    improved = True
    while improved:
        improved = False
        for item in range(n):
            place = order.index(item)
            rest = order[:place] + order[place + 1 :]
            # Of putting the item at place p: those before it, and those after it, are right?
            before = np.concatenate([[0], np.cumsum(against[rest, item])])
            after = against[item, rest].sum() - np.concatenate(
                [[0], np.cumsum(against[item, rest])]
            )
            cost = before + after
            best = int(np.argmin(cost))
            if cost[best] < cost[place]:
                order = [*rest[:best], item, *rest[best:]]
                improved = True
    centre = np.empty(n, dtype=np.int64)
    centre[order] = np.arange(n)
    return centre


def _cayley_centre(rankings: np.ndarray) -> np.ndarray:
    """The best of Hamming's centre and the rankings themselves, improved by swaps."""
    candidates = np.concatenate(
        [_hamming_centre(rankings)[None], np.unique(rankings, axis=0)[:_MAX_CANDIDATES]]
    )
    first, second = np.triu_indices(rankings.shape[1], 1)
    pairs = np.arange(len(first))
    centre, least = _nearest(rankings, candidates)
    while len(pairs):
        swapped = np.tile(centre, (len(first), 1))
        swapped[pairs, first], swapped[pairs, second] = centre[second], centre[first]
        best, total = _nearest(rankings, swapped)
        if total >= least:
            break
        centre, least = best, total
    return centre


def _nearest(rankings: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, int]:
    """The candidate with the least sum of Cayley distances, and that sum."""
    totals = [int(_distances(rankings, candidate, "cayley").sum()) for candidate in candidates]
    best = int(np.argmin(totals))
    return candidates[best], totals[best]


_CENTRES = {
    "footrule": _footrule_centre,
    "hamming": _hamming_centre,
    "kendall": _kendall_centre,
    "cayley": _cayley_centre,
}
