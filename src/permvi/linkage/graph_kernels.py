"""Compiled union-find over candidate pairs, and the numbers of records in their groups."""

import numpy as np

from permvi._compiled import compiled


@compiled()
def join(parents: np.ndarray, tails: np.ndarray, heads: np.ndarray) -> None:
    """Unite the sets of the ends of each edge; ``parents`` (n,) is a forest, changed in place."""
    for e in range(len(tails)):
        a, b = tails[e], heads[e]
        while parents[a] != a:
            parents[a] = parents[parents[a]]
            a = parents[a]
        while parents[b] != b:
            parents[b] = parents[parents[b]]
            b = parents[b]
        # The smaller number is the root, so that the result does not depend on the order of edges.
        if a < b:
            parents[b] = a
        elif b < a:
            parents[a] = b


@compiled()
def number_roots(parents: np.ndarray, labels: np.ndarray) -> int:
    """Write the number of each vertex' set, in the order of their smallest members; count them."""
    count = 0
    for v in range(len(parents)):
        root = v
        while parents[root] != root:
            root = parents[root]
        parents[v] = root
        if root == v:
            labels[v] = count
            count += 1
        else:
            labels[v] = labels[root]
    return count


@compiled()
def rank_in_groups(labels: np.ndarray, sizes: np.ndarray, ranks: np.ndarray) -> None:
    """Write how many earlier elements have the same label; ``sizes`` (zeros) ends as counts."""
    for k in range(len(labels)):
        ranks[k] = sizes[labels[k]]
        sizes[labels[k]] += 1


@compiled()
def sort_by_group(
    tails: np.ndarray, labels: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (E,) the edges by the label of their tail, and (count+1,) where each label begins."""
    ends = np.zeros(count + 1, np.int64)
    for e in range(len(tails)):
        ends[labels[tails[e]] + 1] += 1
    for c in range(count):
        ends[c + 1] += ends[c]
    place, order = ends[:-1].copy(), np.empty(len(tails), np.int32)
    for e in range(len(tails)):
        c = labels[tails[e]]
        order[place[c]] = e
        place[c] += 1
    return order, ends


@compiled()
def histogram(values: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (T,) how many values lie in [edges[t], edges[t+1]), and their sums.

    The edges (T,) are evenly spaced from 0 to 1, and values are not below the first; the last bin
    has no upper end.
    """
    last = len(edges) - 1
    counts, sums = np.zeros(last + 1, np.int64), np.zeros(last + 1)
    for value in values:
        # Rounding may miss by one.
        t = min(int(value * last), last)
        if t < last and edges[t + 1] <= value:
            t += 1
        elif edges[t] > value:
            t -= 1
        counts[t] += 1
        sums[t] += value
    return counts, sums


@compiled()
def sum_by_group(
    tails: np.ndarray, labels: np.ndarray, p: np.ndarray, best: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (count,) sums over pairs, by the label of their tail.

    Of the probabilities ``p`` (E,), and of those that the decision ``best`` (E,) is wrong: 1 - p
    for a pair that is linked, p for one that is not.
    """
    expected, wrong = np.zeros(count), np.zeros(count)
    for e in range(len(tails)):
        c = labels[tails[e]]
        expected[c] += p[e]
        wrong[c] += 1.0 - p[e] if best[e] else p[e]
    return expected, wrong
