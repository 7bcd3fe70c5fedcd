r"""Twins: rows, or columns, that can be exchanged in every permutation, such as leaves of one node.

Rows i and j are twins if edges of A to and from any other row are alike, also those between the two
and their loops, and if C differs by a constant between them. A swap of twins changes no value, so
that all arrangements of a class of twins are equally probable: averages over them cost nothing and
leave nothing to chance. A swap of near twins changes the value of a permutation by little,

.. math:: |\Delta f| \le (\max B - \min B) \sum_k (|A_{ik} - A_{jk}| + |A_{ki} - A_{kj}|)
          + |C_{ia} + C_{jb} - C_{ib} - C_{ja}|, \quad a = \pi(i), b = \pi(j),

where the first part, of edges, bounds the change of any permutation. Twins among columns are the
same for B and the transpose of C.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from permvi.inference.map import Quadratic

# Rows that a swap changes; the most draws that are looked for, and looked at, in `unseen`.
_SWAP = 2
_LOOKED_FOR, _LOOKED_AT = 200, 2000


class Twins(NamedTuple):
    """Classes of twins, each named by its first member.

    Attributes:
        rows: (N,) the class of each row.
        cols: (N,) the class of each column.
    """

    rows: np.ndarray
    cols: np.ndarray

    @classmethod
    def of(
        cls,
        square: Quadratic,
        allowed: np.ndarray,
        perm: np.ndarray | None = None,
        most: tuple[float, float] = (0.0, 0.0),
    ) -> "Twins":
        """Find twins, or near twins in a permutation (N,).

        ``most`` are the largest changes in nats, by edges and by scores.
        """
        from permvi.inference.quadratic.cells_kernels import twin_classes

        perm = np.zeros(0, np.int64) if perm is None else perm
        A, B, C = (np.ascontiguousarray(part) for part in (square.A, square.B, square.C))
        turned = np.ascontiguousarray(C.T), np.ascontiguousarray(allowed.T), np.argsort(perm)
        straight = C, np.ascontiguousarray(allowed), perm
        return cls(
            twin_classes(A, float(np.ptp(B)), *straight, most),
            twin_classes(B, float(np.ptp(A)), *turned, most),
        )

    def keys(self, perms: np.ndarray) -> list[bytes]:
        """Return for each permutation (k, N) what it shares with those that twins make of it alone.

        These are the numbers of pairs of each class of rows with each class of columns.
        """
        return [row.tobytes() for row in self.canonical(perms)]

    def canonical(self, perms: np.ndarray) -> np.ndarray:
        """Return arrays (k, N) that are alike for permutations (k, N) that twins make of one.

        They hold a number for each pair of a class of rows and one of columns, row class by row
        class, so that a swap changes two of them where nothing can be exchanged.
        """
        return np.sort(self.rows * perms.shape[1] + self.cols[perms], axis=1)

    def firsts(self, perms: np.ndarray, known: Collection[bytes] = ()) -> list[int]:
        """Return the first of the permutations (k, N) with each key that is not ``known``."""
        places = {key: k for k, key in reversed(list(enumerate(self.keys(perms))))}
        return sorted(k for key, k in places.items() if key not in known)

    def averaged(self, table: np.ndarray) -> np.ndarray:
        """Return a table (N, N) averaged over all arrangements of twins."""
        return _averaged(_averaged(table, self.rows).T, self.cols).T

    def shuffled(self, perms: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return permutations (k, N) with twins in random arrangements."""
        rows = _arrangements(self.rows, len(perms), rng)
        cols = _arrangements(self.cols, len(perms), rng)
        return np.take_along_axis(cols, np.take_along_axis(perms, rows, axis=1), axis=1)


class Cells(NamedTuple):
    """A partition of rows into cells.

    Attributes:
        of_row: (N,) the cell of each row, counted from 0.
        num_mixed: The cells in which not all are twins; they come first.
    """

    of_row: np.ndarray
    num_mixed: int

    @classmethod
    def of(cls, near: Twins, twins: Twins, perm: np.ndarray) -> "Cells":
        """Put rows of a permutation (N,) together where swaps of near twins lead to one another."""
        cells = _cells(near, perm)
        pairs = np.unique(np.stack([cells, _cells(twins, perm)]), axis=1)
        mixed = np.bincount(pairs[0]) > 1
        return cls(np.argsort(np.argsort(~mixed, kind="stable"))[cells], int(mixed.sum()))


def _cells(twins: Twins, perm: np.ndarray) -> np.ndarray:
    """Return labels (N,), alike for rows that are twins or whose columns are."""
    rows = np.arange(len(perm))
    others = np.concatenate([twins.rows, np.argsort(perm)[twins.cols[perm]]])
    links = coo_array((np.ones(2 * len(rows)), (np.tile(rows, 2), others)), shape=(len(rows),) * 2)
    return connected_components(links, directed=False)[1]


def _averaged(table: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return a table (N, M) with rows of one class replaced by their mean."""
    if len(np.unique(labels)) == len(labels):
        return table
    order = np.argsort(labels, kind="stable")
    _, begins, which, sizes = np.unique(
        labels[order], return_index=True, return_inverse=True, return_counts=True
    )
    means = np.add.reduceat(table[order], begins, axis=0) / sizes[:, None]
    result = np.empty_like(table)
    result[order] = means[which]
    return result


def _arrangements(labels: np.ndarray, num: int, rng: np.random.Generator) -> np.ndarray:
    """Return permutations (num, N) that shuffle the members of each class."""
    order = np.argsort(labels, kind="stable")
    keys = np.argsort(rng.random((num, len(labels))), axis=1)
    # Members in random order, class by class.
    shuffled = np.take_along_axis(keys, np.argsort(labels[keys], axis=1, kind="stable"), axis=1)
    result = np.empty_like(shuffled)
    result[:, order] = shuffled
    return result


def unseen(draws: np.ndarray, known: np.ndarray, twins: Twins) -> float:
    """Return the share of draws (k, N) that are more than a swap away from all ``known`` (m, N).

    An ensemble of lower evidence has missed a part of the posterior, and what it has seen is new
    only where others have not been, too. A chain goes by swaps: what has seen a permutation has
    seen those that are a swap away, as far as they matter. Permutations that twins make of each
    other are one.
    """
    if len(draws) == 0:
        return 0.0
    wanted = twins.canonical(_some(draws, _LOOKED_FOR))
    seen = twins.canonical(_some(known, _LOOKED_AT))
    return float(np.mean([((seen != one).sum(axis=1) > _SWAP).all() for one in wanted]))


def _some(draws: np.ndarray, most: int) -> np.ndarray:
    """Return at most so many draws, evenly spread."""
    return draws[np.unique(np.linspace(0, len(draws) - 1, most).round().astype(int))]
