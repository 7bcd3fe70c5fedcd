"""Where chains start: random feasible matchings, all different if there are enough."""

import jax
import numpy as np

from permvi import assignment
from permvi.inference.mcmc.space import MatchingSpace


def random_matchings(space: MatchingSpace, rng_key: jax.Array, num: int) -> np.ndarray:
    """(num, S, n) matchings of largest random score, distinct where they can easily be.

    Every feasible matching is the best for some scores, so all of them can come up.

    Raises:
        ValueError: There is no feasible matching.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)))
    sites = [_site(space, s) for s in range(len(space.allowed))]
    # Twice as many as needed, so that repeats can be left out.
    drawn = np.stack([_best_of_random_scores(site, 2 * num, rng) for site in sites], axis=1)
    _, first = np.unique(drawn.reshape(2 * num, -1), axis=0, return_index=True)
    repeats = np.setdiff1d(np.arange(2 * num), first)
    return drawn[np.concatenate([np.sort(first), repeats])[:num]]


def best_matching(space: MatchingSpace, scores: np.ndarray) -> np.ndarray:
    """(S, n) the matching of largest total score (S, n, m), unmatched rows and columns included."""
    found = []
    for s, table in enumerate(scores):
        site = _site(space, s)
        rows = np.zeros(len(table)) if site.row_weights is None else site.row_weights
        cols = np.zeros(space.num_cols) if site.col_weights is None else site.col_weights
        found.append(_solve(site, table[None], np.asarray(rows)[None], np.asarray(cols)[None])[0])
    return np.stack(found)


def _site(space: MatchingSpace, index: int) -> MatchingSpace:
    """The tables of one site, in NumPy."""
    return jax.tree.map(lambda table: np.asarray(table)[index], space)


def _best_of_random_scores(site: MatchingSpace, num: int, rng: np.random.Generator) -> np.ndarray:
    n, m = site.allowed.shape[0], site.num_cols
    return _solve(site, rng.random((num, n, m)), rng.random((num, n)), rng.random((num, m)))


def _solve(
    site: MatchingSpace, pairs: np.ndarray, rows: np.ndarray, cols: np.ndarray
) -> np.ndarray:
    """(num, n) best matchings of one site by scores of pairs, unmatched rows and free columns.

    Every row gets a column of its own for staying unmatched, and every column such a row; what they
    do among themselves does not matter.
    """
    num, n, m = pairs.shape
    scores = np.zeros((num, n + m, m + n))
    allowed = np.zeros((n + m, m + n), bool)
    allowed[:n, :m] = site.allowed[:, :m]
    allowed[n:, m:] = True
    i, j = np.arange(n), np.arange(m)
    allowed[i, m + i], allowed[n + j, j] = site.allowed[:, m], site.may_be_free[:m]
    scores[:, :n, :m], scores[:, i, m + i], scores[:, n + j, j] = pairs, rows, cols
    scores = np.where(allowed, scores, 0.0)
    found = np.asarray(assignment.solve(scores, allowed, backend="host"))[:, :n]
    return np.where(found < m, found, -1).astype(np.int64)
