r"""Estimate where each label lies, and how widely it scatters, from labelled animals.

A cell of label j is, in animal a,

.. math:: x_{aj} \sim (1 - \epsilon) \, t_\nu(\mu_j, C_j) + \epsilon \, g ,

with g a broad Gaussian over all cells: a share :math:`\epsilon` of the training cells has the name
of another cell or lies anywhere. The covariance of a label is shrunk towards that of all labels,
:math:`C_j = (S_j + k \bar C) / (n_j - 1 + k)`, the mean of an inverse-Wishart posterior whose prior
counts as much as k cells. EM finds means and covariances; k, :math:`\nu` and :math:`\epsilon` are
those that best predict the cells of animals that were left out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

# What is tried, from the first value on: the weight of the pooled covariance as a number of cells,
# degrees of freedom, and the share of mislabelled cells. Each is chosen with the others held fixed.
_STRENGTHS = (10.0, 5.0, 20.0, 40.0, 2.5, 80.0)
_FREEDOMS = (20.0, 8.0, 50.0, 5.0)
_MISTAKES = (0.01, 0.003, 0.03)
_FOLDS = 5
_STEPS = 30
_TOLERANCE = 1e-4
# Added to the diagonal of the pooled covariance, relative to the spread of all cells.
_RIDGE = 1e-9
# The median of the absolute value of a standard normal variate.
_NORMAL_MEDIAN = 0.6745


class Shape(NamedTuple):
    """Choices that a fit makes by cross-validation.

    Attributes:
        strength: k, the weight of the pooled covariance as a number of cells.
        df: Degrees of freedom of the scatter of cells.
        mistakes: The share of cells that are mislabelled.
    """

    strength: float
    df: float
    mistakes: float


class Moments(NamedTuple):
    """What EM finds.

    Attributes:
        means: (m, d).
        covariances: (m, d, d) shrunk covariances.
        counts: (m,) the number of cells that each label rests on, mislabelled ones excluded.
        center: (d,) the mean of all cells.
        spread: (d, d) the covariance of all cells.
    """

    means: np.ndarray
    covariances: np.ndarray
    counts: np.ndarray
    center: np.ndarray
    spread: np.ndarray


def inverse_roots(covariances: np.ndarray) -> np.ndarray:
    """Return (..., d, d) inverses of the lower Cholesky factors of covariances."""
    return np.linalg.inv(np.linalg.cholesky(covariances))


def log_t(residuals: np.ndarray, roots: np.ndarray, df: np.ndarray) -> np.ndarray:
    r"""Return log densities of multivariate t laws: residuals (..., m, d) -> (..., m).

    .. math:: \log t = \log\frac{\Gamma((\nu + d)/2)}{\Gamma(\nu/2) (\nu\pi)^{d/2}} + \log|R|
              - \frac{\nu + d}{2} \log(1 + |R r|^2 / \nu)

    with R the inverse Cholesky factors, (m, d, d), and :math:`\nu` degrees of freedom (m,), which
    may be infinite.
    """
    d = residuals.shape[-1]
    squares = square_distances(residuals, roots)
    log_det = np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(axis=-1)
    normal = log_det - 0.5 * d * np.log(2 * np.pi)
    if np.isinf(df).all():
        return normal - 0.5 * squares
    half = 0.5 * df
    constant = gammaln(half + 0.5 * d) - gammaln(half) - 0.5 * d * np.log(df * np.pi)
    return log_det + constant - (half + 0.5 * d) * np.log1p(squares / df)


def square_distances(residuals: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Return squared Mahalanobis distances (..., m) of residuals (..., m, d)."""
    z = np.einsum("jkl,...jl->...jk", roots, residuals, optimize=True)
    return np.einsum("...k,...k->...", z, z)


def log_background(points: np.ndarray, center: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Return Gaussian log densities (...) of points (..., d)."""
    residuals = (points - center)[..., None, :]
    return log_t(residuals, inverse_roots(spread)[None], np.array([np.inf]))[..., 0]


def expectation_maximisation(cells: np.ndarray, shape: Shape) -> Moments:
    """Return the moments of all labels.

    Args:
        cells: (num, m, d) features of each label in each animal, NaN where it was not seen. Labels
            that were never seen have the moments of all cells, and a count of zero.
        shape: Strength, degrees of freedom and share of mistakes.
    """
    seen = np.isfinite(cells).all(axis=-1)
    d = cells.shape[-1]
    everything = cells[seen]
    center, spread = everything.mean(axis=0), np.atleast_2d(np.cov(everything.T, ddof=0))
    spread = spread + np.diag(_RIDGE * np.diagonal(spread))
    x = np.where(seen[..., None], cells, 0.0)
    log_wrong = np.log(shape.mistakes) + log_background(x, center, spread)
    means = _medians(cells, seen, center)
    trust, weight = _first_weights(
        np.where(seen[..., None], x - means, 0.0), seen, log_wrong, shape
    )
    total = -np.inf
    for _ in range(_STEPS):
        counts = trust.sum(axis=0)
        residuals = np.where(seen[..., None], x - means, 0.0)
        scatter = np.einsum("aj,ajk,ajl->jkl", trust * weight, residuals, residuals, optimize=True)
        pooled = scatter.sum(axis=0) / max(np.maximum(counts - 1, 0).sum(), 1.0)
        pooled = pooled + _RIDGE * np.diag(np.diagonal(spread))
        shrunk = np.maximum(counts - 1, 0) + shape.strength
        covariances = (scatter + shape.strength * pooled) / shrunk[:, None, None]
        roots = inverse_roots(covariances)
        right = log_t(residuals, roots, np.full(len(means), shape.df)) + np.log1p(-shape.mistakes)
        both = np.logaddexp(right, log_wrong)
        trust = np.where(seen, np.exp(right - both), 0.0)
        weight = (shape.df + d) / (shape.df + square_distances(residuals, roots))
        before, total = total, float(both[seen].mean())
        if abs(total - before) < _TOLERANCE:
            break
        pull = trust * weight
        sums = np.maximum(pull.sum(axis=0), 1e-12)
        moved = np.einsum("aj,ajk->jk", pull, x) / sums[:, None]
        means = np.where(seen.any(axis=0)[:, None], moved, means)
    never = ~seen.any(axis=0)
    covariances[never] = spread
    return Moments(means, covariances, trust.sum(axis=0), center, spread)


def _first_weights(
    residuals: np.ndarray, seen: np.ndarray, log_wrong: np.ndarray, shape: Shape
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (num, m) to begin with, from residuals around medians.

    One robust scale for all labels, so that mislabelled cells do not make room for themselves.
    """
    size = np.median(np.abs(residuals[seen]), axis=0) / _NORMAL_MEDIAN
    roots = np.diag(1.0 / np.maximum(size, 1e-12))[None]
    squares = square_distances(residuals, roots)
    right = log_t(residuals, roots, np.array([shape.df])) + np.log1p(-shape.mistakes)
    trust = np.where(seen, np.exp(right - np.logaddexp(right, log_wrong)), 0.0)
    # A label needs some cells, however scattered they are.
    few = trust.sum(axis=0) < 0.5 * seen.sum(axis=0)
    trust = np.where(few, seen, trust)
    d = residuals.shape[-1]
    return trust, np.where(few, 1.0, (shape.df + d) / (shape.df + squares))


def _medians(cells: np.ndarray, seen: np.ndarray, center: np.ndarray) -> np.ndarray:
    found = np.tile(center, (cells.shape[1], 1))
    for j in np.flatnonzero(seen.any(axis=0)):
        found[j] = np.median(cells[seen[:, j], j], axis=0)
    return found


def predictive(moments: Moments, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Return scale matrices (m, d, d) and degrees of freedom (m,) of a new cell of each label.

    The mean is known to within :math:`C / n`, and the covariance rests on :math:`n + k` cells.
    """
    counts = np.maximum(moments.counts, 1.0)
    scales = moments.covariances * (1.0 + 1.0 / counts)[:, None, None]
    return scales, 1.0 / (1.0 / (counts + shape.strength) + 1.0 / shape.df)


def log_predictive(points: np.ndarray, moments: Moments, shape: Shape) -> np.ndarray:
    """Return log densities (..., m) of points (..., m, d), each under its label."""
    scales, df = predictive(moments, shape)
    right = log_t(points - moments.means, inverse_roots(scales), df)
    wrong = log_background(points, moments.center, moments.spread)
    return np.logaddexp(np.log1p(-shape.mistakes) + right, np.log(shape.mistakes) + wrong)


def choose_shape(cells: np.ndarray) -> Shape:
    """Return the shape that best predicts the cells of held-out animals, (num, m, d)."""
    found = Shape(_STRENGTHS[0], _FREEDOMS[0], _MISTAKES[0])
    if len(cells) < 3:
        return found
    known: dict[Shape, float] = {}

    def score(shape: Shape) -> float:
        if shape not in known:
            known[shape] = held_out_score(cells, shape)
        return known[shape]

    for field, values in zip(Shape._fields, (_STRENGTHS, _FREEDOMS, _MISTAKES), strict=True):
        found = max((found._replace(**{field: value}) for value in values), key=score)
    return found


def folds(num: int) -> Sequence[np.ndarray]:
    """Return the held-out animals of each fold, as booleans (num,)."""
    count = min(_FOLDS, num)
    return [np.arange(num) % count == k for k in range(count)]


def held_out_score(cells: np.ndarray, shape: Shape) -> float:
    """Return the mean log density of cells of held-out animals, given their labels."""
    total, count = 0.0, 0
    for held_out in folds(len(cells)):
        moments = expectation_maximisation(cells[~held_out], shape)
        # A label that no other animal has says nothing about the shape.
        there = np.isfinite(cells[held_out]).all(axis=-1) & (moments.counts > 0)
        points = np.where(there[..., None], cells[held_out], moments.means)
        total += float(log_predictive(points, moments, shape)[there].sum())
        count += int(there.sum())
    return total / max(count, 1)
