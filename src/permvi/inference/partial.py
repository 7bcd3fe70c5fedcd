"""Partial matchings as one table for each site: pairs, and rows and columns that stay unmatched."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from permvi._assignment.duality import best_matching
from permvi.inference.exact.problem import LogWeights, build_weights
from permvi.inference.problem import Problem


def is_partial(problem: Problem) -> bool:
    """Whether rows or columns may stay unmatched beyond a surplus."""
    return problem.row_unmatched is not None or problem.col_unmatched is not None


def grounded(problem: Problem) -> np.ndarray:
    """(S, n+1, m+1) log weights, -inf where not allowed; see `permvi.inference.exact.problem`.

    Pairs weigh zero where the density is not linear.
    """
    names = ("scores", "mask", "row_unmatched", "col_unmatched")
    given = {name: getattr(problem, name) for name in names}
    if given["scores"] is None:
        given["scores"] = np.zeros(problem.shape)
    return tables_by_site(given, problem.num_sites)


def tables_by_site(arguments: Mapping[str, Any], num_sites: int) -> np.ndarray:
    """(S, n+1, m+1) the grounded log weights of what `solve_exact` takes for one site.

    Args:
        arguments: Arrays with an axis of sites in front or without, None where there is nothing;
            "scores" are always there.
        num_sites: S.
    """
    n, m = np.shape(arguments["scores"])[-2:]
    events = {"row_unmatched": (n,), "col_unmatched": (m,), "known": (n,)}
    full = {
        name: np.broadcast_to(np.asarray(array), (num_sites, *events.get(name, (n, m))))
        for name, array in arguments.items()
        if array is not None
    }
    sites = ({name: array[s] for name, array in full.items()} for s in range(num_sites))
    return np.stack([build_weights(**site).table for site in sites])


def feasible(problem: Problem, perms: np.ndarray) -> np.ndarray:
    """(num,) whether matchings (num, n) or (num, S, n) leave only unmatched what may be."""
    tables = grounded(problem)
    sites = perms.reshape(len(perms), *tables.shape[:1], -1)
    total = sum(LogWeights(table).of(sites[:, s]) for s, table in enumerate(tables))
    return np.isfinite(total)


def complete(tables: np.ndarray) -> np.ndarray:
    r"""Grounded log weights (..., n+1, m+1) as squares (..., n+m, n+m) of permutations.

    With log weights S of pairs and r, c of rows and columns that stay unmatched,

    .. math:: \begin{pmatrix} S & \mathrm{diag}(r) \\ 1 c^T & 0 \end{pmatrix}

    and -inf off the diagonal of its upper right block. Row i has a column of its own for being
    unmatched, and the m rows below are all alike: whatever the n rows do, these take the m columns
    that are left in any order. So every partial matching belongs to exactly m! permutations of its
    own weight. (Were the rows below bound to one column each, a matching of k pairs would belong to
    k! permutations, and long matchings would gain by it.)
    """
    n, m = tables.shape[-2] - 1, tables.shape[-1] - 1
    squares = np.full((*tables.shape[:-2], n + m, n + m), -np.inf)
    squares[..., :n, :m] = tables[..., :n, :m]
    squares[..., np.arange(n), m + np.arange(n)] = tables[..., :n, m]
    squares[..., n:, :m] = tables[..., n:, :m]
    squares[..., n:, m:] = 0.0
    return squares


def best_matchings(tables: np.ndarray) -> np.ndarray:
    """(..., n) the matchings of largest weight under grounded tables (..., n+1, m+1), -1 for alone.

    Raises:
        ValueError: There is none.
    """
    flat = tables.reshape(-1, *tables.shape[-2:])
    found = [best_matching(table) for table in flat]
    if any(perm is None for perm in found):
        raise ValueError("mask and unmatched weights must leave a feasible matching, got none.")
    return np.array(found).reshape(*tables.shape[:-2], -1)


def random_matchings(num: int, problem: Problem, rng: np.random.Generator) -> np.ndarray:
    """(num, n) or (num, S, n) partial matchings: the best ones under random weights."""
    allowed = np.isfinite(grounded(problem))
    tables = np.where(allowed, rng.gumbel(size=(num, *allowed.shape)), -np.inf)
    tables[..., -1, -1] = 0.0
    perms = best_matchings(tables)
    return perms[:, 0] if problem.num_sites == 1 else perms
