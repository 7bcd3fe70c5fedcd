"""What a recording says about each ordered pair of its neurons, and what others expect there."""

from typing import NamedTuple

import numpy as np

from permvi.inference.dynamics.regression import Scales, SharedRegression


class Edges(NamedTuple):
    r"""Debiased ridge estimates of one subject's weights, brought to one standard error.

    Attributes:
        z: (m, m) :math:`z_{ik}`, with error ``s`` and zero on the diagonal and where nothing is
            recorded.
        s: The standard error of all entries.
        recorded: (m, m) whether both neurons are recorded, zeros and ones.
    """

    z: np.ndarray
    s: float
    recorded: np.ndarray


def estimate_edges(problem: SharedRegression, subject: int, scales: Scales) -> Edges:
    r"""Estimates of all weights of a subject, whoever its neurons are.

    Without identities every pair may be an edge with probability :math:`\rho`, the density of the
    support, so the ridge is that of a dense regression with weights of variance :math:`\rho` times
    the prior's. With :math:`C = (C_0 + \lambda I)^{-1}`, column b of :math:`C_1 C` shrinks its own
    weight by :math:`g_b = 1 - \lambda C_{bb}`; dividing by it leaves the noise and what other
    weights leak into it as the error, of variance

    .. math::
        \bigl[\sigma^2 (C C_0 C)_{bb} + \lambda^2 v \rho \textstyle\sum_{k \ne b} C_{kb}^2 \bigr]
        / g_b^2 .
    """
    here = np.flatnonzero(problem.recorded[subject])
    density = problem.support.mean()
    ridge = scales.ridge / density
    C0, C1 = (stat[subject][np.ix_(here, here)] for stat in (problem.C0, problem.C1))
    inverse = np.linalg.inv(C0 + ridge * np.eye(len(here)))
    own = np.diag(inverse)
    kept = 1 - ridge * own
    leaked = (inverse**2).sum(axis=0) - own**2
    # C C0 C = C - ridge C C
    noise = own - ridge * (leaked + own**2)
    variance = (scales.noise * noise + ridge**2 * scales.weight * density * leaked) / kept**2
    errors = np.sqrt(variance)
    s = float(errors.mean())
    z = np.zeros((problem.size, problem.size))
    z[np.ix_(here, here)] = C1 @ inverse / kept * (s / errors)
    np.fill_diagonal(z, 0.0)
    both = problem.recorded[subject].astype(np.float64)
    return Edges(z, s, np.outer(both, both))


class Beliefs(NamedTuple):
    """Independent normal beliefs about the weights.

    Attributes:
        mean: (m, m), zero off the support.
        variance: (m, m), zero off the support.
    """

    mean: np.ndarray
    variance: np.ndarray


def prior_beliefs(problem: SharedRegression, scales: Scales) -> Beliefs:
    """What is believed before any recording."""
    return Beliefs(np.zeros(problem.support.shape), scales.weight * problem.support)


def posterior_beliefs(
    problem: SharedRegression,
    K0: np.ndarray,
    K1: np.ndarray,
    present: np.ndarray,
    scales: Scales,
) -> Beliefs:
    """The posterior of the weights given the permutations of some subjects.

    Args:
        problem: For the support.
        K0: (G, m, m) statistics of these subjects by label.
        K1: (G, m, m).
        present: (G, m) which labels are recorded.
        scales: The variances.

    Returns:
        Means and variances; correlations within a row are left out.
    """
    # Only now: this loads numba.
    from permvi.inference.dynamics import evidence_kernels

    mean, variance = np.zeros((2, *problem.support.shape))
    evidence_kernels.row_posteriors(K0, K1, present, *problem.inputs, scales.ridge, mean, variance)
    return Beliefs(mean, scales.noise * variance)
