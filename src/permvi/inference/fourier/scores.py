"""Linear log densities by filtering: each row of scores is an observation of that row's label."""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import entr

from permvi.inference.fourier.filter import IdentityFilter
from permvi.inference.scaling import square_problem

# Likelihoods, relative to the largest, that a projection's zeros cannot contradict.
_LEAST_LIKELIHOOD = 1e-6


class ScoresFit(NamedTuple):
    """What a filter made of scores.

    Attributes:
        state: The filter after all observations.
        log_evidence: Its estimate of ``log sum_x exp(<S, x>)``, exact without a band limit.
    """

    state: IdentityFilter
    log_evidence: float


def filter_scores(scores: np.ndarray, order: int) -> ScoresFit:
    r"""Condition a uniform distribution on each row of scores, one after the other.

    The posterior :math:`\propto \prod_i e^{S_{i \sigma(i)}}` is the uniform distribution after the
    observations of all rows i with likelihoods :math:`e^{S_{ij}}`. Scores are first reduced by the
    prices of the best matching (see `permvi.inference.scaling.square_problem`), which changes no
    probability and leaves that matching the most likely label of every row. Without a band limit
    the order of the rows does not matter; with one, those of the least entropy come first, and
    likelihoods are at least a millionth of a row's largest.

    Args:
        scores: (n, n) finite log weights, n at least 2.
        order: The band limit.
    """
    square = square_problem(scores)
    likelihoods = np.exp(square.scores)
    state = IdentityFilter(len(scores), order)
    if not state.is_exact:
        likelihoods = np.maximum(likelihoods, _LEAST_LIKELIHOOD)
    entropies = entr(likelihoods / likelihoods.sum(axis=1, keepdims=True)).sum(axis=1)
    for row in np.argsort(entropies, kind="stable"):
        state = state.observe(int(row), likelihoods[row])
    log_evidence = state.log_evidence + square.offset + math.lgamma(len(scores) + 1)
    return ScoresFit(state, float(log_evidence))
