"""Distances between posteriors, and the accuracy and calibration of their probabilities."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array, issparse

# The same limit as in permvi.permutations, whose import would load JAX.
_MAX_ENUMERATION = 9

_SUM_TOLERANCE = 1e-6


class ReliabilityCurve(NamedTuple):
    """Confidence and accuracy in bins of (nearly) equal mass.

    Attributes:
        confidence: (bins,) mean confidence of each bin, increasing.
        accuracy: (bins,) fraction of correct predictions.
        counts: (bins,) number of predictions.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray


def hellinger(p: ArrayLike, q: ArrayLike) -> np.ndarray:
    """The Hellinger distance ``sqrt(1 - sum_k sqrt(p_k q_k))``, which the paper tabulates as BD.

    Args:
        p: (..., K) probabilities over K states.
        q: (..., K) likewise; batch shapes broadcast.

    Returns:
        (...) distances between 0 and 1.
    """
    p, q = _distribution("p", p), _distribution("q", q)
    if p.shape[-1] != q.shape[-1]:
        raise ValueError(
            f"p and q must be over the same number of states, got {p.shape[-1]} and {q.shape[-1]}."
        )
    return np.sqrt(np.clip(1.0 - np.sqrt(p * q).sum(axis=-1), 0.0, 1.0))


def total_variation_per_row(
    marginals_a: Any,
    marginals_b: Any,
    unmatched_a: ArrayLike | None = None,
    unmatched_b: ArrayLike | None = None,
) -> np.ndarray:
    """Total variation between two posteriors' labels of each row, ``1/2 sum_j |a_ij - b_ij|``.

    Args:
        marginals_a: (..., n, m), or a SciPy sparse array (n, m).
        marginals_b: (..., n, m) likewise.
        unmatched_a: (..., n) probabilities of staying unmatched, counted as one more label; zero by
            default.
        unmatched_b: (..., n) likewise.

    Returns:
        (..., n) distances between 0 and 1.
    """
    a, b = (
        given if issparse(given) else np.asarray(given, dtype=np.float64)
        for given in (marginals_a, marginals_b)
    )
    if a.ndim < 2 or a.shape[-2:] != b.shape[-2:]:
        raise ValueError(
            f"marginals_a and marginals_b must be of one shape (..., n, m), got {a.shape} and "
            f"{b.shape}."
        )
    alone_a = 0.0 if unmatched_a is None else np.asarray(unmatched_a, dtype=np.float64)
    alone_b = 0.0 if unmatched_b is None else np.asarray(unmatched_b, dtype=np.float64)
    return 0.5 * (abs(a - b).sum(axis=-1) + np.abs(alone_a - alone_b))


def empirical_distribution(
    draws: ArrayLike, n: int, weights: ArrayLike | None = None
) -> np.ndarray:
    """Frequencies of all n! permutations among draws.

    Args:
        draws: (..., n) permutations.
        n: The number of items, at most 9.
        weights: (...) non-negative weights of the draws, equal by default.

    Returns:
        (n!,) probabilities in the lexicographic order of ``permutations.enumerate_permutations``.
    """
    if not 1 <= n <= _MAX_ENUMERATION:
        raise ValueError(f"n must be between 1 and {_MAX_ENUMERATION}, got {n}.")
    perms = np.asarray(draws)
    if perms.ndim < 2 or perms.shape[-1] != n or perms.size == 0:
        raise ValueError(f"draws must have shape (num, {n}), got shape {perms.shape}.")
    perms = perms.reshape(-1, n)
    bad = (np.sort(perms, axis=1) != np.arange(n)).any(axis=1)
    if bad.any():
        raise ValueError(f"draws must be permutations of 0 to {n - 1}, got {perms[bad][0]}.")
    # Lehmer code: the number of smaller items that come later counts the (n-1-i)! blocks before.
    rank = np.zeros(len(perms), dtype=np.int64)
    for i in range(n):
        smaller_later = (perms[:, i + 1 :] < perms[:, i, None]).sum(axis=1)
        rank += smaller_later * math.factorial(n - 1 - i)
    mass = np.ones(len(perms)) if weights is None else np.ravel(np.asarray(weights, np.float64))
    if mass.shape != rank.shape or not (mass >= 0).all() or not mass.sum() > 0:
        raise ValueError(f"weights must be {len(perms)} non-negative numbers, not all zero.")
    counts = np.bincount(rank, weights=mass, minlength=math.factorial(n))
    return counts / counts.sum()


def reliability_curve(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 10
) -> ReliabilityCurve:
    """Compute accuracy against confidence, in bins with equal numbers of predictions.

    Predictions of equal confidence count with their mean correctness, so that the curve does not
    depend on the order of the input.

    Args:
        confidence: Probabilities of the predictions, e.g. of each item's best label.
        correct: Whether each prediction was right, of the same shape.
        bins: Number of bins; fewer if there are fewer predictions.

    Returns:
        Mean confidence, accuracy and count of each bin.
    """
    promised = np.ravel(np.asarray(confidence, dtype=np.float64))
    kept = np.ravel(np.asarray(correct, dtype=np.float64))
    if promised.shape != kept.shape or promised.size == 0:
        raise ValueError(
            "confidence and correct must be of the same size, at least 1, "
            f"got {promised.size} and {kept.size}."
        )
    if not ((promised >= 0) & (promised <= 1 + _SUM_TOLERANCE)).all():
        raise ValueError("confidence must be probabilities.")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}.")
    levels, place = np.unique(promised, return_inverse=True)
    sizes = np.bincount(place)
    accuracy = np.bincount(place, weights=kept) / sizes
    parts = np.array_split(np.repeat(np.arange(len(levels)), sizes), min(bins, len(promised)))
    return ReliabilityCurve(
        np.array([levels[part].mean() for part in parts]),
        np.array([accuracy[part].mean() for part in parts]),
        np.array([len(part) for part in parts]),
    )


def calibration_error(confidence: ArrayLike, correct: ArrayLike, bins: int = 10) -> float:
    """Expected calibration error ``sum_b counts_b / N |accuracy_b - confidence_b|``.

    Args:
        confidence: As for :func:`reliability_curve`.
        correct: As for :func:`reliability_curve`.
        bins: Number of bins of equal mass.
    """
    curve = reliability_curve(confidence, correct, bins)
    gaps = np.abs(curve.accuracy - curve.confidence)
    return float(gaps @ curve.counts / curve.counts.sum())


def log_score(marginals: Any, truth: ArrayLike, p_unmatched_rows: ArrayLike | None = None) -> float:
    """The mean log probability of the true labels; -inf if one of them has probability zero.

    Args:
        marginals: (..., n, m), or a SciPy sparse array (n, m).
        truth: (..., n) true columns, -1 for unmatched.
        p_unmatched_rows: (..., n) probabilities of staying unmatched, zero by default.
    """
    pairs = marginals if issparse(marginals) else np.asarray(marginals, dtype=np.float64)
    labels = _labels("truth", truth)
    if labels.shape != pairs.shape[:-1]:
        raise ValueError(f"truth must have shape {pairs.shape[:-1]}, got shape {labels.shape}.")
    if not ((labels >= -1) & (labels < pairs.shape[-1])).all():
        raise ValueError(f"truth must hold columns 0 to {pairs.shape[-1] - 1} or -1.")
    alone = np.zeros(labels.shape) if p_unmatched_rows is None else np.asarray(p_unmatched_rows)
    if issparse(pairs):
        places = np.arange(len(labels)), np.maximum(labels, 0)
        chosen = np.where(labels < 0, alone, csr_array(pairs)[places])
    else:
        states = np.concatenate([pairs, alone[..., None]], axis=-1)
        chosen = np.take_along_axis(states, labels[..., None] % states.shape[-1], axis=-1)
    with np.errstate(divide="ignore"):
        return float(np.log(chosen).mean())


def accuracy(perm: ArrayLike, truth: ArrayLike, where: ArrayLike | None = None) -> np.ndarray:
    """The fraction of items that have their true label.

    Args:
        perm: (..., n) columns, -1 for unmatched.
        truth: (..., n) true columns; batch shapes broadcast.
        where: (n,) boolean, True for the items to count; all by default.

    Returns:
        (...) fractions.
    """
    found, wanted = _labels("perm", perm), _labels("truth", truth)
    if found.shape[-1:] != wanted.shape[-1:]:
        raise ValueError(
            f"perm and truth must be of equally many items, got {found.shape} and {wanted.shape}."
        )
    right = found == wanted
    if where is None:
        return right.mean(axis=-1)
    counted = np.asarray(where, dtype=bool)
    if counted.shape != right.shape[-1:] or not counted.any():
        raise ValueError(f"where must choose some of {right.shape[-1]} items, got {counted}.")
    return right[..., counted].mean(axis=-1)


def _distribution(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim < 1 or not (array >= 0).all():
        raise ValueError(f"{name} must be non-negative probabilities of shape (..., K).")
    sums = array.sum(axis=-1)
    if not (np.abs(sums - 1.0) <= _SUM_TOLERANCE).all():
        raise ValueError(f"{name} must sum to one, got {np.ravel(sums)[0]:.6g}.")
    return array


def _labels(name: str, value: ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.ndim < 1:
        raise TypeError(f"{name} must be an integer array of shape (..., n), got {array.dtype}.")
    return array
