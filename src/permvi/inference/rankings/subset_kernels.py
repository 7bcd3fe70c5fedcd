r"""Compiled programmes over subsets of items, for sums and optima over all orders.

The cost of an order adds up as items are placed, the best one first: item i after the set S costs
:math:`\sum_{j \in S} A_{ji} + C_{i, |S|}`, with costs A of pairs (j before i) and C of places. Sets
are bit masks. Sums are relative to the optimum of their set, so that no weight overflows.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled

# Exponents below this leave a term of a sum without effect.
_NEGLIGIBLE = -80.0
# Probabilities below this are left out of pairs.
_RARE = 1e-15


@compiled()
def pair_sums(pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums of A[j, i] over the sets j of the lower half of all items, and of the upper half."""
    n = pairs.shape[0]
    half = n // 2
    lower = np.zeros((n, 1 << half))
    upper = np.zeros((n, 1 << (n - half)))
    for i in range(n):
        for s in range(1, 1 << half):
            low = s & -s
            j = int(np.log2(low) + 0.5)
            lower[i, s] = lower[i, s ^ low] + pairs[j, i]
        for s in range(1, 1 << (n - half)):
            low = s & -s
            j = int(np.log2(low) + 0.5)
            upper[i, s] = upper[i, s ^ low] + pairs[half + j, i]
    return lower, upper


@compiled()
def sizes_of(n: int) -> np.ndarray:
    """(2^n,) the number of items in each set."""
    sizes = np.zeros(1 << n, np.int8)
    for s in range(1, 1 << n):
        sizes[s] = sizes[s >> 1] + (s & 1)
    return sizes


@compiled(fastmath=REORDERED_SUMS)
def permanent(weights: np.ndarray) -> float:
    r"""The permanent of weights (n, n) by Glynn's formula (2010), with signs in Gray code.

    .. math:: 2^{1-n} \sum_{\delta \in \{1\} \times \{\pm 1\}^{n-1}} \prod_i \delta_i
              \prod_j \sum_i \delta_i w_{ij}
    """
    n = weights.shape[0]
    signs = np.ones(n)
    sums = weights.sum(axis=0)
    total, sign = sums.prod(), 1.0
    for step in range(1, 1 << (n - 1)):
        row, left = 1, step
        while left & 1 == 0:
            left >>= 1
            row += 1
        signs[row] = -signs[row]
        change = 2.0 * signs[row]
        product = 1.0
        for j in range(n):
            sums[j] += change * weights[row, j]
            product *= sums[j]
        sign = -sign
        total += sign * product
    return total / (1 << (n - 1))


@compiled()
def optima(
    pairs: np.ndarray, places: np.ndarray, tolerance: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least costs of placing each set first, and of placing all others after it; optimal orders.

    Returns:
        (2^n,) costs before, (2^n,) costs after, (2^n,) the number of optimal orders of each set.
    """
    n = pairs.shape[0]
    half = n // 2
    mask = (1 << half) - 1
    lower, upper = pair_sums(pairs)
    sizes = sizes_of(n)
    before = np.full(1 << n, np.inf)
    after = np.full(1 << n, np.inf)
    number = np.zeros(1 << n)
    before[0] = 0.0
    number[0] = 1.0
    for s in range((1 << n) - 1):
        for i in range(n):
            if s >> i & 1:
                continue
            t = s | 1 << i
            cost = before[s] + lower[i, s & mask] + upper[i, s >> half] + places[i, sizes[s]]
            if cost < before[t] - tolerance:
                before[t] = cost
                number[t] = number[s]
            elif cost <= before[t] + tolerance:
                before[t] = min(before[t], cost)
                number[t] += number[s]
    after[(1 << n) - 1] = 0.0
    for s in range((1 << n) - 2, -1, -1):
        for i in range(n):
            if s >> i & 1:
                continue
            cost = after[s | 1 << i] + lower[i, s & mask] + upper[i, s >> half]
            after[s] = min(after[s], cost + places[i, sizes[s]])
    return before, after, number


@compiled()
def optimal_order(pairs: np.ndarray, places: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(n,) items of an order of least cost, the best one first."""
    n = pairs.shape[0]
    order = np.zeros(n, np.int64)
    s = (1 << n) - 1
    for k in range(n - 1, -1, -1):
        best, chosen = np.inf, -1
        for i in range(n):
            if s >> i & 1:
                rest = s ^ (1 << i)
                cost = before[rest] + places[i, k]
                for j in range(n):
                    if rest >> j & 1:
                        cost += pairs[j, i]
                if cost < best:
                    best, chosen = cost, i
        order[k] = chosen
        s ^= 1 << chosen
    return order


@compiled()
def partition(pairs: np.ndarray, places: np.ndarray, theta: float, before: np.ndarray) -> float:
    """The log of the sum of exp(-theta cost) over all orders."""
    n = pairs.shape[0]
    half = n // 2
    mask = (1 << half) - 1
    lower, upper = pair_sums(pairs)
    sizes = sizes_of(n)
    sums = np.zeros(1 << n)
    sums[0] = 1.0
    for s in range((1 << n) - 1):
        for i in range(n):
            if s >> i & 1:
                continue
            t = s | 1 << i
            cost = lower[i, s & mask] + upper[i, s >> half] + places[i, sizes[s]]
            exponent = -theta * (before[s] + cost - before[t])
            if exponent > _NEGLIGIBLE:
                sums[t] += sums[s] * np.exp(exponent)
    full = (1 << n) - 1
    return np.log(sums[full]) - theta * before[full]


@compiled()
def summary(
    pairs: np.ndarray,
    places: np.ndarray,
    theta: float,
    before: np.ndarray,
    after: np.ndarray,
    num_draws: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities of orders with weights exp(-theta cost), by sums over all of them.

    Returns:
        (n, n) P(item i at place k), (n, n) P(item i before item j), (num_draws, n) drawn places.
    """
    n = pairs.shape[0]
    half = n // 2
    mask = (1 << half) - 1
    lower, upper = pair_sums(pairs)
    sizes = sizes_of(n)
    full = (1 << n) - 1
    # Weights of what follows each set, then probabilities of reaching it.
    rest = np.zeros(1 << n)
    rest[full] = 1.0
    for s in range(full - 1, -1, -1):
        for i in range(n):
            if s >> i & 1:
                continue
            t = s | 1 << i
            cost = lower[i, s & mask] + upper[i, s >> half] + places[i, sizes[s]]
            exponent = -theta * (cost + after[t] - after[s])
            if exponent > _NEGLIGIBLE:
                rest[s] += rest[t] * np.exp(exponent)
    reach = np.zeros(1 << n)
    reach[0] = 1.0
    at_place = np.zeros((n, n))
    earlier = np.zeros((n, n))
    for s in range(full):
        if reach[s] <= 0:
            continue
        for i in range(n):
            if s >> i & 1:
                continue
            t = s | 1 << i
            cost = lower[i, s & mask] + upper[i, s >> half] + places[i, sizes[s]]
            exponent = -theta * (cost + after[t] - after[s])
            if exponent <= _NEGLIGIBLE:
                continue
            p = reach[s] * np.exp(exponent) * rest[t] / rest[s]
            reach[t] += p
            at_place[i, sizes[s]] += p
            if p > _RARE:
                for j in range(n):
                    if s >> j & 1:
                        earlier[j, i] += p
    draws = np.zeros((num_draws, n), np.int16)
    for d in range(num_draws):
        s = 0
        for k in range(n):
            left = rng.random() * rest[s]
            chosen = -1
            for i in range(n):
                if s >> i & 1:
                    continue
                t = s | 1 << i
                cost = lower[i, s & mask] + upper[i, s >> half] + places[i, k]
                exponent = -theta * (cost + after[t] - after[s])
                if exponent <= _NEGLIGIBLE:
                    continue
                chosen = i
                left -= np.exp(exponent) * rest[t]
                if left <= 0:
                    break
            draws[d, chosen] = k
            s |= 1 << chosen
    return at_place, earlier, draws
