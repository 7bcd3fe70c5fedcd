r"""Belief propagation on candidate pairs, with being alone as one more state.

In logarithms of odds, the messages from rows and from columns to their pairs are

.. math:: u_{ij} = -\log \Big( e^{r_i} + \sum_{k \ne j} e^{s_{ik} + v_{ik}} \Big), \qquad
          v_{ij} = -\log \Big( e^{c_j} + \sum_{k \ne i} e^{s_{kj} + u_{kj}} \Big),

and a pair has the log odds :math:`s_{ij} + u_{ij} + v_{ij}`. On graphs without short cycles this is
close to the truth (Bayati and Nair 2006; Lelarge 2017); elsewhere it says nothing about its error.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit, xlog1py, xlogy

from permvi.inference.sparse.problem import SparseProblem

_LARGEST = 1e5
_DAMPING = 0.2
_TOLERANCE = 1e-7
_MAX_STEPS = 1000
_SCALING_STEPS = 1000
_SCALED = 1e-9


class Beliefs(NamedTuple):
    """Where belief propagation ended.

    Attributes:
        pairs: (E,) beliefs in the pairs.
        log_prices: (m,) minus the log of all that competes for a column, being alone included.
        converged: Whether the beliefs had settled.
    """

    pairs: np.ndarray
    log_prices: np.ndarray
    converged: bool


def propagate(problem: SparseProblem) -> Beliefs:
    """Pass messages between rows and columns until the beliefs settle."""
    # Only now: this loads numba.
    from permvi.inference.sparse.worm_kernels import update_messages

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


def log_bethe(
    problem: SparseProblem, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> float:
    r"""Minus the Bethe free energy of marginals, a lower bound on the log evidence.

    With marginals P of pairs and p, q of rows and columns being alone,

    .. math:: \sum_{ij} P_{ij} (s_{ij} - \log P_{ij}) + (1 - P_{ij}) \log (1 - P_{ij})
              + \sum_i p_i (r_i - \log p_i) + \sum_j q_j (c_j - \log q_j).

    It is a bound for all P, p, q whose rows and columns sum to one, since the graph is bipartite
    (Gurvits 2011 where nothing is alone; Csikvari 2014 and Lelarge 2017 in general).

    Args:
        problem: The problem.
        pairs: (E,) marginals of pairs.
        rows: (n,) probabilities of rows being alone.
        cols: (m,) probabilities of columns being alone.
    """
    total = pairs @ problem.scores - xlogy(pairs, pairs).sum()
    total += xlog1py(1.0 - np.minimum(pairs, 1.0), -np.minimum(pairs, 1.0)).sum()
    for p, weights in ((rows, problem.row_alone), (cols, problem.col_alone)):
        some = p > 0
        total += p[some] @ (weights[some] - np.log(p[some]))
    return float(total)


def scale_to_marginals(
    problem: SparseProblem, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Marginals of pairs, of rows and of columns being alone whose sums are one, by Sinkhorn steps.

    For what is nearly so already: a few steps suffice.
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
