r"""Irreducible representations of the symmetric group in Young's orthogonal form.

They belong to the partitions :math:`\lambda` of n; a basis of each are the standard tableaux of its
shape. The transposition of k and k + 1 maps a tableau t to

.. math:: t / r + \sqrt{1 - 1 / r^2}\, t',

with :math:`t'` the tableau in which k and k + 1 have changed places and r the content (column minus
row) of k + 1 in t minus that of k. These matrices are orthogonal and have two entries in each row,
so a product with one costs O(d^2) (Young 1931; Kondor, Howard and Jebara 2007).

Tableaux are sorted by where n is, then by where n - 1 is, and so on. Permutations that leave the
last item in place then are block diagonal. Their blocks are the representations of
:math:`S_{n-1}` that arise by taking a corner off :math:`\lambda`, the lowest corner first.

A permutation is a vector with ``perm[i] = j``, from zero, and ``rho(a) rho(b)`` represents
``a[b]``, b being applied first.
"""

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Partition = tuple[int, ...]


class Block(NamedTuple):
    """A representation of one item less inside another: its partition, and where it is."""

    partition: Partition
    place: slice


@dataclass(frozen=True, eq=False)
class Irrep:
    """An irreducible representation.

    Attributes:
        partition: Its partition of n.
        diagonal: (n-1, d) what each adjacent transposition leaves of each tableau, 1/r.
        partner: (n-1, d) which tableau it mixes it with, itself if none.
        blocks: Those of one item less, in the order of the basis.
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
        """The scalar that the mean of all transpositions is: sum of contents over pairs."""
        n = sum(self.partition)
        contents = sum(
            col - row for row, length in enumerate(self.partition) for col in range(length)
        )
        return contents / math.comb(n, 2)

    @functools.cached_property
    def cosets(self) -> np.ndarray:
        """(n, d, d) the matrices of the cycles that bring the last item to place j.

        Cycle j maps n - 1 to j and leaves the others in their order.
        """
        n = sum(self.partition)
        found = np.empty((n, self.dim, self.dim))
        found[n - 1] = np.eye(self.dim)
        for k in range(n - 2, -1, -1):
            found[k] = self._swapped(k, found[k + 1])
        return found

    def matrix(self, perm: np.ndarray) -> np.ndarray:
        """(d, d) the matrix of a permutation (n,)."""
        return self.left(perm, np.eye(self.dim))

    def left(self, perm: np.ndarray, M: np.ndarray) -> np.ndarray:
        """``rho(perm) M`` for M of shape (d, k)."""
        # perm = s_a s_b ... s_z is found from the right end by sorting.
        for k in reversed(_adjacent_swaps(perm)):
            M = self._swapped(k, M)
        return M

    def right(self, M: np.ndarray, perm: np.ndarray) -> np.ndarray:
        """``M rho(perm)`` for M of shape (k, d)."""
        return self.left(np.argsort(perm), M.T).T

    def _swapped(self, k: int, M: np.ndarray) -> np.ndarray:
        """``rho(s_k) M`` for the transposition of k and k + 1."""
        diagonal = self.diagonal[k][:, None]
        return diagonal * M + np.sqrt(1 - diagonal**2) * M[self.partner[k]]


def _adjacent_swaps(perm: np.ndarray) -> list[int]:
    """The k of transpositions (k, k+1) whose product, the last one applied first, is perm."""
    values, swaps = [int(value) for value in perm], []
    # perm s_k has the entries k and k + 1 exchanged; sorting makes it the identity.
    for end in range(len(values) - 1, 0, -1):
        for k in range(end):
            if values[k] > values[k + 1]:
                values[k], values[k + 1] = values[k + 1], values[k]
                swaps.append(k)
    return swaps[::-1]


def partitions(n: int, order: int | None = None) -> list[Partition]:
    """The partitions of n whose first part is at least n - order, larger first parts first."""
    least = 1 if order is None else max(1, n - order)
    return _partitions(n, n, least)


def _partitions(n: int, largest: int, least: int) -> list[Partition]:
    """Partitions of n whose first part is between these two."""
    if n == 0:
        return [()]
    return [
        (first, *rest)
        for first in range(min(n, largest), least - 1, -1)
        for rest in _partitions(n - first, first, 1)
    ]


@functools.lru_cache(maxsize=256)
def irrep(partition: Partition) -> Irrep:
    """The representation of a partition."""
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
    """The partitions of one less inside a partition, the lowest corner first."""
    found = []
    for row in range(len(partition) - 1, -1, -1):
        below = partition[row + 1] if row + 1 < len(partition) else 0
        if partition[row] > below:
            smaller = (*partition[:row], partition[row] - 1, *partition[row + 1 :])
            found.append(tuple(part for part in smaller if part))
    return found


@functools.lru_cache(maxsize=256)
def _tableaux(partition: Partition) -> list[tuple[int, ...]]:
    """Standard tableaux as the rows that the items 0, 1, ... are in."""
    if sum(partition) == 0:
        return [()]
    found = []
    for smaller in _without_corner(partition):
        padded = (*smaller, *(0,) * (len(partition) - len(smaller)))
        row = next(r for r, part in enumerate(partition) if part != padded[r])
        found += [(*tableau, row) for tableau in _tableaux(smaller)]
    return found


def _contents(tableau: tuple[int, ...]) -> list[int]:
    """Column minus row of each item."""
    lengths: dict[int, int] = {}
    contents = []
    for row in tableau:
        contents.append(lengths.get(row, 0) - row)
        lengths[row] = lengths.get(row, 0) + 1
    return contents
