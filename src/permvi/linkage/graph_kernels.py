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
