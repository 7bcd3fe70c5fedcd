"""Fits of exact discrete families: where they start, how they train, what they reach."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi.inference.discrete import method, run, warm_start
from permvi.inference.discrete.family import log_prob_many
from permvi.inference.discrete.options import DiscreteOptions, resolve
from permvi.inference.discrete.structure import build_structure
from permvi.inference.discrete.training import Training, _update, train
from permvi.inference.discrete.training import _start as begin_training
from permvi.posterior import diagnostics
from permvi.problem.evaluation import evaluator, log_density
from permvi.problem.prepare import prepare
from tests.inference.discrete_cases import all_choices, problem_of, random_family

PERMS = np.asarray(pv.permutations.enumerate_permutations(5))


def points(n, sigma, seed, **constraints):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n, 2))
    observations = centers[rng.permutation(n)] + sigma * rng.normal(size=(n, 2))
    return pv.models.PointMatching(observations, centers, sigma, **constraints)


def graphs(seed, n=5, noise=0.5, scale=0.5):
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n))
    W = W + W.T
    order = rng.permutation(n)
    return pv.models.GraphMatching(W[order][:, order] + noise * rng.normal(size=(n, n)), W, scale)


def fit(model, method="sequential", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method, **options)


def hellinger(posterior, exact, perms=PERMS):
    p, q = np.exp(exact.log_prob(perms)), np.exp(posterior.log_prob(perms))
    return pv.metrics.hellinger(p, q / q.sum())


@pytest.mark.float32
def test_a_linear_model_is_matched_closely_by_the_family_itself():
    distances = []
    for seed in range(4):
        model = points(5, 0.5, seed)
        posterior, exact = fit(model), pv.fit(model, "exact")
        distances.append(hellinger(posterior, exact))
        assert posterior.num_evaluations <= 10_000
        np.testing.assert_allclose(np.exp(posterior.log_prob(PERMS)).sum(), 1, rtol=1e-4)
        np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-4)
        np.testing.assert_allclose(posterior.log_evidence, exact.log_evidence, atol=1e-4)
        assert posterior.diagnostics.verdict == "trust"
    assert np.mean(distances) < 0.02


@pytest.mark.parametrize(
    "method",
    ["sequential", pytest.param("stick_breaking_discrete", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("correction", ["swor", "ht", "snis", "none"])
def test_all_corrections_agree_with_the_exact_answer(method, correction):
    model = points(5, 0.5, 0)
    posterior = fit(model, method, correction=correction, num_draws=2000)
    exact = pv.fit(model, "exact")
    error = np.abs(posterior.marginals - exact.marginals).max()
    if correction == "none":
        # Sticks alone do not fit the posterior; the other family does, up to counting noise.
        assert error < (0.15 if method == "stick_breaking_discrete" else 4 * np.sqrt(0.25 / 2000))
    else:
        # Total variation is half a sum, so that twice it bounds an entry; five times for chance.
        assert error < 10 * posterior.diagnostics.sampling_error_by_row.max() + 1e-6
    kind = "bound" if correction == "none" else "estimate"
    assert posterior.log_evidence_kind == kind
    assert posterior.log_evidence <= exact.log_evidence + 4 * (posterior.log_evidence_se or 0.01)


@pytest.mark.slow
def test_a_black_box_on_the_host_is_recognised_as_linear():
    scores = np.random.default_rng(3).normal(size=(5, 5))
    calls = []

    def density(perm):
        calls.append(perm)
        return float(scores[np.arange(5), perm].sum())

    posterior = pv.fit(density, "sequential", n=5, input="perm", jax=False)
    exact = pv.fit(pv.models.LinearMatching(scores), "exact")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-6)
    assert posterior.num_evaluations == len(calls) <= 10_000
    assert posterior.law.family.kind == "lookahead"
    assert posterior.law.family.num_components == 1


def test_a_family_alone_is_that_of_a_whole_fit_without_its_draws(monkeypatch):
    problem, key = prepare(points(5, 0.5, 0)).problem, jax.random.key(3)
    options = DiscreteOptions(num_steps=20)
    whole = run.run_discrete(problem, key, evaluator(problem), options=options)

    def never(*arguments):
        raise AssertionError("nothing should be drawn")

    monkeypatch.setattr(run, "_draw_many", never)
    family, seen = run.fit_family(problem, key, evaluator(problem), options)
    for found, expected in zip(*map(jax.tree.leaves, (family, whole.family)), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert 0 < seen.num_evaluations < whole.seen.num_evaluations


def test_a_quadratic_model_gets_a_mixture_and_is_matched():
    model = graphs(0)
    posterior = fit(model, max_evaluations=8000, num_components=8)
    exact = pv.fit(model, "exact")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=0.01)
    np.testing.assert_allclose(posterior.log_evidence, exact.log_evidence, atol=0.01)
    assert posterior.law.family.kind == "plain"
    assert posterior.num_evaluations <= 8000


def test_modes_that_one_component_misses_are_found_out():
    """Two far modes of equal mass, at the identity and at its reverse, and nothing between."""
    n = 8
    ends = np.stack([np.arange(n), np.arange(n)[::-1]])

    def density(perm):
        wrong = (perm[None] != ends).sum(axis=-1)
        return jnp.max(-6.0 * wrong)

    posterior = fit(
        density, n=n, input="perm", num_components=1, max_evaluations=20_000, warm_start="none"
    )
    both = [np.exp(posterior.log_prob(end)) for end in ends]
    assert min(both) < 0.01 < 0.9 < max(both)
    assert posterior.diagnostics.missed_mass > 0.3
    assert posterior.diagnostics.verdict == "do not trust"
    assert "misses modes" in posterior.diagnostics.reasons[0]


MASKED = {"mask": np.tri(5, 5, 2, dtype=bool)}
KNOWN = {"known": np.array([-1, 3, -1, -1, -1])}
PARTIAL = {"row_unmatched": -1.0, "col_unmatched": -0.5}


def survives(posterior, tmp_path):
    """Compare the probabilities of a saved posterior, and those under jit and vmap."""
    posterior.save(tmp_path / "fit.nc")
    loaded = pv.load(tmp_path / "fit.nc")
    values = posterior.log_prob(PERMS)
    np.testing.assert_array_equal(loaded.log_prob(PERMS), values)
    np.testing.assert_allclose(jax.jit(posterior.log_prob)(PERMS), values, rtol=1e-6)
    mapped = jax.vmap(posterior.log_prob)(jnp.asarray(PERMS))
    np.testing.assert_allclose(mapped, values, rtol=1e-6)


# Each compiles for seconds, so all of them together stand for the others.
@pytest.mark.parametrize(
    "constraints",
    [
        pytest.param(MASKED, id="mask", marks=pytest.mark.slow),
        pytest.param(KNOWN, id="known", marks=pytest.mark.slow),
        pytest.param(PARTIAL, id="partial", marks=pytest.mark.slow),
        pytest.param(KNOWN | PARTIAL, id="known and partial", marks=pytest.mark.slow),
        pytest.param(MASKED | KNOWN | PARTIAL, id="all"),
    ],
)
def test_constraints(constraints, tmp_path):
    model = points(5, 0.6, 1, **constraints)
    posterior, exact = fit(model), pv.fit(model, "exact")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=2e-3)
    np.testing.assert_allclose(posterior.p_unmatched_rows, exact.p_unmatched_rows, atol=2e-3)
    np.testing.assert_allclose(posterior.log_evidence, exact.log_evidence, atol=2e-3)
    possible = np.isfinite(exact.log_prob(PERMS))
    assert (np.isfinite(posterior.log_prob(PERMS)) == possible).all()
    survives(posterior, tmp_path)


@pytest.mark.parametrize("shape", [(3, 5), pytest.param((5, 3), marks=pytest.mark.slow)])
def test_rectangles(shape):
    scores = np.random.default_rng(2).normal(size=shape)
    model = pv.models.LinearMatching(scores)
    posterior, exact = fit(model), pv.fit(model, "exact")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-5)
    np.testing.assert_allclose(posterior.log_evidence, exact.log_evidence, atol=1e-5)


def test_several_sites():
    model = pv.models.LinearMatching(np.random.default_rng(4).normal(size=(2, 3, 3)))
    posterior, exact = fit(model), pv.fit(model, "exact")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-5)
    drawn = posterior.sample(10)
    np.testing.assert_allclose(posterior.log_prob(drawn), exact.log_prob(drawn), atol=0.2)


def test_many_fits_are_the_same_as_single_ones_in_kind():
    models = [points(5, 0.5, seed) for seed in range(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        together = pv.fit_many(models, "sequential")
    for model, posterior in zip(models, together, strict=True):
        exact = pv.fit(model, "exact")
        np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-5)
        assert hellinger(posterior, exact) < 0.04


@pytest.mark.slow
def test_independent_fits_are_compared():
    model = points(9, 0.6, 0)
    one = fit(model, max_evaluations=3000)
    two = fit(model, max_evaluations=3000, num_fits=2)
    assert one.diagnostics.disagreement is None
    assert two.diagnostics.disagreement_by_row.shape == (9,)
    assert two.diagnostics.disagreement < 0.03
    assert two.diagnostics.verdict == "trust"
    assert any("independent fits agree" in reason for reason in two.diagnostics.reasons)
    assert two.num_evaluations > 1.5 * one.num_evaluations


@pytest.mark.parametrize("exact", [True, False])
def test_several_fits_stay_exact_whatever_words_say_so(exact, monkeypatch):
    asked = []

    def judge(**signals):
        asked.append(signals["exact"])
        return diagnostics.Judgement("trust" if signals["exact"] else "check", ("other words",))

    monkeypatch.setattr(diagnostics, "judge", judge)
    # The comparison with a better answer asks, too.
    monkeypatch.setattr(method, "audited_estimate", lambda prepared, posterior, *_, **__: posterior)
    correction = "auto" if exact else "none"
    found = fit(points(3, 0.5, 0), max_evaluations=60, num_fits=2, correction=correction)
    assert asked == [exact] * 3
    assert found.diagnostics.verdict == ("trust" if exact else "check")


def test_gradients_of_a_step_are_unbiased(rng):
    """The mean of many leave-one-out gradients is the gradient of the exact ELBO."""
    problem = problem_of("square")
    table = jnp.asarray(rng.normal(size=(4, 4)))
    family = random_family(problem, "plain", rng, num_components=2, spread=0.5)
    choices = all_choices(problem)

    def density(choice):
        return table[jnp.arange(4), choice[..., 0, :]].sum(axis=-1)

    def elbo(params):
        log_q = log_prob_many(dataclasses.replace(family, params=params), choices)
        return jnp.sum(jnp.exp(log_q) * (density(choices) - log_q))

    expected = jax.grad(elbo)(family.params)["logits"]
    log_q = np.asarray(log_prob_many(family, choices))
    training = Training(num_steps=1, num_samples=4, learning_rate=1.0)
    index = rng.choice(len(choices), p=np.exp(log_q), size=(4000, 4))

    def gradient(chosen):
        picked = jnp.asarray(choices)[chosen]
        carry = begin_training(family)
        moved, _ = _update(carry, picked, density(picked), training, 1.0)
        # Adam's first moment after one step is a tenth of the gradient.
        return moved.optimiser.mu[0]["logits"] / 0.1

    found = np.asarray(jax.jit(jax.vmap(gradient))(index))
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - expected) < 5 * error + 1e-12).all()


def test_training_on_the_host_and_on_the_device_agree():
    problem = prepare(points(4, 0.5, 0)).problem
    family = warm_start.initial_family(
        build_structure(problem), "plain", 2, np.random.default_rng(0)
    )
    training = Training(num_steps=20, num_samples=8, learning_rate=0.1)

    def evaluate(choices):
        return np.asarray(log_density(problem, jnp.asarray(choices)))

    key = jax.random.key(0)
    inside = train(problem, family, key, training, 1.0)
    outside = train(problem, family, key, training, 1.0, evaluate=evaluate)
    np.testing.assert_array_equal(inside.choices, outside.choices)
    np.testing.assert_allclose(
        inside.family.params["logits"], outside.family.params["logits"], rtol=1e-6, atol=1e-9
    )


def test_impossible_matchings_do_not_derail_training():
    def density(perm):
        return jnp.where(perm[0] == 0, -jnp.inf, jnp.sum(perm * jnp.arange(4)) * 0.5)

    posterior = fit(density, n=4, input="perm", max_evaluations=4000, num_components=4)
    exact = pv.fit(density, "exact", n=4, input="perm")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-3)
    assert posterior.marginals[0, 0] == 0


def test_rows_without_a_choice_have_no_features():
    # The last of three items is left over in turn, and one matching alone tells nothing.
    choices = np.array([[[0, 1, -1]], [[-1, 0, 1]], [[1, -1, 0]], [[0, -1, 1]]])
    scores = np.arange(6.0).reshape(3, 2)
    taken = choices[:, 0] >= 0
    values = (scores[np.arange(3), choices[:, 0]] * taken).sum(axis=1)
    table = warm_start.regression_table(choices, values, 2)
    fitted = (table[0][np.arange(3), choices[:, 0]] * taken).sum(axis=1)
    np.testing.assert_allclose(fitted - fitted.mean(), values - values.mean(), atol=1e-5)
    assert not warm_start.regression_table(choices[:1], values[:1], 2).any()


def test_a_linear_stand_in_is_found_by_regression_and_checked(rng):
    choices = np.stack([rng.permutation(5) for _ in range(100)])[:, None]
    table = rng.normal(size=(5, 5))
    values = table[np.arange(5), choices[:, 0]].sum(axis=1)
    found = warm_start.regression_table(choices, values, 5)
    assert warm_start.explains(found, choices, values)
    squared = values**2
    assert not warm_start.explains(warm_start.regression_table(choices[:50], squared[:50], 5),
                                   choices[50:], squared[50:])  # fmt: skip
    assert not warm_start.explains(found, choices, np.where(values > 0, values, -np.inf))


def test_the_gradient_at_the_barycentre_explains_point_matching():
    problem = prepare(points(6, 0.5, 0)).problem
    structure = build_structure(problem)
    table = warm_start.gradient_table(problem, structure)
    rng = np.random.default_rng(0)
    choices = np.stack([rng.permutation(6) for _ in range(50)])[:, None]
    values = np.asarray(log_density(problem, jnp.asarray(choices)))
    assert warm_start.explains(table, choices, values)


def test_sinkhorn_marginals_of_partial_problems_are_probabilities():
    problem = problem_of("partial")
    structure = build_structure(problem)
    table = warm_start.linear_table(problem, structure)
    found = np.exp(warm_start.log_marginals(structure, table))
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-3)


@pytest.mark.slow
def test_a_relaxed_fit_can_be_the_start():
    model = points(4, 0.4, 0)
    posterior = fit(model, warm_start="rounding")
    exact = pv.fit(model, "exact")
    np.testing.assert_allclose(posterior.marginals, exact.marginals, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "lookahed"}, "family must be one of .* did you mean 'lookahead'"),
        ({"num_components": 0}, "num_components must be an integer of at least 1, got 0"),
        ({"num_samples": 1}, "num_samples must be an integer of at least 2, got 1"),
        ({"learning_rate": -1.0}, "learning_rate must be a positive number, got -1.0"),
        ({"correction": "swor", "num_components": 3}, "more than one component, got 'swor'"),
        ({"max_evaluations": 2.5}, "max_evaluations must be an integer, got 2.5"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        pv.fit(points(4, 0.5, 0), "sequential", **options)


def test_a_family_is_no_option_of_sticks():
    with pytest.raises(ValueError, match="family is an option of method 'sequential'"):
        pv.fit(points(4, 0.5, 0), "stick_breaking_discrete", family="plain")


def test_other_latents_are_refused():
    rng = np.random.default_rng(0)
    model = pv.models.PointMatching(rng.normal(size=(4, 2)), rng.normal(size=(4, 2)), None)
    with pytest.raises(ValueError, match="no other latents for method 'sequential'"):
        pv.fit(model, "sequential")


def test_budgets_are_kept():
    for budget in (3000, 12_000):
        recipe = resolve(DiscreteOptions(max_evaluations=budget), None, 6, linear=True)
        spent = recipe.training.num_steps * recipe.training.num_samples
        assert spent + recipe.search_evaluations < budget
    posterior = fit(points(5, 0.5, 0), max_evaluations=3000)
    assert posterior.num_evaluations <= 3000
