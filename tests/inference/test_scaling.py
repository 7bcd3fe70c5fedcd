"""Sinkhorn scaling and belief propagation for the permanent, against exact evidence."""

import math
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import permvi as pv
from permvi.inference.exact import solve_exact
from permvi.inference.scaling import (
    log_bethe,
    log_capacity,
    log_permanent_floor,
    propagate_beliefs,
    square_problem,
)

METHODS = ["sinkhorn", "bethe"]


def fit(model, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method, **options)


def random_problem(rng, shape, scale, density=None):
    scores = scale * rng.normal(size=shape)
    if density is None:
        return scores, None
    mask = rng.random(shape) < density
    long = np.argsort(rng.random(max(shape)))[: min(shape)]
    pairs = (np.arange(min(shape)), long)
    mask[pairs if shape[0] <= shape[1] else pairs[::-1]] = True
    return scores, mask


CASES = [
    (shape, scale, density)
    for shape in [(2, 2), (3, 3), (4, 4), (3, 5), (5, 3), (1, 4), (7, 7)]
    for scale in (0.3, 3.0, 30.0)
    for density in (None, 0.5)
]


@pytest.mark.parametrize("method", METHODS)
def test_the_evidence_lies_between_the_bounds(method, rng):
    upper_bounds = 0
    for shape, scale, density in CASES:
        for _ in range(2):
            scores, mask = random_problem(rng, shape, scale, density)
            posterior = fit(pv.models.LinearMatching(scores, mask=mask), method)
            solution = solve_exact(scores, mask)
            exact = solution.log_evidence
            slack = 1e-9 * (1 + abs(exact))
            assert posterior.log_evidence <= exact + slack
            if posterior.log_evidence_kind == "exact":
                assert posterior.log_evidence == pytest.approx(exact, abs=slack)
                assert posterior.diagnostics.verdict == "trust"
                continue
            assert posterior.log_evidence_kind == "bound"
            # Both are off by less than a factor of e for each row.
            assert posterior.log_evidence > exact - max(shape)
            # A search that knows practically all matchings measures the error of the marginals.
            error = 0.5 * np.abs(posterior.marginals - solution.marginals).sum(axis=1)
            error += 0.5 * np.abs(posterior.p_unmatched_rows - solution.p_unmatched_rows)
            np.testing.assert_allclose(posterior.diagnostics.bias_by_row, error, atol=0.02)
            upper = posterior.diagnostics.extras.get("log_evidence_upper")
            if upper is not None:
                upper_bounds += 1
                assert exact <= upper + 1e-6 * (1 + abs(exact))
    assert upper_bounds > 40


def test_any_doubly_stochastic_matrix_bounds_the_permanent(rng):
    for n in (2, 3, 5):
        scores = 2 * rng.normal(size=(n, n))
        exact = solve_exact(scores).log_evidence
        weights = rng.dirichlet(np.ones(8), size=20)
        vertices = np.eye(n)[np.argsort(rng.random((20, 8, n)))]
        for P in np.einsum("ak,akij->aij", weights, vertices):
            assert log_bethe(scores, P) <= exact + 1e-12
            assert log_capacity(scores, P) + log_permanent_floor(P > 0) <= exact + 1e-12


def test_the_floor_is_van_der_waerden_for_full_matrices_and_less_strict_for_sparse_ones(rng):
    for n in (1, 2, 5):
        full = np.ones((n, n), bool)
        expected = math.lgamma(n + 1) - n * math.log(n)
        assert log_permanent_floor(full) == pytest.approx(expected)
    sparse = np.eye(6, dtype=bool) | np.roll(np.eye(6, dtype=bool), 1, axis=1)
    # Two entries in every row and column: per >= (1/2)^(n-1), which this matrix attains.
    assert log_permanent_floor(sparse) == pytest.approx(5 * math.log(0.5))
    assert solve_exact(np.full((6, 6), math.log(0.5)), sparse).log_evidence == pytest.approx(
        5 * math.log(0.5)
    )


def maximum_of_bethe(scores):
    """The maximum over the Birkhoff polytope by a general solver, with its argument."""
    n = len(scores)
    sums = np.concatenate([np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))[: n - 1]])

    def negative(x):
        P = np.clip(x.reshape(n, n), 1e-300, 1)
        rest = np.clip(1 - P, 1e-300, 1)
        value = (P * (np.log(P) - scores)).sum() - (rest * np.log(rest)).sum()
        return value, (np.log(P) + 2 - scores + np.log(rest)).ravel()

    result = minimize(
        negative,
        np.full(n * n, 1 / n),
        jac=True,
        method="SLSQP",
        bounds=[(1e-9, 1 - 1e-9)] * (n * n),
        constraints={"type": "eq", "fun": lambda x: sums @ x - 1, "jac": lambda x: sums},
        options={"maxiter": 500, "ftol": 1e-13},
    )
    assert result.success
    return -result.fun, result.x.reshape(n, n)


# The general solver of older versions of SciPy warns of steps that it mends itself.
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
@pytest.mark.parametrize("n", [3, 4])
def test_belief_propagation_maximises_the_bethe_approximation(n, rng):
    for _ in range(5):
        scores = rng.normal(size=(n, n))
        posterior = fit(pv.models.LinearMatching(scores), "bethe", max_steps=20_000)
        value, P = maximum_of_bethe(scores)
        assert posterior.diagnostics.converged
        assert posterior.log_evidence == pytest.approx(value, abs=1e-6)
        np.testing.assert_allclose(posterior.marginals, P, atol=2e-3)


def test_two_items_have_a_closed_form(rng):
    # The Bethe approximation of a 2 by 2 permanent is the larger of its two products.
    for scores in 5 * rng.normal(size=(20, 2, 2)):
        products = scores[0, 0] + scores[1, 1], scores[0, 1] + scores[1, 0]
        posterior = fit(pv.models.LinearMatching(scores), "bethe")
        assert posterior.log_evidence == pytest.approx(max(products), abs=1e-4)
        # Sinkhorn's odds are the square root of the true ones.
        sinkhorn = fit(pv.models.LinearMatching(scores), "sinkhorn")
        odds = np.exp((products[0] - products[1]) / 2)
        assert sinkhorn.marginals[0, 0] == pytest.approx(odds / (1 + odds), abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(3, 5), (5, 3)])
def test_equal_scores_of_a_rectangle_are_counted_right(method, shape):
    posterior = fit(pv.models.LinearMatching(np.zeros(shape)), method)
    long = max(shape)
    np.testing.assert_allclose(posterior.marginals, 1 / long, atol=1e-5)
    number = math.log(math.perm(long, 3))
    if method == "sinkhorn":
        # Van der Waerden's bound is attained here.
        assert posterior.log_evidence == pytest.approx(number)
    else:
        assert number - long / 2 * math.log(2) <= posterior.log_evidence <= number


@pytest.mark.float32
@pytest.mark.parametrize("method", METHODS)
def test_large_scores_are_safe(method, rng):
    scores = 1e4 * rng.normal(size=(6, 6))
    posterior = fit(pv.models.LinearMatching(scores), method)
    exact = solve_exact(scores)
    np.testing.assert_array_equal(posterior.mode, exact.mode)
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-6)
    assert posterior.log_evidence == pytest.approx(exact.log_evidence, rel=1e-12)


@pytest.mark.float32
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
@pytest.mark.parametrize("scale", [1e2, 1e3, 1e5])
def test_scores_of_any_scale_have_a_scaling(scale):
    # Prices leave chains of ties outside any matching but the best, whose entries vanish slowly.
    problems = [
        scale * np.random.default_rng(seed).normal(size=(8, 8)) for seed in range(1012, 1020)
    ]
    found = pv.fit_many([pv.models.LinearMatching(scores) for scores in problems], "sinkhorn")
    for scores, posterior in zip(problems, found, strict=True):
        exact = solve_exact(scores)
        np.testing.assert_array_equal(posterior.mode, exact.mode)
        # At 1e5 each of these problems has one matching.
        if scale == 1e5:
            np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-6)
        assert posterior.log_evidence <= exact.log_evidence * (1 + 1e-12)


@pytest.mark.float32
def test_float32_beliefs_are_those_of_float64(rng):
    problems = np.stack([square_problem(rng.normal(size=(6, 6))).scores for _ in range(4)])
    low = propagate_beliefs(jnp.asarray(problems, jnp.float32), tol=1e-6)
    assert low.log_odds.dtype == jnp.float32
    assert bool(low.converged.all())
    beliefs = 1 / (1 + np.exp(-np.asarray(low.log_odds, np.float64)))
    for scores, P in zip(problems, beliefs, strict=True):
        u, v = np.zeros((6, 6)), np.zeros((6, 6))
        others = 1 - np.eye(6)
        for _ in range(2000):
            u = 0.5 * u - 0.5 * np.log(np.exp(scores + v) @ others)
            v = 0.5 * v - 0.5 * np.log(others @ np.exp(scores + u))
        # Steps shrink the error by a constant factor, here well below 0.99: 1e-6 / (1 - 0.99).
        np.testing.assert_allclose(P, 1 / (1 + np.exp(-scores - u - v)), atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_parts(method, rng):
    models = [pv.models.LinearMatching(s) for s in 2 * rng.normal(size=(3, 4, 4))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        together = pv.fit_many(models, method)
    for model, posterior in zip(models, together, strict=True):
        alone = fit(model, method)
        np.testing.assert_allclose(posterior.marginals, alone.marginals, atol=1e-9)
        assert posterior.log_evidence == pytest.approx(alone.log_evidence)
        assert posterior.num_evaluations == alone.num_evaluations


@pytest.mark.parametrize("method", METHODS)
def test_known_pairs_and_sites(method, rng):
    scores = rng.normal(size=(2, 4, 4))
    known = np.array([[-1, 2, -1, -1], [0, -1, -1, 3]])
    posterior = fit(pv.models.LinearMatching(scores, known=known), method)
    assert posterior.marginals.shape == (2, 4, 4)
    assert posterior.marginals[0, 1, 2] == posterior.marginals[1, 0, 0] == 1
    np.testing.assert_allclose(posterior.marginals.sum(-1), 1, atol=1e-9)
    exact = [solve_exact(s, known=k).log_evidence for s, k in zip(scores, known, strict=True)]
    assert sum(exact) - 4 < posterior.log_evidence <= sum(exact) + 1e-9
    assert posterior.sample(7).shape == (7, 2, 4)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_matching_is_exact(method):
    mask = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0]], bool)
    mask[:, 3] = False
    scores = np.arange(12.0).reshape(3, 4)
    posterior = pv.fit(pv.models.LinearMatching(scores, mask=mask), method)
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.log_evidence == pytest.approx(0 + 5 + 10)
    np.testing.assert_array_equal(posterior.marginals[:, :3], np.eye(3))
    np.testing.assert_array_equal(posterior.p_unmatched_cols, [0, 0, 0, 1])


def test_an_early_stop_is_said_and_bounds_still_hold(rng):
    scores = 3 * rng.normal(size=(6, 6))
    exact = solve_exact(scores).log_evidence
    for method in METHODS:
        posterior = fit(pv.models.LinearMatching(scores), method, max_steps=1)
        assert not posterior.diagnostics.converged
        assert "stopped before it converged" in posterior.diagnostics.reasons[-1]
        assert posterior.diagnostics.extras["num_steps"] == [1]
        assert posterior.log_evidence <= exact


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("sinkhorn", {"damping": 0.5}, "damping is an option of method 'bethe'"),
        ("bethe", {"damping": 1.0}, r"damping must be in \[0, 1\), got 1.0"),
        ("bethe", {"tol": 0.0}, "tol must be positive, got 0.0"),
        ("bethe", {"max_steps": 0}, "max_steps must be an integer of at least 1, got 0"),
    ],
)
def test_bad_options(method, options, message):
    with pytest.raises(ValueError, match=message):
        pv.fit(pv.models.LinearMatching(np.zeros((3, 3))), method, **options)


@pytest.mark.parametrize("method", METHODS)
def test_refusals(method):
    with pytest.raises(ValueError, match="model must be linear"):
        pv.fit(lambda X: jnp.sum(X**2, axis=(-2, -1)), method, n=3)
