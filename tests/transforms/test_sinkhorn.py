"""Sinkhorn scaling against the plain algorithm, its limit and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import transforms


def plain(log_m, num_steps, mask=None):
    M = np.exp(log_m) if mask is None else np.exp(log_m) * mask
    for _ in range(num_steps):
        M = M / M.sum(-1, keepdims=True)
        M = M / M.sum(-2, keepdims=True)
    return M


BANDED = np.eye(5, dtype=bool) | np.eye(5, k=1, dtype=bool) | np.eye(5, k=-4, dtype=bool)
BLOCKS = np.kron(np.eye(2), np.ones((3, 3)))[:5, :5].astype(bool)


@pytest.mark.float32
@pytest.mark.parametrize("num_steps", [1, 10, 25])
@pytest.mark.parametrize("mask", [None, BANDED, BLOCKS])
def test_fixed_steps_are_the_plain_algorithm(num_steps, mask, rng):
    log_m = jnp.asarray(rng.normal(size=(2, 3, 5, 5)))
    M = transforms.sinkhorn(log_m, num_steps, mask)
    expected = plain(np.asarray(log_m, np.float64), num_steps, mask)
    np.testing.assert_allclose(M, expected, rtol=100 * float(jnp.finfo(M.dtype).eps))
    if mask is not None:
        assert (np.asarray(M)[..., ~mask] == 0).all()


def test_ten_steps_are_the_default(rng):
    log_m = rng.normal(size=(4, 4))
    np.testing.assert_array_equal(transforms.sinkhorn(log_m), transforms.sinkhorn(log_m, 10))


@pytest.mark.float32
@pytest.mark.parametrize("mask", [None, BANDED, BLOCKS])
def test_until_is_doubly_stochastic_and_says_so(mask, rng):
    log_m = jnp.asarray(rng.normal(size=(3, 5, 5)))
    result = transforms.sinkhorn_until(log_m, max_steps=5000, mask=mask)
    assert result.converged.all()
    tolerance = 16 * 5 * float(jnp.finfo(log_m.dtype).eps)
    assert (transforms.marginal_error(result.matrix) <= tolerance).all()
    # A scaled matrix keeps the cross ratios of what it was made from.
    ratio = np.log(np.asarray(result.matrix)) if mask is None else None
    if ratio is not None:
        change = ratio - log_m
        np.testing.assert_allclose(
            change - change[..., :1, :] - change[..., :, :1] + change[..., :1, :1], 0, atol=1e-4
        )


def test_too_few_steps_are_confessed(rng):
    log_m = 5 * rng.normal(size=(6, 6))
    result = transforms.sinkhorn_until(log_m, tol=1e-12, max_steps=3)
    assert not result.converged
    assert result.num_steps == 3
    np.testing.assert_allclose(result.matrix, plain(log_m, 3), rtol=1e-10)
    assert result.error > 1e-12


@pytest.mark.parametrize("mask", [None, BANDED, BLOCKS])
def test_implicit_and_unrolled_gradients_are_those_of_finite_differences(mask, rng):
    log_m = jnp.asarray(rng.normal(size=(5, 5)))
    weights = rng.normal(size=(5, 5))
    direction = rng.normal(size=(5, 5))

    def value(scores, gradient):
        result = transforms.sinkhorn_until(scores, 1e-14, 600, mask, gradient=gradient)
        return (result.matrix * weights).sum()

    implicit, unrolled = (
        jax.jit(jax.grad(lambda scores, kind=kind: value(scores, kind)))(log_m)
        for kind in ("implicit", "unrolled")
    )
    np.testing.assert_allclose(implicit, unrolled, atol=1e-9)
    step = 1e-5
    ends = [value(log_m + sign * step * direction, "implicit") for sign in (1, -1)]
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose((implicit * direction).sum(), slope, rtol=1e-6, atol=1e-9)


@pytest.mark.float32
def test_extreme_scores_stay_finite(rng):
    log_m = jnp.asarray(500 * rng.normal(size=(8, 8)), jnp.float32)
    log_M = transforms.log_sinkhorn(log_m)
    assert jnp.isfinite(log_M).all()
    gradient = jax.grad(lambda scores: (transforms.sinkhorn(scores) ** 2).sum())(log_m)
    assert jnp.isfinite(gradient).all()


def test_entries_in_no_matching_are_removed_first(rng):
    # Entry (0, 1) is allowed but useless: the other two columns of the block need rows 1 and 2.
    mask = np.array([[1, 1, 0], [0, 1, 1], [0, 1, 1]], bool)
    M = transforms.sinkhorn(rng.normal(size=(3, 3)), mask=mask)
    assert M[0, 1] == 0
    assert M[0, 0] == 1


def test_one_trace_for_all_data(rng):
    traces = []

    @jax.jit
    def function(log_m):
        traces.append(None)
        return transforms.sinkhorn(log_m), transforms.sinkhorn_until(log_m).matrix

    for _ in range(2):
        function(rng.normal(size=(4, 4)))
    assert len(traces) == 1


def test_an_empty_row_is_nan_inside_jit():
    mask = jnp.array([[False, False], [True, True]])
    assert jnp.isnan(jax.jit(lambda m: transforms.sinkhorn(jnp.zeros((2, 2)), 10, m))(mask)).all()


@pytest.mark.parametrize(
    ("log_m", "options", "error", "message"),
    [
        (np.zeros((2, 3)), {}, ValueError, r"log_m must have shape .* got shape \(2, 3\)"),
        (np.zeros((0, 0)), {}, ValueError, r"log_m must have shape .* n >= 1"),
        (np.zeros((2, 2), int), {}, TypeError, "log_m must be a floating-point array"),
        (
            np.zeros((2, 2)),
            {"num_steps": 0},
            ValueError,
            "num_steps must be an integer of at least 1",
        ),
        (np.zeros((2, 2)), {"num_steps": 1.5}, TypeError, "num_steps must be an integer, got 1.5"),
        (np.zeros((2, 2)), {"mask": np.ones((2, 2))}, TypeError, "mask must be a boolean array"),
        (np.zeros((2, 2)), {"mask": np.ones((3, 3), bool)}, ValueError, "mask must broadcast to"),
        (np.zeros((2, 2)), {"mask": np.eye(2, k=1, dtype=bool)}, ValueError, "mask must allow"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(log_m, options, error, message):
    with pytest.raises(error, match=message):
        transforms.sinkhorn(log_m, **options)
