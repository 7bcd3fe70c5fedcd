import functools
import importlib.util
import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from permvi import assignment
from permvi._assignment import host

lapx = pytest.param(
    "lapx",
    marks=pytest.mark.skipif(
        importlib.util.find_spec("lap") is None, reason="the optional package lapx is missing"
    ),
)
backends = pytest.mark.parametrize("backend", ["host", "device", lapx])
FLOAT = np.float64 if jax.config.jax_enable_x64 else np.float32


@functools.cache
def assignments(n, m):
    """All complete assignments of n rows to m columns in lexicographic order, m for no column."""
    if n <= m:
        return np.array(list(itertools.permutations(range(m), n)))
    return np.array(sorted(set(itertools.permutations([*range(m), *[m] * (n - m)]))))


def best_of_all(scores, mask, maximize):
    """The first of the best, or -1 everywhere; sums of small integers are exact."""
    n, m = scores.shape
    padded = np.column_stack([np.where(mask, scores, -np.inf if maximize else np.inf), np.zeros(n)])
    candidates = assignments(n, m)
    totals = padded[np.arange(n), candidates].sum(-1)
    best = np.argmax(totals) if maximize else np.argmin(totals)
    if not np.isfinite(totals[best]):
        return np.full(n, -1)
    return np.where(candidates[best] == m, -1, candidates[best])


def random_masks(rng, batch, n, m):
    """Masks with between none and all of the entries, which allow at least one assignment."""
    mask = rng.random((batch, n, m)) < rng.random((batch, 1, 1))
    index = np.argsort(rng.random((batch, max(n, m))))
    for b in range(batch):
        k = min(n, m)
        rows, cols = (np.arange(k), index[b, :k]) if n <= m else (index[b, :k], np.arange(k))
        mask[b, rows, cols] = True
    return mask


def total(scores, perm):
    picked = np.take_along_axis(scores, np.maximum(perm, 0)[..., None], axis=-1)[..., 0]
    return np.where(perm >= 0, picked, 0.0).sum(-1)


def assert_complete(perm, m):
    """Distinct columns and -1, with as many columns as there can be."""
    matched = (perm[..., None] == np.arange(m)).sum(-2)
    assert np.all(matched <= 1)
    assert np.all(matched.sum(-1) == min(perm.shape[-1], m))
    assert np.all((perm >= -1) & (perm < m))


@backends
@pytest.mark.float32
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 4), pytest.param((5, 5), marks=pytest.mark.slow), (6, 6), (6, 3)]
)
def test_the_smallest_of_the_best_assignments(rng, backend, shape):
    batch = 60
    # Few distinct integers: most of these problems have several optima.
    scores = rng.integers(0, rng.integers(1, 5, (batch, 1, 1)), (batch, *shape)).astype(FLOAT)
    mask = rng.random((batch, *shape)) < rng.choice([0.5, 0.8, 1.0], (batch, 1, 1))
    feasible = assignment.is_feasible(mask)

    @jax.jit
    def solve_both(scores, mask):
        solve = functools.partial(assignment.solve, mask=mask, backend=backend)
        return solve(scores, maximize=True), solve(-scores, maximize=False)

    expected = [best_of_all(s, k, maximize=True) for s, k in zip(scores, mask, strict=True)]
    np.testing.assert_array_equal(feasible, np.any(np.array(expected) >= 0, axis=-1))
    for perm in solve_both(scores, mask):
        np.testing.assert_array_equal(perm, expected)
    # Outside jit the host may take another way, the device does not.
    for b in np.flatnonzero(feasible)[: 0 if backend == "device" else 20]:
        perm = assignment.solve(-scores[b], mask[b], maximize=False, backend=backend)
        np.testing.assert_array_equal(perm, expected[b])


@backends
@pytest.mark.float32
@pytest.mark.parametrize(
    ("shape", "masked"),
    [
        ((60, 60), False),
        pytest.param((40, 40), True, marks=pytest.mark.slow),
        ((20, 35), True),
        pytest.param((35, 20), False, marks=pytest.mark.slow),
    ],
)
def test_the_objective_is_that_of_scipy(rng, backend, shape, masked):
    scores = rng.normal(size=(5, *shape)).astype(FLOAT)
    mask = random_masks(rng, 5, *shape) if masked else np.ones((5, *shape), bool)
    perm = np.asarray(assignment.solve(scores, mask if masked else None, backend=backend))
    assert_complete(perm, shape[1])
    for b in range(5):
        rows, cols = linear_sum_assignment(np.where(mask[b], scores[b], -np.inf), maximize=True)
        expected = scores[b][rows, cols].sum()
        np.testing.assert_allclose(total(scores[b], perm[b]), expected, rtol=1e-5)


@pytest.mark.parametrize("shape", [(7, 7), (4, 9), (9, 4), (30, 30)])
def test_scipy_and_the_compiled_solver_answer_alike(rng, shape):
    scores = np.concatenate([rng.normal(size=(4, *shape)), rng.integers(0, 3, (4, *shape))])
    scores[3, 0, 0] = np.nan
    mask = rng.random((8, *shape)) < 0.6
    for allowed in (None, mask, mask[:1]):
        by_scipy, by_us = (
            host.solve(scores, allowed, maximize=False, solver=solver)
            for solver in ("scipy", "compiled")
        )
        np.testing.assert_array_equal(by_scipy[0], by_us[0])
        np.testing.assert_array_equal(by_scipy[1], by_us[1])


@backends
@pytest.mark.float32
def test_ties_go_to_the_smallest_index(rng, backend):
    solve = functools.partial(assignment.solve, backend=backend)
    for value in (0.0, 0.1, -3.0):
        np.testing.assert_array_equal(solve(np.full((7, 7), value, FLOAT)), np.arange(7))
    np.testing.assert_array_equal(solve(np.zeros((2, 5), FLOAT)), [0, 1])
    np.testing.assert_array_equal(solve(np.zeros((5, 2), FLOAT)), [0, 1, -1, -1, -1])
    # Rows come in equal pairs, of numbers whose sums are rounded.
    scores = np.repeat(rng.normal(size=(20, 6, 12)), 2, axis=1).astype(FLOAT)
    perm = np.asarray(solve(scores))
    assert np.all(perm[:, ::2] < perm[:, 1::2])


@pytest.mark.parametrize("backend", ["device", lapx])
def test_backends_agree_on_ties(rng, backend):
    for shape in [(30, 30), (20, 30)]:
        scores = rng.integers(0, 4, (6, *shape)).astype(float)
        expected = assignment.solve(scores, backend="host")
        np.testing.assert_array_equal(assignment.solve(scores, backend=backend), expected)


def test_ten_thousand_masks_are_never_violated(rng):
    for n, m in [(2, 2), (3, 3), (5, 5), (8, 8), (3, 5), (6, 4)]:
        scores = rng.normal(size=(1700, n, m)).astype(FLOAT)
        mask = random_masks(rng, 1700, n, m)
        for perm in (assignment.solve(scores, mask), jax.jit(assignment.solve)(scores, mask)):
            perm = np.asarray(perm)
            assert_complete(perm, m)
            assert np.all(np.take_along_axis(mask, np.maximum(perm, 0)[..., None], -1)[perm >= 0])


def test_the_device_never_violates_masks(rng):
    scores, mask = rng.normal(size=(1000, 6, 6)), random_masks(rng, 1000, 6, 6)
    perm = np.asarray(assignment.solve(scores, mask, backend="device"))
    np.testing.assert_array_equal(perm, assignment.solve(scores, mask, backend="host"))
    assert np.all(np.take_along_axis(mask, perm[..., None], -1))


def test_threads_do_not_mix_problems_up(rng):
    scores, mask = rng.normal(size=(4000, 12, 12)), random_masks(rng, 4000, 12, 12)
    together = assignment.solve(scores, mask)
    apart = [assignment.solve(scores[b], mask[b]) for b in range(0, 4000, 400)]
    np.testing.assert_array_equal(together[::400], apart)


@pytest.mark.parametrize("backend", ["host", "device"])
def test_vmap_over_either_argument(rng, backend):
    scores = rng.normal(size=(3, 4, 5)).astype(FLOAT)
    masks = random_masks(rng, 2, 4, 5)
    expected = [[assignment.solve(s, k) for s in scores] for k in masks]
    solve = functools.partial(assignment.solve, backend=backend)
    by_scores = jax.vmap(jax.vmap(solve, in_axes=(0, None)), in_axes=(None, 0))
    by_masks = jax.vmap(jax.vmap(solve, in_axes=(None, 0)), in_axes=(0, None), out_axes=1)
    np.testing.assert_array_equal(by_scores(scores, masks), expected)
    np.testing.assert_array_equal(solve(scores, masks[:, None]), expected)
    if backend == "device":
        return
    half = jax.vmap(solve, in_axes=(None, 0))
    many_masks = jax.vmap(solve, in_axes=(0, None), out_axes=1)
    for function in (by_masks, half, many_masks):
        np.testing.assert_array_equal(function(scores, masks), expected)
    for function in (by_scores, by_masks, half, lambda s, k: solve(s, k[:, None])):
        np.testing.assert_array_equal(jax.jit(function)(scores, masks), expected)
    nested = jax.vmap(jax.vmap(solve))(scores[None])
    np.testing.assert_array_equal(nested[0], assignment.solve(scores))


def test_masks_broadcast(rng):
    scores, mask = rng.normal(size=(2, 3, 4, 4)), random_masks(rng, 3, 4, 4)
    expected = assignment.solve(scores, np.broadcast_to(mask, scores.shape))
    np.testing.assert_array_equal(assignment.solve(scores, mask), expected)
    np.testing.assert_array_equal(jax.jit(assignment.solve)(scores, mask), expected)
    column = np.array([True, False, True, True, True])
    perm = np.asarray(assignment.solve(rng.normal(size=(6, 4, 5)), column))
    assert not np.any(perm == 1)


@pytest.mark.float32
@pytest.mark.parametrize("backend", ["host", "device"])
def test_scores_that_are_not_finite(rng, backend):
    scores = rng.normal(size=(5, 4, 4)).astype(FLOAT)
    good = np.asarray(assignment.solve(scores, backend="host"))
    message = r"scores must be finite .* mask=.* got NaN or inf in problem 3 of the batch\."
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match=message):
            assignment.solve(
                np.where(np.arange(80).reshape(5, 4, 4) == 50, bad, scores), backend=backend
            )
    scores[[1, 2, 3], 2, 3] = np.nan, np.inf, -np.inf
    perm = np.asarray(jax.jit(lambda s: assignment.solve(s, backend=backend))(scores))
    np.testing.assert_array_equal(perm[[0, 4]], good[[0, 4]])
    np.testing.assert_array_equal(perm[1:4], -1)
    # What is forbidden is not looked at.
    mask = np.ones((4, 4), bool)
    mask[2, 3] = False
    perm = np.asarray(assignment.solve(scores, mask, backend=backend))
    assert_complete(perm, 4)
    assert np.all(perm[:, 2] != 3)


@pytest.mark.float32
@pytest.mark.parametrize("backend", ["host", "device"])
def test_masks_that_allow_nothing(rng, backend):
    scores = rng.normal(size=(2, 2, 3, 3)).astype(FLOAT)
    mask = np.ones((2, 2, 3, 3), bool)
    mask[1, 0, :2, 1:] = False
    with pytest.raises(ValueError, match=r"mask must allow .* in problem 1, 0 of the batch\."):
        assignment.solve(scores, mask, backend=backend)
    with pytest.raises(ValueError, match=r"got one that allows none\."):
        assignment.nearest_permutation(scores[0, 0], mask[1, 0], backend="host")
    matrix = jax.jit(lambda s: assignment.nearest_permutation(s, mask, backend=backend))(scores)
    np.testing.assert_array_equal(jnp.isnan(matrix).all((-2, -1)), [[False, False], [True, False]])
    np.testing.assert_array_equal(jnp.isnan(matrix).any((-2, -1)), [[False, False], [True, False]])


@backends
@pytest.mark.float32
def test_extreme_scores_still_give_permutations(rng, backend):
    normal = rng.normal(size=(10, 7, 7))
    limits = np.finfo(FLOAT)
    cases = {
        "large": normal * 1e30,
        "largest": np.sign(normal) * float(limits.max),
        "subnormal": np.round(5 * normal) * float(limits.smallest_subnormal),
        "wide": normal * 10.0 ** rng.integers(-30, 30, normal.shape),
    }
    solve = functools.partial(assignment.solve, backend=backend)
    jitted = jax.jit(solve)
    for scores in cases.values():
        assert_complete(np.asarray(solve(scores.astype(FLOAT))), 7)
        assert_complete(np.asarray(jitted(scores.astype(FLOAT))), 7)
    scaled = cases["large"].astype(FLOAT)
    np.testing.assert_array_equal(jitted(scaled), jitted(normal.astype(FLOAT)))


@backends
def test_the_smallest_problems(backend):
    solve = functools.partial(assignment.solve, backend=backend)
    one = np.full((1, 1), -2.5, FLOAT)
    np.testing.assert_array_equal(solve(one), [0])
    empty = np.zeros((2, 0, 3, 4), FLOAT)
    assert jax.jit(solve)(empty, np.ones((3, 4), bool)).shape == (2, 0, 3)


@pytest.mark.float32
@pytest.mark.parametrize("backend", ["host", "device"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_nearest_permutation_keeps_the_dtype(rng, backend, dtype):
    if dtype == "float64" and np.float64 != FLOAT:
        pytest.skip("float64 is switched off")
    psi = jnp.asarray(rng.normal(size=(4, 5, 5)), dtype)
    nearest = functools.partial(assignment.nearest_permutation, backend=backend)
    expected = [np.eye(5)[linear_sum_assignment(p, maximize=True)[1]] for p in np.float64(psi)]
    matrix = jax.jit(nearest)(psi)
    assert matrix.dtype == psi.dtype
    np.testing.assert_array_equal(np.float64(matrix), expected)
    assert assignment.solve(psi, backend=backend).dtype == jnp.int32


@pytest.mark.float32
@pytest.mark.parametrize("backend", ["host", "device"])
def test_gradients(rng, backend):
    psi = jnp.asarray(rng.normal(size=(3, 4, 4)), FLOAT)
    weights = jnp.asarray(rng.normal(size=(3, 4, 4)), FLOAT)

    def loss(function, psi):
        return jnp.sum(weights * function(psi, backend=backend) ** 2)

    none = jax.grad(functools.partial(loss, assignment.nearest_permutation))
    np.testing.assert_array_equal(jax.jit(none)(psi), 0)
    np.testing.assert_array_equal(none(psi), 0)
    straight = assignment.nearest_permutation_straight_through
    nearest = assignment.nearest_permutation(psi)
    np.testing.assert_array_equal(straight(psi, backend=backend), nearest)
    through = jax.grad(functools.partial(loss, straight))
    for gradient in (through(psi), jax.jit(through)(psi)):
        np.testing.assert_allclose(gradient, 2 * weights * nearest)
    _, tangent = jax.jvp(lambda p: straight(p, backend=backend), (psi,), (weights,))
    np.testing.assert_array_equal(tangent, weights)


@pytest.mark.parametrize("backend", ["host", "device"])
def test_new_data_does_not_retrace(rng, backend):
    num_traces = 0

    @jax.jit
    def solve(scores, mask):
        nonlocal num_traces
        num_traces += 1
        return assignment.solve(scores, mask, backend=backend)

    for _ in range(3):
        solve(rng.normal(size=(4, 3, 3)), random_masks(rng, 4, 3, 3))
    assert num_traces == 1


@pytest.mark.float32
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: assignment.solve([[1, 2], [3, 4]]), TypeError, "scores must be a floating-point"),
        (lambda: assignment.solve(np.zeros(3)), ValueError, "(..., n, m) with n, m >= 1, got"),
        (lambda: assignment.solve(np.zeros((3, 0))), ValueError, "scores must have shape"),
        (lambda: assignment.solve(np.zeros((0, 3))), ValueError, "got shape (0, 3)"),
        (
            lambda: assignment.solve(np.zeros((2, 2)), np.ones((2, 2))),
            TypeError,
            "mask must be a boolean array, got dtype float",
        ),
        (
            lambda: assignment.solve(np.zeros((2, 2)), np.ones((3, 2), bool)),
            ValueError,
            "mask must broadcast against scores of shape (2, 2), got shape (3, 2).",
        ),
        (
            lambda: assignment.nearest_permutation(np.zeros((1, 2)), np.ones((2, 2), bool)),
            ValueError,
            "psi must have shape (..., n, n)",
        ),
        (
            lambda: assignment.nearest_permutation(np.zeros((2, 2), int)),
            TypeError,
            "psi must be a floating-point array, got dtype int",
        ),
        (
            lambda: assignment.solve(np.zeros((2, 2)), backend="gpu"),
            ValueError,
            "backend must be one of auto, host, device, lapx, got 'gpu'.",
        ),
    ],
)
def test_bad_input(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("platform", "batch", "expected"),
    [("cpu", 1000, "host"), ("gpu", 10, "host"), ("gpu", 1000, "device")],
)
def test_auto_sends_many_problems_to_the_accelerator(monkeypatch, platform, batch, expected):
    used = []
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setattr(assignment, "_from_programme", lambda *_, **__: used.append("host"))
    monkeypatch.setattr(assignment, "_on_device", lambda *_: (used.append("device"), None))
    jax.eval_shape(lambda s: assignment.solve(s), np.zeros((batch, 3, 3)))
    assert used == [expected]


def test_lapx_is_optional(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs the package lapx"):
        assignment.solve(np.zeros((2, 2)), backend="lapx")
