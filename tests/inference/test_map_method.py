"""``fit(model, "map")``: against exact posteriors, and what it says of itself."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi.inference.exact import enumerate_log_density
from permvi.inference.map.method import quadratic_of
from permvi.problem.prepare import prepare


def fit(model, **options):
    """Without the warning that a point is not a posterior."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "map", **options)


def assert_is_the_mode(posterior, model, **options):
    """It has all its mass at the exact mode, and the evidence is that mode's density."""
    exact = pv.fit(model, "exact", **options)
    np.testing.assert_array_equal(posterior.mode, exact.mode)
    value = float(exact.log_prob(exact.mode)) + exact.log_evidence
    assert posterior.log_evidence == pytest.approx(value, abs=1e-9, rel=1e-5)
    assert posterior.log_evidence_kind == "bound"
    one_hot = np.eye(model.shape[1] + 1)[posterior.mode][..., :-1]
    np.testing.assert_array_equal(posterior.marginals, one_hot)


@pytest.mark.float32
@pytest.mark.parametrize("shape", [(5, 5), (3, 6), (6, 4), (2, 4, 4)])
@pytest.mark.parametrize("masked", [True, False])
def test_linear_models(rng, shape, masked):
    mask = None
    if masked:
        mask = rng.random(shape) < 0.6
        mask[..., np.arange(min(shape[-2:])), np.arange(min(shape[-2:]))] = True
    model = pv.models.LinearMatching(rng.normal(size=shape), mask=mask)
    posterior = fit(model, max_evaluations=1)
    assert_is_the_mode(posterior, model)
    assert posterior.num_evaluations == 1
    assert "no matching is more probable than this one" in posterior.diagnostics.reasons


@pytest.mark.float32
@pytest.mark.parametrize(("n", "m"), [(6, 6), (4, 6), (6, 4)])
def test_quadratic_models_with_all_constraints(rng, n, m):
    mask = rng.random((n, m)) < 0.8
    mask[np.arange(min(n, m)), np.arange(min(n, m))] = True
    known = np.full(n, -1)
    known[1] = 1
    model = pv.models.GraphMatching(
        rng.normal(size=(n, n)),
        rng.normal(size=(m, m)),
        0.8,
        rng.normal(size=(n, m)),
        mask=mask,
        known=known,
        prior_scores=rng.normal(size=(n, m)),
    )
    posterior = fit(model)
    assert_is_the_mode(posterior, model)
    np.testing.assert_array_equal(posterior.marginals[1], np.eye(m)[1])


def test_the_quadratic_form_of_the_reduced_problem_is_its_density(rng):
    model = pv.models.GraphMatching(
        *rng.normal(size=(2, 6, 6)),
        -1.4,
        rng.normal(size=(6, 6)),
        known={0: 3, 4: 1},
        prior_scores=rng.normal(size=(6, 6)),
    )
    task = prepare(model)
    perms = pv.permutations.enumerate_permutations(4)
    wanted = task.problem.log_density_of(task.problem.data, perms)
    np.testing.assert_allclose(quadratic_of(task).values(np.asarray(perms)), wanted)


def test_the_verdict_is_that_of_a_point(rng):
    model = pv.models.GraphMatching(*rng.normal(size=(2, 5, 5)))
    with pytest.warns(pv.FitWarning, match="the marginals differ from an independent answer .* by"):
        posterior = pv.fit(model, "map", num_restarts=6)
    diagnostics = posterior.diagnostics
    assert diagnostics.verdict == "do not trust"
    assert "a point estimate: it says nothing about" in diagnostics.reasons[1]
    exact = pv.fit(model, "exact")
    error = 0.5 * np.abs(posterior.marginals - exact.marginals).sum(axis=1)
    np.testing.assert_allclose(diagnostics.bias_by_row, error, atol=0.02)
    assert diagnostics.converged
    values = diagnostics.extras["restart_values"]
    assert values.shape == (6,)
    assert values.max() == pytest.approx(posterior.log_evidence)
    assert diagnostics.extras["num_best"] == np.isclose(values, values.max()).sum()
    assert f"{diagnostics.extras['num_best']} of 6 restarts" in diagnostics.reasons[2]


def test_the_only_matching_there_is_can_be_trusted(rng):
    mask = np.triu(np.ones((4, 4), bool))
    posterior = pv.fit(pv.models.GraphMatching(*rng.normal(size=(2, 4, 4)), mask=mask), "map")
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.log_evidence_kind == "exact"
    np.testing.assert_array_equal(posterior.mode, np.arange(4))


def bumpy(perm, xp):
    """Neither linear nor quadratic."""
    rows = xp.arange(perm.shape[-1])
    return xp.sin(perm * (rows + 1.0)).sum() ** 3 / 4 - xp.abs(xp.cumsum(xp.cos(2.0 * perm))).sum()


def test_functions_on_the_host(rng):
    asked = []

    def f(perm):
        asked.append(tuple(perm))
        return float(bumpy(np.asarray(perm), np))

    posterior = fit(f, n=6, input="perm", jax=False)
    # Whether it is vectorised is found out by one more call.
    assert 0 <= len(asked) - posterior.num_evaluations <= 1
    exact = enumerate_log_density(lambda perms: np.array([bumpy(perm, np) for perm in perms]), 6)
    np.testing.assert_array_equal(posterior.mode, exact.mode)


def test_jax_functions_of_permutations(rng):
    posterior = fit(lambda perm: bumpy(perm, jnp), n=6, input="perm", jax=True)
    exact = enumerate_log_density(lambda perms: np.array([bumpy(p, np) for p in perms]), 6)
    np.testing.assert_array_equal(posterior.mode, exact.mode)


@pytest.mark.float32
@pytest.mark.parametrize("shape", [(6, 6), (4, 6), (5, 4)])
def test_jax_functions_of_matrices(rng, shape):
    n, m = shape
    A, B = rng.normal(size=(n, n)), rng.normal(size=(m, m))

    def f(X):
        return jnp.sum(jnp.tanh(A @ X @ B) * X) + jnp.sum(jnp.sin(3.0 * X @ B))

    posterior = fit(f, n=shape)
    exact = pv.fit(f, "exact", n=shape)
    np.testing.assert_array_equal(posterior.mode, exact.mode)


class TwoSites:
    """Two graphs whose matchings also like to agree."""

    shape = (4, 4)
    num_sites = 2

    def __init__(self, weights):
        self.weights = weights

    def log_density(self, X):
        both = jnp.einsum("ik,...sij,jl,...skl->...", self.weights[0], X, self.weights[1], X)
        return both + 2.0 * jnp.sum(X[..., 0, :, :] * X[..., 1, :, :] * self.weights[2], (-2, -1))


@pytest.mark.parametrize("known", [None, np.array([[-1, 2, -1, -1], [-1, -1, -1, 0]])])
def test_several_sites(rng, known):
    model = TwoSites(rng.normal(size=(3, 4, 4)))
    if known is not None:
        model.known = known
    posterior = fit(model)
    exact = pv.fit(model, "exact")
    value = float(np.asarray(model.log_density(np.eye(4)[exact.mode])))
    assert posterior.log_evidence == pytest.approx(value)
    again = fit(model, num_restarts=1, start=exact.mode)
    np.testing.assert_array_equal(again.mode, posterior.mode)


def test_a_relaxed_density_that_is_not_finite_does_no_harm():
    # Minus infinity inside of the polytope, and with it NaN gradients.
    weights = np.arange(16.0).reshape(4, 4) % 5

    def f(X):
        return jnp.sum(weights * X) + jnp.sum(jnp.log(X.max(axis=-1) - 0.99))

    posterior = fit(f, n=4)
    np.testing.assert_array_equal(posterior.mode, pv.fit(f, "exact", n=4).mode)


def test_no_finite_density_is_an_error():
    with pytest.raises(ValueError, match="must be finite for some matching, got -inf for all of"):
        fit(lambda perm: -np.inf, n=4, input="perm", jax=False)


def test_a_small_budget_is_kept_and_told(rng):
    calls = []

    def f(perm):
        calls.append(perm)
        return float(bumpy(np.asarray(perm), np))

    posterior = fit(f, n=8, input="perm", jax=False, max_evaluations=50)
    assert len(calls) <= 52
    assert posterior.num_evaluations <= 51
    assert not posterior.diagnostics.converged
    assert "allow more evaluations" in posterior.diagnostics.reasons[-1]


def test_a_start_may_be_given(rng):
    model = pv.models.GraphMatching(*rng.normal(size=(2, 6, 6)), known={2: 0})
    best = fit(model).mode
    quick = {"num_restarts": 1, "polish": "none", "max_iter": 1}
    np.testing.assert_array_equal(fit(model, start=best, **quick).mode, best)
    several = np.stack([best, best])
    assert len(fit(model, start=several, **quick).diagnostics.extras["restart_values"]) == 3
    wide = pv.models.GraphMatching(rng.normal(size=(5, 5)), np.eye(3), known={1: 2})
    left_out = np.array([0, 2, -1, -1, 1])
    assert fit(wide, start=left_out).mode[1] == 2


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([0, 1, 2], r"start must be integers of shape \(4,\), or several of them, got"),
        ([1, 0, 2, 3], "start must have the known pairs of the model"),
        ([0, 1, 2, 7], "start must hold columns 0 to 3 or -1, got 7"),
        ([0, 1, 1, 2], "starts must be matchings"),
    ],
)
def test_bad_starts_get_one_sentence(start, message):
    model = pv.models.GraphMatching(np.eye(4), np.eye(4), known={0: 0})
    with pytest.raises(ValueError, match=message):
        fit(model, start=start)


def test_what_it_cannot_treat_is_refused(rng):
    points = rng.normal(size=(4, 2))
    with pytest.raises(ValueError, match="other latents for method 'map', got 'scale'"):
        fit(pv.models.PointMatching(points, points, None))


def test_it_survives_a_save(rng, tmp_path):
    posterior = fit(pv.models.GraphMatching(*rng.normal(size=(2, 5, 5))), start=np.arange(5))
    posterior.save(tmp_path / "fit.nc")
    loaded = pv.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.mode, posterior.mode)
    for name, values in posterior.diagnostics.extras.items():
        np.testing.assert_array_equal(loaded.diagnostics.extras[name], values)


def test_the_same_seed_gives_the_same_matching(rng):
    # Without polish restarts end in different matchings; eight items are audited at once.
    model = pv.models.GraphMatching(*rng.normal(size=(2, 8, 8)))
    one, again, other = (
        fit(model, seed=seed, polish="none").diagnostics.extras["restart_values"]
        for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_shaking_goes_on_where_climbing_ends():
    def f(perm):
        return float(bumpy(np.asarray(perm), np))

    quick = {"n": 9, "input": "perm", "jax": False, "num_restarts": 3}
    climbed, shaken = (fit(f, polish=polish, **quick) for polish in ("swap", "tabu"))
    before, after = (p.diagnostics.extras["restart_values"] for p in (climbed, shaken))
    assert (after >= before).all()
    assert after.max() > before.max()
    assert shaken.num_evaluations > climbed.num_evaluations
