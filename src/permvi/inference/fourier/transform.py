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

import math
from collections.abc import Mapping

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
