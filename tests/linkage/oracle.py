"""All matchings of small graphs, by plain recursion."""

import numpy as np


def matchings(edges, used=frozenset()):
    """Yield the matchings of a graph as lists of places in ``edges``."""
    if not edges:
        yield []
        return
    (place, (a, b)), *rest = edges
    yield from matchings(rest, used)
    if a not in used and b not in used:
        for more in matchings(rest, used | {a, b}):
            yield [place, *more]


def enumerate_graph(tails, heads, weights, allowed=lambda chosen: True):
    """Marginals, log Z, the variance of the number of edges, and the largest log weight."""
    edges = list(enumerate(zip(tails, heads, strict=True)))
    found = [m for m in matchings(edges) if allowed(m)]
    return summed(found, weights)


def enumerate_sets(num, weights, allowed):
    """The same over all sets of edges that a rule allows."""
    subsets = ([k for k in range(num) if (code >> k) & 1] for code in range(2**num))
    return summed([chosen for chosen in subsets if allowed(chosen)], weights)


def summed(found, weights):
    logs = np.array([sum(weights[e] for e in m) for m in found])
    top = logs.max()
    log_z = top + np.log(np.exp(logs - top).sum())
    p, sizes = np.exp(logs - log_z), np.array([len(m) for m in found])
    marginals = np.zeros(len(weights))
    for probability, chosen in zip(p, found, strict=True):
        marginals[chosen] += probability
    variance = (p * sizes**2).sum() - (p * sizes).sum() ** 2
    return marginals, log_z, variance, top


def random_graph(rng, num, *, bipartite, most=14):
    """Ends of the edges of a connected random graph; left vertices come first if bipartite."""
    left = max(1, num // 2)
    every = [
        (a, b) for a in range(num) for b in range(a + 1, num) if not bipartite or (a < left <= b)
    ]
    count = int(rng.integers(1, min(len(every), most) + 1))
    chosen = sorted(rng.choice(len(every), count, replace=False))
    tails, heads = np.array([every[k] for k in chosen]).T
    return tails.astype(np.int32), heads.astype(np.int32), left


def sum_in_order(num, tails, heads, weights):
    """Marginals of the edges of a graph of any size, if all edges join vertices of close numbers.

    Vertices are decided from 0 on. What came before matters only through the set of later vertices
    that are taken, kept as the bits of a whole number.
    """
    later = [[] for _ in range(num)]
    for e, ends in enumerate(zip(tails, heads, strict=True)):
        later[min(ends)].append((1 << int(max(ends)), np.exp(weights[e]), e))

    def choices(taken, v):
        rest = taken & ~(1 << v)
        yield rest, 1.0, None
        if rest == taken:
            for other, weight, e in later[v]:
                if not taken & other:
                    yield taken | other, weight, e

    before = [{0: 1.0}]
    for v in range(num):
        sums = {}
        for taken, total in before[-1].items():
            for rest, weight, _ in choices(taken, v):
                sums[rest] = sums.get(rest, 0.0) + total * weight
        before.append(sums)
    log_z, after = np.log(before[-1][0]), {0: 1.0 / before[-1][0]}
    marginals = np.zeros(len(weights))
    for v in reversed(range(num)):
        sums = {}
        for taken, total in before[v].items():
            for rest, weight, e in choices(taken, v):
                term = weight * after[rest]
                sums[taken] = sums.get(taken, 0.0) + term
                if e is not None:
                    marginals[e] += total * term
        after = sums
    return marginals, log_z
