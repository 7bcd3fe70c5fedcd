"""The Kemeny order: the one that contradicts the fewest pairs of all ballots, with a proof.

Where a group of items beats every other item by a majority, it comes first in every such order
(Truchon 1998), so groups are ordered one by one: those of up to 16 items by a programme over
subsets, larger ones by an integer programme whose triangle inequalities are added as they are
violated (Groetschel, Juenger and Reinelt 1984).
"""

import math
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from permvi.models import _arguments

# The largest group whose orders are summed up by subsets.
MAX_SUBSETS = 16
# Costs that differ by less than this share of all pairs are equal.
_TOLERANCE = 1e-9
_VIOLATED = 1e-6
_MAX_ROUNDS = 200
# Triangles that are added in a round, the most violated first.
_MAX_CUTS = 3000
_RESTARTS = 20


class Kemeny(NamedTuple):
    """An order with the fewest contradicted pairs.

    Attributes:
        order: (n,) item numbers, the best one first.
        contradicted: The number of pairs of all ballots that the order contradicts.
        lower_bound: What no order is below; equal to ``contradicted`` if the order is optimal.
        proven: Whether the order is proven to be optimal.
        num_optimal: The number of optimal orders, None if it was not counted.
    """

    order: np.ndarray
    contradicted: float
    lower_bound: float
    proven: bool
    num_optimal: int | None

    @property
    def ranks(self) -> np.ndarray:
        """(n,) the rank of each item, from 0."""
        return np.argsort(self.order)


def kemeny(against: ArrayLike, *, max_seconds: float = 60.0) -> Kemeny:
    """Find an order that contradicts the fewest pairs, and prove that there is no better one.

    Args:
        against: (n, n) how often item j was ranked before item i, as `Rankings.against`.
        max_seconds: The longest time for the integer programme of one group. If it is too short,
            the best order found is returned with a lower bound.

    Examples:
        >>> found = kemeny([[0, 1, 1], [2, 0, 0], [2, 3, 0]])
        >>> found.order.tolist(), found.contradicted, found.proven, found.num_optimal
        ([0, 1, 2], 2.0, True, 1)
    """
    table = np.array(_arguments.finite("against", _arguments.real("against", against, (2,))))
    if table.shape[0] != table.shape[1] or (table < 0).any():
        raise ValueError(
            f"against must be a square table of counts of at least 0, got shape {table.shape} with "
            f"a smallest entry of {table.min():g}."
        )
    np.fill_diagonal(table, 0.0)
    order: list[int] = []
    # Pairs of different groups are settled by their majority.
    bound = float(np.minimum(table, table.T).sum() / 2)
    proven, number = True, 1
    for group in _groups(table):
        inside = table[np.ix_(group, group)]
        by_subsets = len(group) <= MAX_SUBSETS
        found = _by_subsets(inside) if by_subsets else _by_programme(inside, max_seconds)
        order += [group[k] for k in found.order]
        bound += found.lower_bound - float(np.minimum(inside, inside.T).sum() / 2)
        proven &= found.proven
        number *= found.num_optimal or 0
    total = float(contradicted(np.argsort(order)[None], table)[0])
    return Kemeny(np.array(order), total, total if proven else bound, proven, number or None)


def contradicted(ranks: np.ndarray, against: np.ndarray) -> np.ndarray:
    """(num, n) ranks -> (num,) numbers of pairs that the orders contradict."""
    before = ranks[:, :, None] < ranks[:, None, :]
    return np.einsum("kij,ij->k", before, against)


def descend(against: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Move single items (n,) to better places until no move contradicts fewer pairs."""
    order = np.array(order)
    # gain[i, j]: what an exchange of i and j saves if i comes before j.
    gain = against - against.T
    improved = True
    while improved:
        improved = False
        for item in order.tolist():
            others = order[order != item]
            place = int(np.flatnonzero(order == item)[0])
            steps = np.concatenate([[0.0], np.cumsum(gain[others, item])])
            best = int(np.argmin(steps))
            if steps[best] < steps[place] - 1e-9:
                order = np.insert(others, best, item)
                improved = True
    return order


def _groups(against: np.ndarray) -> list[list[int]]:
    """Groups of items, the best first: all of a group beat all of the later ones."""
    beats = (against.T >= against) & (against + against.T > 0)
    # Items that were never compared are tied.
    beats |= (against == 0) & (against.T == 0)
    num, label = connected_components(csr_array(beats), directed=True, connection="strong")
    groups = [np.flatnonzero(label == k).tolist() for k in range(num)]
    # All of a group beat all later items, so they beat more than any later item does.
    wins = [np.count_nonzero(beats[group[0]]) for group in groups]
    return [groups[k] for k in np.argsort(-np.array(wins), kind="stable")]


def _by_subsets(against: np.ndarray) -> Kemeny:
    from permvi.inference.rankings import subset_kernels

    places = np.zeros_like(against)
    tolerance = _TOLERANCE * max(1.0, float(against.sum()))
    before, _, number = subset_kernels.optima(against, places, tolerance)
    order = subset_kernels.optimal_order(against, places, before)
    best = float(before[-1])
    return Kemeny(order, best, best, proven=True, num_optimal=round(float(number[-1])))


def _by_programme(against: np.ndarray, max_seconds: float) -> Kemeny:
    """Solve the integer programme with a variable for each pair i < j: 1 if i comes first."""
    n = len(against)
    found = _searched(against)
    best = float(contradicted(np.argsort(found)[None], against)[0])
    rows, cols = np.triu_indices(n, 1)
    costs = (against - against.T)[rows, cols]
    constant = float(against.T[rows, cols].sum())
    whole = bool((against == np.rint(against)).all())
    cuts = _Cuts(n)
    bound, integral = -math.inf, False
    deadline = time.monotonic() + max_seconds
    for _ in range(_MAX_ROUNDS):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        result = milp(
            costs,
            integrality=np.full(len(costs), int(integral)),
            bounds=Bounds(0, 1),
            constraints=cuts.constraint(),
            options={"time_limit": left},
        )
        if integral and result.mip_dual_bound is not None:
            bound = max(bound, float(result.mip_dual_bound) + constant)
        elif result.status == 0:
            bound = max(bound, float(result.fun) + constant)
        if result.x is None or _reached(best, bound, whole=whole):
            break
        values = np.zeros((n, n))
        values[rows, cols] = result.x
        values[cols, rows] = 1 - result.x
        rounded = descend(against, np.argsort(-values.sum(axis=1), kind="stable"))
        value = float(contradicted(np.argsort(rounded)[None], against)[0])
        if value < best:
            best, found = value, rounded
        if _reached(best, bound, whole=whole):
            break
        if not cuts.add(values):
            # Nothing is violated: either an order, or a fraction that only integers exclude.
            if integral or np.abs(result.x - np.rint(result.x)).max() < _VIOLATED:
                break
            integral = True
    proven = _reached(best, bound, whole=whole)
    return Kemeny(found, best, best if proven else max(bound, 0.0), proven, None)


def _reached(best: float, bound: float, *, whole: bool) -> bool:
    """Whether no order is better; with whole counts a bound is rounded up."""
    slack = 1 - 1e-5 if whole else 1e-7 * max(1.0, abs(best))
    return best - bound < slack


def _searched(against: np.ndarray) -> np.ndarray:
    """A good order, by descents from Borda's order and from random ones."""
    rng = np.random.default_rng(0)
    n = len(against)
    starts = [np.argsort((against - against.T).sum(axis=1), kind="stable")]
    starts += [rng.permutation(n) for _ in range(_RESTARTS)]
    orders = [descend(against, start) for start in starts]
    values = [contradicted(np.argsort(order)[None], against)[0] for order in orders]
    return orders[int(np.argmin(values))]


class _Cuts:
    """The triangle inequalities 0 <= x_ij + x_jk - x_ik <= 1 (i < j < k) that were violated."""

    def __init__(self, n: int) -> None:
        self._place = np.zeros((n, n), int)
        rows, cols = np.triu_indices(n, 1)
        self._place[rows, cols] = np.arange(len(rows))
        self._width = len(rows)
        self._triples: dict[tuple[int, int, int], None] = {}
        i, j, k = np.meshgrid(np.arange(n), np.arange(n), np.arange(n), indexing="ij")
        chosen = (i < j) & (j < k)
        self._all = np.stack([i[chosen], j[chosen], k[chosen]], axis=1)

    def add(self, values: np.ndarray) -> bool:
        """Add what the values (n, n) violate most; return whether anything is."""
        i, j, k = self._all.T
        sums = values[i, j] + values[j, k] - values[i, k]
        excess = np.maximum(sums - 1, -sums)
        worst = np.argsort(-excess, kind="stable")[:_MAX_CUTS]
        new = [tuple(t) for t in self._all[worst[excess[worst] > _VIOLATED]].tolist()]
        fresh = [triple for triple in new if triple not in self._triples]
        self._triples.update(dict.fromkeys(fresh))
        return bool(fresh)

    def constraint(self) -> list[LinearConstraint]:
        """The inequalities so far, as SciPy takes them."""
        if not self._triples:
            return []
        i, j, k = np.array(list(self._triples)).T
        num = len(i)
        cols = np.concatenate([self._place[i, j], self._place[j, k], self._place[i, k]])
        entries = np.repeat([1.0, 1.0, -1.0], num)
        table = csr_array((entries, (np.tile(np.arange(num), 3), cols)), shape=(num, self._width))
        return [LinearConstraint(table, 0, 1)]
