"""Pseudo-observations of heavy tails, filtered inputs, and how models take them."""

import numpy as np
import pytest
from scipy.stats import kstest
from threadpoolctl import threadpool_limits

from permvi.models import SharedDynamics, _innovations
from permvi.models._dynamics_arguments import Statistics
from permvi.models._innovations import Tails, filtered_statistics, heavy_tailed, student

SUPPORT = np.array([[False, True, True], [True, False, False], [True, False, False]])


def simulate(rng, noise, n=6):
    """Activity (T, n) of a stable random system with given innovations (T, n), and its weights."""
    W = rng.normal(size=(n, n))
    W *= 0.8 / np.abs(np.linalg.eigvals(W)).max()
    activity = np.zeros_like(noise)
    for t in range(1, len(noise)):
        activity[t] = W @ activity[t - 1] + noise[t]
    return activity, W


def test_pseudo_observations_of_nearly_normal_tails_are_the_residuals(rng):
    residuals = rng.normal(size=(300, 4))
    np.testing.assert_allclose(Tails(1e9, 1.0).pseudo(residuals), residuals, rtol=1e-6)


@pytest.mark.parametrize("df", [2.0, 3.0, 5.0])
def test_degrees_and_scale_of_student(rng, df):
    found = student(1.7 * rng.standard_t(df, size=40_000))
    # 20,000 residuals tell neighbours on the grid of degrees apart up to one.
    assert abs(np.log(found.degrees / df)) < 0.35
    np.testing.assert_allclose(found.scale, 1.7, rtol=0.08)


def test_normal_innovations_are_left_alone(rng):
    activity, _ = simulate(rng, rng.normal(size=(2000, 6)))
    assert heavy_tailed([activity], [Statistics.of(activity)], 1e-6) is None


def test_heavy_tails_are_fitted_by_maximum_likelihood(rng):
    """Least squares of the pseudo-observations solve the likelihood equations of Student's t.

    With 3 degrees of freedom, their error variance is half that of least squares.
    """
    errors = []
    for _ in range(6):
        activity, W = simulate(rng, rng.standard_t(3, size=(1500, 6)))
        plain = Statistics.of(activity)
        found = heavy_tailed([activity], [plain], 1e-6)
        assert found is not None
        (part,), tails = found
        assert 2 <= tails.degrees <= 5
        fits = [np.linalg.solve(each.C0, each.C1.T).T for each in (part, plain)]
        errors.append([((fit - W) ** 2).sum() for fit in fits])
        residuals = activity[1:] - activity[:-1] @ fits[0].T
        scores = residuals / (tails.degrees * tails.scale**2 + residuals**2)
        equations = scores.T @ activity[:-1]
        sizes = np.sqrt((scores**2).sum(axis=0)[:, None] * (activity[:-1] ** 2).sum(axis=0))
        assert np.abs(equations / sizes).max() < 1e-3
        np.testing.assert_array_equal(part.C0, plain.C0)
    robust, least_squares = np.mean(errors, axis=0)
    assert robust < 0.7 * least_squares


def test_filtered_inputs_are_those_of_a_kalman_filter(rng):
    """One neuron that drives itself: the filter with its full recursion has a steady gain."""
    w, q, r = 0.9, 1.0, 0.7
    state, observed = 0.0, np.empty((400, 1))
    for t in range(400):
        state = w * state + np.sqrt(q) * rng.normal()
        observed[t] = state + np.sqrt(r) * rng.normal()
    variance, mean, means = q, 0.0, np.empty(400)
    for t in range(400):
        gain = variance / (variance + r)
        mean = w * mean + gain * (observed[t, 0] - w * mean)
        means[t] = mean
        variance = w**2 * (1 - gain) * variance + q
    found = filtered_statistics(observed, np.array([[w]]), gain)
    # The first few gains differ.
    np.testing.assert_allclose(found.C0, means[:-1] @ means[:-1], rtol=5e-3)
    np.testing.assert_allclose(found.C1, observed[1:, 0] @ means[:-1], rtol=5e-3)


def test_gain_one_leaves_statistics_as_they_are(rng):
    model = SharedDynamics([rng.normal(size=(50, 3)), rng.normal(size=(40, 2))], SUPPORT)
    perms = np.array([[2, 0, 1], [1, 0, 2]])
    found, given = model.filtered_statistics(np.ones((3, 3)), perms, 1.0), model.shared_regression()
    for name in ("C0", "C1"):
        np.testing.assert_allclose(found[name], given[name])


def test_forgiving_regression_of_a_model(rng):
    heavy, _ = simulate(rng, rng.standard_t(3, size=(1000, 3)), n=3)
    model = SharedDynamics(heavy, SUPPORT)
    found, plain = model.forgiving_regression(), model.shared_regression()
    assert 2 <= found["degrees"] <= 5
    assert found["noise_scale"] < plain["noise_scale"]
    normal = SharedDynamics(rng.normal(size=(1000, 3)), SUPPORT)
    assert "degrees" not in normal.forgiving_regression()
    assert "filtered" in normal.forgiving_regression()
    # A scale that is given says what the noise is.
    fixed = SharedDynamics(heavy, SUPPORT, noise_scale=1.0).forgiving_regression()
    assert not {"degrees", "filtered"} & set(fixed)


def test_a_list_of_one_recording_takes_lists_of_one_constraint(rng):
    recording = rng.normal(size=(30, 3))
    constraints = {
        "mask": np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], bool),
        "known": np.array([-1, -1, 2]),
        "prior_scores": rng.normal(size=(3, 3)),
    }
    alone = SharedDynamics(recording, SUPPORT, **constraints)
    listed = SharedDynamics([recording], SUPPORT, **{k: [v] for k, v in constraints.items()})
    stacked = SharedDynamics([recording], SUPPORT, **{k: v[None] for k, v in constraints.items()})
    for name in constraints:
        for model in (listed, stacked):
            np.testing.assert_array_equal(getattr(model, name), getattr(alone, name))


def test_statistics_do_not_depend_on_the_threads_of_blas(rng):
    recording = rng.normal(size=(700, 150))
    support = rng.random((150, 150)) < 0.1
    found = []
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            model = SharedDynamics([recording], support)
        found.append((model.C0, model.C1, model.weight_scale))
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_prediction_errors_are_those_of_a_full_kalman_filter(rng):
    """In units of their root: the recursion with all covariances, without a steady state."""
    W, q, r, T = 0.8 * np.array([[0.0, 1.0], [-1.0, 0.2]]), 1.0, 0.6, 8000
    state, observed = np.zeros(2), np.empty((T, 2))
    for t in range(T):
        state = W @ state + np.sqrt(q) * rng.normal(size=2)
        observed[t] = state + np.sqrt(r) * rng.normal(size=2)
    mean, P, errors = np.zeros(2), q * np.eye(2), np.empty((T, 2))
    for t in range(T):
        errors[t] = observed[t] - mean
        S = P + r * np.eye(2)
        gain = P @ np.linalg.inv(S)
        mean = W @ (mean + gain @ errors[t])
        P = W @ (P - gain @ P) @ W.T + q * np.eye(2)
        errors[t] = np.linalg.solve(np.linalg.cholesky(S), errors[t])
    steady = float(np.trace(gain)) / 2
    found = _innovations._Filter.of(observed, W, steady)
    # The variance is estimated from 16,000 numbers: its standard error is 1.1 %.
    np.testing.assert_allclose(found.gain, gain, atol=0.03)
    ours = found.errors(observed, W)
    np.testing.assert_allclose(ours[50:], errors[51:], atol=0.03 * np.abs(errors).max())
    np.testing.assert_allclose(np.cov(ours[50:].T), np.eye(2), atol=0.06)


def test_heavy_tails_become_normal(rng):
    e = np.full((1, 1, 2, 30_000), np.nan)
    e[..., 5:] = 1.7 * rng.standard_t(3, size=(1, 1, 2, 29_995))
    z = _innovations._normal_scores(e, 3.0)
    assert np.isnan(z[..., :5]).all()
    assert kstest(z[..., 5:].ravel(), "norm").pvalue > 0.01
    assert (np.sign(z[..., 5:]) == np.sign(e[..., 5:])).all()
