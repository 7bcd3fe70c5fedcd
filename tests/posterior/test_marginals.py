import numpy as np
import pytest

from permvi.posterior import Posterior, normalise_marginals
from permvi.posterior.marginals import check_marginals
from tests.posterior import cases

each_problem = pytest.mark.parametrize("problem", cases.PROBLEMS.values(), ids=cases.PROBLEMS)


@each_problem
def test_repairs_every_kind_of_marginals(problem, rng):
    posterior = cases.make("exact", problem(rng), rng)
    exact = (posterior.marginals, posterior.p_unmatched_rows, posterior.p_unmatched_cols)
    off = [p * (1 + 0.02 * rng.uniform(-1, 1, size=p.shape)) for p in exact]
    found = normalise_marginals(*off)
    np.testing.assert_allclose(found.marginals.sum(-1) + found.p_unmatched_rows, 1, atol=1e-11)
    np.testing.assert_allclose(found.marginals.sum(-2) + found.p_unmatched_cols, 1, atol=1e-11)
    for ours, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.05)
        np.testing.assert_array_equal(ours[theirs == 0], 0)


def test_leaves_exact_marginals_alone(rng):
    posterior = cases.make("exact", cases.square(rng), rng)
    found = normalise_marginals(posterior.marginals)
    np.testing.assert_allclose(found.marginals, posterior.marginals, atol=1e-14)


def test_is_the_nearest_in_kullback_leibler_divergence(rng):
    """Scaling by factors is what makes the projection: cross ratios stay as they were."""
    raw = rng.uniform(0.1, 1.0, size=(4, 4))
    found = normalise_marginals(raw).marginals
    ratio = found / raw
    np.testing.assert_allclose(ratio, ratio[:, :1] * ratio[:1] / ratio[0, 0], rtol=1e-9)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_the_longer_side_is_left_over(shape, rng):
    raw = cases.make("exact", {"scores": rng.normal(size=shape)}, rng).marginals
    found = normalise_marginals(raw.astype(np.float32))
    check_marginals(*found)
    shorter = found.p_unmatched_rows if shape[0] < shape[1] else found.p_unmatched_cols
    assert (shorter == 0).all()


@pytest.mark.parametrize(
    "raw",
    [
        # Entries that no matching uses make Sinkhorn's own steps converge like 1 / steps.
        [[1.0, 0.3], [0.0, 1.0]],
        [[0.5, 0.5, 0.3], [0.5, 0.5, 0.2], [0.0, 0.0, 1.0]],
        # Two blocks that hardly touch.
        [[1.0, 1e-9], [0.5, 1.0]],
    ],
)
def test_slow_cases_end_exactly(raw):
    found = normalise_marginals(raw).marginals
    np.testing.assert_allclose(found.sum(0), 1, atol=1e-11)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-11)


def test_float32_marginals_of_a_large_problem(rng):
    raw = np.exp(rng.normal(size=(2, 100, 100))).astype(np.float32)
    for _ in range(3):
        raw /= raw.sum(-1, keepdims=True)
        raw /= raw.sum(-2, keepdims=True)
    found = normalise_marginals(raw)
    check_marginals(*found)
    np.testing.assert_allclose(found.marginals, raw, atol=1e-2)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([[1.0, np.nan], [0.0, 1.0]], "raw must be finite and non-negative"),
        ([[1.0, -0.1], [0.0, 1.0]], "raw must be finite and non-negative"),
        ([[1.0, 1.0], [0.0, 0.0]], "positive entry in each row and column"),
        ([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], "raw must be positive on some"),
        ([1.0], r"raw must have shape \(n, m\)"),
    ],
)
def test_what_cannot_be_scaled_is_refused(raw, message):
    with pytest.raises(ValueError, match=message):
        normalise_marginals(raw)


def test_tiny_errors_pass_and_are_clipped():
    posterior = Posterior(
        law=cases.make("tabular", {"scores": np.zeros((2, 2))}, np.random.default_rng(0)).law,
        marginals=[[1.0 + 1e-9, -1e-9], [0.0, 1.0]],
        mode=[0, 1],
    )
    assert posterior.marginals.min() == 0
    assert posterior.marginals.max() == 1


def test_entries_outside_all_matchings_vanish():
    # Triangular: only the diagonal is a matching, and Sinkhorn's steps alone would take for ever.
    raw = np.triu(np.ones((7, 7)))
    found = normalise_marginals(raw)
    np.testing.assert_allclose(found.marginals, np.eye(7), atol=1e-11)
