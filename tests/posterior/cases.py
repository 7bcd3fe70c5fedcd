"""Small posteriors of every kind, each beside the table of all its matchings by brute force."""

import itertools
import math

import numpy as np

from permvi.posterior import ExactLaw, Posterior, TabularLaw


def square(rng):
    return {"scores": rng.normal(size=(4, 4))}


def wide(rng):
    return {"scores": rng.normal(size=(3, 5))}


def tall(rng):
    return {"scores": rng.normal(size=(5, 3))}


def partial(rng):
    return {
        "scores": rng.normal(size=(4, 3)),
        "row_unmatched": rng.normal(size=4),
        "col_unmatched": rng.normal(size=3),
    }


def must_match_some(rng):
    """The last column has to be matched, the rows need not be."""
    return {
        "scores": rng.normal(size=(4, 3)),
        "row_unmatched": np.full(4, 1.0),
        "col_unmatched": np.array([0.5, 0.0, -np.inf]),
    }


def masked(rng):
    mask = rng.random((5, 5)) < 0.6
    mask[np.arange(5), rng.permutation(5)] = True
    return {"scores": rng.normal(size=(5, 5)), "mask": mask}


def with_known(rng):
    return {"scores": rng.normal(size=(4, 4)), "known": np.array([-1, 3, -1, -1])}


def certain(rng):
    return {"scores": 2000.0 * np.eye(3)}


def one(rng):
    return {"scores": rng.normal(size=(1, 1))}


def two_sites(rng):
    return {"scores": rng.normal(size=(2, 3, 3)), "known": np.array([[-1, -1, -1], [-1, 0, -1]])}


def two_sites_partial(rng):
    return {
        "scores": rng.normal(size=(2, 2, 3)),
        "mask": np.array([[True, False, True], [True, True, True]]),
        "row_unmatched": -1.0,
        "col_unmatched": rng.normal(size=(2, 3)),
    }


PROBLEMS = {
    f.__name__: f
    for f in (
        square, wide, tall, partial, must_match_some, masked, with_known, certain, one, two_sites,
        two_sites_partial,
    )
}  # fmt: skip
LAWS = ("exact", "tabular", "draws", "weighted")


def table(problem):
    """All matchings (count, n) or (count, sites, n) and their log weights (count,)."""
    scores = problem["scores"]
    if scores.ndim == 2:
        found = _one_site(problem)
        return np.array(list(found)), np.array(list(found.values()))
    sites = [
        _one_site(
            {
                name: value[s] if np.ndim(value) > (name == "mask") + 1 else value
                for name, value in problem.items()
            }
        )
        for s in range(len(scores))
    ]
    pairs = list(itertools.product(*(found.items() for found in sites)))
    perms = np.array([[perm for perm, _ in pair] for pair in pairs])
    return perms, np.array([sum(weight for _, weight in pair) for pair in pairs])


def grounded(perms, probs, shape):
    """Marginals and unmatched probabilities of a table, by their definition."""
    n, m = shape
    flat = perms.reshape(len(perms), -1, n)
    pairs = np.zeros((flat.shape[1], n, m))
    rows = np.zeros((flat.shape[1], n))
    cols = np.zeros((flat.shape[1], m))
    for perm, p in zip(flat, probs, strict=True):
        for s, site in enumerate(perm):
            for i, j in enumerate(site):
                if j < 0:
                    rows[s, i] += p
                else:
                    pairs[s, i, j] += p
            for j in set(range(m)) - set(site.tolist()):
                cols[s, j] += p
    if perms.ndim == 2:
        return pairs[0], rows[0], cols[0]
    return pairs, rows, cols


def make(law, problem, rng, **fields):
    """A posterior of the problem by a kind of law; 'weighted' has all matchings as its draws."""
    scores = problem["scores"]
    if law == "exact":
        return Posterior.from_exact(ExactLaw(**problem), **fields)
    perms, log_weights = table(problem)
    if law == "tabular":
        order = rng.permutation(len(perms))
        solved = TabularLaw(perms[order], log_weights[order], scores.shape[-1])
        return Posterior.from_exact(solved, **fields)
    if law == "weighted":
        return Posterior.from_draws(perms, log_weights, shape=scores.shape[-2:], **fields)
    draws = ExactLaw(**problem).sample(400, rng)
    return Posterior.from_draws(draws, shape=scores.shape[-2:], **fields)


def _one_site(problem):
    scores = problem["scores"]
    n, m = scores.shape
    mask = problem.get("mask", np.ones((n, m), dtype=bool))
    known = problem.get("known", np.full(n, -1))
    rows = np.broadcast_to(problem.get("row_unmatched", 0.0 if n > m else -math.inf), n)
    # An unmatched row leaves a column unused.
    free = m > n or "row_unmatched" in problem
    cols = np.broadcast_to(problem.get("col_unmatched", 0.0 if free else -math.inf), m)
    found = {}
    for perm in itertools.product(range(-1, m), repeat=n):
        used = [j for j in perm if j >= 0]
        if len(set(used)) < len(used):
            continue
        if any(k >= 0 and k != j for j, k in zip(perm, known, strict=True)):
            continue
        if any(j >= 0 and not mask[i, j] for i, j in enumerate(perm)):
            continue
        weight = sum(scores[i, j] if j >= 0 else rows[i] for i, j in enumerate(perm))
        weight += sum(cols[j] for j in range(m) if j not in used)
        if weight > -math.inf:
            found[perm] = weight
    return found
