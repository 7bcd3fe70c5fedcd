r"""Fourier coefficients as marginals: the probabilities that s items have given labels.

The marginals of order s form an (N, N) matrix over ordered s-tuples, :math:`N = n! / (n - s)!`,

.. math:: T_{ab} = P(\sigma(a_1) = b_1, \dots, \sigma(a_s) = b_s)
          = \sum_\lambda \frac{d_\lambda}{N} \sum_t
            \langle v_{\lambda t}(b), \hat f_\lambda v_{\lambda t}(a) \rangle,

with t running over the vectors of :math:`\lambda` that all permutations of the first n - s items
leave alone, and :math:`v_{\lambda t}(a)` such a vector after moving the last s items to a. So a
band-limited function and its marginals of that order are the same thing in two bases, and both
ways are a few matrix products (Huang, Guestrin and Guibas 2009).
"""

import functools
from collections.abc import Mapping

import numpy as np

from permvi.inference.fourier.transform import Coefficients
from permvi.inference.fourier.young import Partition, irrep, partitions


@functools.lru_cache(maxsize=32)
def tuples(n: int, order: int) -> np.ndarray:
    """(N, order) all ordered tuples of distinct items, in the order of the marginals."""
    if order == 0:
        return np.zeros((1, 0), dtype=np.int64)
    rest = tuples(n - 1, order - 1)
    # The others keep their order when an item is taken out.
    parts = [np.insert(rest + (rest >= first), 0, first, axis=1) for first in range(n)]
    return np.concatenate(parts)


def to_marginals(coefficients: Mapping[Partition, np.ndarray], order: int) -> np.ndarray:
    """(N, N) marginals of an order up to the band limit, tuples of items by tuples of labels."""
    n = sum(next(iter(coefficients)))
    num = len(tuples(n, order))
    total = np.zeros((num, num))
    for partition in partitions(n, order):
        for basis in _invariant(partition, order):
            total += len(basis) / num * (basis.T @ coefficients[partition].T @ basis)
    return total


def from_marginals(marginals: np.ndarray, n: int, order: int) -> Coefficients:
    """The coefficients of a band limit whose marginals (N, N) are nearest to the given ones."""
    found = {}
    for partition in partitions(n, order):
        bases = _invariant(partition, order)
        copies = [basis @ marginals.T @ basis.T for basis in bases]
        found[partition] = len(bases[0]) / len(marginals) * np.mean(copies, axis=0)
    return found


@functools.lru_cache(maxsize=64)
def _invariant(partition: Partition, order: int) -> tuple[np.ndarray, ...]:
    """For each invariant vector of a representation, (d, N) where tuples take it."""
    if order == 0:
        return (np.ones((1, 1)),) if len(partition) <= 1 else ()
    found = irrep(partition)
    bases = []
    for smaller, place in found.blocks:
        for basis in _invariant(smaller, order - 1):
            moved = found.cosets[:, :, place] @ basis
            bases.append(np.concatenate(list(moved), axis=1))
    return tuple(bases)
