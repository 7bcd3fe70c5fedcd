"""Compiled likelihoods of Plackett-Luce models for ballots with ties.

A ballot is a row of item numbers in the order of its groups, with the number of each item's group
beside it and -1 for both at the end of short rows.
"""

import numpy as np

from permvi._compiled import compiled


@compiled()
def log_likelihoods(
    log_worths: np.ndarray,
    items: np.ndarray,
    levels: np.ndarray,
    counts: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
) -> np.ndarray:
    """(N, n) log worths -> (N,) log likelihoods of all ballots; see `log_probability`."""
    num, n = log_worths.shape
    result = np.zeros(num)
    worths = np.zeros(n)
    for d in range(num):
        largest = log_worths[d].max()
        for i in range(n):
            worths[i] = np.exp(log_worths[d, i] - largest)
        for r in range(items.shape[0]):
            result[d] += counts[r] * log_probability(worths, items[r], levels[r], nodes, weights)
    return result


@compiled()
def log_probability(
    worths: np.ndarray,
    items: np.ndarray,
    levels: np.ndarray,
    nodes: np.ndarray,
    weights: np.ndarray,
) -> float:
    """The log probability of one ballot; the order within a group is summed over.

    Items arrive at times with rates equal to their worths. Those of a group arrive before all later
    ones, whose rates add up to s, with probability int_0^1 prod_i (1 - u^(w_i / s)) du; ``nodes``
    and ``weights`` are those of a quadrature of log u.
    """
    end = items.shape[0]
    while end > 0 and items[end - 1] < 0:
        end -= 1
    total = 0.0
    value = 0.0
    k = end
    while k > 0:
        level = levels[k - 1]
        first = k - 1
        while first > 0 and levels[first - 1] == level:
            first -= 1
        own = 0.0
        for place in range(first, k):
            own += worths[items[place]]
        if k < end:
            if k - first == 1:
                value += np.log(max(own / (own + total), 1e-300))
            else:
                integral = 0.0
                for q in range(nodes.shape[0]):
                    product = weights[q]
                    for place in range(first, k):
                        product *= -np.expm1(nodes[q] * worths[items[place]] / total)
                    integral += product
                value += np.log(max(integral, 1e-300))
        total += own
        k = first
    return value


@compiled()
def slopes(
    log_worths: np.ndarray, items: np.ndarray, levels: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients (R, n) of each ballot, and the Hessian (n, n) of all with their counts.

    Groups are treated as in Breslow's approximation: each of their items is chosen from all items
    that are not better.
    """
    n = log_worths.shape[0]
    worths = np.exp(log_worths - log_worths.max())
    gradients = np.zeros((items.shape[0], n))
    hessian = np.zeros((n, n))
    sums = np.zeros(items.shape[1] + 1)
    first = np.zeros(items.shape[1])
    second = np.zeros(items.shape[1])
    for r in range(items.shape[0]):
        end = items.shape[1]
        while end > 0 and items[r, end - 1] < 0:
            end -= 1
        last = levels[r, end - 1]
        sums[end] = 0.0
        for k in range(end - 1, -1, -1):
            sums[k] = sums[k + 1] + worths[items[r, k]]
        # Sums over choices up to each item's group, of 1 / s and of 1 / s^2.
        once, twice = 0.0, 0.0
        k = 0
        while k < end:
            stop = k
            while stop < end and levels[r, stop] == levels[r, k]:
                stop += 1
            if levels[r, k] < last:
                once += (stop - k) / sums[k]
                twice += (stop - k) / sums[k] ** 2
            for place in range(k, stop):
                first[place], second[place] = once, twice
            k = stop
        for k in range(end):
            i = items[r, k]
            chosen = 1.0 if levels[r, k] < last else 0.0
            gradients[r, i] = chosen - worths[i] * first[k]
            hessian[i, i] -= counts[r] * worths[i] * first[k]
            for other in range(end):
                j = items[r, other]
                shared = second[min(k, other)]
                hessian[i, j] += counts[r] * worths[i] * worths[j] * shared
    return gradients, hessian
