"""Rounding against brute force over permutations, quadrature and autodiff."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from permvi import assignment, transforms

TEMPERATURES = [1e-3, 0.1, 0.5, 0.9, 1.0]


def brute_round(psi, mask=None):
    n = len(psi)
    feasible = [
        perm
        for perm in itertools.permutations(range(n))
        if mask is None or all(mask[i, perm[i]] for i in range(n))
    ]
    best = max(feasible, key=lambda perm: sum(psi[i, perm[i]] for i in range(n)))
    return np.eye(n)[list(best)]


def random_mask(rng, n):
    mask = rng.random((n, n)) < rng.uniform(0.1, 0.7)
    mask[np.arange(n), rng.permutation(n)] = True
    return mask


@pytest.mark.float32
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_value_inverse_and_cell(temperature, rng):
    psi = jnp.asarray(rng.normal(size=(4, 5, 5)))
    X, log_det = transforms.rounding(psi, temperature)
    eps = float(jnp.finfo(psi.dtype).eps)
    for one, x in zip(np.asarray(psi), np.asarray(X), strict=True):
        expected = temperature * one + (1 - temperature) * brute_round(one)
        np.testing.assert_allclose(x, expected, rtol=4 * eps, atol=4 * eps)
    np.testing.assert_allclose(log_det, 25 * np.log(temperature), rtol=10 * eps, atol=0)
    np.testing.assert_array_equal(
        assignment.nearest_permutation(X), assignment.nearest_permutation(psi)
    )
    assert transforms.in_rounding_support(X, temperature).all()
    again, inverse_log_det = transforms.rounding_inverse(X, temperature)
    np.testing.assert_allclose(again, psi, atol=16 * eps / temperature)
    np.testing.assert_allclose(inverse_log_det, -log_det)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_log_determinant_is_that_of_the_autodiff_jacobian(temperature, rng):
    psi = rng.normal(size=(3, 3))
    mask = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], bool)
    for options, free in (({}, np.ones((3, 3), bool)), ({"mask": mask}, mask)):
        jacobian = jax.jacobian(lambda p, o=options: transforms.rounding(p, temperature, **o)[0])
        block = np.asarray(jacobian(jnp.asarray(psi)))[free][:, free]
        _, log_det = transforms.rounding(psi, temperature, **options)
        np.testing.assert_allclose(np.linalg.slogdet(block)[1], log_det, atol=1e-12)


def log_density(X, mean, scale, temperature):
    """The paper's density of rounded Gaussians, from the public inverse, support and log_det."""
    psi, log_det = transforms.rounding_inverse(X, temperature)
    z = (psi - mean) / scale
    log_normal = (-0.5 * z**2 - np.log(scale) - 0.5 * np.log(2 * np.pi)).sum((-2, -1))
    support = transforms.in_rounding_support(X, temperature)
    return jnp.where(support, log_normal + log_det, -jnp.inf)


@pytest.mark.parametrize("temperature", [0.4, 1.0])
def test_the_density_integrates_to_one_by_quadrature(temperature, rng):
    """N = 2: along the one direction that decides the cell on a fine grid, else Gauss-Hermite."""
    mean, scale = rng.normal(size=(2, 2)), 0.7
    deciding = np.array([[1, -1], [-1, 1]]) / 2
    others = [np.array(m) / 2 for m in ([[1, 1], [1, 1]], [[1, 1], [-1, -1]], [[1, -1], [1, -1]])]
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    grid, spacing = np.linspace(-8, 8, 4001, retstep=True)
    total = 0.0
    for cell in (np.eye(2), np.eye(2)[::-1]):
        # In each cell the density is Gaussian around the image of the mean.
        centre = temperature * mean + (1 - temperature) * cell
        along = (centre * deciding).sum()
        for index in itertools.product(range(3), repeat=3):
            offset = sum(
                ((centre * o).sum() + temperature * scale * nodes[k]) * o
                for o, k in zip(others, index, strict=True)
            )
            X = offset + grid[:, None, None] * deciding
            inside = (X * cell).sum((-2, -1)) > (X * (1 - cell)).sum((-2, -1))
            values = np.exp(log_density(jnp.asarray(X), mean, scale, temperature)) * inside
            # Divide out the weight function of the rule, a standard Gaussian density.
            gaussian = np.prod([np.exp(-(nodes[k] ** 2) / 2) for k in index])
            factor = np.prod([weights[k] for k in index]) * (temperature * scale) ** 3 / gaussian
            total += factor * values.sum() * spacing
        assert abs(along) < 8
    np.testing.assert_allclose(total, 1, atol=2 * spacing)


def test_the_density_integrates_to_one_by_monte_carlo(rng):
    """N = 3: importance sampling from a wider law; 4 standard errors."""
    n, temperature, scale, num = 3, 0.5, 0.4, 200_000
    mean = np.full((n, n), 1 / n)
    # Half of the proposals are around a permutation, drawn with the width of the target.
    vertices = np.array([np.eye(n)[list(p)] for p in itertools.permutations(range(n))])
    centres = temperature * mean + (1 - temperature) * vertices
    width = 1.3 * temperature * scale
    X = centres[rng.integers(len(vertices), size=num)] + width * rng.normal(size=(num, n, n))
    z = (X[:, None] - centres) / width
    log_terms = (-0.5 * z**2 - np.log(width) - 0.5 * np.log(2 * np.pi)).sum((-2, -1))
    log_proposal = np.logaddexp.reduce(log_terms, axis=1) - np.log(len(vertices))
    ratio = np.exp(np.asarray(log_density(jnp.asarray(X), mean, scale, temperature)) - log_proposal)
    assert abs(ratio.mean() - 1) <= 4 * ratio.std() / np.sqrt(num)


def test_the_support_excludes_the_middle():
    middle = np.full((3, 3), 1 / 3) + 1e-3 * np.eye(3)
    assert transforms.in_rounding_support(middle, 1.0)
    assert not transforms.in_rounding_support(middle, 0.5)


@pytest.mark.parametrize("n", [3, 6])
def test_masks_are_never_violated(n, rng):
    masks = np.array([random_mask(rng, n) for _ in range(5_000)])
    psi = rng.normal(size=masks.shape)
    X, log_det = transforms.rounding(psi, 0.5, mask=masks)
    assert (np.asarray(X)[~masks] == 0).all()
    pruned = assignment.prune_mask(masks)
    np.testing.assert_allclose(log_det, pruned.sum((-2, -1)) * np.log(0.5))
    rounded = np.asarray(assignment.nearest_permutation(psi, masks))
    assert (rounded.sum(-1) == 1).all()
    assert (rounded.sum(-2) == 1).all()
    assert (rounded <= pruned).all()
    np.testing.assert_array_equal(assignment.nearest_permutation(X, masks), rounded)
    for k in range(0, 5_000, 500):
        np.testing.assert_array_equal(rounded[k], brute_round(psi[k], masks[k]))


def test_known_pairs_are_one_and_reduce_the_rest(rng):
    psi = rng.normal(size=(5, 5))
    known = np.array([-1, 3, -1, 0, -1])
    X, log_det = transforms.rounding(psi, 0.5, known=known)
    rows, columns = [0, 2, 4], [1, 2, 4]
    reduced, reduced_log_det = transforms.rounding(psi[np.ix_(rows, columns)], 0.5)
    np.testing.assert_allclose(np.asarray(X)[np.ix_(rows, columns)], reduced)
    assert log_det == reduced_log_det
    for i, j in ((1, 3), (3, 0)):
        np.testing.assert_array_equal(X[i], np.eye(5)[j])
        np.testing.assert_array_equal(X[:, j], np.eye(5)[i])
    assert transforms.in_rounding_support(X, 0.5, known=known)
    assert not transforms.in_rounding_support(X.at[1, 3].set(0.9), 0.5, known=known)


def test_no_gradient_through_the_assignment(rng):
    psi = jnp.asarray(rng.normal(size=(3, 3)))
    weights = rng.normal(size=(3, 3))
    gradient = jax.grad(lambda p: (transforms.rounding(p, 0.3)[0] * weights).sum())(psi)
    np.testing.assert_allclose(gradient, 0.3 * weights)


@pytest.mark.float32
def test_the_same_under_jit_and_vmap_with_one_trace(rng):
    psi = jnp.asarray(rng.normal(size=(3, 4, 4)), jnp.float32)
    traces = []

    @jax.jit
    def function(matrix, temperature):
        traces.append(None)
        return transforms.rounding(matrix, temperature)

    expected = transforms.rounding(psi, 0.5)
    mapped = jax.vmap(lambda matrix: transforms.rounding(matrix, 0.5))(psi)
    for result in (function(psi, 0.5), mapped):
        assert result[0].dtype == jnp.float32
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(result[1], expected[1], rtol=1e-6)
    function(psi + 1, 0.7)
    assert len(traces) == 1


def test_bad_values_are_nan_inside_jit(rng):
    psi = jnp.asarray(rng.normal(size=(2, 2)))
    X, log_det = jax.jit(transforms.rounding)(psi, 1.5)
    assert jnp.isnan(X).all()
    assert jnp.isnan(log_det)
    X, _ = jax.jit(transforms.rounding)(psi.at[0, 0].set(jnp.nan), 0.5)
    assert jnp.isnan(X).all()


@pytest.mark.float32
@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_sizes(n, rng):
    X, _ = transforms.rounding(jnp.asarray(rng.normal(size=(n, n))), 0.5)
    assert X.shape == (n, n)
    assert transforms.in_rounding_support(X, 0.5)


@pytest.mark.parametrize(
    ("psi", "temperature", "options", "error", "message"),
    [
        (np.zeros((2, 3)), 0.5, {}, ValueError, r"psi must have shape .* got shape \(2, 3\)"),
        (np.zeros((0, 0)), 0.5, {}, ValueError, "psi must have shape .* n >= 1"),
        (np.zeros((2, 2), int), 0.5, {}, TypeError, "psi must be a floating-point array"),
        (np.eye(2), 1.01, {}, ValueError, r"temperature must be in \(0, 1\], got 1\.01"),
        (np.eye(2), 0.0, {}, ValueError, r"temperature must be in \(0, 1\], got 0"),
        (np.eye(2), np.nan, {}, ValueError, r"temperature must be in \(0, 1\], got nan"),
        (np.eye(2), 0.5, {"mask": np.zeros((2, 2), bool)}, ValueError, "mask must allow"),
        (np.eye(2), 0.5, {"known": [0, 0]}, ValueError, "known must hold distinct columns"),
        (np.eye(2), 0.5, {"known": [0, 5]}, ValueError, "known must hold distinct columns"),
        (np.eye(2), 0.5, {"known": [0]}, ValueError, r"known must have shape \(2,\)"),
        (
            np.eye(2),
            0.5,
            {"known": [1, -1], "mask": np.eye(2, dtype=bool)},
            ValueError,
            "known must name pairs that the mask allows",
        ),
        (np.full((2, 2), np.nan), 0.5, {}, ValueError, "psi must be finite"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(psi, temperature, options, error, message):
    with pytest.raises(error, match=message):
        transforms.rounding(psi, temperature, **options)
