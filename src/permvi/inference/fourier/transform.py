r"""Fourier transforms on the symmetric group.

.. math::
    \hat f_\lambda = \sum_\sigma f(\sigma) \rho_\lambda(\sigma), \qquad
    f(\sigma) = \frac{1}{n!} \sum_\lambda d_\lambda
    \mathrm{tr}(\hat f_\lambda \rho_\lambda(\sigma)^\top).

Coefficients of partitions with a first part of at least n - s hold exactly what the marginals of
order s hold: the probabilities that s items have given labels. A function whose other coefficients
are zero is band-limited of order s; order n - 1 is no limit at all.

The convolution :math:`(f * g)(\sigma) = \sum_\tau f(\sigma \tau^{-1}) g(\tau)` is the law of
:math:`\sigma\tau`, for independent :math:`\sigma \sim f` and :math:`\tau \sim g`, and has the
coefficients :math:`\hat f_\lambda \hat g_\lambda` (Diaconis 1988).
"""

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from permvi.inference.fourier.young import Partition, irrep, partitions
from permvi.permutations import enumerate_permutations

Coefficients = dict[Partition, np.ndarray]
"""(d, d) coefficients by partition."""

# All n! values are listed; more of them would take minutes.
_LARGEST_TABLE = 6


def transform(values: np.ndarray, order: int | None = None) -> Coefficients:
    """The coefficients of a function on all permutations of at most 6 items.

    Args:
        values: (n!,) its values, in the order of `permvi.permutations.enumerate_permutations`.
        order: The band limit; by default none, and `inverse_transform` gives the values back.
    """
    n = _items(len(values))
    return {
        partition: np.tensordot(values, _matrices(partition), axes=1)
        for partition in partitions(n, order)
    }


def inverse_transform(coefficients: Mapping[Partition, np.ndarray]) -> np.ndarray:
    """(n!,) the values of the function with these coefficients, others being zero."""
    n = sum(next(iter(coefficients)))
    total = np.zeros(math.factorial(_items(math.factorial(n))))
    for partition, matrix in coefficients.items():
        total += irrep(partition).dim * np.tensordot(_matrices(partition), matrix, axes=2)
    return total / math.factorial(n)


def convolve(
    first: Mapping[Partition, np.ndarray], second: Mapping[Partition, np.ndarray]
) -> Coefficients:
    """The coefficients of a convolution, for the partitions that both have."""
    shared = [partition for partition in first if partition in second]
    return {partition: first[partition] @ second[partition] for partition in shared}


def _matrices(partition: Partition) -> np.ndarray:
    """(n!, d, d) the matrices of all permutations."""
    found = irrep(partition)
    return np.stack([found.matrix(perm) for perm in enumerate_permutations(sum(partition))])


def _items(num_values: int) -> int:
    for n in range(1, _LARGEST_TABLE + 1):
        if math.factorial(n) == num_values:
            return n
    raise ValueError(
        f"values must be those of all n! permutations of at most {_LARGEST_TABLE} items, got "
        f"{num_values} of them."
    )


def multiply(
    coefficients: Mapping[Partition, np.ndarray], item: int, likelihood: np.ndarray
) -> Coefficients:
    """The coefficients of ``likelihood[perm[item]] f(perm)`` within the band limit of f.

    Args:
        coefficients: Those of f, with all partitions up to its band limit.
        item: The item.
        likelihood: (n,) by label.

    Returns:
        The new coefficients; that of the trivial partition is the sum of the product.
    """
    n = len(likelihood)
    restricted: dict[Partition, np.ndarray] = {}
    for partition, matrix in coefficients.items():
        found = irrep(partition)
        moved = np.swapaxes(found.cosets, 1, 2) @ (matrix @ found.cosets[item])
        for smaller, place in found.blocks:
            block = moved[:, place, place] * (found.dim / n / (place.stop - place.start))
            restricted[smaller] = restricted.get(smaller, 0.0) + block
    products = {}
    for partition in coefficients:
        found = irrep(partition)
        spread = np.zeros((n, found.dim, found.dim))
        for smaller, place in found.blocks:
            spread[:, place, place] = likelihood[:, None, None] * restricted[smaller]
        products[partition] = (found.cosets @ spread).sum(axis=0) @ found.cosets[item].T
    return products


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


# How far entries may be below zero, and positive ones from where the optimum has them.
_TOLERANCE = 1e-9
_MAX_STEPS = 3000


class Projection(NamedTuple):
    """Coefficients with valid marginals.

    Attributes:
        coefficients: Of the given band limit.
        distance: How far the marginals moved, in the Euclidean norm.
        converged: Whether the optimum was reached.
    """

    coefficients: Coefficients
    distance: float
    converged: bool


def project(coefficients: Mapping[Partition, np.ndarray], order: int) -> Projection:
    r"""The nearest function of the band limit whose marginals of that order are probabilities.

    Nearest in the Euclidean norm of the marginals. At order one these are the doubly stochastic
    matrices, the marginals of distributions. At higher orders the set is a relaxation, larger than
    that: entries are non-negative and all fit together.

    With :math:`\Pi` the projection on marginals of functions of sum zero, the solution is
    :math:`T + \Pi \Lambda` with multipliers :math:`\Lambda \ge 0` that minimise the convex function
    :math:`\frac12 \lVert \Pi \Lambda \rVert^2 + \langle \Lambda, T \rangle`. They are found by
    accelerated projected gradients (Beck and Teboulle 2009) with restarts (O'Donoghue and Candes
    2015).

    Args:
        coefficients: All of the band limit, with sum one.
        order: The band limit.
    """
    n = sum(next(iter(coefficients)))
    start = to_marginals(coefficients, order)
    found, converged = dict(coefficients), bool(start.min() >= 0)
    valid, multipliers, momentum = start, np.zeros_like(start), 1.0
    point = multipliers
    for _ in range(0 if converged else _MAX_STEPS):
        change = from_marginals(point, n, order)
        change[(n,)] = np.zeros((1, 1))
        valid = start + to_marginals(change, order)
        found = {each: coefficients[each] + change[each] for each in change}
        # Zero where multipliers and entries are non-negative and one of each pair is zero.
        if np.abs(np.minimum(valid, point)).max() <= _TOLERANCE:
            converged = True
            break
        new = np.maximum(point - valid, 0.0)
        if ((point - new) * (new - multipliers)).sum() > 0:
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        point = new + (momentum - 1) / following * (new - multipliers)
        multipliers, momentum = new, following
    return Projection(found, float(np.linalg.norm(valid - start)), converged)
