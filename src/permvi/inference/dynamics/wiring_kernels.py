"""Compiled evidence of pairs of labels under wrong edges; importing this imports numba."""

from typing import NamedTuple

import numpy as np

from permvi._compiled import REORDERED_SUMS, compiled
from permvi.inference.dynamics.evidence import Moves

_compile = compiled(fastmath=REORDERED_SUMS)
# Beyond these, log(1 + exp(x)) is exp(x) and x to more digits than a move needs.
_NO_EDGE, _SURE_EDGE = -12.0, 30.0


class Subjects(NamedTuple):
    """Estimates by row and constraints, and the row (J, m) of each label, changed in place."""

    x: np.ndarray
    precision: np.ndarray
    mask: np.ndarray
    prior: np.ndarray
    rows: np.ndarray


@_compile
def _coefficients(parameters: np.ndarray, precision: float) -> tuple[float, float, float, float]:
    """Return what `_pair` needs beside the parameters: precision, constant and both factors."""
    odd, even, error = parameters[4], parameters[5], parameters[6]
    P = precision / error
    scale = 0.25 / error**2
    return (
        precision,
        -0.5 * np.log((1 + P * odd) * (1 + P * even)),
        scale * odd / (1 + P * odd),
        scale * even / (1 + P * even),
    )


@_compile
def _softplus(value: float) -> float:
    if value < _NO_EDGE:
        return np.exp(value)
    if value > _SURE_EDGE:
        return value
    return np.log1p(np.exp(value))


@_compile
def _pair(
    x: float,
    y: float,
    forward: int,
    backward: int,
    coefficients: tuple[float, float, float, float],
    parameters: np.ndarray,
) -> float:
    """Return the log evidence of a pair of labels with sums x and y of its two directions."""
    _, constant, odd, even = coefficients
    if parameters[7] > 0:
        bayes = constant + odd * (x - y) ** 2 + even * (x + y) ** 2
        return parameters[2 + forward] + _softplus(parameters[forward] + bayes)
    # Directions are independent, with the first variance for both.
    P = coefficients[0] / parameters[6]
    one = -0.5 * np.log1p(P * parameters[4])
    there = parameters[2 + forward] + _softplus(parameters[forward] + one + 2 * odd * x**2)
    return there + parameters[2 + backward] + _softplus(parameters[backward] + one + 2 * odd * y**2)


@_compile
def evidence(
    x: np.ndarray, precision: np.ndarray, support: np.ndarray, parameters: np.ndarray
) -> float:
    """Return the log evidence of sums by label, (m, m) each."""
    total = 0.0
    coefficients = _coefficients(parameters, 0.0)
    for a in range(len(x)):
        for b in range(a):
            if precision[a, b] != coefficients[0]:
                coefficients = _coefficients(parameters, precision[a, b])
            total += _pair(
                x[a, b], x[b, a], int(support[a, b]), int(support[b, a]), coefficients, parameters
            )
    return total


@_compile
def gains_of_edges(x: np.ndarray, precision: np.ndarray, parameters: np.ndarray) -> np.ndarray:
    """Return (m, m) what an edge of the diagram adds to each estimate of one subject.

    If directions go together, each gets half of what both add.
    """
    gains = np.zeros(x.shape)
    for i in range(len(x)):
        for k in range(len(x)):
            if i != k:
                coefficients = _coefficients(parameters, precision[i, k])
                here, there = x[i, k], x[k, i]
                if parameters[7] > 0:
                    with_edge = _pair(here, there, 1, 1, coefficients, parameters)
                    without = _pair(here, there, 0, 0, coefficients, parameters)
                    gains[i, k] = 0.5 * (with_edge - without)
                else:
                    with_edge = _pair(here, there, 1, 0, coefficients, parameters)
                    without = _pair(here, there, 0, 0, coefficients, parameters)
                    gains[i, k] = with_edge - without
    return gains


@_compile
def _gain(
    x: np.ndarray,
    precision: np.ndarray,
    support: np.ndarray,
    parameters: np.ndarray,
    subjects: Subjects,
    j: int,
    a: int,
    b: int,
) -> float:
    """Return what an exchange of labels a and b of subject j adds to the evidence."""
    z, own, rows = subjects.x[j], subjects.precision[j], subjects.rows[j]
    i, k = rows[a], rows[b]
    gain, coefficients = 0.0, _coefficients(parameters, precision[a, b])
    across = z[k, i] - z[i, k]
    forward, backward = int(support[a, b]), int(support[b, a])
    gain += _pair(
        x[a, b] + across, x[b, a] - across, forward, backward, coefficients, parameters
    ) - _pair(x[a, b], x[b, a], forward, backward, coefficients, parameters)
    for c in range(rows.size):
        if c in (a, b):
            continue
        h = rows[c]
        away, back, more = z[k, h] - z[i, h], z[h, k] - z[h, i], own[k, h] - own[i, h]
        for label, sign in ((a, 1.0), (b, -1.0)):
            here, there = x[label, c], x[c, label]
            forward, backward = int(support[label, c]), int(support[c, label])
            before = precision[label, c]
            if before != coefficients[0]:
                coefficients = _coefficients(parameters, before)
            gain -= _pair(here, there, forward, backward, coefficients, parameters)
            if more != 0:
                coefficients = _coefficients(parameters, before + sign * more)
            gain += _pair(
                here + sign * away,
                there + sign * back,
                forward,
                backward,
                coefficients,
                parameters,
            )
    return gain


@_compile
def _exchange(
    x: np.ndarray, precision: np.ndarray, subjects: Subjects, j: int, a: int, b: int
) -> None:
    """Exchange the labels a and b of subject j, in place."""
    z, own, rows = subjects.x[j], subjects.precision[j], subjects.rows[j]
    i, k = rows[a], rows[b]
    for c in range(rows.size):
        if c in (a, b):
            continue
        h = rows[c]
        away, back, more = z[k, h] - z[i, h], z[h, k] - z[h, i], own[k, h] - own[i, h]
        x[a, c] += away
        x[b, c] -= away
        x[c, a] += back
        x[c, b] -= back
        if more != 0:
            precision[a, c] += more
            precision[b, c] -= more
            precision[c, a] = precision[a, c]
            precision[c, b] = precision[b, c]
    across = z[k, i] - z[i, k]
    x[a, b] += across
    x[b, a] -= across
    rows[a], rows[b] = k, i


@_compile
def walk(
    x: np.ndarray,
    precision: np.ndarray,
    subjects: Subjects,
    support: np.ndarray,
    parameters: np.ndarray,
    moves: Moves,
    order: np.ndarray,
    thresholds: np.ndarray,
) -> tuple[int, np.ndarray, float]:
    """Try moves as `evidence_kernels.walk` does, with the evidence of pairs and no screening.

    Returns:
        The number of differences computed, (num,) the gain of each move in evidence and prior, and
        the evidence gained by the moves taken.
    """
    exchanges, ends = moves
    mask, prior, rows = subjects.mask, subjects.prior, subjects.rows
    num_subjects = len(rows)
    longest = 1
    for move in range(len(ends)):
        longest = max(longest, ends[move] - (ends[move - 1] if move > 0 else 0))
    done = np.empty((longest * num_subjects, 3), np.int64)
    gains, num_evaluations, total = np.empty(len(order)), 0, 0.0
    for index in range(len(order)):
        move = order[index]
        first, end = (ends[move - 1] if move > 0 else 0), ends[move]
        count, gain, before = 0, 0.0, 0.0
        for place in range(first, end):
            subject, a, b = exchanges[place]
            for j in range(num_subjects):
                i, k = rows[j, a], rows[j, b]
                if subject == j or (subject == -1 and mask[j, i, b] and mask[j, k, a]):
                    before += prior[j, i, b] + prior[j, k, a] - prior[j, i, a] - prior[j, k, b]
                    gain += _gain(x, precision, support, parameters, subjects, j, a, b)
                    num_evaluations += 1
                    _exchange(x, precision, subjects, j, a, b)
                    done[count, 0], done[count, 1], done[count, 2] = j, a, b
                    count += 1
        allowed = count > 0
        for place in range(count):
            j, a, b = done[place]
            allowed = allowed and mask[j, rows[j, a], a] and mask[j, rows[j, b], b]
        gains[index] = gain + before if allowed else -np.inf
        if gains[index] > thresholds[index]:
            total += gain
        else:
            for place in range(count - 1, -1, -1):
                j, a, b = done[place]
                _exchange(x, precision, subjects, j, a, b)
    return num_evaluations, gains, total
