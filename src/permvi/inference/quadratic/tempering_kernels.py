r"""Compiled sweeps of parallel tempering on quadratic problems; importing them imports numba.

A replica is a permutation, its value f and its pull :math:`g = \sum_i \lambda_i 1[\pi(i) = r_i]`;
and ``P[i, k] = B[perm[i], perm[k]]``, unless the edges of A are listed. Level k of the ladder has
the log density :math:`g + \beta_k (f - g)`, so that the first is the reference and the last the
posterior. Replicas change level by exchanging places in ``slots``.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled

# One jump in so many sweeps of a level, where there are several modes.
_JUMP_RATE = 0.5


@compiled(fastmath=REORDERED_SUMS)
def swap_gain(
    A: np.ndarray,
    P: np.ndarray,
    C: np.ndarray,
    perm: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    i: int,
    j: int,
) -> float:
    """Return the gain in ``<A, X B X'> + <C, X>`` of swapping rows i and j, in O(n)."""
    total = 0.0
    for k in range(perm.size):
        total += (A[i, k] - A[j, k]) * (P[j, k] - P[i, k])
    # The rows i and j are no others.
    total -= (A[i, i] - A[j, i]) * (P[j, i] - P[i, i]) + (A[i, j] - A[j, j]) * (P[j, j] - P[i, j])
    if symmetric:
        total *= 2.0
    else:
        for k in range(perm.size):
            if k != i and k != j:
                total += (A[k, i] - A[k, j]) * (P[k, j] - P[k, i])
    total += (A[i, i] - A[j, j]) * (P[j, j] - P[i, i]) + (A[i, j] - A[j, i]) * (P[j, i] - P[i, j])
    a, b = perm[i], perm[j]
    return total + C[i, b] + C[j, a] - C[i, a] - C[j, b]


@compiled(fastmath=REORDERED_SUMS)
def _gain_of_edges(
    begins: np.ndarray,
    others: np.ndarray,
    weights: np.ndarray,
    B: np.ndarray,
    perm: np.ndarray,
    i: int,
    j: int,
) -> float:
    """Return the gain of the listed edges of rows i and j, without those among the two."""
    total = 0.0
    a, b = B[perm[i]], B[perm[j]]
    for e in range(begins[i], begins[i + 1]):
        k = others[e]
        if k != i and k != j:
            total += weights[e] * (b[perm[k]] - a[perm[k]])
    for e in range(begins[j], begins[j + 1]):
        k = others[e]
        if k != i and k != j:
            total += weights[e] * (a[perm[k]] - b[perm[k]])
    return total


@compiled()
def listed_gain(
    A: np.ndarray,
    B: np.ndarray,
    turned: np.ndarray,
    C: np.ndarray,
    begins: np.ndarray,
    others: np.ndarray,
    weights: np.ndarray,
    perm: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    i: int,
    j: int,
) -> float:
    """Return the gain of swapping rows i and j, in the time of their edges in A.

    ``begins`` (2, n+1), ``others`` and ``weights`` (2, edges) list the edges from each row, and
    those to it. ``turned`` is the transpose of B.
    """
    total = _gain_of_edges(begins[0], others[0], weights[0], B, perm, i, j)
    if symmetric:
        total *= 2.0
    else:
        total += _gain_of_edges(begins[1], others[1], weights[1], turned, perm, i, j)
    a, b = perm[i], perm[j]
    total += (A[i, i] - A[j, j]) * (B[b, b] - B[a, a]) + (A[i, j] - A[j, i]) * (B[b, a] - B[a, b])
    return total + C[i, b] + C[j, a] - C[i, a] - C[j, b]


@compiled(fastmath=REORDERED_SUMS)
def value_of(A: np.ndarray, B: np.ndarray, C: np.ndarray, perm: np.ndarray) -> float:
    """Return ``<A, X B X'> + <C, X>``."""
    total = 0.0
    for i in range(perm.size):
        total += C[i, perm[i]]
        row = B[perm[i]]
        for k in range(perm.size):
            total += A[i, k] * row[perm[k]]
    return total


@compiled()
def _pull(perm: np.ndarray, centre: np.ndarray, pulls: np.ndarray) -> float:
    total = 0.0
    for i in range(perm.size):
        if perm[i] == centre[i]:
            total += pulls[i]
    return total


@compiled()
def place(B: np.ndarray, perm: np.ndarray, P: np.ndarray) -> None:
    """Fill ``P[i, k] = B[perm[i], perm[k]]``."""
    for i in range(perm.size):
        row = B[perm[i]]
        for k in range(perm.size):
            P[i, k] = row[perm[k]]


@compiled()
def _shuffle(items: np.ndarray, count: int, rng: np.random.Generator) -> None:
    for i in range(count - 1, 0, -1):
        j = int(rng.random() * (i + 1))
        items[i], items[j] = items[j], items[i]


@compiled()
def draw_reference(
    log_sums: np.ndarray,
    log_sizes: np.ndarray,
    log_odds: np.ndarray,
    centre: np.ndarray,
    perm: np.ndarray,
    rng: np.random.Generator,
) -> None:
    r"""Draw from the reference, :math:`p(\pi) \propto \exp \sum_i \lambda_i 1[\pi(i) = r_i]`.

    With :math:`e^{\lambda_i} = 1 + w_i` the product is a sum over sets S of rows that are held,
    with weight :math:`\prod_{i \in S} w_i`; all other rows are shuffled.

    Args:
        log_sums: (n+1, n+1) at (i, k): log of the sum of the products of w over k of the first i.
        log_sizes: (n+1,) log probabilities of holding k rows.
        log_odds: (n,) log w.
        centre: (n,) the permutation r.
        perm: (n,) the result.
        rng: The source of randomness.
    """
    n = centre.size
    left, size = rng.random(), 0
    for k in range(n + 1):
        size = k
        left -= np.exp(log_sizes[k])
        if left < 0.0:
            break
    free = np.empty(n, np.int64)
    count = 0
    for i in range(n, 0, -1):
        p = 0.0
        if size > 0:
            p = np.exp(log_odds[i - 1] + log_sums[i - 1, size - 1] - log_sums[i, size])
        if rng.random() < p:
            size -= 1
            perm[i - 1] = centre[i - 1]
        else:
            free[count] = i - 1
            count += 1
    columns = centre[free[:count]]
    _shuffle(columns, count, rng)
    for k in range(count):
        perm[free[k]] = columns[k]


@compiled()
def _nearest(modes: np.ndarray, perm: np.ndarray) -> int:
    """Return the mode that shares the most pairs with a permutation, the first of several."""
    best, found = -1, 0
    for m in range(len(modes)):
        same = 0
        for i in range(perm.size):
            if modes[m, i] == perm[i]:
                same += 1
        if same > best:
            best, found = same, m
    return found


@compiled()
def _propose_jump(
    modes: np.ndarray,
    inverses: np.ndarray,
    perm: np.ndarray,
    out: np.ndarray,
    rng: np.random.Generator,
) -> bool:
    """Propose to move a permutation as one mode moves to another; return whether it is possible.

    With modes a and b, columns move by ``b a^-1`` or rows by ``a^-1 b``. For random a and b the
    proposal is symmetric, since b and a are as probable. If a is the mode next to the permutation,
    it is symmetric provided that b is next to the result.
    """
    n, num = perm.size, len(modes)
    kind = int(rng.random() * 3)
    b = int(rng.random() * num)
    a = _nearest(modes, perm) if kind == 2 else int(rng.random() * num)
    if a == b:
        return False
    if kind == 1:
        for i in range(n):
            out[i] = perm[inverses[a, modes[b, i]]]
        return True
    for i in range(n):
        out[i] = modes[b, inverses[a, perm[i]]]
    return kind == 0 or _nearest(modes, out) == b


@compiled()
def sweep(
    A: np.ndarray,
    B: np.ndarray,
    C: np.ndarray,
    symmetric: bool,  # noqa: FBT001 (numba)
    allowed: np.ndarray,
    turned: np.ndarray,
    begins: np.ndarray,
    others: np.ndarray,
    weights: np.ndarray,
    log_sums: np.ndarray,
    log_sizes: np.ndarray,
    log_odds: np.ndarray,
    centre: np.ndarray,
    pulls: np.ndarray,
    modes: np.ndarray,
    inverses: np.ndarray,
    betas: np.ndarray,
    slots: np.ndarray,
    perms: np.ndarray,
    P: np.ndarray,
    values: np.ndarray,
    pulled: np.ndarray,
    first_parity: int,
    num_steps: int,
    num_looks: int,
    trace: np.ndarray,
    kept: np.ndarray,
    counts: np.ndarray,
    rejected: np.ndarray,
    best: np.ndarray,
    best_value: float,
    rng: np.random.Generator,
) -> tuple[float, int]:
    r"""Sweep over all levels, ``len(trace)`` times.

    In a sweep the first level is drawn anew if its inverse temperature is zero, the others take
    ``num_steps`` swaps and perhaps a jump, and neighbours exchange their replicas, even and odd
    pairs in turn (Okabe et al. 2001; Syed et al. 2022).

    Args:
        A: (n, n) weights of pairs of rows.
        B: (n, n) weights of pairs of columns.
        C: (n, n) weights of pairs.
        symmetric: Whether A and B are.
        allowed: (n, n) pairs without which a permutation does not count.
        turned: (n, n) the transpose of B; see `listed_gain`, also for the three that follow.
        begins: (2, n+1), or (2, 0) if A has no lists.
        others: (2, edges).
        weights: (2, edges).
        log_sums: See `draw_reference`, also for the three that follow.
        log_sizes: (n+1,).
        log_odds: (n,).
        centre: (n,).
        pulls: (n,) the :math:`\lambda_i`.
        modes: (m, n) permutations.
        inverses: (m, n) their inverses.
        betas: (K,) rising inverse temperatures.
        slots: (K,) the replica of each level; changed in place, like the four that follow.
        perms: (K, n) permutations.
        P: (K, n, n), or (K, 0, 0) if A has lists.
        values: (K,) their f.
        pulled: (K,) their g.
        first_parity: Which pairs exchange first.
        num_steps: Swaps in each level.
        num_looks: How many times as many there are in the last level, which is looked at as often.
        trace: (sweeps, K) filled with f - g at each level.
        kept: (sweeps, n) filled with the permutation of the last level, its first entry -1 if it is
            not allowed.
        counts: (n, n) the number of looks with each pair in the last level, added to.
        rejected: (K - 1,) mean rejection rates of exchanges, added to.
        best: (n,) the best allowed permutation, replaced by a better one.
        best_value: Its value.
        rng: The source of randomness.

    Returns:
        The best value and the number of accepted jumps at the last level.
    """
    n, K, num_modes = centre.size, len(betas), len(modes)
    listed = begins.shape[1] > 0
    out = np.empty(n, np.int64)
    jumps = 0
    for t in range(len(trace)):
        for level in range(K):
            s, beta = slots[level], betas[level]
            perm, table = perms[s], P[s]
            if beta == 0.0:
                draw_reference(log_sums, log_sizes, log_odds, centre, perm, rng)
                if not listed:
                    place(B, perm, table)
                values[s] = value_of(A, B, C, perm)
                pulled[s] = _pull(perm, centre, pulls)
                trace[t, level] = values[s] - pulled[s]
                continue
            f, g = values[s], pulled[s]
            looks = num_looks if level == K - 1 else 1
            for step in range(looks * num_steps):
                i, j = int(rng.random() * n), int(rng.random() * (n - 1))
                if j >= i:
                    j += 1
                if listed:
                    gain = listed_gain(
                        A, B, turned, C, begins, others, weights, perm, symmetric, i, j
                    )
                else:
                    gain = swap_gain(A, table, C, perm, symmetric, i, j)
                a, b = perm[i], perm[j]
                pull = 0.0
                if a == centre[i]:
                    pull -= pulls[i]
                if b == centre[j]:
                    pull -= pulls[j]
                if b == centre[i]:
                    pull += pulls[i]
                if a == centre[j]:
                    pull += pulls[j]
                change = pull + beta * (gain - pull)
                if change >= 0.0 or rng.random() < np.exp(change):
                    perm[i], perm[j] = b, a
                    if not listed:
                        for k in range(n):
                            table[i, k], table[j, k] = table[j, k], table[i, k]
                        for k in range(n):
                            table[k, i], table[k, j] = table[k, j], table[k, i]
                    f += gain
                    g += pull
                    if f > best_value and _is_allowed(allowed, perm):
                        best_value = f
                        best[:] = perm
                if level == K - 1 and (step + 1) % num_steps == 0 and _is_allowed(allowed, perm):
                    for k in range(n):
                        counts[k, perm[k]] += 1.0
            jump = num_modes > 1 and rng.random() < _JUMP_RATE
            if jump and _propose_jump(modes, inverses, perm, out, rng):
                new, pull = value_of(A, B, C, out), _pull(out, centre, pulls)
                change = pull - g + beta * (new - pull - f + g)
                if change >= 0.0 or rng.random() < np.exp(change):
                    perm[:] = out
                    if not listed:
                        place(B, perm, table)
                    f, g = new, pull
                    if level == K - 1:
                        jumps += 1
            values[s], pulled[s] = f, g
            trace[t, level] = f - g
        last = perms[slots[K - 1]]
        kept[t] = last
        if not _is_allowed(allowed, last):
            kept[t, 0] = -1
        for level in range((first_parity + t) % 2, K - 1, 2):
            lower, upper = slots[level], slots[level + 1]
            change = (betas[level + 1] - betas[level]) * (trace[t, level] - trace[t, level + 1])
            p = 1.0 if change >= 0.0 else np.exp(change)
            # Each pair has its turn in every other sweep.
            rejected[level] += 2.0 * (1.0 - p) / len(trace)
            if rng.random() < p:
                slots[level], slots[level + 1] = upper, lower
    # Sums of differences gather rounding errors.
    for s in range(K):
        values[s] = value_of(A, B, C, perms[s])
        pulled[s] = _pull(perms[s], centre, pulls)
    return best_value, jumps


@compiled()
def _is_allowed(allowed: np.ndarray, perm: np.ndarray) -> bool:
    num_forbidden = 0
    for i in range(perm.size):
        num_forbidden += not allowed[i, perm[i]]
    return num_forbidden == 0
