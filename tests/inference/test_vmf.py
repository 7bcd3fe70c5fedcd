"""Von Mises-Fisher distributions of permutations: density, sampler, fit and method."""

import math
import warnings

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, xlog1py

import permvi as pv
from permvi.inference.vmf import (
    VonMisesFisher,
    embed,
    fit_to_density,
    fit_to_marginals,
    nearest_permutations,
)
from permvi.permutations import enumerate_permutations


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "vmf", **options)


def basis(n):
    """((n-1)^2, n, n) an orthonormal basis of matrices whose rows and columns sum to zero."""
    helmert = np.linalg.qr(np.eye(n)[:, 1:] - 1 / n)[0]
    return np.einsum("ia,jb->abij", helmert, helmert).reshape(-1, n, n)


def direction(rng, n):
    vector = rng.normal(size=(n - 1) ** 2)
    return np.tensordot(vector / np.linalg.norm(vector), basis(n), axes=1)


def heights_cdf(dim, kappa):
    """The distribution function of <mu, y>, by quadrature of its density on a grid."""
    w = np.linspace(-1, 1, 200_001)
    log_density = kappa * w + xlog1py((dim - 3) / 2, -(w**2))
    density = np.exp(log_density - log_density.max())
    total = integrate.cumulative_trapezoid(density, w, initial=0)
    return lambda x: np.interp(x, w, total / total[-1])


@pytest.mark.parametrize("n", [2, 3, 6])
def test_permutations_lie_on_the_sphere_of_centred_matrices(n, rng):
    perms = np.argsort(rng.random((20, n)), axis=1)
    points = embed(perms)
    np.testing.assert_allclose(np.linalg.norm(points, axis=(1, 2)), 1)
    np.testing.assert_allclose(points.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(points.sum(axis=2), 0, atol=1e-14)
    np.testing.assert_array_equal(nearest_permutations(points), perms)
    # The cosine is (matches - 1) / (n - 1).
    cosine = (points[0] * points[1]).sum()
    assert cosine == pytest.approx(((perms[0] == perms[1]).sum() - 1) / (n - 1))


@pytest.mark.parametrize(("n", "kappa"), [(3, 0.5), (3, 40.0), (4, 10.0), (6, 300.0)])
def test_the_density_is_that_of_scipy(n, kappa, rng):
    law = VonMisesFisher(direction(rng, n), kappa)
    y = np.stack([direction(rng, n) for _ in range(4)])
    in_basis = np.einsum("aij,kij->ka", basis(n), np.concatenate([law.mean[None], y]))
    expected = stats.vonmises_fisher(in_basis[0], kappa)
    np.testing.assert_allclose(law.log_prob(y), expected.logpdf(in_basis[1:]))


def test_without_concentration_the_density_is_one_over_the_area(rng):
    law = VonMisesFisher(direction(rng, 4), 0.0)
    assert law.mean_resultant == 0
    area = 2 * math.pi ** (law.dim / 2) / math.gamma(law.dim / 2)
    assert law.log_prob(direction(rng, 4)) == pytest.approx(-math.log(area))


@pytest.mark.parametrize(("n", "kappa"), [(3, 2.0), (5, 0.01), (20, 30.0), (30, 500.0), (30, 1e5)])
def test_the_normaliser_is_that_of_quadrature(n, kappa, rng):
    """Also where Bessel functions underflow."""
    law = VonMisesFisher(direction(rng, n), kappa)
    half = (law.dim - 3) / 2
    # Where the integrand exp(kappa w) (1 - w^2)^half is largest.
    peak = kappa / (half + math.hypot(half, kappa)) if half else 1.0

    def log_integrand(w):
        return kappa * w + half * math.log1p(-(w**2))

    top = log_integrand(min(peak, 1 - 1e-15)) if half else kappa
    width = 30 / math.sqrt(law.dim + kappa)
    limits = max(-1.0, peak - width), min(1.0, peak + width)

    def integral(power):
        return integrate.quad(
            lambda w: w**power * math.exp(log_integrand(w) - top), *limits, epsabs=0, limit=200
        )[0]

    below = law.dim - 1
    log_area = math.log(2) + below / 2 * math.log(math.pi) - math.lgamma(below / 2)
    expected = -(log_area + top + math.log(integral(0)))
    assert law.log_normalizer == pytest.approx(expected, rel=1e-9, abs=1e-7)
    assert law.mean_resultant == pytest.approx(integral(1) / integral(0), rel=1e-7)


def test_two_items_have_two_points():
    law = VonMisesFisher(embed(np.array([1, 0])), 0.7)
    both = embed(np.array([[0, 1], [1, 0]]))
    probs = np.exp(law.log_prob(both))
    assert probs.sum() == pytest.approx(1)
    assert law.mean_resultant == pytest.approx(math.tanh(0.7))
    draws = nearest_permutations(law.sample(20_000, np.random.default_rng(0)))
    count = (draws[:, 0] == 1).sum()
    assert stats.binomtest(int(count), 20_000, expit(2 * 0.7)).pvalue > 1e-4


@pytest.mark.parametrize(("n", "kappa"), [(3, 0.0), (3, 5.0), (5, 20.0), (12, 4e3)])
def test_the_sampler_follows_the_density(n, kappa, rng):
    law = VonMisesFisher(direction(rng, n), kappa)
    points = law.sample(4000, rng)
    np.testing.assert_allclose(np.linalg.norm(points, axis=(1, 2)), 1)
    np.testing.assert_allclose(points.sum(axis=1), 0, atol=1e-12)
    w = (points * law.mean).sum(axis=(1, 2))
    assert stats.kstest(w, heights_cdf(law.dim, kappa)).pvalue > 1e-4
    assert abs(w.mean() - law.mean_resultant) < 4 * w.std() / math.sqrt(4000)
    # Around the mean all directions are alike: a uniform direction has heights of its own.
    other = direction(rng, n)
    other -= (other * law.mean).sum() * law.mean
    other /= np.linalg.norm(other)
    around = (points * other).sum(axis=(1, 2)) / np.sqrt(1 - w**2)
    assert stats.kstest(around, heights_cdf(law.dim - 1, 0.0)).pvalue > 1e-4


def cell_probabilities(law):
    """The probability of each permutation of three items, by a grid on the sphere of S^3."""
    size = 100
    eta = (np.arange(size) + 0.5) * math.pi / 2 / size
    angles = (np.arange(size) + 0.5) * 2 * math.pi / size
    e, a, b = np.meshgrid(eta, angles, angles, indexing="ij")
    parts = (np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e) * np.cos(b))
    coordinates = np.stack([*parts, np.sin(e) * np.sin(b)], axis=-1).reshape(-1, 4)
    in_basis = np.einsum("aij,kij->ka", basis(3), embed(enumerate_permutations(3)))
    mean = np.einsum("aij,ij->a", basis(3), law.mean)
    weights = np.exp(law.kappa * coordinates @ mean) * np.repeat(np.sin(2 * eta), size**2)
    cells = np.argmax(coordinates @ in_basis.T, axis=1)
    found = np.bincount(cells, weights, minlength=6)
    return found / found.sum()


@pytest.mark.parametrize("kappa", [1.0, 6.0])
def test_rounded_draws_follow_the_cells_of_the_sphere(kappa, rng):
    law = VonMisesFisher(direction(rng, 3), kappa)
    num = 5000
    draws = nearest_permutations(law.sample(num, rng))
    perms = enumerate_permutations(3)
    counts = (draws[:, None] == perms).all(axis=2).sum(axis=0)
    # A million points: the grid's error is far below the sampling error.
    assert stats.chisquare(counts, num * cell_probabilities(law)).pvalue > 1e-4


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_rounded_moment_is_matched(n, rng):
    scores = rng.normal(size=(n, n))
    P = pv.fit(pv.models.LinearMatching(scores), "exact").marginals
    found = fit_to_marginals(P, rng, num_draws=2000)
    length = np.linalg.norm(P - 1 / n) / math.sqrt(n - 1)
    assert found.resultant == pytest.approx(length)
    np.testing.assert_allclose(found.law.mean * length * math.sqrt(n - 1), P - 1 / n, atol=1e-12)
    assert found.num_evaluations == 0
    perms = nearest_permutations(found.law.sample(4000, rng))
    w = (embed(perms) * found.law.mean).sum(axis=(1, 2))
    # The errors of the search's 2000 draws and of these 4000.
    error = w.std() * math.sqrt(1 / 2000 + 1 / 4000)
    assert abs(w.mean() - length) < 4 * error + 0.005


def test_no_direction_and_no_doubt(rng):
    flat = fit_to_marginals(np.full((4, 4), 0.25), rng, 500)
    assert flat.law.kappa == flat.resultant == 0
    certain = fit_to_marginals(np.eye(4)[[2, 0, 3, 1]], rng, 500)
    assert certain.resultant == 1
    draws = nearest_permutations(certain.law.sample(1000, rng))
    assert (draws == [2, 0, 3, 1]).all(axis=1).mean() > 0.99
    two = np.eye(4)[[0, 1, 2, 3]] / 2 + np.eye(4)[[1, 2, 3, 0]] / 2
    assert np.isfinite(fit_to_marginals(two, rng, 500).law.kappa)


def test_a_density_that_is_seen_completely_has_its_own_moments(rng):
    scores = rng.normal(size=(4, 4))
    P = pv.fit(pv.models.LinearMatching(scores), "exact").marginals
    seen = []

    def log_density(perms):
        seen.extend(map(tuple, perms.tolist()))
        return scores[np.arange(4), perms].sum(axis=1)

    found = fit_to_density(log_density, np.arange(4), rng, num_draws=600, num_rounds=2)
    assert found.num_evaluations == len(seen) == len(set(seen)) == 24
    np.testing.assert_allclose(
        found.law.mean * found.resultant * math.sqrt(3), P - 1 / 4, atol=1e-12
    )
    with pytest.raises(ValueError, match="must be finite for some permutation, got -inf for all"):
        fit_to_density(lambda perms: np.full(len(perms), -np.inf), np.arange(3), rng, 50, 1)


def test_the_method_on_a_black_box():
    """Every evaluation of the density is counted."""
    calls = []

    def log_density(perm):
        calls.append(0)
        return -2.0 * float(np.abs(np.asarray(perm) - np.array([1, 3, 0, 2])).sum())

    posterior = fit(pv.models.CallableModel(log_density, 4, "perm", jax=False), num_rounds=2)
    np.testing.assert_array_equal(posterior.mode, [1, 3, 0, 2])
    assert posterior.num_evaluations == len(calls)
    np.testing.assert_allclose(posterior.marginals.sum(axis=0), 1)


@pytest.mark.float32
def test_the_method_with_a_given_concentration(rng):
    model = pv.models.LinearMatching(rng.normal(size=(5, 5)))
    flat = fit(model, kappa=0.0, num_draws=4000)
    # Frequencies of 0.2 in 4000 draws, and the largest of 25.
    assert np.abs(flat.marginals - 0.2).max() < 4.5 * math.sqrt(0.16 / 4000)
    assert flat.diagnostics.extras["kappa"] == 0
    sharp = fit(model, kappa=1e6)
    assert len(np.unique(sharp.sample(200), axis=0)) <= 2
    one = fit(pv.models.LinearMatching(rng.normal(size=(2, 2)), known=np.array([0, -1])))
    np.testing.assert_array_equal(one.marginals, np.eye(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kappa": -1.0}, "kappa must be a finite number of at least 0, got -1.0"),
        ({"kappa": np.inf}, "kappa must be a finite number of at least 0, got inf"),
        ({"num_draws": 0}, "num_draws must be"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        fit(pv.models.LinearMatching(np.zeros((3, 3))), **options)


def test_rectangles_are_refused():
    with pytest.raises(ValueError, match="as many items as labels"):
        fit(pv.models.LinearMatching(np.zeros((2, 3))))
