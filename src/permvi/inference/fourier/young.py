r"""Irreducible representations of the symmetric group in Young's orthogonal form.

There is one for each partition :math:`\lambda` of n, with the standard tableaux of that shape as a
basis. The transposition of k and k + 1 maps a tableau t to

.. math:: t / r + \sqrt{1 - 1 / r^2}\, t',

with :math:`t'` the tableau in which k and k + 1 have traded places and r the content (column minus
row) of k + 1 in t minus that of k. These matrices are orthogonal and have two entries in each row,
so a product with one costs O(d^2) (Young 1931; Kondor, Howard and Jebara 2007).

Tableaux are sorted by the place of n, then by that of n - 1, and so on. Matrices of permutations
that leave the last item in place are then block diagonal. Their blocks are the representations of
:math:`S_{n-1}` obtained by removing a corner of :math:`\lambda`, the lowest corner first.

A permutation is a vector with ``perm[i] = j``, counted from zero. ``rho(a) rho(b)`` represents
``a[b]``, which applies b first.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Partition = tuple[int, ...]


class Block(NamedTuple):
    """A block of one item less in a representation: its partition and its place."""

    partition: Partition
    place: slice


@dataclass(frozen=True, eq=False)
class Irrep:
    """An irreducible representation.

    Attributes:
        partition: The partition of n.
        diagonal: (n-1, d) the diagonal entry 1/r of each adjacent transposition and tableau.
        partner: (n-1, d) the tableau that it mixes with, itself if there is none.
        blocks: The representations of one item less, in the order of the basis.
    """

    partition: Partition
    diagonal: np.ndarray
    partner: np.ndarray
    blocks: tuple[Block, ...]

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.diagonal.shape[1]

    @property
    def mean_transposition(self) -> float:
        """The scalar by which the mean of all transpositions acts: sum of contents over pairs."""
        rows = enumerate(self.partition)
        contents = sum(col - row for row, length in rows for col in range(length))
        return contents / math.comb(sum(self.partition), 2)

    @functools.cached_property
    def cosets(self) -> np.ndarray:
        """The matrices (n, d, d) of the cycles that map n - 1 to j and keep the others in order."""
        n = sum(self.partition)
        found = np.empty((n, self.dim, self.dim))
        found[n - 1] = np.eye(self.dim)
        for k in range(n - 2, -1, -1):
            found[k] = self._swapped(k, found[k + 1])
        return found

    def matrix(self, perm: np.ndarray) -> np.ndarray:
        """Return the matrix (d, d) of a permutation (n,)."""
        return self.left(perm, np.eye(self.dim))

    def left(self, perm: np.ndarray, M: np.ndarray) -> np.ndarray:
        """Return ``rho(perm) M`` for M of shape (d, k)."""
        # Sorting finds perm = s_a s_b ... s_z from the right end.
        for k in reversed(_adjacent_swaps(perm)):
            M = self._swapped(k, M)
        return M

    def right(self, M: np.ndarray, perm: np.ndarray) -> np.ndarray:
        """Return ``M rho(perm)`` for M of shape (k, d)."""
        return self.left(np.argsort(perm), M.T).T

    def _swapped(self, k: int, M: np.ndarray) -> np.ndarray:
        """Return ``rho(s_k) M`` for the transposition of k and k + 1."""
        diagonal = self.diagonal[k][:, None]
        return diagonal * M + np.sqrt(1 - diagonal**2) * M[self.partner[k]]


def _adjacent_swaps(perm: np.ndarray) -> list[int]:
    """Return the k of transpositions (k, k+1) whose product, the last applied first, is perm."""
    values, swaps = [int(value) for value in perm], []
    # perm s_k has entries k and k + 1 exchanged; sorting makes it the identity.
    for end in range(len(values) - 1, 0, -1):
        for k in range(end):
            if values[k] > values[k + 1]:
                values[k], values[k + 1] = values[k + 1], values[k]
                swaps.append(k)
    return swaps[::-1]


def partitions(n: int, order: int | None = None) -> list[Partition]:
    """Return the partitions of n with a first part of at least n - order, in decreasing order."""
    least = 1 if order is None else max(1, n - order)
    return _partitions(n, n, least)


def _partitions(n: int, largest: int, least: int) -> list[Partition]:
    """Return the partitions of n whose first part is between ``least`` and ``largest``."""
    if n == 0:
        return [()]
    return [
        (first, *rest)
        for first in range(min(n, largest), least - 1, -1)
        for rest in _partitions(n - first, first, 1)
    ]


@functools.lru_cache(maxsize=256)
def irrep(partition: Partition) -> Irrep:
    """Return the representation of a partition."""
    tableaux = _tableaux(partition)
    index = {tableau: t for t, tableau in enumerate(tableaux)}
    n = sum(partition)
    diagonal = np.ones((n - 1, len(tableaux)))
    partner = np.tile(np.arange(len(tableaux)), (n - 1, 1))
    for t, tableau in enumerate(tableaux):
        cells = _contents(tableau)
        for k in range(n - 1):
            diagonal[k, t] = 1 / (cells[k + 1] - cells[k])
            swapped = (*tableau[:k], tableau[k + 1], tableau[k], *tableau[k + 2 :])
            partner[k, t] = index.get(swapped, t)
    blocks, start = [], 0
    for smaller in _without_corner(partition) if n > 1 else ():
        size = len(_tableaux(smaller))
        blocks.append(Block(smaller, slice(start, start + size)))
        start += size
    return Irrep(partition, diagonal, partner, tuple(blocks))


def _without_corner(partition: Partition) -> list[Partition]:
    """Return the partitions with one corner removed, the lowest corner first."""
    found = []
    for row in range(len(partition) - 1, -1, -1):
        below = partition[row + 1] if row + 1 < len(partition) else 0
        if partition[row] > below:
            smaller = (*partition[:row], partition[row] - 1, *partition[row + 1 :])
            found.append(tuple(part for part in smaller if part))
    return found


@functools.lru_cache(maxsize=256)
def _tableaux(partition: Partition) -> list[tuple[int, ...]]:
    """Return the standard tableaux, each as the rows of the items 0, 1, ..."""
    if sum(partition) == 0:
        return [()]
    found = []
    for smaller in _without_corner(partition):
        padded = (*smaller, *(0,) * (len(partition) - len(smaller)))
        row = next(r for r, part in enumerate(partition) if part != padded[r])
        found += [(*tableau, row) for tableau in _tableaux(smaller)]
    return found


def _contents(tableau: tuple[int, ...]) -> list[int]:
    """Return column minus row of each item."""
    return [tableau[:k].count(row) - row for k, row in enumerate(tableau)]
