r"""Pareto-smoothed importance weights (Vehtari, Simpson, Gelman, Yao and Gabry 2024).

The largest weights are replaced by quantiles of a generalised Pareto distribution that is fitted to
them (Zhang and Stephens 2009). Its shape k-hat tells how heavy their tail is: up to 0.7, weighted
averages can be relied on.
"""

import math

import numpy as np

# Weights in the tail: at most this share, and at most this many roots of their number.
_TAIL_SHARE = 0.2
_TAIL_ROOTS = 3.0
_FEWEST = 5
# The weak prior of k-hat counts like this many weights at this value.
_PRIOR_COUNT = 10.0
_PRIOR_SHAPE = 0.5


def smooth(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Return normalised log weights (num,) with a smoothed tail, and k-hat.

    k-hat is -inf if the tail has no spread, as for equal weights, and inf for too few weights.
    """
    log_w = log_weights - np.logaddexp.reduce(log_weights)
    num = len(log_w)
    size = math.ceil(min(_TAIL_SHARE * num, _TAIL_ROOTS * math.sqrt(num)))
    if size < _FEWEST:
        return log_w, math.inf
    order = np.argsort(log_w, kind="stable")
    tail, cutoff = order[-size:], log_w[order[-size - 1]]
    largest = log_w[order[-1]]
    excess = np.exp(log_w[tail] - largest) - math.exp(cutoff - largest)
    if not excess[-1] > 0:
        return log_w, -math.inf
    if not excess[0] > 0:
        # Ties with the cutoff carry no information on the shape.
        excess = np.maximum(excess, excess[excess > 0].min())
    shape, scale = fit_pareto(excess)
    ranks = (np.arange(size) + 0.5) / size
    quantiles = (
        -scale * np.log1p(-ranks)
        if shape == 0
        else scale * np.expm1(-shape * np.log1p(-ranks)) / shape
    )
    smoothed = log_w.copy()
    smoothed[tail] = np.minimum(np.log(quantiles + math.exp(cutoff - largest)) + largest, largest)
    return smoothed - np.logaddexp.reduce(smoothed), shape


def fit_pareto(excess: np.ndarray) -> tuple[float, float]:
    """Return shape and scale of a generalised Pareto distribution of increasing excesses (num,).

    Zhang and Stephens' estimate averages over a grid of the ratio of shape to scale, weighted by
    the profile likelihood; a weak prior then shrinks the shape towards 0.5.
    """
    num = len(excess)
    grid = 30 + int(math.sqrt(num))
    quartile = excess[int(num / 4 + 0.5) - 1]
    steps = 1.0 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))
    theta = 1.0 / excess[-1] + steps / (3.0 * quartile)
    shapes = np.log1p(-theta[:, None] * excess).mean(axis=1)
    profile = num * (np.log(-theta / shapes) - shapes - 1.0)
    weights = np.exp(profile - np.logaddexp.reduce(profile))
    best = float(weights @ theta)
    shape = float(np.log1p(-best * excess).mean())
    scale = -shape / best
    shrunk = (num * shape + _PRIOR_COUNT * _PRIOR_SHAPE) / (num + _PRIOR_COUNT)
    return shrunk, scale
