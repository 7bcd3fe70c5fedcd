import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from jax.test_util import check_grads as jax_check_grads

from permvi.transforms import simplex

# Four standard errors each side: one statistical assertion in 16,000 fails by chance, and the
# seeds are fixed.
NUM_SIGMAS = 4

rounding = jax.jit(simplex.rounding)
rounding_inverse = jax.jit(simplex.rounding_inverse)
in_rounding_support = jax.jit(simplex.in_rounding_support)
round_to_vertex = jax.jit(simplex.round_to_vertex)
project = jax.jit(simplex.project)


def eps_of(array):
    return float(jnp.finfo(array.dtype).eps)


def check_grads(function, *arguments):
    """Reverse derivatives against central differences."""
    jax_check_grads(jax.jit(function), arguments, 1, modes=("rev",), rtol=1e-5, atol=1e-5)


def gaussian_rounding_density(X, loc, scale, temperature):
    psi, log_det = rounding_inverse(X, temperature)
    inside = in_rounding_support(X, temperature)
    return scipy.stats.norm.pdf(psi, loc, scale).prod(-1) * np.exp(log_det) * np.array(inside)


class TestRounding:
    @pytest.mark.float32
    @pytest.mark.parametrize("temperature", [1e-3, 0.3, 1.0])
    def test_value_inverse_and_cell(self, rng, temperature):
        psi = jnp.asarray(rng.normal(size=(500, 4)))
        X, log_det = rounding(psi, temperature)
        tau = np.asarray(temperature, psi.dtype)
        vertex = np.eye(4)[np.array(psi).argmax(-1)]
        np.testing.assert_allclose(X, tau * psi + (1 - tau) * vertex, atol=8 * eps_of(psi))
        np.testing.assert_allclose(log_det, np.full(500, 4 * np.log(tau)), rtol=4 * eps_of(psi))
        np.testing.assert_array_equal(round_to_vertex(X), round_to_vertex(psi))
        assert np.all(in_rounding_support(X, temperature))
        back, inverse_log_det = rounding_inverse(X, temperature)
        np.testing.assert_allclose(back, psi, atol=16 * eps_of(psi) / temperature)
        np.testing.assert_allclose(inverse_log_det, -log_det)

    def test_log_det_is_that_of_the_jacobian_and_round_has_no_gradient(self, rng):
        psi = jnp.asarray(rng.normal(size=4))
        jacobian = jax.jacobian(lambda p: rounding(p, 0.3)[0])(psi)
        np.testing.assert_allclose(jacobian, 0.3 * np.eye(4), atol=1e-12)
        log_det = rounding(psi, 0.3)[1]
        np.testing.assert_allclose(log_det, jnp.linalg.slogdet(jacobian)[1], atol=1e-9)
        check_grads(rounding, psi, jnp.array(0.3))

    def test_support_is_where_the_preimage_keeps_its_cell(self, rng):
        X = jnp.asarray(rng.normal(size=(2000, 3)))
        psi, _ = rounding_inverse(X, 0.4)
        same = np.all(round_to_vertex(psi) == round_to_vertex(X), axis=-1)
        assert 0.1 < same.mean() < 0.9
        np.testing.assert_array_equal(in_rounding_support(X, 0.4), same)

    def test_density_of_two_categories_integrates_to_one(self):
        # In the coordinates d = x1 - x2 and s = x1 + x2 the support is |d| >= 1 - tau.
        loc, scale, tau = np.array([0.7, 0.3]), np.array([0.4, 0.6]), 0.35
        nodes, weights = np.polynomial.legendre.leggauss(80)
        total = 0.0
        for sign in (-1, 1):
            d, s = np.meshgrid(sign * (1 - tau + 2 * (nodes + 1)), 1 + 3 * nodes, indexing="ij")
            X = np.stack([(s + d) / 2, (s - d) / 2], axis=-1)
            density = gaussian_rounding_density(X, loc, scale, tau)
            total += 2 * 3 * (weights @ density @ weights) / 2
        assert abs(total - 1) < 1e-6
        gap = jnp.linspace(-1, 1, 9) * (1 - tau) * 0.99
        between = jnp.stack([0.5 + gap / 2, 0.5 - gap / 2], axis=-1)
        assert not in_rounding_support(between, tau).any()

    def test_density_of_three_categories_integrates_to_one(self, rng):
        # Importance sampling from a mixture of normals, one wider than the density in each cell.
        loc, scale, tau = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.5, 0.4]), 0.4
        proposal_scale, num_draws = 0.25, 80_000
        centers = tau * loc + (1 - tau) * np.eye(3)
        noise = rng.normal(size=(num_draws, 3)) * proposal_scale
        X = centers[rng.integers(3, size=num_draws)] + noise
        proposal = np.mean(
            [scipy.stats.norm.pdf(X, center, proposal_scale).prod(-1) for center in centers],
            axis=0,
        )
        weights = gaussian_rounding_density(X, loc, scale, tau) / proposal
        standard_error = weights.std() / num_draws**0.5
        assert standard_error < 0.01
        assert abs(weights.mean() - 1) < NUM_SIGMAS * standard_error

    def test_masks_are_never_violated(self, rng):
        mask = rng.uniform(size=(1000, 5)) < 0.4
        mask[np.arange(1000), rng.integers(5, size=1000)] = True
        psi = rng.normal(size=(1000, 5))
        psi[0] = -np.inf
        psi[1, ~mask[1]] = np.nan
        vertex = round_to_vertex(jnp.asarray(psi), mask)
        assert np.all(vertex.sum(-1) == 1)
        assert not vertex[~mask].any()
        psi[0] = 0
        X, log_det = rounding(jnp.asarray(psi), 0.3, mask)
        assert not X[~mask].any()
        np.testing.assert_allclose(log_det, mask.sum(-1) * np.log(0.3))
        assert in_rounding_support(X, 0.3, mask).all()
        back, inverse_log_det = rounding_inverse(X, 0.3, mask)
        np.testing.assert_allclose(back, np.where(mask, psi, 0), atol=1e-12)
        np.testing.assert_allclose(inverse_log_det, -log_det)

    @pytest.mark.float32
    def test_ties_go_to_the_smallest_index_and_nan_stays(self):
        psi = jnp.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [1.0, jnp.nan, 3.0]])
        vertex = round_to_vertex(psi)
        np.testing.assert_array_equal(vertex, [[0, 1, 0], [1, 0, 0], [np.nan] * 3])


def test_a_mask_that_allows_nothing_is_nan_inside_jit():
    mask = jnp.array([[True, False], [False, False]])
    X, _ = jax.jit(simplex.rounding)(jnp.ones((2, 2)), 0.5, mask)
    np.testing.assert_array_equal(np.isnan(X).all(-1), [False, True])


class TestProject:
    @pytest.mark.float32
    def test_against_an_independent_threshold_search(self, rng):
        m = jnp.asarray(rng.normal(size=(2, 3, 6)) * 2)
        X = project(m)
        for point, row in zip(X.reshape(-1, 6), np.array(m, float).reshape(-1, 6), strict=True):
            threshold = scipy.optimize.brentq(
                lambda t, row=row: np.maximum(row - t, 0).sum() - 1,
                row.max() - 1,
                row.max(),
                xtol=1e-14,
            )
            expected = np.maximum(row - threshold, 0)
            np.testing.assert_allclose(point, expected, atol=16 * eps_of(m))

    @pytest.mark.float32
    def test_large_entries_do_not_cancel(self):
        X = project(jnp.array([[1e7, 1e7 - 1, -1e7], [0.25, 0.25, 0.5]]))
        np.testing.assert_allclose(X, [[1, 0, 0], [0.25, 0.25, 0.5]], atol=1e-7)
        n = 1000
        assert abs(project(jnp.linspace(5.0, 5.001, n)).sum() - 1) <= 8 * n * eps_of(X)

    def test_gradient(self, rng):
        check_grads(project, jnp.asarray(rng.normal(size=(2, 4))))


def test_one_category():
    assert rounding(jnp.array([0.2]), 0.5)[0] == pytest.approx(0.6)
    assert in_rounding_support(jnp.array([0.2]), 0.5)
    assert project(jnp.array([0.2])) == 1
