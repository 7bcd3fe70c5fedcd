"""Do draws cover the posterior? A look at the draws and at what lies around them.

The probabilities of rounded draws are not known, only their frequencies. Weights of density over
frequency tell how well the draws follow the density where they are, and nothing of what they miss.
So the neighbours of the most frequent draws are looked at as well: a family that has collapsed onto
one permutation of several is found out by the mass beside it.
"""

from typing import NamedTuple

import numpy as np

from permvi._methods.density import log_densities
from permvi.inference.problem import Problem

# How many neighbours are looked at, at most, unless one draw alone has more.
_MAX_NEIGHBOURS = 20_000
# What a neighbour that was never drawn counts as, in draws.
_UNSEEN_COUNT = 0.5


class Coverage(NamedTuple):
    """What a comparison of draws with the model found.

    Attributes:
        ess_per_draw: Effective sample size per draw.
        log_evidence_bound: Log of the sum of all densities seen, which the evidence exceeds.
        evidence_gap: How much of that the neighbours add to the draws' own sum: zero if the draws
            hold all the mass there is around them.
        mode: (n,) or (S, n) the matching of largest density seen.
        perms: (num, n) or (num, S, n) the distinct matchings seen, draws and neighbours.
        log_densities: (num,) theirs.
    """

    ess_per_draw: float
    log_evidence_bound: float
    evidence_gap: float
    mode: np.ndarray
    perms: np.ndarray
    log_densities: np.ndarray


def examine(problem: Problem, draws: np.ndarray) -> Coverage:
    """Compare draws (num, n) or (num, S, n) of a problem without latents with its density."""
    perms, counts = np.unique(draws, axis=0, return_counts=True)
    around = neighbours(problem, perms[np.argsort(-counts, kind="stable")])
    both = np.concatenate([perms, around])
    seen, first = np.unique(both, axis=0, return_index=True)
    drawn = first < len(perms)
    frequencies = np.full(len(seen), _UNSEEN_COUNT)
    frequencies[drawn] = counts[first[drawn]]
    log_p = log_densities(problem, seen)
    bound, of_draws = (float(np.logaddexp.reduce(part)) for part in (log_p, log_p[drawn]))
    return Coverage(
        ess_per_draw(log_p, frequencies / len(draws)),
        bound,
        bound - of_draws if of_draws > -np.inf else np.inf,
        seen[np.argmax(log_p)],
        seen,
        log_p,
    )


def ess_per_draw(log_p: np.ndarray, frequencies: np.ndarray) -> float:
    r"""Effective sample size per draw of distinct matchings weighted by density over frequency.

    :math:`(\sum_u p_u)^2 / \sum_u p_u^2 / \hat q_u`, near one if the frequencies :math:`\hat q`
    are proportional to the densities p, and small if some matchings are much too rare.

    Args:
        log_p: (num,) log densities of distinct matchings.
        frequencies: (num,) how often each was drawn, per draw.
    """
    largest = log_p.max()
    if largest == -np.inf:
        return 0.0
    p = np.exp(log_p - largest)
    return min(1.0, float(p.sum() ** 2 / (p**2 / frequencies).sum()))


def neighbours(problem: Problem, perms: np.ndarray) -> np.ndarray:
    """Matchings that differ from the first of ``perms`` in one site by a swap or a free column.

    Args:
        problem: For its shape and mask.
        perms: (num, n) or (num, S, n), the most important first.

    Returns:
        (count, n) or (count, S, n) allowed matchings, with repeats.
    """
    (n, m), S = problem.shape, problem.num_sites
    size = max(n, m)
    # Free columns belong to rows beyond the last, so that all changes are swaps.
    i, k = np.triu_indices(size, 1)
    i, k = i[i < n], k[i < n]
    if len(i) == 0:
        return perms[:0]
    bases = perms[: max(1, _MAX_NEIGHBOURS // (S * len(i)))].reshape(-1, S, n)
    padded = np.stack([[_complete(site, size, m) for site in base] for base in bases])
    found = []
    for s in range(S):
        swapped = np.repeat(padded[:, None], len(i), axis=1)
        pair = np.arange(len(i))
        swapped[:, pair, s, i] = padded[:, s, k]
        swapped[:, pair, s, k] = padded[:, s, i]
        found.append(swapped.reshape(-1, S, size)[..., :n])
    columns = np.concatenate(found)
    columns = np.where(columns < m, columns, -1)
    if problem.mask is not None:
        columns = columns[_allowed(np.asarray(problem.mask), columns)]
    return columns.reshape(-1, *perms.shape[1:])


def _complete(perm: np.ndarray, size: int, num_cols: int) -> np.ndarray:
    """A matching as a permutation of ``size``: numbers from ``num_cols`` on mean unmatched."""
    full = np.full(size, -1)
    full[: len(perm)] = perm
    unused = np.setdiff1d(np.arange(num_cols), perm)
    spare = np.arange(num_cols, size)
    rows = np.flatnonzero(full < 0)
    # Given rows that are unmatched stay so; rows beyond the last take the unused columns.
    given, beyond = rows[rows < len(perm)], rows[rows >= len(perm)]
    full[given], full[beyond] = spare[: len(given)], unused[: len(beyond)]
    return full


def _allowed(mask: np.ndarray, perms: np.ndarray) -> np.ndarray:
    """(num,) whether the mask allows matchings (num, S, n)."""
    table = np.broadcast_to(mask, (perms.shape[1], *mask.shape[-2:]))
    sites, rows = np.ogrid[: perms.shape[1], : perms.shape[2]]
    chosen = table[sites, rows, np.maximum(perms, 0)] | (perms < 0)
    return chosen.all(axis=(1, 2))
