"""Distances between rankings, straight from their definitions."""

import itertools

import numpy as np


def cycles(relative):
    """The number of cycles of a permutation."""
    seen, found = set(), 0
    for start in range(len(relative)):
        found += start not in seen
        while start not in seen:
            seen.add(start)
            start = relative[start]
    return found


def distance(name, a, b):
    """The distance of two rankings, given as ranks of the items."""
    pairs = itertools.combinations(range(len(a)), 2)
    return {
        "mallows": lambda: sum((a[i] - a[j]) * (b[i] - b[j]) < 0 for i, j in pairs),
        "footrule": lambda: np.abs(np.subtract(a, b)).sum(),
        "spearman": lambda: (np.subtract(a, b) ** 2).sum(),
        "cayley": lambda: len(a) - cycles([b[list(a).index(k)] for k in range(len(a))]),
    }[name]()


def likelihoods(name, levels, ranks, thetas):
    """(J, R, T) log probabilities of ballots (R, n) around an order, given a grid of dispersions.

    The logs of J places add up, each with a dispersion of its own; J is 1 but for
    "generalised_mallows". Ballots are complete, or best-of lists for that model.
    """
    n = len(ranks)
    if name != "generalised_mallows":
        lengths = [distance(name, perm, range(n)) for perm in itertools.permutations(range(n))]
        log_z = np.log(np.exp(-np.multiply.outer(thetas, lengths)).sum(axis=1))
        return np.array([[-distance(name, row, ranks) * thetas - log_z for row in levels]])
    found = np.zeros((max(levels.max(), 1), len(levels), len(thetas)))
    for r, row in enumerate(levels):
        for place in range(row.max()):
            chosen, later = np.flatnonzero(row == place)[0], np.flatnonzero(row > place)
            costs = np.arange(len(later) + 1)
            log_z = np.log(np.exp(-np.multiply.outer(thetas, costs)).sum(axis=1))
            cost = sum(ranks[i] < ranks[chosen] for i in later)
            found[place, r] = -cost * thetas - log_z
    return found


def prior_rate(name, n):
    """The rate of the prior of a dispersion: a distance has the scale of Kendall's."""
    if name == "generalised_mallows":
        return 1.0
    perms = itertools.permutations(range(n))
    return np.mean([distance(name, perm, range(n)) for perm in perms]) / (n * (n - 1) / 4)
