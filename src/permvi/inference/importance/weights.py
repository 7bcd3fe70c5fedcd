r"""From weighted populations to an evidence, a posterior, and their standard errors.

The populations' estimates :math:`Z_g` of the evidence are independent and unbiased, and so is their
mean, on the natural scale, whose standard error is their spread. Marginals are ratios
:math:`M = \sum_g Z_g M_g / \sum_g Z_g`; their errors are those of the ratio, linearised.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp


class Weighted(NamedTuple):
    """Weighted matchings.

    Attributes:
        perms: (num, n) or (num, S, n), all populations together.
        log_weights: (num,) weights of which the mean is the evidence.
        log_evidence: The log of an unbiased estimate.
        log_evidence_se: Its standard error, that of the estimate relative to it.
        log_evidence_by_population: (populations,) the log of each population's estimate.
        ess_per_draw: Effective sample size of the weights per draw; of those that resampling has
            left, where there was any.
        error_by_row: (n,) or (S, n) expected total variation of the marginals from the posterior's,
            due to sampling.
        disagreement_by_row: (n,) or (S, n) total variation between the marginals of the first and
            the second half of the populations, beyond what their errors explain.
    """

    perms: np.ndarray
    log_weights: np.ndarray
    log_evidence: float
    log_evidence_se: float
    log_evidence_by_population: np.ndarray
    ess_per_draw: float
    error_by_row: np.ndarray
    disagreement_by_row: np.ndarray


def combine(perms: np.ndarray, log_weights: np.ndarray, num_cols: int) -> Weighted:
    """Put populations together.

    Args:
        perms: (populations, num, n) or (populations, num, S, n) matchings, -1 for unmatched.
        log_weights: (populations, num) such that a population's mean weight is its estimate of the
            evidence; not all -inf.
        num_cols: m.
    """
    groups, num = log_weights.shape
    each = logsumexp(log_weights, axis=1) - np.log(num)
    log_evidence = float(logsumexp(each) - np.log(groups))
    # Relative to the mean, so that nothing overflows.
    ratios = np.exp(each - log_evidence)
    flat = log_weights.ravel()
    shares = np.exp(flat - logsumexp(flat))
    tables = _tables(perms, np.exp(log_weights - log_evidence) / num, num_cols)
    halves = [_ratio(part) for part in (tables[: groups // 2], tables[groups // 2 :])]
    apart = 0.5 * np.abs(halves[0][0] - halves[1][0]).sum(axis=-1)
    expected = np.hypot(halves[0][1], halves[1][1])
    event = perms.shape[2:]
    return Weighted(
        perms.reshape(-1, *event),
        flat,
        log_evidence,
        float(ratios.std(ddof=1) / np.sqrt(groups)),
        each,
        float(1 / (shares**2).sum() / len(shares)),
        _ratio(tables)[1].reshape(event),
        np.maximum(apart - expected, 0.0).reshape(event),
    )


def _tables(perms: np.ndarray, weights: np.ndarray, num_cols: int) -> np.ndarray:
    """(populations, rows, m + 1) the weight of each row's columns and of being unmatched."""
    groups, num = weights.shape
    rows = perms.reshape(groups, num, -1) % (num_cols + 1)
    tables = np.zeros((groups, rows.shape[2], num_cols + 1))
    index = np.arange(groups)[:, None, None], np.arange(rows.shape[2])
    np.add.at(tables, (*index, rows), weights[:, :, None])
    return tables


def _ratio(tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""The marginals (rows, m + 1) of so many populations, and each row's expected error.

    A normal error of sd s is :math:`s \sqrt{2 / \pi}` large on average, and total variation is half
    the sum over columns.
    """
    groups, totals = len(tables), tables[:, 0].sum(axis=-1)
    if totals.sum() == 0 or groups < 2:
        rows, states = tables.shape[1:]
        return np.full((rows, states), 1 / states), np.ones(rows)
    marginals = tables.sum(axis=0) / totals.sum()
    residuals = (tables - totals[:, None, None] * marginals) / totals.sum()
    variances = (residuals**2).sum(axis=0) * groups / (groups - 1)
    return marginals, np.sqrt(variances / (2 * np.pi)).sum(axis=-1)
