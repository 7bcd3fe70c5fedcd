r"""Bounds on a permanent from any doubly stochastic matrix, on the host in float64.

With :math:`A = e^S` and doubly stochastic P, let

.. math:: H(P) = \sum_{ij} P_{ij} (S_{ij} - \log P_{ij}).

Its maximum over P is the log capacity of A, attained by the Sinkhorn scaling of A, and

* :math:`\log \mathrm{per}\, A \le \max_P H(P)`, since the permanent of a doubly stochastic matrix
  is at most one;
* :math:`\log \mathrm{per}\, A \ge H(P) + \log c` with :math:`c = n!/n^n` (van der Waerden's
  conjecture; Egorychev 1981, Falikman 1981), and a larger c where columns have few entries
  (Gurvits 2008);
* :math:`\log \mathrm{per}\, A \ge H(P) + \sum_{ij} (1 - P_{ij}) \log (1 - P_{ij})`, minus the Bethe
  free energy of P (Schrijver 1998; Gurvits 2011), whose largest value over P is at most
  :math:`\frac n2 \log 2` too small (Anari and Rezaei 2019).

Both lower bounds hold for *every* doubly stochastic P: an iteration that stopped early makes them
worse, never wrong.
"""

import numpy as np
from scipy.special import xlog1py, xlogy


def log_capacity(scores: np.ndarray, P: np.ndarray) -> float:
    """``H(P)``: the log capacity of exp(scores) where P is its Sinkhorn scaling, else less.

    Args:
        scores: (n, n) log weights, -inf where a pair is forbidden.
        P: (n, n) doubly stochastic, zero there.
    """
    used = P > 0
    return float(P[used] @ scores[used] - xlogy(P, P).sum())


def log_bethe(scores: np.ndarray, P: np.ndarray) -> float:
    """Minus the Bethe free energy of P, a lower bound on the log permanent of exp(scores).

    Args:
        scores: (n, n) log weights, -inf where a pair is forbidden.
        P: (n, n) doubly stochastic, zero there.
    """
    rest = np.clip(1.0 - P, 0.0, 1.0)
    return log_capacity(scores, P) + float(xlog1py(rest, -np.minimum(P, 1.0)).sum())


def log_permanent_floor(support: np.ndarray) -> float:
    r"""A lower bound on the log permanent of any doubly stochastic matrix with this support.

    :math:`\sum_k \log g(\min(k, c_k))` with :math:`g(k) = (1 - 1/k)^{k-1}` and
    :math:`c_1 \ge c_2 \ge \dots` the numbers of entries in the columns, or in the rows if that is
    more (Gurvits 2008). For full columns it is :math:`\log n!/n^n`.

    Args:
        support: (n, n) booleans.
    """
    places = np.arange(1, len(support) + 1)
    totals = []
    for axis in (0, 1):
        counts = np.sort(support.sum(axis=axis))[::-1]
        k = np.minimum(places, counts)
        totals.append(xlog1py(k - 1, -1.0 / np.maximum(k, 1)).sum())
    return float(max(totals))
