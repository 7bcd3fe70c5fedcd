"""Do draws cover the posterior? A search around the draws and from random matchings.

The probabilities of rounded draws are not known, only their frequencies. Weights of density over
frequency tell how well the draws follow the density where they are, not what they miss. So a search
that is independent of the fit climbs from random matchings to modes; for linear densities it also
begins at the best matching and at the best of those that share few pairs with it. For other
densities a linear function is fitted to what was evaluated, and its best matching through each pair
is tried: such matchings may differ from the mode by cycles whose parts are all improbable, so that
no climb leads to them. Then the neighbours of the most probable matchings are evaluated, and their
neighbours, until hardly any mass is left on matchings whose neighbours are unknown. Then the set is
*closed*: as far as a search can tell, it holds practically the whole posterior.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from permvi.inference.discrete.warm_start import regression_table
from permvi.inference.map.local_search import Neighbourhood, hill_climb
from permvi.problem.candidates import Candidates, best_matching, far_matchings
from permvi.problem.evaluation import Evaluations, log_densities
from permvi.problem.problem import Problem
from permvi.problem.unmatched import random_matchings

# The most matchings to evaluate beside the draws; fewer if each is a call to the host.
_MAX_EVALUATIONS = 20_000
_MAX_HOST_EVALUATIONS = 5_000
# The share of them that climbs from random matchings may take, and the most climbs.
_CLIMB_SHARE = 0.25
_MAX_CLIMBS = 16
# A matching is tried through each of at most so many pairs, by a linear function that is fitted to
# so many evaluations for each of them.
_MAX_PAIRS = 400
_FITTED_PER_PAIR = 3
# The share of the mass on matchings with unknown neighbours below which a set is closed.
_OPEN_SHARE = 0.02
# Neighbours that are evaluated at once.
_BATCH = 4096
# The count of a matching that was never drawn.
_UNSEEN_COUNT = 0.5


class Coverage(NamedTuple):
    """The comparison of draws with the model.

    ``evidence_gap`` is how far the bound exceeds the sum over the draws alone: zero if the draws
    hold all the mass that was found.
    """

    ess_per_draw: float
    log_evidence_bound: float  # log of the sum of all densities seen
    evidence_gap: float
    mode: np.ndarray  # (n,) or (S, n) the matching of largest density seen
    perms: np.ndarray  # (num, n) or (num, S, n) the distinct matchings seen
    log_densities: np.ndarray  # (num,)
    closed: bool  # whether they hold practically the whole posterior, as far as a search can tell


def examine(problem: Problem, draws: np.ndarray, max_evaluations: int | None = None) -> Coverage:
    """Compare draws (num, n) or (num, S, n) of a problem without latents with its density.

    All draws are evaluated, and at most ``max_evaluations`` other matchings.
    """
    drawn, counts = np.unique(draws.astype(np.int64), axis=0, return_counts=True)
    limit = _MAX_EVALUATIONS if problem.traceable else _MAX_HOST_EVALUATIONS
    limit = limit if max_evaluations is None else min(limit, max_evaluations)
    memory = Evaluations(partial(log_densities, problem), problem.shape[1], limit + len(drawn))
    places = memory.find(drawn)
    hood = _neighbourhood(problem)
    if problem.scores is not None:
        memory.find(far_matchings(problem))
    if hood.num_swaps * hood.num_sites <= limit // 4:
        _climb(problem, memory, hood, int(_CLIMB_SHARE * limit))
    if problem.scores is None:
        memory.find(_through_each_pair(problem, memory))
    closed = _close(memory, hood)
    log_p = memory.values
    frequencies = np.full(len(log_p), _UNSEEN_COUNT)
    frequencies[places] = counts
    bound, of_draws = (float(np.logaddexp.reduce(part)) for part in (log_p, log_p[places]))
    return Coverage(
        ess_per_draw(log_p, frequencies / len(draws)),
        bound,
        bound - of_draws if of_draws > -np.inf else np.inf,
        memory.best,
        memory.matchings,
        log_p,
        closed,
    )


def ess_per_draw(log_p: np.ndarray, frequencies: np.ndarray) -> float:
    r"""Return the effective sample size per draw of matchings weighted by density over frequency.

    :math:`(\sum_u p_u)^2 / \sum_u p_u^2 / \hat q_u` over distinct matchings (num,): near one if
    the frequencies :math:`\hat q` are proportional to the densities p, small if some matchings are
    much too rare.
    """
    largest = log_p.max()
    if largest == -np.inf:
        return 0.0
    p = np.exp(log_p - largest)
    return min(1.0, float(p.sum() ** 2 / (p**2 / frequencies).sum()))


def _neighbourhood(problem: Problem) -> Neighbourhood:
    return Neighbourhood(problem.table_mask, partial=problem.is_partial)


def _climb(problem: Problem, memory: Evaluations, hood: Neighbourhood, budget: int) -> None:
    """Climb from random matchings; the memory keeps all that is evaluated."""
    num_rows = hood.num_sites * hood.num_rows
    num = min(_MAX_CLIMBS, budget // max(1, hood.num_swaps * num_rows))
    if num == 0:
        return
    rng = np.random.default_rng(0)
    starts = random_matchings(num, problem, rng)
    kept, memory.left = memory.left, min(memory.left, budget)
    granted = memory.left
    hill_climb(memory, starts, hood)
    memory.left += kept - granted


def _through_each_pair(problem: Problem, memory: Evaluations) -> np.ndarray:
    r"""Return the best matchings through each allowed pair, by a linear function, (num, ...).

    The function is fitted to matchings that were evaluated: half of them are the most probable ones
    and the others are spread over the rest. A pair is forced by a bonus that exceeds all that other
    pairs could gain; pairs that no matching has give the best matching of all. Nothing is tried if
    the problem is large or partial, or if fewer values are known than the function has unknowns.
    """
    S, (n, m) = problem.num_sites, problem.shape
    order = np.argsort(-memory.values, kind="stable")
    order = order[memory.values[order] > -np.inf]
    if problem.is_partial or S * n * m > min(_MAX_PAIRS, len(order)):
        return memory.matchings[:0]
    num = min(len(order), _FITTED_PER_PAIR * S * n * m)
    rest = np.linspace(num // 2, len(order) - 1, num - num // 2).astype(np.int64)
    chosen = np.unique(np.concatenate([np.arange(num // 2), rest]))
    perms = memory.matchings[order[chosen]].reshape(-1, S, n)
    tables = regression_table(perms, memory.values[order[chosen]], m)
    best = memory.best.reshape(S, n)
    allowed = np.broadcast_to(problem.table_mask, (S, n, m))
    found = []
    for s, (table, mask) in enumerate(zip(tables, allowed, strict=True)):
        bonus = 1.0 + 2 * n * np.ptp(table)
        for i, j in np.argwhere(mask):
            forced = table.copy()
            forced[i, j] += bonus
            perm = best.copy()
            perm[s] = best_matching(Candidates.from_table(forced, mask))
            found.append(perm)
    return np.unique(found, axis=0).reshape(-1, *problem.layout.event_shape)


def _close(memory: Evaluations, hood: Neighbourhood) -> bool:
    """Evaluate neighbours of the most probable matchings until the others hold hardly any mass."""
    known = np.zeros(0, bool)
    together = max(1, _BATCH // max(1, hood.num_swaps * hood.num_sites))
    while True:
        values = memory.values
        known = np.pad(known, (0, len(values) - len(known)))
        largest = values.max()
        if largest == -np.inf:
            return False
        p = np.exp(values - largest)
        unknown = np.where(known, 0.0, p)
        if unknown.sum() <= _OPEN_SHARE * p.sum():
            return True
        if memory.left <= 0 or hood.num_swaps > memory.left:
            return False
        best = np.argsort(-unknown, kind="stable")[:together]
        best = best[unknown[best] > 0]
        perms = memory.matchings[best].reshape(len(best), hood.num_sites, hood.num_rows)
        padded = hood.padded(perms)
        for site in range(hood.num_sites):
            memory.find(hood.plain(hood.around(padded, site)[0]))
        known[best] = True
