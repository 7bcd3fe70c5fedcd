"""Compiled evidence of sparse ridge regressions and of swaps; importing this imports numba.

The state is kept by label: ``K0[g, a, b]`` and ``K1[g, a, b]`` are sums of the subjects' statistics
with their neurons in the order of the labels, in one group (g = 0) where everything is recorded and
else in one group per subject, and ``rows[j, a]`` is the row of subject j that has label a.
Exchanging the labels a and b of a subject changes the evidence of few rows of W only.
"""

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled

_compile = compiled(fastmath=REORDERED_SUMS)


@_compile
def row_evidence(
    K0: np.ndarray,
    K1: np.ndarray,
    present: np.ndarray,
    inputs: np.ndarray,
    start: np.ndarray,
    a: int,
    ridge: float,
    noise: float,
    work: np.ndarray,
) -> float:
    r"""The log evidence of row a of W, up to what no permutation changes.

    :math:`\frac{1}{2 \sigma^2} r^\top (S + \lambda I)^{-1} r - \frac12 \log\det(I + S / \lambda)`
    with S and r the statistics of the row's inputs and of the row, over the subjects that have it.

    Args:
        K0: (G, m, m).
        K1: (G, m, m).
        present: (G, m) whether label a is recorded, by group.
        inputs: (E,) see `SharedRegression.inputs`.
        start: (m + 1,).
        a: The row.
        ridge: :math:`\lambda`, noise variance over weight variance.
        noise: The noise variance.
        work: (k + 1, k + 1) or larger, overwritten.
    """
    first, k = start[a], start[a + 1] - start[a]
    for p in range(k):
        b = inputs[first + p]
        for q in range(p + 1):
            work[p, q] = 0.0
        work[k, p] = 0.0
        for g in range(K0.shape[0]):
            if present[g, a]:
                for q in range(p + 1):
                    work[p, q] += K0[g, b, inputs[first + q]]
                work[k, p] += K1[g, a, b]
        work[p, p] += ridge
    # The last row of the factor of [[S, r], [r', .]] solves for the quadratic form.
    log_det, form = 0.0, 0.0
    for p in range(k + 1):
        for q in range(min(p + 1, k)):
            total = work[p, q]
            for s in range(q):
                total -= work[p, s] * work[q, s]
            if p == q:
                log_det += np.log(total)
                work[p, p] = np.sqrt(total)
            else:
                work[p, q] = total / work[q, q]
    for p in range(k):
        form += work[k, p] ** 2
    return 0.5 * (form / noise - log_det + k * np.log(ridge))


@_compile
def all_evidence(
    K0: np.ndarray,
    K1: np.ndarray,
    present: np.ndarray,
    inputs: np.ndarray,
    start: np.ndarray,
    ridge: float,
    noise: float,
    work: np.ndarray,
    evidence: np.ndarray,
) -> None:
    """Fill ``evidence``, (m,), with `row_evidence` of all rows."""
    for a in range(evidence.size):
        evidence[a] = row_evidence(K0, K1, present, inputs, start, a, ridge, noise, work)


@_compile
def _exchange_one(K: np.ndarray, C: np.ndarray, rows: np.ndarray, a: int, b: int) -> None:
    """Bring K, (m, m), to the exchange of labels a and b of the subject with statistics C."""
    i, k = rows[a], rows[b]
    for c in range(rows.size):
        if c not in (a, b):
            h = rows[c]
            outwards, inwards = C[k, h] - C[i, h], C[h, k] - C[h, i]
            K[a, c] += outwards
            K[b, c] -= outwards
            K[c, a] += inwards
            K[c, b] -= inwards
    loop, across = C[k, k] - C[i, i], C[k, i] - C[i, k]
    K[a, a] += loop
    K[b, b] -= loop
    K[a, b] += across
    K[b, a] -= across


@_compile
def exchange(
    K0: np.ndarray,
    K1: np.ndarray,
    present: np.ndarray,
    C0: np.ndarray,
    C1: np.ndarray,
    rows: np.ndarray,
    subject: int,
    a: int,
    b: int,
) -> None:
    """Exchange the labels a and b of one subject, in place."""
    g = min(subject, K0.shape[0] - 1)
    _exchange_one(K0[g], C0[subject], rows[subject], a, b)
    _exchange_one(K1[g], C1[subject], rows[subject], a, b)
    present[g, a], present[g, b] = present[g, b], present[g, a]
    rows[subject, a], rows[subject, b] = rows[subject, b], rows[subject, a]


@_compile
def _prior_gain(prior: np.ndarray, rows: np.ndarray, a: int, b: int) -> float:
    """What the exchange of labels a and b of a subject adds to its log prior, (m, m)."""
    i, k = rows[a], rows[b]
    return prior[i, b] + prior[k, a] - prior[i, a] - prior[k, b]


@_compile
def _permitted(mask: np.ndarray, rows: np.ndarray, a: int, b: int) -> bool:
    """Whether a subject's mask, (m, m), allows the exchange of its labels a and b."""
    return bool(mask[rows[a], b] and mask[rows[b], a])


@_compile
def _is_among(values: np.ndarray, first: int, end: int, value: int) -> bool:
    """Whether an increasing part of an array, from ``first`` up to ``end``, holds a value."""
    place = first + np.searchsorted(values[first:end], value)
    return bool(place < end and values[place] == value)


@_compile
def _screen(
    A: np.ndarray,
    B: np.ndarray,
    prior: np.ndarray,
    rows: np.ndarray,
    neighbours: np.ndarray,
    start: np.ndarray,
    a: int,
    b: int,
) -> float:
    """What an exchange of labels a and b adds to pair scores (T, m, m), over their neighbours."""
    i, k = rows[a], rows[b]
    gain = _prior_gain(prior, rows, a, b)
    for t in range(len(A)):
        At, Bt = A[t], B[t]
        gain += (At[i, k] - At[k, i]) * (Bt[b, a] - Bt[a, b])
        for label, other in ((a, b), (b, a)):
            for place in range(start[label], start[label + 1]):
                c = neighbours[place]
                if c in (a, b) or (
                    label == b and _is_among(neighbours, start[other], start[other + 1], c)
                ):
                    continue
                h = rows[c]
                gain += (At[i, h] - At[k, h]) * (Bt[b, c] - Bt[a, c])
                gain += (At[h, i] - At[h, k]) * (Bt[c, b] - Bt[c, a])
    return gain


@_compile
def walk(
    K0: np.ndarray,
    K1: np.ndarray,
    present: np.ndarray,
    C0: np.ndarray,
    C1: np.ndarray,
    rows: np.ndarray,
    mask: np.ndarray,
    prior: np.ndarray,
    inputs: np.ndarray,
    start: np.ndarray,
    touched: np.ndarray,
    touched_start: np.ndarray,
    evidence: np.ndarray,
    ridge: float,
    noise: float,
    exchanges: np.ndarray,
    ends: np.ndarray,
    order: np.ndarray,
    thresholds: np.ndarray,
    A: np.ndarray,
    B: np.ndarray,
    neighbours: np.ndarray,
    neighbours_start: np.ndarray,
    screens: np.ndarray,
    gains: np.ndarray,
) -> int:
    """Try moves one after another and take those that gain more than their thresholds, in place.

    Thresholds of zero climb; logarithms of uniform numbers make it Metropolis' algorithm; +inf
    evaluates without moving.

    Exchanges in one subject may be screened by scores that cost little: those that do not gain more
    than a first threshold there are dropped, and the others have to gain more than the second in
    what the scores have missed. With logarithms of uniform numbers as both this is delayed
    acceptance (Christen and Fox 2005), which leaves the distribution as it is.

    Args:
        K0: (G, m, m), and so on: see `row_evidence` and `exchange`.
        K1: (G, m, m).
        present: (G, m).
        C0: (J, m, m).
        C1: (J, m, m).
        rows: (J, m).
        mask: (J, m, m).
        prior: (J, m, m).
        inputs: (E,).
        start: (m + 1,).
        touched: See `SharedRegression.touched`.
        touched_start: (m + 1,).
        evidence: (m,) that of each row, kept up to date.
        ridge: Noise variance over weight variance.
        noise: The noise variance.
        exchanges: (K, 3) subject and two labels to exchange; subject -1 exchanges them in every
            subject that permits it.
        ends: (M,) where in ``exchanges`` each move ends; it begins where the one before ends.
        order: (num,) which moves to try.
        thresholds: (num,) log densities have to gain more than this.
        A: (J, T, m, m) pair scores for screening, by rows; see `matching.PairScores`.
        B: (J, T, m, m) by labels, zero off the support.
        neighbours: See `SharedRegression.neighbours`.
        neighbours_start: (m + 1,).
        screens: (num,) first thresholds, -inf for no screening.
        gains: (num,) filled with what each move gains, -inf where it is not permitted or dropped.

    Returns:
        How many evidences were computed.
    """
    most = 0
    for a in range(rows.shape[1]):
        most = max(most, start[a + 1] - start[a])
    work = np.empty((most + 1, most + 1))
    fresh, stamp = np.empty(evidence.size), np.full(evidence.size, -1)
    # What was exchanged, to be undone.
    done = np.empty((len(exchanges) * rows.shape[0], 3), np.int64)
    num_evaluations = 0
    for index in range(len(order)):
        move = order[index]
        first, end = (ends[move - 1] if move else 0), ends[move]
        gain, count, screened = 0.0, 0, 0.0
        subject, a, b = exchanges[first]
        if screens[index] > -np.inf and end - first == 1 and subject >= 0:
            if _permitted(mask[subject], rows[subject], a, b):
                screened = _screen(
                    A[subject], B[subject], prior[subject], rows[subject],
                    neighbours, neighbours_start, a, b,
                )  # fmt: skip
            else:
                screened = -np.inf
            if screened <= screens[index]:
                gains[index] = -np.inf
                continue
        for place in range(first, end):
            subject, a, b = exchanges[place]
            for j in range(rows.shape[0]):
                if subject == j or (subject == -1 and _permitted(mask[j], rows[j], a, b)):
                    gain += _prior_gain(prior[j], rows[j], a, b)
                    exchange(K0, K1, present, C0, C1, rows, j, a, b)
                    done[count, 0], done[count, 1], done[count, 2] = j, a, b
                    count += 1
        allowed = count > 0
        for place in range(count):
            j, a, b = done[place]
            allowed = allowed and mask[j, rows[j, a], a] and mask[j, rows[j, b], b]
        if allowed:
            num_evaluations += 1
            # A row that has both labels as inputs, exchanged in all subjects, is as it was.
            everywhere = end - first == 1 and count == rows.shape[0]
            for place in range(first, end):
                _, a, b = exchanges[place]
                for label, other in ((a, b), (b, a)):
                    for at in range(touched_start[label], touched_start[label + 1]):
                        c = touched[at]
                        if stamp[c] == index or (
                            everywhere
                            and c not in (a, b)
                            and _is_among(
                                touched, touched_start[other], touched_start[other + 1], c
                            )
                        ):
                            continue
                        stamp[c] = index
                        fresh[c] = row_evidence(
                            K0, K1, present, inputs, start, c, ridge, noise, work
                        )
                        gain += fresh[c] - evidence[c]
        else:
            gain = -np.inf
        gains[index] = gain
        if gain - screened > thresholds[index]:
            for c in range(evidence.size):
                if stamp[c] == index:
                    evidence[c] = fresh[c]
        else:
            for place in range(count - 1, -1, -1):
                j, a, b = done[place]
                exchange(K0, K1, present, C0, C1, rows, j, a, b)
    return num_evaluations


@_compile
def row_posteriors(
    K0: np.ndarray,
    K1: np.ndarray,
    present: np.ndarray,
    inputs: np.ndarray,
    start: np.ndarray,
    ridge: float,
    mean: np.ndarray,
    variance: np.ndarray,
) -> None:
    r"""Fill (m, m) with :math:`(S + \lambda I)^{-1} r` and the inverse's diagonal, row by row."""
    most = 0
    for a in range(start.size - 1):
        most = max(most, start[a + 1] - start[a])
    factor, solved = np.empty((most, most)), np.empty((most, most))
    for a in range(start.size - 1):
        first, k = start[a], start[a + 1] - start[a]
        for p in range(k):
            b = inputs[first + p]
            for q in range(p + 1):
                total = ridge if p == q else 0.0
                for g in range(K0.shape[0]):
                    if present[g, a]:
                        total += K0[g, b, inputs[first + q]]
                for s in range(q):
                    total -= factor[p, s] * factor[q, s]
                factor[p, q] = np.sqrt(total) if p == q else total / factor[q, q]
        # solved[q] is column q of the factor's inverse.
        for q in range(k):
            solved[q, q] = 1 / factor[q, q]
            for p in range(q + 1, k):
                total = 0.0
                for s in range(q, p):
                    total -= factor[p, s] * solved[q, s]
                solved[q, p] = total / factor[p, p]
        for p in range(k):
            b = inputs[first + p]
            total = 0.0
            for s in range(p, k):
                total += solved[p, s] ** 2
            variance[a, b] = total
            mean[a, b] = 0.0
        for s in range(k):
            projected = 0.0
            for q in range(s + 1):
                for g in range(K0.shape[0]):
                    if present[g, a]:
                        projected += solved[q, s] * K1[g, a, inputs[first + q]]
            for p in range(s + 1):
                mean[a, inputs[first + p]] += solved[p, s] * projected
