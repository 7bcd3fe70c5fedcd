"""Matchings by brute force: products of the weights of their pairs."""

import itertools
import math

import numpy as np


def probabilities(pairs, items=None, labels=None, known=None):
    """The probabilities of all matchings of n items with m labels, and their total weight.

    Args:
        pairs: (n, m) weights of pairs, 0 for forbidden ones.
        items: (n,) weights of unmatched items; None if only a surplus of items may stay unmatched.
        labels: (m,) weights of unused labels; None if only a surplus of labels may stay unused.
        known: Known pairs (i, j).

    Returns:
        A dictionary {tuple of labels' numbers, -1 for unmatched: probability}, and the total.
    """
    n, m = np.shape(pairs)
    items = np.full(n, float(n > m)) if items is None else np.broadcast_to(items, n)
    labels = np.full(m, float(m > n)) if labels is None else np.broadcast_to(labels, m)
    found = {}
    for perm in itertools.product(range(-1, m), repeat=n):
        used = [j for j in perm if j >= 0]
        if len(set(used)) < len(used) or any(perm[i] != j for i, j in known or ()):
            continue
        weight = math.prod(items[i] if j < 0 else pairs[i][j] for i, j in enumerate(perm))
        weight *= math.prod(labels[j] for j in range(m) if j not in used)
        if weight > 0:
            found[perm] = weight
    total = sum(found.values())
    return {perm: weight / total for perm, weight in found.items()}, total


def marginals(law, shape):
    """(n, m+1) probabilities of each item's labels, the last of being unmatched."""
    n, m = shape
    table = np.zeros((n, m + 1))
    for perm, p in law.items():
        table[np.arange(n), perm] += p
    return table
