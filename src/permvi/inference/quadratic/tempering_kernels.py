r"""Compiled sweeps of parallel tempering on quadratic problems; importing them imports numba.

A replica is a permutation, its value f and its pull g, the sum of :math:`\lambda_i` over rows that
are in their cells; and ``P[i, k] = B[perm[i], perm[k]]``, unless the edges of A are listed. Level k
of the ladder has the log density :math:`g + \beta_k (f - g)`, so that the first is the reference
and the last the posterior. Replicas change level by exchanging places in ``slots``.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled

# One jump in so many sweeps of a level, where there are several modes.
_JUMP_RATE = 0.5
# The share of swaps within a cell, where cells have rows that differ.
_CELL_RATE = 0.5


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
def _held(of_row: np.ndarray, of_col: np.ndarray, pulls: np.ndarray, row: int, col: int) -> float:
    return pulls[row] if of_row[row] == of_col[col] else 0.0


@compiled()
def _pull(of_row: np.ndarray, of_col: np.ndarray, pulls: np.ndarray, perm: np.ndarray) -> float:
    total = 0.0
    for i in range(perm.size):
        total += _held(of_row, of_col, pulls, i, perm[i])
    return total


@compiled()
def place(B: np.ndarray, perm: np.ndarray, P: np.ndarray) -> None:
    """Fill ``P[i, k] = B[perm[i], perm[k]]``."""
    for i in range(perm.size):
        row = B[perm[i]]
        for k in range(perm.size):
            P[i, k] = row[perm[k]]


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
def _drawn(cumulative: np.ndarray, rng: np.random.Generator) -> int:
    """Draw an index by its share, given the cumulative shares."""
    found = int(np.searchsorted(cumulative, rng.random(), side="right"))
    return min(found, cumulative.size - 1)


@compiled()
def _propose_jump(
    modes: np.ndarray,
    inverses: np.ndarray,
    cumulative: np.ndarray,
    perm: np.ndarray,
    out: np.ndarray,
    rng: np.random.Generator,
) -> float:
    """Propose to move a permutation as one mode moves to another.

    With modes a and b, columns move by ``b a^-1`` or rows by ``a^-1 b``. For a and b drawn by their
    shares the proposal is symmetric, since b and a are as probable. If a is the mode next to the
    permutation, the way back draws a instead of b, provided that b is next to the result. Return
    the log of the ratio of both probabilities, -inf if there is no way.
    """
    n = perm.size
    kind = int(rng.random() * 3)
    b = _drawn(cumulative, rng)
    a = _nearest(modes, perm) if kind == 2 else _drawn(cumulative, rng)
    if a == b:
        return -np.inf
    if kind == 1:
        for i in range(n):
            out[i] = perm[inverses[a, modes[b, i]]]
        return 0.0
    for i in range(n):
        out[i] = modes[b, inverses[a, perm[i]]]
    if kind == 0:
        return 0.0
    if _nearest(modes, out) != b:
        return -np.inf
    before_a = cumulative[a - 1] if a > 0 else 0.0
    before_b = cumulative[b - 1] if b > 0 else 0.0
    return np.log((cumulative[a] - before_a) / (cumulative[b] - before_b))


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
    fresh: np.ndarray,
    members: np.ndarray,
    bounds: np.ndarray,
    num_mixed: int,
    of_row: np.ndarray,
    of_col: np.ndarray,
    pulls: np.ndarray,
    modes: np.ndarray,
    inverses: np.ndarray,
    cumulative: np.ndarray,
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
    pairs in turn (Okabe et al. 2001; Syed et al. 2022). Half of the swaps are between rows of one
    cell, if there are cells in which rows differ; a swap is always as probable as its reverse.

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
        fresh: (sweeps, n) draws from the reference.
        members: (n,) rows, cell by cell.
        bounds: (cells+1,) where the rows of each cell begin.
        num_mixed: The number of rows, the first members, whose cells swaps may choose.
        of_row: (n,) the cell of each row.
        of_col: (n,) the cell of each column.
        pulls: (n,) the :math:`\lambda_i`.
        modes: (m, n) permutations.
        inverses: (m, n) their inverses.
        cumulative: (m,) the cumulative shares by which jumps choose modes.
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
    n, K, num_modes = members.size, len(betas), len(modes)
    listed = begins.shape[1] > 0
    out = np.empty(n, np.int64)
    jumps = 0
    for t in range(len(trace)):
        for level in range(K):
            s, beta = slots[level], betas[level]
            perm, table = perms[s], P[s]
            if beta == 0.0:
                perm[:] = fresh[t]
                if not listed:
                    place(B, perm, table)
                values[s] = value_of(A, B, C, perm)
                pulled[s] = _pull(of_row, of_col, pulls, perm)
                trace[t, level] = values[s] - pulled[s]
                continue
            f, g = values[s], pulled[s]
            looks = num_looks if level == K - 1 else 1
            for step in range(looks * num_steps):
                first, last = 0, n
                i = int(rng.random() * n)
                if num_mixed > 0 and rng.random() < _CELL_RATE:
                    i = int(rng.random() * num_mixed)
                    c = of_row[members[i]]
                    first, last = bounds[c], bounds[c + 1]
                j = first + int(rng.random() * (last - first - 1))
                i, j = members[i], members[j + 1 if j >= i else j]
                if listed:
                    gain = listed_gain(
                        A, B, turned, C, begins, others, weights, perm, symmetric, i, j
                    )
                else:
                    gain = swap_gain(A, table, C, perm, symmetric, i, j)
                a, b = perm[i], perm[j]
                pull = _held(of_row, of_col, pulls, i, b) + _held(of_row, of_col, pulls, j, a)
                pull -= _held(of_row, of_col, pulls, i, a) + _held(of_row, of_col, pulls, j, b)
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
            way = -np.inf
            if num_modes > 1 and rng.random() < _JUMP_RATE:
                way = _propose_jump(modes, inverses, cumulative, perm, out, rng)
            if way > -np.inf:
                new, pull = value_of(A, B, C, out), _pull(of_row, of_col, pulls, out)
                change = way + pull - g + beta * (new - pull - f + g)
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
        pulled[s] = _pull(of_row, of_col, pulls, perms[s])
    return best_value, jumps


@compiled()
def _is_allowed(allowed: np.ndarray, perm: np.ndarray) -> bool:
    num_forbidden = 0
    for i in range(perm.size):
        num_forbidden += not allowed[i, perm[i]]
    return num_forbidden == 0
