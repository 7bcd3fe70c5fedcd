"""Compiled evidence of sparse ridge regressions and of exchanges; importing this imports numba.

The state is kept by label: `Sums` holds the statistics of one group of all subjects where
everything is recorded, else of one group for each subject, and ``rows[j, a]`` is the row of subject
j that has label a. Exchanging the labels a and b of a subject changes the evidence of only a few
rows of W.
"""

from typing import NamedTuple

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled
from permvi.inference.dynamics.evidence import Moves, Screen
from permvi.inference.dynamics.regression import Lists, Sums

_compile = compiled(fastmath=REORDERED_SUMS)


class Subjects(NamedTuple):
    """Arrays of a `SharedRegression`, and the row (J, m) of each label, changed in place."""

    C0: np.ndarray
    C1: np.ndarray
    mask: np.ndarray
    prior: np.ndarray
    rows: np.ndarray


@_compile
def row_evidence(
    sums: Sums, inputs: Lists, a: int, ridge: float, noise: float, work: np.ndarray
) -> float:
    r"""Return the log evidence of row a of W, up to a constant that no permutation changes.

    :math:`\frac{1}{2 \sigma^2} r^\top (S + \lambda I)^{-1} r - \frac12 \log\det(I + S / \lambda)`
    with S and r the statistics of the row's inputs and of the row, over the subjects that have it.
    The noise variance is :math:`\sigma^2`, the ridge :math:`\lambda`. ``work`` is (k + 1, k + 1) or
    larger for k inputs, and is overwritten with the Cholesky factor L of :math:`S + \lambda I` and,
    in the row below it, :math:`L^{-1} r`.
    """
    (K0, K1, present), (entries, start) = sums, inputs
    first, k = start[a], start[a + 1] - start[a]
    for p in range(k):
        b = entries[first + p]
        for q in range(p + 1):
            work[p, q] = 0.0
        work[k, p] = 0.0
        for g in range(K0.shape[0]):
            if present[g, a]:
                for q in range(p + 1):
                    work[p, q] += K0[g, b, entries[first + q]]
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
def workspace(inputs: Lists) -> np.ndarray:
    """Return an array that is large enough for `row_evidence` of every row."""
    most = 0
    for a in range(inputs.start.size - 1):
        most = max(most, inputs.start[a + 1] - inputs.start[a])
    return np.empty((most + 1, most + 1))


@_compile
def all_evidence(sums: Sums, inputs: Lists, ridge: float, noise: float) -> np.ndarray:
    """Return (m,) `row_evidence` of all rows."""
    work, evidence = workspace(inputs), np.empty(inputs.start.size - 1)
    for a in range(evidence.size):
        evidence[a] = row_evidence(sums, inputs, a, ridge, noise, work)
    return evidence


@_compile
def _exchange_one(K: np.ndarray, C: np.ndarray, rows: np.ndarray, a: int, b: int) -> None:
    """Update K, (m, m), for an exchange of labels a and b of the subject with statistics C."""
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
def exchange(sums: Sums, subjects: Subjects, j: int, a: int, b: int) -> None:
    """Exchange the labels a and b of subject j, in place."""
    K0, K1, present = sums
    g, rows = min(j, K0.shape[0] - 1), subjects.rows[j]
    _exchange_one(K0[g], subjects.C0[j], rows, a, b)
    _exchange_one(K1[g], subjects.C1[j], rows, a, b)
    present[g, a], present[g, b] = present[g, b], present[g, a]
    rows[a], rows[b] = rows[b], rows[a]


@_compile
def _prior_gain(prior: np.ndarray, rows: np.ndarray, a: int, b: int) -> float:
    """Return what an exchange of labels a and b adds to a subject's log prior, (m, m)."""
    i, k = rows[a], rows[b]
    return prior[i, b] + prior[k, a] - prior[i, a] - prior[k, b]


@_compile
def _permitted(mask: np.ndarray, rows: np.ndarray, a: int, b: int) -> bool:
    """Return whether a subject's mask, (m, m), allows an exchange of labels a and b."""
    return bool(mask[rows[a], b] and mask[rows[b], a])


@_compile
def _is_among(lists: Lists, label: int, value: int) -> bool:
    """Return whether the list of a label, which is increasing, holds a value."""
    first, end = lists.start[label], lists.start[label + 1]
    place = first + np.searchsorted(lists.entries[first:end], value)
    return bool(place < end and lists.entries[place] == value)


@_compile
def _screen(scores: Screen, subjects: Subjects, neighbours: Lists, j: int, a: int, b: int) -> float:
    """Return what an exchange of labels a and b of subject j adds to its pair scores."""
    A, B, rows = scores.A[j], scores.B[j], subjects.rows[j]
    i, k = rows[a], rows[b]
    gain = _prior_gain(subjects.prior[j], rows, a, b)
    for t in range(len(A)):
        At, Bt = A[t], B[t]
        gain += (At[i, k] - At[k, i]) * (Bt[b, a] - Bt[a, b])
        for label, other in ((a, b), (b, a)):
            for place in range(neighbours.start[label], neighbours.start[label + 1]):
                c = neighbours.entries[place]
                if c in (a, b) or (label == b and _is_among(neighbours, other, c)):
                    continue
                h = rows[c]
                gain += (At[i, h] - At[k, h]) * (Bt[b, c] - Bt[a, c])
                gain += (At[h, i] - At[h, k]) * (Bt[c, b] - Bt[c, a])
    return gain


@_compile
def walk(
    sums: Sums,
    subjects: Subjects,
    lists: tuple[Lists, Lists, Lists],
    evidence: np.ndarray,
    regression: tuple[float, float],
    moves: Moves,
    order: np.ndarray,
    thresholds: np.ndarray,
    screen: Screen,
) -> tuple[int, np.ndarray]:
    """Try moves one after another and take those that gain more than their thresholds, in place.

    Thresholds of zero climb. Logarithms of uniform numbers make it the Metropolis algorithm. +inf
    evaluates without moving.

    Exchanges in one subject may be screened by cheap scores: those whose score gains no more than a
    first threshold are dropped, and for the others the exact gain minus that of the score has to
    exceed the second threshold. With logarithms of uniform numbers for both, this is delayed
    acceptance (Christen and Fox 2005), which leaves the distribution invariant.

    Args:
        sums: Statistics by label, kept up to date.
        subjects: Statistics and constraints of the subjects; their rows are kept up to date.
        lists: `SharedRegression.inputs`, ``touched`` and ``neighbours``.
        evidence: (m,) the evidence of each row, kept up to date.
        regression: The ridge and the noise variance.
        moves: The moves.
        order: (num,) which moves to try.
        thresholds: (num,) what the log density has to gain.
        screen: Pair scores and (num,) first thresholds, -inf for no screening.

    Returns:
        The number of evidences computed, and (num,) what each move gains, -inf where it is not
        permitted or was dropped.
    """
    (inputs, touched, neighbours), (ridge, noise) = lists, regression
    exchanges, ends = moves
    mask, prior, rows = subjects.mask, subjects.prior, subjects.rows
    work, gains = workspace(inputs), np.empty(order.size)
    fresh, stamp = np.empty(evidence.size), np.full(evidence.size, -1)
    # The exchanges of a move, in case they have to be undone.
    done = np.empty((len(exchanges) * rows.shape[0], 3), np.int64)
    num_evaluations = 0
    for index in range(len(order)):
        move = order[index]
        first, end = (ends[move - 1] if move else 0), ends[move]
        gain, count, screened = 0.0, 0, 0.0
        subject, a, b = exchanges[first]
        if screen.thresholds[index] > -np.inf and end - first == 1 and subject >= 0:
            if _permitted(mask[subject], rows[subject], a, b):
                screened = _screen(screen, subjects, neighbours, subject, a, b)
            else:
                screened = -np.inf
            if screened <= screen.thresholds[index]:
                gains[index] = -np.inf
                continue
        for place in range(first, end):
            subject, a, b = exchanges[place]
            for j in range(rows.shape[0]):
                if subject == j or (subject == -1 and _permitted(mask[j], rows[j], a, b)):
                    gain += _prior_gain(prior[j], rows[j], a, b)
                    exchange(sums, subjects, j, a, b)
                    done[count, 0], done[count, 1], done[count, 2] = j, a, b
                    count += 1
        allowed = count > 0
        for place in range(count):
            j, a, b = done[place]
            allowed = allowed and mask[j, rows[j, a], a] and mask[j, rows[j, b], b]
        if allowed:
            num_evaluations += 1
            # Rows with both labels as inputs do not change if all subjects exchange them.
            everywhere = end - first == 1 and count == rows.shape[0]
            for place in range(first, end):
                _, a, b = exchanges[place]
                for label, other in ((a, b), (b, a)):
                    for at in range(touched.start[label], touched.start[label + 1]):
                        c = touched.entries[at]
                        unchanged = everywhere and c not in (a, b) and _is_among(touched, other, c)
                        if stamp[c] == index or unchanged:
                            continue
                        stamp[c] = index
                        fresh[c] = row_evidence(sums, inputs, c, ridge, noise, work)
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
                exchange(sums, subjects, j, a, b)
    return num_evaluations, gains


@_compile
def row_posteriors(sums: Sums, inputs: Lists, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Return (m, m) :math:`(S + \lambda I)^{-1} r` and the inverse's diagonal, row by row."""
    entries, start = inputs
    mean, variance = np.zeros(sums.K0.shape[1:]), np.zeros(sums.K0.shape[1:])
    work = workspace(inputs)
    solved = np.empty_like(work)
    for a in range(start.size - 1):
        first, k = start[a], start[a + 1] - start[a]
        row_evidence(sums, inputs, a, ridge, 1.0, work)
        # solved[q] is column q of the inverse of the factor.
        for q in range(k):
            solved[q, q] = 1 / work[q, q]
            for p in range(q + 1, k):
                total = 0.0
                for s in range(q, p):
                    total -= work[p, s] * solved[q, s]
                solved[q, p] = total / work[p, p]
        for p in range(k):
            b = entries[first + p]
            for s in range(p, k):
                variance[a, b] += solved[p, s] ** 2
                mean[a, b] += solved[p, s] * work[k, s]
    return mean, variance


@_compile
def draw_weights(
    sums: Sums, inputs: Lists, ridge: float, noise: float, normals: np.ndarray
) -> tuple[float, np.ndarray]:
    r"""Draw W given statistics by label.

    With :math:`L L^\top = S + \lambda I`, row by row, a draw is
    :math:`L^{-\top} (L^{-1} r + \sigma z)`. The standard normal numbers z are ``normals``, (E,);
    zeros give the mean of W.

    Returns:
        The log evidence of the permutations with W integrated out, up to a constant, and (E,) the
        draw.
    """
    start, work, drawn = inputs.start, workspace(inputs), np.empty(normals.size)
    total, scale = 0.0, np.sqrt(noise)
    for a in range(start.size - 1):
        first, k = start[a], start[a + 1] - start[a]
        total += row_evidence(sums, inputs, a, ridge, noise, work)
        for p in range(k - 1, -1, -1):
            value = work[k, p] + scale * normals[first + p]
            for q in range(p + 1, k):
                value -= work[q, p] * drawn[first + q]
            drawn[first + p] = value / work[p, p]
    return total, drawn
