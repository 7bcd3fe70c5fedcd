r"""Fourier coefficients on the symmetric group: transforms, conditioning, marginals, projection.

.. math::
    \hat f_\lambda = \sum_\sigma f(\sigma) \rho_\lambda(\sigma), \qquad
    f(\sigma) = \frac{1}{n!} \sum_\lambda d_\lambda
    \mathrm{tr}(\hat f_\lambda \rho_\lambda(\sigma)^\top).

Coefficients of partitions with a first part of at least n - s are equivalent to the marginals of
order s, the probabilities that s items have given labels. A function whose other coefficients are
zero is band-limited of order s; order n - 1 is no limit at all.

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
    """Return the coefficients of a function on all permutations of at most 6 items.

    Args:
        values: (n!,) its values, in the order of `permvi.permutations.enumerate_permutations`.
        order: The band limit. By default there is none, and `inverse_transform` is the inverse.
    """
    n = _items(len(values))
    return {
        partition: np.tensordot(values, _matrices(partition), axes=1)
        for partition in partitions(n, order)
    }


def inverse_transform(coefficients: Mapping[Partition, np.ndarray]) -> np.ndarray:
    """Return (n!,) the values of the function with these coefficients, all others being zero."""
    n = sum(next(iter(coefficients)))
    total = np.zeros(math.factorial(_items(math.factorial(n))))
    for partition, matrix in coefficients.items():
        total += irrep(partition).dim * np.tensordot(_matrices(partition), matrix, axes=2)
    return total / math.factorial(n)


def convolve(
    first: Mapping[Partition, np.ndarray], second: Mapping[Partition, np.ndarray]
) -> Coefficients:
    """Return the coefficients of a convolution for the partitions that both functions have."""
    shared = [partition for partition in first if partition in second]
    return {partition: first[partition] @ second[partition] for partition in shared}


def _matrices(partition: Partition) -> np.ndarray:
    """Return (n!, d, d) the matrices of all permutations."""
    found = irrep(partition)
    return np.stack([found.matrix(perm) for perm in enumerate_permutations(sum(partition))])


def _items(num_values: int) -> int:
    for n in range(1, _LARGEST_TABLE + 1):
        if math.factorial(n) == num_values:
            return n
    raise ValueError(
        f"values must have one entry for each of the n! permutations of at most {_LARGEST_TABLE} "
        f"items, got {num_values}."
    )


def multiply(
    coefficients: Mapping[Partition, np.ndarray], item: int, likelihood: np.ndarray
) -> Coefficients:
    r"""Return the coefficients of ``likelihood[perm[item]] f(perm)`` within the band limit of f.

    The permutations that give item i the label j are :math:`h_j \tau h_i^{-1}` with :math:`\tau` in
    :math:`S_{n-1}` and :math:`h_j` the cycle that brings the last item to j. In Young's orthogonal
    form :math:`\rho_\lambda(\tau)` is block diagonal, so f on these has the coefficients

    .. math:: \hat f^{ij}_\mu = \sum_{\lambda \to \mu} \frac{d_\lambda}{n\, d_\mu}
              [\rho_\lambda(h_j)^\top \hat f_\lambda \rho_\lambda(h_i)]_{\mu\mu}

    over :math:`S_{n-1}` (Kondor, Howard and Jebara 2007). They are multiplied by the likelihood of
    j, moved back and summed over j. This is exact for a band-limited f, but the product also has
    coefficients of one order more, which are dropped. It is Kronecker conditioning (Huang, Guestrin
    and Guibas 2009), without Clebsch-Gordan coefficients since the likelihood depends on one label.

    Args:
        coefficients: The coefficients of f for all partitions up to its band limit.
        item: The item i.
        likelihood: (n,) likelihoods by label.

    Returns:
        The new coefficients. That of the trivial partition is the sum of the product.
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
    """Return (N, order) all ordered tuples of distinct items, in the order of the marginals."""
    if order == 0:
        return np.zeros((1, 0), dtype=np.int64)
    rest = tuples(n - 1, order - 1)
    # The other items keep their order when one is taken out.
    parts = [np.insert(rest + (rest >= first), 0, first, axis=1) for first in range(n)]
    return np.concatenate(parts)


def to_marginals(coefficients: Mapping[Partition, np.ndarray], order: int) -> np.ndarray:
    r"""Return the marginals (N, N) of an order s up to the band limit.

    Rows are ordered s-tuples of items and columns s-tuples of labels, :math:`N = n! / (n - s)!`,

    .. math:: T_{ab} = P(\sigma(a_1) = b_1, \dots, \sigma(a_s) = b_s)
              = \sum_\lambda \frac{d_\lambda}{N} \sum_t
                \langle v_{\lambda t}(b), \hat f_\lambda v_{\lambda t}(a) \rangle,

    where t runs over the vectors of :math:`\lambda` that are invariant under permutations of the
    first n - s items, and :math:`v_{\lambda t}(a)` is such a vector after moving the last s items
    to a. So a band-limited function and its marginals of that order are the same in two bases
    (Huang, Guestrin and Guibas 2009).
    """
    n = sum(next(iter(coefficients)))
    num = len(tuples(n, order))
    total = np.zeros((num, num))
    for partition in partitions(n, order):
        for basis in _invariant(partition, order):
            total += len(basis) / num * (basis.T @ coefficients[partition].T @ basis)
    return total


def from_marginals(marginals: np.ndarray, n: int, order: int) -> Coefficients:
    """Return the coefficients of a band limit whose marginals are nearest to the given (N, N)."""
    found = {}
    for partition in partitions(n, order):
        bases = _invariant(partition, order)
        copies = [basis @ marginals.T @ basis.T for basis in bases]
        found[partition] = len(bases[0]) / len(marginals) * np.mean(copies, axis=0)
    return found


@functools.lru_cache(maxsize=64)
def _invariant(partition: Partition, order: int) -> tuple[np.ndarray, ...]:
    """Return, for each invariant vector of a representation, (d, N) its images by tuple."""
    if order == 0:
        return (np.ones((1, 1)),) if len(partition) <= 1 else ()
    found = irrep(partition)
    bases = []
    for smaller, place in found.blocks:
        for basis in _invariant(smaller, order - 1):
            moved = found.cosets[:, :, place] @ basis
            bases.append(np.concatenate(list(moved), axis=1))
    return tuple(bases)


# How negative entries may be, and how far positive ones may be from the optimum.
_TOLERANCE = 1e-9
_MAX_STEPS = 3000


class Projection(NamedTuple):
    """Coefficients with valid marginals, their distance, and whether the optimum was reached.

    ``distance`` is how far the marginals moved, in the Euclidean norm.
    """

    coefficients: Coefficients
    distance: float
    converged: bool


def project(coefficients: Mapping[Partition, np.ndarray], order: int) -> Projection:
    r"""Return the nearest function of the band limit ``order`` with non-negative marginals.

    The distance is the Euclidean norm of the marginals, and ``coefficients`` have sum one. At order
    one, valid marginals are the doubly stochastic matrices, which are marginals of distributions.
    At higher orders the set is larger than that, a relaxation: entries are non-negative and
    consistent with each other.

    With :math:`\Pi` the projection on marginals of functions of sum zero, the solution is
    :math:`T + \Pi \Lambda` with multipliers :math:`\Lambda \ge 0` that minimise the convex function
    :math:`\frac12 \lVert \Pi \Lambda \rVert^2 + \langle \Lambda, T \rangle`. They are found by
    accelerated projected gradients (Beck and Teboulle 2009) with restarts (O'Donoghue and Candes
    2015).
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
        # Zero if multipliers and entries are non-negative and one of each pair is zero.
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
