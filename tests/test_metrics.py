import itertools
import math

import numpy as np
import pytest

from permvi import metrics
from permvi.permutations import enumerate_permutations


def test_hellinger_is_its_definition(rng):
    p, q = rng.dirichlet(np.ones(7), size=3), rng.dirichlet(np.ones(7), size=3)
    expected = [math.sqrt(1 - sum(math.sqrt(a * b) for a, b in zip(x, y, strict=True)))
                for x, y in zip(p, q, strict=True)]  # fmt: skip
    np.testing.assert_allclose(metrics.hellinger(p, q), expected)
    np.testing.assert_allclose(metrics.hellinger(p, p), 0, atol=1e-7)
    assert metrics.hellinger([1.0, 0.0], [0.0, 1.0]) == 1


def test_total_variation_per_row(rng):
    a, b = rng.dirichlet(np.ones(4), size=(2, 3)), rng.dirichlet(np.ones(4), size=(2, 3))
    labels, alone = slice(0, 3), 3
    found = metrics.total_variation_per_row(
        a[..., labels], b[..., labels], a[..., alone], b[..., alone]
    )
    np.testing.assert_allclose(found, np.maximum(a - b, 0).sum(-1))
    full = metrics.total_variation_per_row(a, b)
    np.testing.assert_allclose(full, found)
    assert metrics.total_variation_per_row([[1.0, 0.0]], [[0.0, 0.0]], [0.0], [1.0]) == [1.0]


@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_empirical_distribution_is_in_lexicographic_order(n):
    everything = enumerate_permutations(n)
    weights = np.arange(1.0, len(everything) + 1)
    found = metrics.empirical_distribution(everything, n, weights)
    np.testing.assert_allclose(found, weights / weights.sum())


def test_empirical_distribution_counts(rng):
    draws = np.array([rng.permutation(4) for _ in range(50)])
    order = list(itertools.permutations(range(4)))
    expected = [(draws == perm).all(1).mean() for perm in order]
    np.testing.assert_allclose(metrics.empirical_distribution(draws, 4), expected)


def test_calibration_error_is_its_definition(rng):
    confidence = rng.random(103)
    correct = rng.random(103) < confidence
    order = np.argsort(confidence)
    expected = sum(
        len(part) / 103 * abs(correct[part].mean() - confidence[part].mean())
        for part in np.array_split(order, 10)
    )
    np.testing.assert_allclose(metrics.calibration_error(confidence, correct), expected)
    curve = metrics.reliability_curve(confidence, correct)
    assert curve.counts.sum() == 103
    assert curve.counts.max() - curve.counts.min() <= 1
    assert (np.diff(curve.confidence) > 0).all()


def test_calibration_error_does_not_depend_on_the_order_of_ties(rng):
    confidence = np.repeat([0.5, 1.0], 50)
    correct = np.concatenate([np.arange(50) < 25, np.ones(50, bool)])
    for _ in range(3):
        order = rng.permutation(100)
        error = metrics.calibration_error(confidence[order], correct[order])
        np.testing.assert_allclose(error, 0, atol=1e-12)


def test_calibration_with_few_predictions():
    assert metrics.calibration_error([1.0], [False]) == 1
    np.testing.assert_allclose(metrics.calibration_error([0.25, 0.75], [0, 1], bins=1), 0)
    assert len(metrics.reliability_curve([0.2, 0.9, 0.4], [0, 1, 1]).counts) == 3


def test_log_score_is_the_mean_log_probability_of_the_truth():
    marginals = np.array([[0.5, 0.25], [0.2, 0.8]])
    alone = np.array([0.25, 0.0])
    found = metrics.log_score(marginals, [-1, 1], alone)
    np.testing.assert_allclose(found, (math.log(0.25) + math.log(0.8)) / 2)
    assert metrics.log_score(marginals, [0, -1], alone) == -math.inf


def test_accuracy():
    found = metrics.accuracy([[0, 1, 2], [0, 2, -1]], [0, 2, -1])
    np.testing.assert_allclose(found, [1 / 3, 1])
    unknown = np.array([False, True, True])
    np.testing.assert_allclose(metrics.accuracy([0, 1, -1], [0, 2, -1], where=unknown), 0.5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: metrics.hellinger([0.5, 0.4], [0.5, 0.5]), ValueError, "p must sum to one"),
        (lambda: metrics.hellinger([1.0], [0.5, 0.5]), ValueError, "same number of states"),
        (lambda: metrics.hellinger([1.5, -0.5], [0.5, 0.5]), ValueError, "non-negative"),
        (lambda: metrics.total_variation_per_row(np.eye(2), np.eye(3)), ValueError, "one shape"),
        (lambda: metrics.empirical_distribution([[0, 0]], 2), ValueError, "be permutations"),
        (lambda: metrics.empirical_distribution([[0, 1]], 3), ValueError, r"shape \(num, 3\)"),
        (lambda: metrics.empirical_distribution([[0]], 10), ValueError, "between 1 and 9"),
        (lambda: metrics.empirical_distribution([[0]], 1, [0.0]), ValueError, "weights must be 1"),
        (lambda: metrics.calibration_error([0.5], [1, 0]), ValueError, "same size"),
        (lambda: metrics.calibration_error([2.0], [1]), ValueError, "confidence must be prob"),
        (lambda: metrics.calibration_error([0.5], [1], bins=0), ValueError, "bins must be"),
        (lambda: metrics.log_score(np.eye(2), [0]), ValueError, "truth must have shape"),
        (lambda: metrics.log_score(np.eye(2), [0, 2]), ValueError, "columns 0 to 1"),
        (lambda: metrics.accuracy([0.5], [1]), TypeError, "perm must be an integer array"),
        (lambda: metrics.accuracy([0, 1], [1]), ValueError, "equally many items"),
        (lambda: metrics.accuracy([0], [0], where=[False]), ValueError, "where must choose some"),
    ],
)
def test_bad_input_is_answered_in_one_sentence(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
