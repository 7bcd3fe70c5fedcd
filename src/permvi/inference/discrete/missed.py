"""Modes that a family has missed: looked for by hill climbing, which knows nothing of the family.

Weights compare a family with the density where the family has been, and say nothing of where it has
not. A climb from random matchings ends on modes of the density; where the family has hardly any
probability on what the climb has seen, it misses at least that much of the posterior.
"""

import jax
import numpy as np

from permvi.inference.discrete.correction import Corrected
from permvi.inference.discrete.density import as_perms
from permvi.inference.discrete.family import Family, log_prob_many
from permvi.inference.discrete.seen import Seen
from permvi.inference.map.hill_climbing import local_search
from permvi.inference.partial import feasible, is_partial
from permvi.inference.problem import Problem

# A matching is missed if the family gives it this much less than the posterior does.
_MISSED_FACTOR = 50.0


def search_modes(
    problem: Problem, seen: Seen, random_choices: np.ndarray, max_evaluations: int
) -> np.ndarray | None:
    """Climb from random matchings and from the best one seen; everything evaluated is kept.

    Args:
        problem: The problem.
        seen: What was evaluated so far, and this is added to.
        random_choices: (num, S, n) where to start, as far as the evaluations suffice.
        max_evaluations: How many there are.

    Returns:
        (num, S, n) choices that the climb has seen, None if it was given no evaluations.
    """
    if max_evaluations < 1:
        return None
    (n, m), S = problem.shape, problem.num_sites
    event = (n,) if S == 1 else (S, n)
    mask = True if problem.mask is None else np.asarray(problem.mask)
    allowed = np.broadcast_to(mask, (n, m) if S == 1 else (S, n, m))
    partial = is_partial(problem)
    best = seen.choices[[np.argmax(seen.values)]] if len(seen) else random_choices[:1]
    # A climb takes about a step for each row, and a step looks at all swaps.
    swaps = S * n * (max(n, m) - 1) // 2
    num_climbs = max_evaluations // max(1, swaps * S * n)
    starts = np.asarray(as_perms(np.concatenate([best, random_choices[:num_climbs]]), problem))

    def log_densities(perms: np.ndarray) -> np.ndarray:
        # One side may have to be matched although the other may not; climbs do not know which.
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


def missed_mass(family: Family, seen: Seen, found: np.ndarray, weighted: Corrected) -> float:
    """The posterior mass of what was found where the family has hardly any probability."""
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
    """(num, S, n) choices -> (num,) exact log probabilities, in float64 on the host."""
    # Few sizes, since each one is compiled anew.
    size = max(1024, 1 << (len(choices) - 1).bit_length())
    padded = np.concatenate([choices, np.repeat(choices[:1], size - len(choices), axis=0)])
    return np.asarray(_log_prob_many(family, padded), np.float64)[: len(choices)]


_log_prob_many = jax.jit(log_prob_many)
