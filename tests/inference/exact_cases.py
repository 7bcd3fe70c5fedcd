"""Small linear matching problems of every kind, as keyword arguments of ``solve_exact``."""

import numpy as np


def permutation_mask(rng, n, m, density):
    """A random mask that one random matching of the shorter side keeps feasible."""
    mask = rng.random((n, m)) < density
    size = min(n, m)
    mask[rng.permutation(n)[:size], rng.permutation(m)[:size]] = True
    return mask


def dense(rng, n, m, scale=2.0):
    return {"scores": scale * rng.normal(size=(n, m))}


def masked(rng, n, m, density=0.5, scale=2.0):
    mask = permutation_mask(rng, n, m, density)
    # What the mask forbids is never looked at.
    return {"scores": np.where(mask, scale * rng.normal(size=(n, m)), np.nan), "mask": mask}


def with_known(rng, n):
    known = np.full(n, -1)
    rows = rng.permutation(n)[: n // 3]
    known[rows] = rng.permutation(n)[: len(rows)]
    return {**dense(rng, n, n), "known": known}


def partial(rng, n, m, sides="both", density=1.0, scale=2.0):
    mask = rng.random((n, m)) < density
    if sides != "both":
        mask |= permutation_mask(rng, n, m, 0.0)
    problem = {"scores": scale * rng.normal(size=(n, m)), "mask": mask}
    if sides in ("both", "rows"):
        problem["row_unmatched"] = scale * rng.normal(size=n)
    if sides in ("both", "cols"):
        problem["col_unmatched"] = scale * rng.normal(size=m)
    return problem


def mixed(rng, n, m):
    """Some rows and some columns have to be matched, the others need not."""
    problem = partial(rng, n, m)
    problem["row_unmatched"][: n // 3] = -np.inf
    problem["col_unmatched"][: m // 2] = -np.inf
    return problem


CASES = {
    "one": lambda rng: dense(rng, 1, 1),
    "two": lambda rng: dense(rng, 2, 2),
    "dense-5": lambda rng: dense(rng, 5, 5),
    "dense-8": lambda rng: dense(rng, 8, 8),
    "scale-1e3": lambda rng: dense(rng, 7, 7, scale=1e3),
    "scale-1e3-offset": lambda rng: {"scores": 1e3 + 1e3 * rng.normal(size=(6, 6))},
    "scale-1e3-ties": lambda rng: {"scores": 1e3 * rng.integers(0, 3, size=(6, 6))},
    "constant": lambda rng: {"scores": np.full((6, 6), -1e3)},
    "masked-8": lambda rng: masked(rng, 8, 8),
    "masked-sparse-8": lambda rng: masked(rng, 8, 8, density=0.15),
    "masked-1e3": lambda rng: masked(rng, 7, 7, scale=1e3),
    "minus-inf": lambda rng: {
        "scores": np.where(permutation_mask(rng, 6, 6, 0.5), rng.normal(size=(6, 6)), -np.inf)
    },
    "known": lambda rng: with_known(rng, 8),
    "known-all": lambda rng: {**dense(rng, 4, 4), "known": rng.permutation(4)},
    "wide": lambda rng: dense(rng, 3, 7),
    "wide-by-one": lambda rng: dense(rng, 5, 6),
    "tall": lambda rng: dense(rng, 7, 3),
    "wide-masked": lambda rng: masked(rng, 4, 7, density=0.4),
    "tall-1e3": lambda rng: dense(rng, 7, 4, scale=1e3),
    "one-row": lambda rng: dense(rng, 1, 6),
    "one-col": lambda rng: dense(rng, 6, 1),
    "partial-5": lambda rng: partial(rng, 5, 5),
    "partial-wide": lambda rng: partial(rng, 3, 5),
    "partial-tall": lambda rng: partial(rng, 5, 4),
    "partial-masked": lambda rng: partial(rng, 5, 5, density=0.3),
    "partial-empty": lambda rng: partial(rng, 3, 4, density=0.0),
    "partial-1e3": lambda rng: partial(rng, 5, 5, scale=1e3),
    "partial-1": lambda rng: partial(rng, 1, 1),
    "partial-rows-tall": lambda rng: partial(rng, 5, 3, "rows"),
    "partial-rows-wide": lambda rng: partial(rng, 3, 5, "rows"),
    "partial-rows-square": lambda rng: partial(rng, 4, 4, "rows"),
    "partial-cols-tall": lambda rng: partial(rng, 5, 3, "cols"),
    "partial-cols-wide": lambda rng: partial(rng, 3, 5, "cols"),
    "partial-scalar": lambda rng: {
        **dense(rng, 4, 5),
        "row_unmatched": -1.0,
        "col_unmatched": 0.5,
    },
    "partial-known": lambda rng: {**partial(rng, 5, 5), "known": [-1, 3, -1, -1, 0]},
    "mixed-square": lambda rng: mixed(rng, 5, 5),
    "mixed-wide": lambda rng: mixed(rng, 4, 5),
    "mixed-tall": lambda rng: mixed(rng, 5, 3),
}
