r"""From draws of q to the posterior: distinct matchings weighted by density over inclusion.

Frequencies of draws carry counting noise although the density of every drawn matching is known.
So each distinct matching x counts once, with weight :math:`p(x) / \pi(x)`, where :math:`\pi` is
the probability that x is among what was drawn (Horvitz and Thompson 1952): the sum of weights is
an unbiased estimate of the evidence. Matchings whose densities became known before the draws, in
training, count as certain to be included; the estimate stays unbiased.
"""

from typing import NamedTuple

import numpy as np


class Corrected(NamedTuple):
    """A weighted set of matchings.

    Attributes:
        perms: (num, n) or (num, S, n).
        log_weights: (num,) log p / pi.
        log_evidence: Log of their sum (of their mean for plain importance sampling).
        log_evidence_se: Its standard error.
        ess_per_draw: Effective sample size of independent draws of q, per draw.
        variances: (num,) contributions of the matchings to the variance of weighted means, relative
            to the squared sum of weights.
        log_densities: (num,) log p.
        log_q: (num,) log probabilities under the family, None where they are not needed.
    """

    perms: np.ndarray
    log_weights: np.ndarray
    log_evidence: float
    log_evidence_se: float
    ess_per_draw: float
    variances: np.ndarray
    log_densities: np.ndarray
    log_q: np.ndarray | None = None


def log_inclusion_with_replacement(log_q: np.ndarray, num_draws: int) -> np.ndarray:
    r"""log of :math:`1 - (1 - q)^n`, the probability to be among n independent draws."""
    q = np.exp(np.minimum(log_q, -1e-300))
    expected = log_q + np.log(num_draws)
    with np.errstate(divide="ignore"):
        found = np.log(-np.expm1(num_draws * np.log1p(-q)))
    # What is drawn hardly ever is drawn once, also where q itself is too small for a number.
    return np.where(expected < -40.0, expected, found)


def horvitz_thompson(
    perms: np.ndarray, log_p: np.ndarray, log_inclusion: np.ndarray, ess_per_draw: float
) -> Corrected:
    r"""Distinct matchings weighted by density over inclusion probability.

    The variance takes inclusions as independent, :math:`\sum_x (1 - \pi) (p / \pi)^2`, which errs
    on the safe side: they are negatively correlated.

    Args:
        perms: (num, n) or (num, S, n) distinct matchings.
        log_p: (num,) log densities.
        log_inclusion: (num,) log pi; 0 for what would have been included in any case.
        ess_per_draw: See `effective_share`.
    """
    log_weights = log_p - log_inclusion
    log_evidence = _log_sum(log_weights)
    shares = np.exp(log_weights - log_evidence)
    variances = -np.expm1(log_inclusion) * shares**2
    error = float(np.sqrt(variances.sum()))
    return Corrected(perms, log_weights, log_evidence, error, ess_per_draw, variances, log_p)


def effective_share(log_p: np.ndarray, log_q: np.ndarray, log_inclusion: np.ndarray) -> float:
    r"""Effective sample size per independent draw of q, from distinct draws.

    :math:`E_q[p/q]^2 / E_q[(p/q)^2]`, both expectations as sums over matchings, estimated with
    inclusion probabilities.
    """
    first = _log_sum(log_p - log_inclusion)
    second = _log_sum(2 * log_p - log_q - log_inclusion)
    return 0.0 if first == -np.inf else min(1.0, float(np.exp(2 * first - second)))


def self_normalised(perms: np.ndarray, log_p: np.ndarray, log_q: np.ndarray) -> Corrected:
    """Plain importance weights p / q of independent draws, repeats included."""
    log_weights = log_p - log_q
    num = len(perms)
    total = _log_sum(log_weights)
    shares = np.exp(log_weights - total)
    spread = max(float((shares**2).sum()) - 1 / num, 0.0)
    return Corrected(
        perms,
        log_weights,
        total - np.log(num),
        float(np.sqrt(spread)),
        float(1 / (shares**2).sum() / num),
        shares**2,
        log_p,
        log_q,
    )


def total_variation_error(corrected: Corrected, num_cols: int) -> np.ndarray:
    r"""(n,) or (S, n) expected total variation of a row's marginals due to sampling.

    The linearised variance of a weighted frequency p is :math:`\sum_x v_x (1[x] - p)^2`; a normal
    error of sd s is :math:`s \sqrt{2 / \pi}` large on average, and total variation is half the sum.
    """
    perms, num = corrected.perms, len(corrected.perms)
    shares = np.exp(corrected.log_weights - _log_sum(corrected.log_weights))
    rows = perms.reshape(num, -1) % (num_cols + 1)
    states = num_cols + 1
    cells = (rows + states * np.arange(rows.shape[1])).ravel()

    def by_cell(values: np.ndarray) -> np.ndarray:
        repeated = np.repeat(values, rows.shape[1])
        return np.bincount(cells, repeated, rows.shape[1] * states).reshape(-1, states)

    p, inside = by_cell(shares), by_cell(corrected.variances)
    variance = inside * (1 - p) ** 2 + (corrected.variances.sum() - inside) * p**2
    error = np.sqrt(np.maximum(variance, 0.0) / (2 * np.pi)).sum(axis=-1)
    return error.reshape(perms.shape[1:])


def _log_sum(values: np.ndarray) -> float:
    return float(np.logaddexp.reduce(values))
