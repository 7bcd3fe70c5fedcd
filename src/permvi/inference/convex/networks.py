r"""The permutahedron through a sorting network (Goemans 2015; Lim and Wright 2014).

The permutahedron of a vector v is the convex hull of all its permutations. It has
:math:`2^n - 2` facets, but a sorting network of K comparators describes it with n + 2K variables:
the values on the wires. A comparator with inputs a, b and outputs lo, hi is relaxed to

.. math:: lo + hi = a + b, \qquad lo \le a, \qquad lo \le b,

and the last values on the wires are those of v in increasing order. What can then enter the network
are exactly the points of the permutahedron. Every permutation of v can, since the network sorts it.
And a comparator's inputs are a mixture of its outputs and their exchange, so that the inputs of all
of it are a doubly stochastic matrix times v. Batcher's (1968) has O(n log^2 n) comparators.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import OptimizeResult, linprog

# A comparator's outputs that are closer than this are equal.
_EQUAL = 1e-12


def batcher(n: int) -> list[tuple[int, int]]:
    """The comparators (i, j), i < j, of Batcher's merge exchange sort of n wires, in order.

    Each puts the smaller value on wire i (Knuth 1998, Algorithm 5.2.2M).
    """
    found = []
    rounds = max(n - 1, 0).bit_length()
    p = 1 << max(rounds - 1, 0)
    while p > 0 and n > 1:
        q, r, d = 1 << (rounds - 1), 0, p
        while d > 0:
            found += [(i, i + d) for i in range(n - d) if i & p == r]
            d, q, r = q - p, q >> 1, p
        p >>= 1
    return found


class Inequalities(NamedTuple):
    """``A x <= b`` for x (n,): A of shape (k, n) and b (k,)."""

    A: np.ndarray
    b: np.ndarray


class Permutahedron:
    """The convex hull of all permutations of a vector, cut by inequalities if there are any.

    Args:
        values: (n,) the vector.
        extra: Inequalities that points have to satisfy as well.
    """

    def __init__(self, values: np.ndarray, extra: Inequalities | None = None) -> None:
        self.values = np.asarray(values, dtype=np.float64)
        if self.values.ndim != 1 or not len(self.values) or not np.isfinite(self.values).all():
            raise ValueError(f"values must be a finite vector, got shape {self.values.shape}.")
        self.extra = extra
        self._order = np.argsort(self.values, kind="stable")

    def contains(self, x: np.ndarray, tol: float = 1e-9) -> bool:
        """Whether x (n,) is inside, and the inequalities hold.

        Inside (Rado 1952): it has the sum of v, and its k smallest entries add up to no less than
        those of v, for all k.
        """
        slack = np.cumsum(np.sort(x)) - np.cumsum(self.values[self._order])
        inside = slack.min() >= -tol and abs(slack[-1]) <= tol
        if self.extra is None:
            return bool(inside)
        return bool(inside and (self.extra.A @ x <= self.extra.b + tol).all())

    def best_vertex(self, slopes: np.ndarray) -> np.ndarray:
        """The point x (n,) of smallest ``<slopes, x>``: sorting, or a linear programme if cut.

        Raises:
            ValueError: The inequalities leave nothing.
        """
        if self.extra is not None:
            return self._solve(slopes).x[: len(slopes)]
        x = np.empty(len(slopes))
        x[np.argsort(-slopes, kind="stable")] = self.values[self._order]
        return x

    def nearest_permutation(self, x: np.ndarray) -> np.ndarray:
        """(n,) the permutation whose ``values[perm]`` is nearest to x: both in the same order."""
        perm = np.empty(len(x), dtype=np.int64)
        perm[np.argsort(x, kind="stable")] = self._order
        return perm

    def mixture(self, x: np.ndarray) -> np.ndarray:
        """A doubly stochastic matrix (n, n) with ``M values = x``, read off the network.

        It is the product of what the comparators mix.
        """
        n = len(x)
        wires = self._solve(np.zeros(n), fixed=x).x
        M, last = np.eye(n), np.arange(n)
        for k, (i, j) in enumerate(self._comparators):
            low, high, first = wires[n + 2 * k], wires[n + 2 * k + 1], wires[last[i]]
            share = (high - first) / (high - low) if high - low > _EQUAL else 1.0
            share = float(np.clip(share, 0.0, 1.0))
            mixed = share * M[:, i] + (1 - share) * M[:, j]
            M[:, j] = (1 - share) * M[:, i] + share * M[:, j]
            M[:, i] = mixed
            last[i], last[j] = n + 2 * k, n + 2 * k + 1
        found = np.empty_like(M)
        found[:, self._order] = M
        return found

    @cached_property
    def _comparators(self) -> list[tuple[int, int]]:
        return batcher(len(self.values))

    @cached_property
    def _network(self) -> tuple[sparse.csr_array, np.ndarray, sparse.csr_array]:
        """Equations with their right sides, and the matrix of the inequalities ``<= 0``."""
        n, num = len(self.values), len(self._comparators)
        size = n + 2 * num
        last = np.arange(n)
        equal, below = sparse.lil_array((num + n, size)), sparse.lil_array((2 * num, size))
        for k, (i, j) in enumerate(self._comparators):
            low, high = n + 2 * k, n + 2 * k + 1
            equal[k, [low, high]], equal[k, [last[i], last[j]]] = 1.0, -1.0
            for row, wire in ((2 * k, last[i]), (2 * k + 1, last[j])):
                below[row, low], below[row, wire] = 1.0, -1.0
            last[i], last[j] = low, high
        for wire in range(n):
            equal[num + wire, last[wire]] = 1.0
        sides = np.concatenate([np.zeros(num), self.values[self._order]])
        return equal.tocsr(), sides, below.tocsr()

    def _solve(self, slopes: np.ndarray, fixed: np.ndarray | None = None) -> OptimizeResult:
        """The linear programme over all wires, with given inputs if there are any."""
        n = len(slopes)
        equal, sides, below = self._network
        bounds = np.full((equal.shape[1], 2), (self.values.min(), self.values.max()))
        limits = np.zeros(below.shape[0])
        if self.extra is not None and fixed is None:
            width = equal.shape[1] - n
            extra = sparse.hstack([self.extra.A, sparse.csr_array((len(self.extra.b), width))])
            below, limits = sparse.vstack([below, extra]), np.append(limits, self.extra.b)
        if fixed is not None:
            bounds[:n] = fixed[:, None]
        found = linprog(
            np.append(slopes, np.zeros(equal.shape[1] - n)),
            A_ub=below,
            b_ub=limits,
            A_eq=equal,
            b_eq=sides,
            bounds=bounds,
            method="highs",
        )
        if found.x is None:
            raise ValueError(f"extra must leave some point, got none ({found.message}).")
        return found
