r"""Conditioning on the label of one item, on Fourier coefficients.

The permutations that give item i the label j are :math:`h_j \tau h_i^{-1}` with :math:`\tau` in
:math:`S_{n-1}` and :math:`h_j` the cycle that brings the last item to j. In Young's orthogonal form
:math:`\rho_\lambda(\tau)` is block diagonal, so the part of f there has the coefficients

.. math:: \hat f^{ij}_\mu = \sum_{\lambda \to \mu} \frac{d_\lambda}{n\, d_\mu}
          [\rho_\lambda(h_j)^\top \hat f_\lambda \rho_\lambda(h_i)]_{\mu\mu}

over :math:`S_{n-1}` (Kondor, Howard and Jebara 2007). Multiplying it by the likelihood of j, moving
it back and adding up over j gives the coefficients of likelihood times f. Of a band-limited f these
are exact; the product also has coefficients of one order more, which are dropped. This is Kronecker
conditioning (Huang, Guestrin and Guibas 2009), without Clebsch-Gordan coefficients since the
likelihood depends on one label.
"""

from collections.abc import Mapping

import numpy as np

from permvi.inference.fourier.transform import Coefficients
from permvi.inference.fourier.young import Partition, irrep


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
