r"""Belief propagation on candidate pairs, with "unmatched" as one more state of rows and columns.

On the scale of log odds, the messages from rows and from columns to their pairs are

.. math:: u_{ij} = -\log \Big( e^{r_i} + \sum_{k \ne j} e^{s_{ik} + v_{ik}} \Big), \qquad
          v_{ij} = -\log \Big( e^{c_j} + \sum_{k \ne i} e^{s_{kj} + u_{kj}} \Big),

and a pair has the log odds :math:`s_{ij} + u_{ij} + v_{ij}`, where :math:`r_i` and :math:`c_j` are
log weights of staying unmatched. On graphs without short cycles this is close to the posterior
(Bayati and Nair 2006; Lelarge 2017); on other graphs its error is unknown.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from permvi.problem.candidates import Candidates

_LARGEST = 1e5
_DAMPING = 0.2
_TOLERANCE = 1e-7
_MAX_STEPS = 1000
_SCALING_STEPS = 1000
_SCALED = 1e-9


class Beliefs(NamedTuple):
    """The result of belief propagation.

    Attributes:
        pairs: (E,) beliefs in the pairs.
        log_prices: (m,) minus the log of the total weight that competes for a column, staying
            unused included.
        converged: Whether the beliefs converged.
    """

    pairs: np.ndarray
    log_prices: np.ndarray
    converged: bool


def propagate(problem: Candidates) -> Beliefs:
    """Pass messages between rows and columns until the beliefs converge."""
    # Imported here because it loads numba.
    from permvi.inference.linear.worm_kernels import update_messages

    E = len(problem.scores)
    u, v, pairs = np.zeros(E), np.zeros(E), np.zeros(E)
    of_rows = (problem.row_ends, np.arange(E), problem.row_alone)
    of_cols = (problem.col_ends, problem.by_col, problem.col_alone)
    converged = False
    for _ in range(_MAX_STEPS):
        update_messages(*of_rows, problem.scores + v, u, _DAMPING, _LARGEST)
        update_messages(*of_cols, problem.scores + u, v, _DAMPING, _LARGEST)
        before, pairs = pairs, expit(problem.scores + u + v)
        converged = bool(np.abs(pairs - before).max(initial=0.0) <= _TOLERANCE)
        if converged:
            break
    rivals = problem.col_alone.copy()
    np.logaddexp.at(rivals, problem.cols, problem.scores + u)
    return Beliefs(pairs, -rivals, converged)


def log_bethe(problem: Candidates, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> float:
    r"""Return minus the Bethe free energy of marginals, a lower bound on the log evidence.

    With marginals P of ``pairs``, (E,), and p, q of unmatched ``rows``, (n,), and ``cols``, (m,),

    .. math:: \sum_{ij} P_{ij} (s_{ij} - \log P_{ij}) + (1 - P_{ij}) \log (1 - P_{ij})
              + \sum_i p_i (r_i - \log p_i) + \sum_j q_j (c_j - \log q_j).

    Since the graph is bipartite, this is a bound for all P, p, q whose rows and columns sum to one
    (Gurvits 2011 where all are matched; Csikvari 2014 and Lelarge 2017 in general).
    """
    total = pairs @ problem.scores - xlogy(pairs, pairs).sum()
    total += xlog1py(1.0 - np.minimum(pairs, 1.0), -np.minimum(pairs, 1.0)).sum()
    for p, weights in ((rows, problem.row_alone), (cols, problem.col_alone)):
        some = p > 0
        total += p[some] @ (weights[some] - np.log(p[some]))
    return float(total)


def scale_to_marginals(
    problem: Candidates, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale marginals of pairs, unmatched rows and unused columns by Sinkhorn steps to sum to one.

    Their sums should be close to one already: a few steps then suffice.
    """
    n, m = problem.shape
    for _ in range(_SCALING_STEPS):
        by_row = rows + np.bincount(problem.rows, pairs, n)
        pairs, rows = pairs / by_row[problem.rows], rows / by_row
        by_col = cols + np.bincount(problem.cols, pairs, m)
        pairs, cols = pairs / by_col[problem.cols], cols / by_col
        if np.abs(rows + np.bincount(problem.rows, pairs, n) - 1.0).max() <= _SCALED:
            break
    return pairs, rows, cols
