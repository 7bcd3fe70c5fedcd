"""Stick-breaking against the paper's raster scan, high-precision arithmetic and autodiff."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import transforms
from tests import oracles

SIZES = [2, 3, 6, 17, 50]


def slowly(*values):
    """Values of a size that is compiled for itself and takes the same way as others."""
    return pytest.param(*values, marks=pytest.mark.slow)


def free_block(X):
    return X[..., :-1, :-1]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_agrees_with_the_papers_raster_scan(n, temperature, rng):
    psi = rng.normal(size=(n - 1, n - 1))
    X, _ = transforms.stick_breaking(psi, temperature)
    expected = oracles.birkhoff_raster_scan(psi, temperature)
    np.testing.assert_allclose(X, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "batch"), [(2, ()), slowly(3, (3,)), (6, (2, 3)), slowly(17, ()), (50, (2,))]
)
def test_inverse_is_a_round_trip(n, batch, rng):
    psi = rng.normal(size=(*batch, n - 1, n - 1))
    options = {"row_order": rng.permutation(n), "col_order": rng.permutation(n), "centered": True}
    X, log_det = transforms.stick_breaking(psi, 0.8, **options)
    assert X.shape == (*batch, n, n)
    assert log_det.shape == batch
    again, inverse_log_det = transforms.stick_breaking_inverse(X, 0.8, **options)
    np.testing.assert_allclose(again, psi, rtol=0, atol=1e-9)
    np.testing.assert_allclose(inverse_log_det, -log_det, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    ("n", "centered"), [slowly(2, True), (3, False), (5, True), slowly(8, False)]
)
def test_log_determinant_is_that_of_the_autodiff_jacobian(n, centered, rng):
    psi = rng.normal(size=(n - 1, n - 1))

    def value(flat):
        matrix = flat.reshape(n - 1, n - 1)
        X, _ = transforms.stick_breaking(matrix, 0.7, centered=centered)
        return free_block(X).ravel()

    _, log_det = transforms.stick_breaking(psi, 0.7, centered=centered)
    for derivative in (jax.jacrev, jax.jacfwd):
        _, expected = np.linalg.slogdet(jax.jit(derivative(value))(jnp.asarray(psi.ravel())))
        np.testing.assert_allclose(log_det, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n", [2, slowly(4), 9])
def test_gradients_agree_with_central_differences(n, rng):
    psi = jnp.asarray(rng.normal(size=(n - 1, n - 1)))
    weights = rng.normal(size=(n, n))
    direction = rng.normal(size=psi.shape)
    direction /= np.linalg.norm(direction)

    def value(matrix):
        return (transforms.stick_breaking(matrix, 0.9)[0] * weights).sum()

    def log_det(matrix):
        return transforms.stick_breaking(matrix, 0.9)[1]

    step = 1e-6
    for function in (jax.jit(value), jax.jit(log_det)):
        slope = (function(psi + step * direction) - function(psi - step * direction)) / (2 * step)
        np.testing.assert_allclose((jax.grad(function)(psi) * direction).sum(), slope, rtol=1e-6)


def test_second_derivatives_agree_with_differences_of_gradients(rng):
    psi = jnp.asarray(rng.normal(size=(3, 3)))

    def function(matrix):
        X, log_det = transforms.stick_breaking(matrix)
        return (X**3).sum() + log_det

    gradient = jax.jit(jax.grad(function))
    hessian = jax.jit(jax.hessian(function))(psi)
    step = 1e-6
    for i, j in [(0, 0), (1, 2), (2, 2)]:
        unit = jnp.zeros_like(psi).at[i, j].set(step)
        expected = (gradient(psi + unit) - gradient(psi - unit)) / (2 * step)
        np.testing.assert_allclose(hessian[i, j], expected, atol=1e-7)


@pytest.mark.parametrize(("n", "sd"), [(10, 5), (40, 5), (80, 5), (80, 1)])
def test_float32_log_determinant_is_accurate(n, sd, rng):
    logits = (rng.normal(size=(n - 1, n - 1)) * sd).astype(np.float32)
    _, log_det = transforms.stick_breaking(logits)
    assert log_det.dtype == jnp.float32
    expected = oracles.birkhoff_log_det(logits, digits=150)
    assert abs(float(log_det) - expected) <= 1e-2 + 1e-6 * abs(expected)


@pytest.mark.parametrize("n", SIZES)
def test_log_determinant_of_interior_points_is_exact(n, rng):
    logits = rng.normal(size=(n - 1, n - 1))
    _, log_det = transforms.stick_breaking(2 * logits, temperature=2.0)
    expected = oracles.birkhoff_log_det(logits, digits=60) - (n - 1) ** 2 * np.log(2.0)
    np.testing.assert_allclose(log_det, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize(("n", "sd"), [(10, 20), (30, 20), (50, 20), (50, 5)])
def test_float64_log_determinant_is_accurate(n, sd, rng):
    logits = rng.normal(size=(n - 1, n - 1)) * sd
    _, log_det = transforms.stick_breaking(logits)
    expected = oracles.birkhoff_log_det(logits, digits=400)
    assert abs(float(log_det) - expected) <= 1e-2 + 1e-6 * abs(expected)


@pytest.mark.parametrize(
    ("n", "sd", "temperature"),
    [(500, 50, 1.0), slowly(500, 50, 1e-3), (100, 500, 1.0), (30, 1, 1e-30)],
)
def test_extremes_stay_finite_in_float32(n, sd, temperature, rng):
    psi = (rng.normal(size=(n - 1, n - 1)) * sd).astype(np.float32)
    weights = rng.normal(size=(n, n)).astype(np.float32)

    def function(matrix):
        X, log_det = transforms.stick_breaking(matrix, temperature)
        return (X * weights).sum() + temperature * log_det, (X, log_det)

    evaluate = jax.jit(jax.value_and_grad(function, has_aux=True))
    (_, (X, log_det)), gradient = evaluate(jnp.asarray(psi))
    assert jnp.isfinite(X).all()
    assert jnp.isfinite(log_det)
    assert jnp.isfinite(gradient).all()
    assert_doubly_stochastic(X)


def test_float32_gradient_is_accurate_near_the_vertices(rng):
    """At logit sd 5 the entries of X span 80 orders of magnitude; float64 is the reference."""
    logits = rng.normal(size=(39, 39)) * 5
    gradient = jax.jit(jax.grad(lambda matrix: transforms.stick_breaking(matrix)[1]))
    with jax.enable_x64(True):
        expected = np.asarray(gradient(jnp.asarray(logits, jnp.float64)))
    measured = np.asarray(gradient(jnp.asarray(logits, jnp.float32)))
    assert np.linalg.norm(measured - expected) <= 1e-3 * np.linalg.norm(expected)


def assert_doubly_stochastic(X):
    n, eps = X.shape[-1], float(jnp.finfo(X.dtype).eps)
    values = np.asarray(X, np.float64)
    assert values.min() >= 0
    assert np.abs(values.sum(-1) - 1).max() <= 8 * n * eps
    assert np.abs(values.sum(-2) - 1).max() <= 8 * n * eps


@pytest.mark.float32
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("n", [1, 2, 10, 100])
@pytest.mark.parametrize("sd", [0.0, 1.0, 10.0])
def test_rows_and_columns_sum_to_one(dtype, n, sd, rng):
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    psi = jnp.asarray(rng.normal(size=(4, n - 1, n - 1)) * sd, dtype)
    X, log_det = transforms.stick_breaking(psi)
    assert X.dtype == log_det.dtype == dtype
    assert_doubly_stochastic(X)


@pytest.mark.float32
def test_cold_gives_permutations_and_hot_the_image_of_zero(rng):
    psi = jnp.asarray(rng.normal(size=(50, 6, 6)))
    cold, _ = transforms.stick_breaking(psi, 1e-9)
    assert ((cold == 0) | (cold == 1)).all()
    assert (cold.sum(-1) == 1).all()
    assert (cold.sum(-2) == 1).all()
    hot, _ = transforms.stick_breaking(psi, 1e9)
    np.testing.assert_allclose(hot, np.broadcast_to(uncentred_middle(7), hot.shape), atol=1e-6)


def uncentred_middle(n):
    return oracles.birkhoff_raster_scan(np.zeros((n - 1, n - 1)))


@pytest.mark.parametrize("n", [2, 3, 7, 20])
def test_centred_zero_is_the_barycentre(n):
    X, _ = transforms.stick_breaking(np.zeros((n - 1, n - 1)), centered=True)
    np.testing.assert_allclose(X, np.full((n, n), 1 / n), rtol=0, atol=1e-14)


def test_orders_permute_rows_and_columns(rng):
    psi = rng.normal(size=(4, 4))
    rows, columns = rng.permutation(5), rng.permutation(5)
    plain, plain_log_det = transforms.stick_breaking(psi)
    X, log_det = transforms.stick_breaking(psi, row_order=rows, col_order=columns)
    for i in range(5):
        for j in range(5):
            assert X[rows[i], columns[j]] == plain[i, j]
    assert log_det == plain_log_det


def test_any_law_of_the_sticks_fills_the_polytope(rng):
    key = jax.random.key(0)
    a, b = rng.uniform(0.5, 3, size=(2, 5, 5))
    for sticks in (
        transforms.sticks.beta_sample(key, a, b, 0.5, shape=(7, 5, 5)),
        transforms.sticks.kumaraswamy_sample(key, a, b, 0.5, shape=(7, 5, 5)),
    ):
        X, log_det = transforms.birkhoff_from_sticks(sticks)
        assert_doubly_stochastic(X)
        again, inverse_log_det = transforms.sticks_from_birkhoff(X)
        np.testing.assert_allclose(again.log_beta, sticks.log_beta, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(inverse_log_det, -log_det, rtol=1e-9)


def test_logistic_sticks_are_the_default(rng):
    psi = rng.normal(size=(3, 5, 5))
    sticks, log_slope = transforms.sticks.logistic(psi, 0.6)
    X, log_det = transforms.birkhoff_from_sticks(sticks)
    expected, expected_log_det = transforms.stick_breaking(psi, 0.6)
    np.testing.assert_allclose(X, expected, rtol=1e-13)
    np.testing.assert_allclose(log_det + log_slope.sum((-2, -1)), expected_log_det, rtol=1e-12)


@pytest.mark.float32
def test_the_same_under_jit_and_vmap_with_one_trace(rng):
    psi = jnp.asarray(rng.normal(size=(2, 3, 4, 4)), jnp.float32)
    traces = []

    @jax.jit
    def function(matrix, temperature):
        traces.append(None)
        return transforms.stick_breaking(matrix, temperature)

    expected = transforms.stick_breaking(psi, 0.5)
    nested = jax.vmap(jax.vmap(lambda matrix: transforms.stick_breaking(matrix, 0.5)))(psi)
    for result in (function(psi, 0.5), nested):
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(result[1], expected[1], rtol=1e-5)
    function(psi + 1, 0.7)
    assert len(traces) == 1


def test_a_temperature_for_each_batch_member(rng):
    psi = rng.normal(size=(3, 4, 4))
    temperatures = np.array([0.3, 1.0, 2.0])
    X, log_det = transforms.stick_breaking(psi, temperatures)
    for k, temperature in enumerate(temperatures):
        expected, expected_log_det = transforms.stick_breaking(psi[k], temperature)
        np.testing.assert_allclose(X[k], expected, rtol=1e-13)
        np.testing.assert_allclose(log_det[k], expected_log_det, rtol=1e-13)


def test_a_bad_temperature_is_nan_inside_jit(rng):
    psi = jnp.asarray(rng.normal(size=(2, 2)))
    X, log_det = jax.jit(transforms.stick_breaking)(psi, -1.0)
    assert jnp.isnan(X).all()
    assert jnp.isnan(log_det)


@pytest.mark.parametrize(
    ("psi", "options", "error", "message"),
    [
        (np.zeros((2, 3)), {}, ValueError, r"psi must have shape \(\.\.\., n, n\).*\(2, 3\)"),
        (np.zeros(3), {}, ValueError, r"psi must have shape.*\(3,\)"),
        (np.zeros((2, 2), int), {}, TypeError, "psi must be a floating-point array, got dtype int"),
        (np.zeros((2, 2)), {"temperature": 0.0}, ValueError, "temperature must be positive, got 0"),
        (np.zeros((2, 2)), {"temperature": np.nan}, ValueError, "must be positive, got nan"),
        (np.zeros((2, 2)), {"temperature": np.ones(3)}, ValueError, "temperature must be a scalar"),
        (np.zeros((2, 2)), {"temperature": "x"}, TypeError, "temperature must be a real number"),
        (np.zeros((2, 2)), {"row_order": [0, 0, 1]}, ValueError, "row_order must be a permutation"),
        (np.zeros((2, 2)), {"col_order": [0, 1]}, ValueError, "col_order must be a permutation"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(psi, options, error, message):
    with pytest.raises(error, match=message):
        transforms.stick_breaking(psi, **options)


def test_the_inverse_refuses_what_is_not_doubly_stochastic():
    with pytest.raises(ValueError, match="X must be doubly stochastic, got a row whose sum"):
        transforms.stick_breaking_inverse(np.full((3, 3), 0.3))
    with pytest.raises(ValueError, match=r"X must be doubly stochastic, got the entry -0\.5"):
        transforms.stick_breaking_inverse(np.array([[1.5, -0.5], [-0.5, 1.5]]))
