"""Compiled swaps of one subject's labels given the weights; importing this imports numba."""

from typing import NamedTuple

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled
from permvi.inference.dynamics.regression import Lists

_compile = compiled(fastmath=REORDERED_SUMS)


class System(NamedTuple):
    """The weights W (m, m) of all subjects, the noise variance, and lists of `SharedRegression`."""

    W: np.ndarray
    support: np.ndarray
    inputs: Lists
    touched: Lists
    noise: float


class Subject(NamedTuple):
    r"""One subject and its permutation; the last three arrays are changed in place.

    The first five are the subject's part of a `SharedRegression`, (m, m) or (m,).

    Attributes:
        pairs: (K, 2) rows with a choice and the labels that they may have, sorted by row.
        pairs_start: (m + 1,) where in ``pairs`` each row begins.
        labels: (m,) the label of each row.
        rows: (m,) the row of each label.
        U: (m, m) the covariance of row h with what drives label c,
            :math:`U_{ch} = \sum_b W_{cb} C_0[\text{rows}_b, h]`. It makes an exchange of two labels
            cost a few operations for each weight that moves.
    """

    C0: np.ndarray
    C1: np.ndarray
    recorded: np.ndarray
    prior: np.ndarray
    mask: np.ndarray
    pairs: np.ndarray
    pairs_start: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    U: np.ndarray


@_compile
def gain_of_exchange(system: System, subject: Subject, a: int, b: int) -> float:
    r"""Return what an exchange of labels a and b adds to a subject's log density given W.

    By row, the weights x of a label c become :math:`x + d (e_k - e_i)`, where i and k are the rows
    of a and b and :math:`d = W_{ca} - W_{cb}`.
    """
    W, C0, C1, U, rows = system.W, subject.C0, subject.C1, subject.U, subject.rows
    recorded, prior = subject.recorded, subject.prior
    inputs, touched = system.inputs, system.touched
    i, k = rows[a], rows[b]
    spread = C0[i, i] + C0[k, k] - 2 * C0[i, k]
    gain = 0.0
    for label in (a, b):
        for place in range(touched.start[label], touched.start[label + 1]):
            c = touched.entries[place]
            if label == b and (system.support[c, a] or c == a):
                continue
            d = W[c, a] - W[c, b]
            square = 2 * d * (U[c, k] - U[c, i]) + d * d * spread
            if c not in (a, b):
                h = rows[c]
                if recorded[h]:
                    gain += 2 * d * (C1[h, k] - C1[h, i]) - square
                continue
            # The targets of these two labels change as well.
            before, after = (i, k) if c == a else (k, i)
            form, was, becomes = 0.0, 0.0, d * (C1[after, k] - C1[after, i])
            for at in range(inputs.start[c], inputs.start[c + 1]):
                weight, h = W[c, inputs.entries[at]], rows[inputs.entries[at]]
                form += weight * U[c, h]
                was += weight * C1[before, h]
                becomes += weight * C1[after, h]
            if recorded[before]:
                gain -= 2 * was - form
            if recorded[after]:
                gain += 2 * becomes - form - square
    return gain / (2 * system.noise) + prior[i, b] + prior[k, a] - prior[i, a] - prior[k, b]


@_compile
def exchange(system: System, subject: Subject, a: int, b: int) -> None:
    """Exchange the labels a and b of a subject, in place."""
    C0, U, rows, touched = subject.C0, subject.U, subject.rows, system.touched
    i, k = rows[a], rows[b]
    for label in (a, b):
        for place in range(touched.start[label], touched.start[label + 1]):
            c = touched.entries[place]
            if label == b and (system.support[c, a] or c == a):
                continue
            d = system.W[c, a] - system.W[c, b]
            for h in range(rows.size):
                U[c, h] += d * (C0[k, h] - C0[i, h])
    rows[a], rows[b] = k, i
    subject.labels[i], subject.labels[k] = b, a


@_compile
def _walk(
    subject: Subject, first: int, rng: np.random.Generator, seen: np.ndarray, cycle: np.ndarray
) -> int:
    """Fill ``cycle`` with labels to be passed on, each row taking the next label.

    Each row chooses one of its other labels uniformly, and the row that had that label is next,
    until the first row's label is chosen. The walk fails if it reaches any other row twice.

    Returns:
        The length of the cycle, 0 if the walk failed.
    """
    seen[:] = False
    row, length = first, 0
    while not seen[row]:
        begin, end = subject.pairs_start[row], subject.pairs_start[row + 1]
        seen[row] = True
        cycle[length] = subject.labels[row]
        length += 1
        chosen = subject.pairs[begin + int(rng.random() * (end - begin - 1)), 1]
        if chosen == subject.labels[row]:
            chosen = subject.pairs[end - 1, 1]
        row = subject.rows[chosen]
        if row == first:
            return length
    return 0


@_compile
def metropolis(
    system: System, subject: Subject, num_swaps: int, num_cycles: int, rng: np.random.Generator
) -> tuple[int, int, int]:
    """Take Metropolis steps of one subject given W, in place: first swaps, then cycles.

    Both proposals are symmetric (see `permvi.inference.mcmc.moves`): a swap makes one of the
    allowed pairs, and the probability of a cycle depends only on the rows in it.

    Returns:
        The numbers of differences computed, of swaps taken and of cycles taken.
    """
    pairs, mask, rows, labels = subject.pairs, subject.mask, subject.rows, subject.labels
    num_differences, num_swapped, num_cycled = 0, 0, 0
    for _ in range(num_swaps):
        i, b = pairs[int(rng.random() * len(pairs))]
        a = labels[i]
        if a == b or not mask[rows[b], a]:
            continue
        num_differences += 1
        if np.log(1.0 - rng.random()) < gain_of_exchange(system, subject, a, b):
            exchange(system, subject, a, b)
            num_swapped += 1
    seen, cycle = np.empty(rows.size, np.bool_), np.empty(rows.size, np.int64)
    for _ in range(num_cycles):
        first = pairs[int(rng.random() * len(pairs)), 0]
        length = _walk(subject, first, rng, seen, cycle)
        if length == 0:
            continue
        gain = 0.0
        for place in range(1, length):
            num_differences += 1
            gain += gain_of_exchange(system, subject, cycle[0], cycle[place])
            exchange(system, subject, cycle[0], cycle[place])
        if np.log(1.0 - rng.random()) < gain:
            num_cycled += 1
        else:
            for place in range(length - 1, 0, -1):
                exchange(system, subject, cycle[0], cycle[place])
    return num_differences, num_swapped, num_cycled


@_compile
def climb(system: System, subject: Subject, tolerance: float) -> tuple[int, int]:
    """Take allowed swaps that gain more than the tolerance, in place, until there are none.

    Returns:
        The numbers of differences computed and of swaps taken.
    """
    mask, rows = subject.mask, subject.rows
    num_differences, num_swapped, since = 0, 0, 0
    while True:
        for a in range(rows.size):
            for b in range(a):
                if not (mask[rows[a], b] and mask[rows[b], a]):
                    continue
                num_differences += 1
                if gain_of_exchange(system, subject, a, b) > tolerance:
                    exchange(system, subject, a, b)
                    num_swapped += 1
        if num_swapped == since:
            return num_differences, num_swapped
        since = num_swapped
