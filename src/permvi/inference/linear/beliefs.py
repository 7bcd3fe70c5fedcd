r"""Belief propagation on candidate pairs, with "unmatched" as one more state of rows and columns.

The messages from rows and from columns to their pairs are

.. math:: u_{ij} = 1 / \Big( r_i + \sum_{k \ne j} w_{ik} v_{ik} \Big), \qquad
          v_{ij} = 1 / \Big( c_j + \sum_{k \ne i} w_{kj} u_{kj} \Big),

and a pair has the odds :math:`w_{ij} u_{ij} v_{ij}`, where :math:`r_i` and :math:`c_j` are weights
of staying alone. On graphs without short cycles this is close to the posterior (Bayati and Nair
2006; Lelarge 2017); on other graphs its error is unknown. The weights are those of a `Gauge`, in
which all messages are near one.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import xlog1py, xlogy

from permvi.inference.linear.gauge import Gauge
from permvi.problem.candidates import Candidates

_DAMPING = 0.1
_TOLERANCE = 1e-7
_MAX_STEPS = 500
_SCALING_STEPS = 200
_SCALED = 1e-9


class Beliefs(NamedTuple):
    """The result of belief propagation.

    Attributes:
        pairs: (E,) beliefs in the pairs.
        rows: (n,) beliefs in unmatched rows.
        cols: (m,) beliefs in unused columns.
        messages: (E,) the messages u, from which a similar problem may start.
        converged: Whether the beliefs converged.
    """

    pairs: np.ndarray
    rows: np.ndarray
    cols: np.ndarray
    messages: np.ndarray
    converged: bool


def propagate(
    gauge: Gauge,
    row_alone: np.ndarray,
    col_alone: np.ndarray,
    messages: np.ndarray | None = None,
    max_steps: int = _MAX_STEPS,
) -> Beliefs:
    """Pass messages between rows and columns until the beliefs converge.

    The weights of staying alone, (n,) and (m,), replace those of the gauge. ``messages``, (E,), are
    where to start.
    """
    # Imported here because it loads numba.
    from permvi.inference.linear import worm_kernels as kernels

    problem = gauge.problem
    u = np.ones(len(gauge.weights)) if messages is None else messages.copy()
    arrays = problem.row_ends, problem.cols, gauge.weights, row_alone, col_alone, u
    converged = kernels.belief_steps(*arrays, _DAMPING, max_steps, _TOLERANCE)
    pairs, rows, cols = kernels.beliefs(*arrays)
    return Beliefs(pairs, rows, cols, u, converged)


def log_bethe(
    log_weights: np.ndarray,
    log_alone: tuple[np.ndarray, np.ndarray],
    pairs: np.ndarray,
    rows: np.ndarray,
    cols: np.ndarray,
) -> float:
    r"""Return minus the Bethe free energy of marginals, a lower bound on the log evidence.

    With marginals P of ``pairs``, (E,), and p, q of unmatched ``rows``, (n,), and ``cols``, (m,),

    .. math:: \sum_{ij} P_{ij} (s_{ij} - \log P_{ij}) + (1 - P_{ij}) \log (1 - P_{ij})
              + \sum_i p_i (r_i - \log p_i) + \sum_j q_j (c_j - \log q_j).

    Since the graph is bipartite, this is a bound for all P, p, q whose rows and columns sum to one
    (Gurvits 2011 where all are matched; Csikvari 2014 and Lelarge 2017 in general).
    """
    inside = np.minimum(pairs, 1.0)
    total = _dot(pairs, log_weights) - xlogy(pairs, pairs).sum()
    total += xlog1py(1.0 - inside, -inside).sum()
    for p, weights in zip((rows, cols), log_alone, strict=True):
        total += _dot(p, weights) - xlogy(p, p).sum()
    return float(total)


def _dot(p: np.ndarray, log_weights: np.ndarray) -> float:
    """Return the sum of products, zero where p is zero."""
    some = p > 0
    return float(p[some] @ log_weights[some])


def scale_to_marginals(
    problem: Candidates, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale marginals of pairs, unmatched rows and unused columns by Sinkhorn steps to sum to one.

    Their sums should be close to one already: a few steps then suffice.
    """
    # Imported here because it loads numba.
    from permvi.inference.linear.gauge_kernels import sinkhorn_steps

    n, m = problem.shape
    a, b = np.ones(n), np.ones(m)
    arrays = problem.row_ends, problem.cols, pairs, rows, cols
    sinkhorn_steps(*arrays, a, b, _SCALING_STEPS, _SCALED)
    return pairs * a[problem.rows] * b[problem.cols], rows * a, cols * b
