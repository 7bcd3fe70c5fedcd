"""Small linear problems of every kind as lists of candidates, and what is true of them."""

import math

import exact_cases
import numpy as np
from exact_oracle import brute_force, summarise
from scipy.special import logsumexp

from permvi.inference.exact import solve_exact
from permvi.inference.linear import Candidates
from permvi.inference.linear.gauge import scale
from permvi.problem.candidates import best_matching, split, used_pairs

# Each takes a generator, a size and a scale of the scores.
KINDS = {
    "square": lambda rng, n, s: exact_cases.dense(rng, n, n, scale=s),
    "masked": lambda rng, n, s: exact_cases.masked(rng, n, n, density=0.7, scale=s),
    "wide": lambda rng, n, s: exact_cases.masked(rng, n - 1, n, density=0.8, scale=s),
    "tall": lambda rng, n, s: exact_cases.masked(rng, n, n - 2, density=0.8, scale=s),
    "partial": lambda rng, n, s: exact_cases.partial(rng, n, n, density=0.7, scale=s),
    "oblong": lambda rng, n, s: exact_cases.partial(rng, n - 1, n, scale=s),
    "rows": lambda rng, n, s: exact_cases.partial(rng, n, n - 1, "rows", density=0.7, scale=s),
    "cols": lambda rng, n, s: exact_cases.partial(rng, n - 1, n, "cols", density=0.7, scale=s),
    "mixed": lambda rng, n, s: mixed(rng, n, s),
}


def mixed(rng, n, s):
    """Some rows and some columns have to be matched, the others need not."""
    given = exact_cases.partial(rng, n, n, scale=s)
    given["row_unmatched"][: n // 3] = -np.inf
    given["col_unmatched"][: n // 2] = -np.inf
    return given


def candidates(given):
    """The candidates that some matching uses, of the arguments of ``solve_exact``."""
    arguments = {**given, "scores": np.nan_to_num(given["scores"])}
    problem = Candidates.from_table(**arguments)
    used = np.flatnonzero(used_pairs(problem, best_matching(problem)))
    n, m = problem.shape
    return problem.part(np.arange(n), np.arange(m), used)


def parts(problem):
    """The connected parts that have pairs, which together with lone items are the problem."""
    found = split(problem, np.ones(len(problem.rows), bool))
    return [problem.part(*part) for part in found if len(part.pairs)]


def gauge_of(problem):
    return scale(problem, best_matching(problem))


def enumerate_law(problem):
    """A dict from all matchings to their log weights."""
    table = problem.table()
    return brute_force(table, table > -np.inf, None, problem.row_alone, problem.col_alone)


def exact_law(problem):
    """The log evidence and the probabilities of pairs, unmatched rows and unused columns."""
    n, m = problem.shape
    log_evidence, table, _, _ = summarise(enumerate_law(problem), (n, m))
    return log_evidence, table[problem.rows, problem.cols], table[:n, m], table[n, :m]


def log_evidence(problem, kept=slice(None)):
    """The log evidence by the subset programme, with some of the pairs only."""
    table = np.full(problem.shape, -np.inf)
    table[problem.rows[kept], problem.cols[kept]] = problem.scores[kept]
    alone = {"row_unmatched": problem.row_alone, "col_unmatched": problem.col_alone}
    return solve_exact(table, **alone).log_evidence


def with_fugacity(gauge, fugacity):
    """The problem in its gauge, in which all may stay alone at weights plus the fugacity."""
    problem = gauge.problem
    with np.errstate(divide="ignore"):
        return Candidates(
            problem.rows,
            problem.cols,
            np.log(gauge.weights),
            np.log(gauge.row_alone + fugacity),
            np.log(gauge.col_alone + fugacity),
        )


def cycle(n, ratio, score=12.0):
    """Two far modes whose masses have this ratio: scores on the diagonal and beside it."""
    other = score - math.log(ratio) / n
    return score * np.eye(n) + other * np.roll(np.eye(n), 1, axis=1), (score, other)


def cycle_truth(n, scores):
    r"""The log evidence and the probability of a pair on the diagonal.

    The weights are :math:`J + A` with :math:`J_{ij} = 1` and A on a cycle of 2n edges, so their
    permanent is :math:`\sum_k m_k (n - k)!` with the weights :math:`m_k` of the k-matchings of the
    cycle: the trace of a product of transfer matrices of polynomials.
    """

    def log_total(*log_weights):
        weights = [math.expm1(s) for s in log_weights]
        total = np.zeros(n + 1)
        for start in range(2):
            # Polynomials by whether the last edge was used; ``start`` is whether the first one is.
            state = [np.zeros(n + 1), np.zeros(n + 1)]
            state[start][start] = weights[0] if start else 1.0
            for edge in range(1, 2 * n):
                shifted = np.append(0.0, state[0][:-1]) * weights[edge % 2]
                state = [state[0] + state[1], shifted]
            total += state[0] if start else state[0] + state[1]
        factorials = [math.lgamma(n - k + 1) for k in range(n + 1)]
        return logsumexp(np.log(total) + factorials)

    s, other = scores
    slope = (log_total(s + 1e-4, other) - log_total(s - 1e-4, other)) / 2e-4
    return log_total(s, other), slope / n
