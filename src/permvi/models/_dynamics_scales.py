"""The scales of a linear dynamical system before anybody knows who its neurons are."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

# Where the ridge is looked for, as a multiple of the noise that the activity itself would suggest.
_LOG_RIDGES = (np.log(1e-3), np.log(1e8))


class Spectra(NamedTuple):
    """What the evidence of dense regressions depends on, whatever the order of the neurons.

    Attributes:
        eigenvalues: (K,) of all second moments of inputs, each as often as there are targets.
        forms: (K,) squared covariances with the targets along the eigenvectors, summed over them.
        targets: (K,) numbers of targets.
        squares: Sum of squares of all targets.
        num_values: How many numbers were predicted.
    """

    eigenvalues: np.ndarray
    forms: np.ndarray
    targets: np.ndarray
    squares: float
    num_values: float


def spectra(
    C0: np.ndarray, C1: np.ndarray, squares: np.ndarray, num_steps: np.ndarray, recorded: np.ndarray
) -> Spectra:
    """Spectra of the statistics (J, n, n), (J, n, n), (J, n), (J,) and (J, n) of all subjects."""
    parts = []
    for second, cross, here in zip(C0, C1, recorded, strict=True):
        values, vectors = np.linalg.eigh(second[np.ix_(here, here)])
        projected = cross[np.ix_(here, here)] @ vectors
        parts.append(
            (np.maximum(values, 0), (projected**2).sum(axis=0), np.full(len(values), here.sum()))
        )
    eigenvalues, forms, targets = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    count = float((num_steps * recorded.sum(axis=1)).sum())
    return Spectra(eigenvalues, forms, targets, float(squares.sum()), count)


def empirical_scales(
    found: Spectra, density: float, weight: float | None, noise: float | None
) -> tuple[float, float]:
    r"""Standard deviations of the weights and of the noise that make the recordings most probable.

    Any pair may be an edge, so the weights count as dense with variance :math:`\rho v`, where
    :math:`\rho` is the density of the support (empirical Bayes, MacKay 1992). With
    :math:`\lambda = \sigma^2 / (\rho v)` and the eigenvalues :math:`e_k` of the second moments,

    .. math::
        \log p = \tfrac12 \sum_k \Bigl[\frac{R_k^2}{\sigma^2 (e_k + \lambda)}
        - \log \frac{e_k + \lambda}{\lambda}\Bigr]
        - \frac{Y}{2 \sigma^2} - \frac{N}{2} \log \sigma^2 ,

    which no permutation of the neurons changes. Given :math:`\lambda` the best :math:`\sigma^2` is
    a mean of squares, so that one number is searched for.

    Args:
        found: Spectra of the recordings.
        density: :math:`\rho`.
        weight: Standard deviation of the weights, or None if it is to be learned.
        noise: That of the noise, likewise.

    Returns:
        Both.
    """
    if weight is not None and noise is not None:
        return weight, noise

    def solve(log_ridge: float) -> tuple[float, float]:
        ridge = np.exp(log_ridge)
        left = found.squares - (found.forms / (found.eigenvalues + ridge)).sum()
        if noise is not None:
            variance = noise**2
        elif weight is not None:
            variance = ridge * density * weight**2
        else:
            variance = left / found.num_values
        penalty = (found.targets * np.log1p(found.eigenvalues / ridge)).sum()
        value = -0.5 * (left / variance + penalty + found.num_values * np.log(variance))
        return float(value), float(variance)

    grid = np.linspace(*_LOG_RIDGES, 100)
    best = int(np.argmax([solve(point)[0] for point in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ridge = minimize_scalar(lambda point: -solve(point)[0], bounds=around, method="bounded").x
    variance = solve(float(ridge))[1]
    found_weight = np.sqrt(variance / (density * np.exp(ridge)))
    return float(weight or found_weight), float(noise or np.sqrt(variance))
