"""The sweeps of stick-breaking: values alone, values with derivatives, large matrices, devices."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import transforms
from permvi.transforms import _cells, _diagonals, _forward, _wavefront
from tests import oracles

# Large enough to be swept in segments; they have no idle rows and the most of them.
LARGE = [225, 258]

fill = jax.jit(transforms.stick_breaking)


@jax.jit
def fill_with_derivatives(psi):
    return jax.jvp(transforms.stick_breaking, (psi,), (jnp.ones_like(psi),))[0]


def test_a_large_matrix_is_exact(rng):
    n = 195
    logits = rng.normal(size=(n - 1, n - 1))
    X, log_det = fill(logits)
    np.testing.assert_allclose(X, oracles.birkhoff_raster_scan(logits), rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        log_det, oracles.birkhoff_log_det(logits, digits=60), rtol=1e-13, atol=0
    )


@pytest.mark.float32
@pytest.mark.parametrize("n", [2, 3, 40, *LARGE])
@pytest.mark.parametrize("sd", [1, 5])
def test_values_are_the_same_with_derivatives(n, sd, rng):
    psi = jnp.asarray(sd * rng.normal(size=(2, n - 1, n - 1)))
    X, log_det = fill(psi)
    expected, expected_log_det = fill_with_derivatives(psi)
    eps = float(jnp.finfo(psi.dtype).eps)
    # The compiler may contract products and sums differently; a rounding in each of N cells.
    np.testing.assert_allclose(X, expected, rtol=0, atol=n * eps)
    np.testing.assert_allclose(log_det, expected_log_det, rtol=n * eps)


@pytest.mark.float32
@pytest.mark.parametrize(("n", "sd"), [(12, 1), (12, 50), (30, 5)])
def test_idle_rows_change_no_derivative(n, sd, rng, monkeypatch):
    psi = jnp.asarray(sd * rng.normal(size=(2, n - 1, n - 1)))
    weights = jnp.asarray(rng.normal(size=(n, n)))

    def derivative():
        def value(psi):
            X, log_det = transforms.stick_breaking(psi)
            return jnp.vdot(weights, X[0] + X[1]) + log_det.sum()

        return jax.jit(jax.grad(value))(psi)

    with_idle_rows = derivative()
    assert len(_diagonals.with_idle_rows(psi[0], _diagonals.LANES)) > n - 1
    for sweep in (_wavefront, _forward):
        monkeypatch.setattr(sweep, "with_idle_rows", lambda matrix, lanes: matrix)
    jax.clear_caches()
    eps = float(jnp.finfo(psi.dtype).eps)
    size = jnp.abs(with_idle_rows).max()
    # The compiler may contract products and sums differently; a rounding in each of N cells.
    np.testing.assert_allclose(with_idle_rows, derivative(), rtol=0, atol=4 * n * eps * size)


def test_extreme_values_of_a_large_matrix_are_doubly_stochastic(rng):
    n = 195
    psi = jnp.asarray(50 * rng.normal(size=(n - 1, n - 1)), jnp.float32)
    X, log_det = transforms.stick_breaking(psi, 1e-2)
    assert jnp.isfinite(log_det)
    assert X.min() >= 0
    tolerance = 8 * n * float(jnp.finfo(jnp.float32).eps)
    for axis in (0, 1):
        np.testing.assert_allclose(np.asarray(X, np.float64).sum(axis), 1, atol=tolerance)


def test_one_export_serves_cpus_and_other_devices(rng):
    psi = jnp.asarray(rng.normal(size=(4, 4)), jnp.float32)
    exported = jax.export.export(fill, platforms=["cpu", "cuda"])(psi)
    for result, expected in zip(exported.call(psi), fill(psi), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
class TestCells:
    def test_logarithm_of_a_remainder(self, dtype, rng):
        """log(e^p - b e^w) keeps its relative precision wherever p and w have theirs."""
        dtype = jax.dtypes.canonicalize_dtype(dtype)
        eps = float(jnp.finfo(dtype).eps)
        w = -np.geomspace(1e-30, 30, 400).astype(dtype)
        p = (w * rng.uniform(0, 1, 400)).astype(dtype)
        logit = (10 * rng.normal(size=400)).astype(dtype)
        margins = _cells.Margins(*map(jnp.asarray, (w, p, np.full_like(w, 3), np.full_like(w, 3))))
        cells = _cells.split(_cells.choose(margins), _cells.proportions(jnp.asarray(logit)))
        with oracles.mpmath.workdps(80):
            expected = np.array(
                [
                    float(
                        oracles.mpmath.log(
                            oracles.mpmath.exp(float(a))
                            - oracles.mpmath.exp(float(b)) / (1 + oracles.mpmath.exp(-float(c)))
                        )
                    )
                    for a, b, c in zip(p, w, logit, strict=True)
                ]
            )
        np.testing.assert_allclose(cells.down, expected, rtol=16 * eps)

    def test_logarithms_of_proportions(self, dtype):
        dtype = jax.dtypes.canonicalize_dtype(dtype)
        size = np.geomspace(1e-6, 80, 200)
        logit = np.concatenate([-size[::-1], [0], size]).astype(dtype)
        prop = _cells.proportions(jnp.asarray(logit))
        expected = -np.logaddexp(0, -logit.astype(np.longdouble))
        rtol = 4 * float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(prop.log_b, expected.astype(float), rtol=rtol)
        np.testing.assert_allclose(prop.log_not_b, expected[::-1].astype(float), rtol=rtol)
        np.testing.assert_allclose(prop.b, np.exp(expected).astype(float), rtol=20 * rtol)

    def test_series_of_expm1(self, dtype):
        dtype = jax.dtypes.canonicalize_dtype(dtype)
        u = -np.concatenate([[0], np.geomspace(1e-30, np.log(2), 500)]).astype(dtype)
        expected = np.expm1(u.astype(np.longdouble)).astype(float)
        rtol = 3 * float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(_cells._expm1_if_much(jnp.asarray(u)), expected, rtol=rtol)
