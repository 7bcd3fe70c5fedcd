r"""From draws of q to the posterior: distinct matchings weighted by density over inclusion.

Frequencies of draws carry counting noise although the density of every drawn matching is known. So
each distinct matching x counts once, with weight :math:`p(x) / \pi(x)`, where :math:`\pi` is the
probability that x is drawn (Horvitz and Thompson 1952): the sum of weights is an unbiased estimate
of the evidence. Matchings evaluated before the draws, in training, count as certain to be included;
the estimate stays unbiased.
"""

from typing import NamedTuple

import numpy as np

from permvi._programmes import light_jit
from permvi.inference.discrete.family import Family, log_prob_many
from permvi.inference.map.local_search import local_search
from permvi.problem.candidates import far_matchings
from permvi.problem.evaluation import Evaluations, as_perms, filled
from permvi.problem.problem import Problem
from permvi.problem.unmatched import feasible


class Corrected(NamedTuple):
    """A weighted set of matchings.

    Attributes:
        perms: (num, n) or (num, S, n).
        log_weights: (num,) log p / pi.
        log_evidence: Log of their sum (of their mean for plain importance sampling).
        log_evidence_se: Its standard error.
        ess_per_draw: Effective sample size of independent draws of q, per draw.
        variances: (num,) contributions to the variance of weighted means, relative to the squared
            sum of weights.
        log_densities: (num,) log p.
        log_q: (num,) log probabilities under the family, or None.
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
    r"""Return the log of :math:`1 - (1 - q)^n`, the probability to be among n draws."""
    q = np.exp(np.minimum(log_q, -1e-300))
    expected = log_q + np.log(num_draws)
    with np.errstate(divide="ignore"):
        found = np.log(-np.expm1(num_draws * np.log1p(-q)))
    # Rare matchings are drawn at most once, also if q itself underflows.
    return np.where(expected < -40.0, expected, found)


def horvitz_thompson(
    perms: np.ndarray, log_p: np.ndarray, log_inclusion: np.ndarray, ess_per_draw: float
) -> Corrected:
    r"""Weight distinct matchings by density over inclusion probability.

    The variance takes inclusions as independent, :math:`\sum_x (1 - \pi) (p / \pi)^2`. They are
    negatively correlated, so this is an upper bound.

    Args:
        perms: (num, n) or (num, S, n) distinct matchings.
        log_p: (num,) log densities.
        log_inclusion: (num,) log pi, 0 for matchings that are certain to be included.
        ess_per_draw: See `effective_share`.
    """
    log_weights = log_p - log_inclusion
    log_evidence = _log_sum(log_weights)
    shares = np.exp(log_weights - log_evidence)
    variances = -np.expm1(log_inclusion) * shares**2
    error = float(np.sqrt(variances.sum()))
    return Corrected(perms, log_weights, log_evidence, error, ess_per_draw, variances, log_p)


def effective_share(log_p: np.ndarray, log_q: np.ndarray, log_inclusion: np.ndarray) -> float:
    r"""Return the effective sample size per independent draw of q, from distinct draws.

    :math:`E_q[p/q]^2 / E_q[(p/q)^2]`, both as sums over matchings that inclusion probabilities
    estimate.
    """
    first = _log_sum(log_p - log_inclusion)
    second = _log_sum(2 * log_p - log_q - log_inclusion)
    return 0.0 if first == -np.inf else min(1.0, float(np.exp(2 * first - second)))


def self_normalised(perms: np.ndarray, log_p: np.ndarray, log_q: np.ndarray) -> Corrected:
    """Weight independent draws, repeats included, by importance weights p / q."""
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
    r"""Return the expected total variation (n,) or (S, n) of a row's marginals due to sampling.

    The linearised variance of a weighted frequency p is :math:`\sum_x v_x (1[x] - p)^2`. The mean
    size of a normal error of sd s is :math:`s \sqrt{2 / \pi}`; total variation is half the sum.
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


# A matching is missed if the family gives it this many times less probability than the posterior.
_MISSED_FACTOR = 50.0


def search_modes(
    problem: Problem, seen: Evaluations, random_choices: np.ndarray, max_evaluations: int
) -> np.ndarray:
    """Climb from random matchings, from the best one seen, and to modes that lie far apart.

    Args:
        problem: The problem.
        seen: The matchings evaluated so far, to which those of the climb are added.
        random_choices: (num, S, n) starts, as many as the budget suffices for.
        max_evaluations: The budget.

    Returns:
        (num, S, n) choices that the climb has seen.
    """
    (n, m), S = problem.shape, problem.num_sites
    event = (n,) if S == 1 else (S, n)
    mask = True if problem.mask is None else np.asarray(problem.mask)
    allowed = np.broadcast_to(mask, (n, m) if S == 1 else (S, n, m))
    partial = problem.is_partial
    best = seen.best[None] if len(seen) else random_choices[:1]
    # A climb takes about a step for each row, and a step evaluates all swaps.
    swaps = S * n * (max(n, m) - 1) // 2
    num_climbs = max_evaluations // max(1, swaps * S * n)
    starts = np.asarray(as_perms(np.concatenate([best, random_choices[:num_climbs]]), problem))
    if problem.scores is not None:
        starts = np.concatenate([far_matchings(problem), starts])

    def log_densities(perms: np.ndarray) -> np.ndarray:
        # Climbs do not know that some rows or columns must be matched.
        possible = feasible(problem, perms) if partial else np.ones(len(perms), bool)
        values = np.full(len(perms), -np.inf)
        if possible.any():
            choices = np.where(perms[possible] < 0, m, perms[possible])
            values[possible] = seen.look_up(choices.reshape(-1, S, n))
        return values

    found, values = local_search(
        log_densities, starts.reshape(-1, *event), allowed, max_evaluations, partial=partial
    )
    found = found[values > -np.inf]
    return np.where(found < 0, m, found).reshape(-1, S, n)


def missed_mass(family: Family, seen: Evaluations, found: np.ndarray, weighted: Corrected) -> float:
    """Return the posterior mass found where the family has hardly any probability."""
    if len(found) == 0:
        return 0.0
    log_p = seen.look_up(found) - weighted.log_evidence
    matter = log_p > np.log(1e-6)
    if not matter.any():
        return 0.0
    log_q = log_probs(family, found[matter])
    missed = log_q < log_p[matter] - np.log(_MISSED_FACTOR)
    return float(np.exp(log_p[matter][missed]).sum())


def log_probs(family: Family, choices: np.ndarray) -> np.ndarray:
    """Return exact log probabilities (num,) of choices (num, S, n), in float64 on the host."""
    padded = filled(choices, max(1024, 1 << (len(choices) - 1).bit_length()))
    return np.asarray(_log_prob_many(family, padded), np.float64)[: len(choices)]


_log_prob_many = light_jit(log_prob_many)
