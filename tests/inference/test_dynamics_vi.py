"""Variational inference of shared dynamics: identities together with the weights."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
import pytest
from vi_cases import problem

import permvi as pv
from permvi.experiments._worms import ROUNDING, ROUNDING_ONE, candidates, simulate_worms
from permvi.inference.vi import VIOptions, run_vi
from permvi.inference.vi.objective import (
    Stage,
    last_stage,
    latent_guide,
    latent_start,
    split_options,
    stage_at,
)
from permvi.inference.vi.optimisers import shared_adam
from permvi.models import SharedDynamics
from permvi.posterior.diagnostics import BIAS_DISTRUST
from tests.inference.collapsed_cases import graph

M = 12
QUICK = {"num_steps": 200, "num_draws": 100}


@pytest.fixture(scope="module")
def worms():
    rng = np.random.default_rng(12)
    adjacency, positions = graph(rng, M, 0.4), np.arange(M) / M
    found = simulate_worms(adjacency, positions, rng, num_worms=2, num_steps=2000, num_known=6)
    mask = candidates(found.positions, positions, 0.3)
    model = SharedDynamics(list(found.recordings), adjacency, mask=mask, known=found.known)
    return found, model


def fit(model, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method, **options)


def ridge(model, perms):
    """Exact posterior means and variances of the weights on the edges at given permutations."""
    edges, m = np.asarray(model.edges), model.num_labels
    K0, K1 = np.zeros((2, m, m))
    for j, perm in enumerate(perms):
        K0[np.ix_(perm, perm)] += model.C0[j]
        K1[np.ix_(perm, perm)] += model.C1[j]
    noise, weight = float(model.noise_scale) ** 2, float(model.weight_scale) ** 2
    means, variances, conditional = np.zeros((3, len(edges)))
    for a in np.unique(edges[:, 0]):
        here = np.flatnonzero(edges[:, 0] == a)
        b = edges[here, 1]
        precision = K0[np.ix_(b, b)] / noise + np.eye(len(b)) / weight
        means[here] = np.linalg.solve(precision, K1[a, b] / noise)
        variances[here] = np.diag(np.linalg.inv(precision))
        conditional[here] = 1 / np.diag(precision)
    return means, variances, conditional


@pytest.mark.float32
@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param("rounding", ROUNDING, marks=pytest.mark.slow),
        pytest.param("rounding", ROUNDING_ONE, marks=pytest.mark.slow),
        # Two neurons that are exchanged in both worms are an optimum of independent rows, too.
        pytest.param("naive", {"num_restarts": 4}, marks=pytest.mark.slow),
    ],
)
def test_identities_and_weights_of_small_worms(worms, method, settings):
    found, model = worms
    options = {**settings, **QUICK}
    posterior = fit(model, method, **options)
    draws = posterior.sample(100, seed=0)
    sites, rows = np.arange(2)[:, None], np.arange(M)
    assert np.asarray(model.mask)[sites, rows, draws].all()
    known = found.known >= 0
    assert (draws[:, known] == found.known[known]).all()
    assert (np.sort(draws, axis=-1) == rows).all()
    np.testing.assert_array_equal(posterior.mode, found.truth)
    W = posterior.latents["W"]
    assert W.draws.shape == (100, len(model.edges))
    means, _, conditional = ridge(model, posterior.mode)
    assert np.corrcoef(W.mean, means)[0, 1] > 0.98
    # Independent normals have the conditional variances; soft rows leave more, never less. A
    # hundred draws of each of many edges know their mean to a percent.
    ratio = np.exp(np.log(W.sd / np.sqrt(conditional)).mean())
    assert 0.95 < ratio < 2
    assert posterior.num_evaluations == options["num_steps"] * options.get("num_restarts", 1)


def test_collapsed_decides_how_far_a_relaxed_fit_is_trusted(worms):
    _, model = worms
    # After two steps the relaxed matrices are still about those that the fit began with.
    found = fit(model, "rounding", **{**ROUNDING, "num_steps": 2, "num_draws": 100})
    better = fit(model, "collapsed")
    assert better.diagnostics.verdict == "trust"
    error = pv.metrics.total_variation_per_row(found.marginals, better.marginals)
    wanted = np.maximum(error - better.diagnostics.sampling_error_by_row, 0)
    assert wanted.mean() > BIAS_DISTRUST
    np.testing.assert_allclose(found.diagnostics.bias_by_row, wanted, atol=1e-9)
    assert found.diagnostics.verdict == "do not trust"


@pytest.mark.slow
def test_weights_at_known_permutations_have_their_exact_posterior(rng):
    # With everything known but two neurons that only their masks tell apart, W is all there is.
    found = simulate_worms(graph(rng, 6, 0.6), np.arange(6) / 6, rng, num_worms=2, num_known=4)
    mask = found.truth[..., None] == np.arange(6)
    model = SharedDynamics(list(found.recordings), found.weights != 0, mask=mask, known=found.known)
    options = {**ROUNDING_ONE, **QUICK, "num_steps": 2000, "num_draws": 2000}
    W = fit(model, "rounding", **options).latents["W"]
    means, variances, conditional = ridge(model, found.truth)
    # Stochastic gradients at the last learning rates leave a tenth of a standard deviation.
    assert (np.abs(W.mean - means) < 0.4 * np.sqrt(variances)).all()
    np.testing.assert_allclose(W.sd, np.sqrt(conditional), rtol=0.15)


def test_power_and_temperature_move_over_the_annealed_steps():
    options = VIOptions.calibrated("rounding").replace(
        tempering=0.01, anneal_fraction=0.5, num_steps=200, temperature=0.25,
        temperature_schedule="exponential",
    )  # fmt: skip
    config, numbers = split_options("rounding", options)
    stages = [stage_at(jnp.asarray(step), config, numbers) for step in (0, 50, 100, 199)]
    np.testing.assert_allclose([s.power for s in stages], [0.01, 0.1, 1, 1], rtol=1e-6)
    np.testing.assert_allclose([s.temperature for s in stages], [1, 0.5, 0.25, 0.25], rtol=1e-6)
    assert last_stage(numbers) == Stage(numbers.temperature, 1)


@pytest.mark.slow
def test_tempered_fits_forget_the_density(rng):
    # At a power of nearly nothing until the end the prior of a latent is its posterior.
    case = problem(
        {"y": 5.0 * np.ones(1)},
        lambda data, X, z: -50 * jnp.sum((data["y"] - z) ** 2),
        (2, 2),
        latents={"z": dist.Normal(1.0, 0.1)},
    )
    options = VIOptions.calibrated("rounding").replace(
        num_steps=400, num_samples=4, num_restarts=1, num_draws=200, learning_rate=0.2
    )
    options = options.replace(learning_rate_schedule="cosine", anneal_fraction=1.0)
    fits = [
        run_vi(case, jax.random.key(0), "rounding", options.replace(tempering=power))
        for power in (1.0, 1e-30)
    ]
    means = [float(each.latents["z"].mean) for each in fits]
    # The exact posterior has precision 100 + 100 and its mean halfway between 1 and 5.
    assert means[0] == pytest.approx(3, abs=0.1)
    assert means[1] < 2


@pytest.mark.float32
def test_shared_steps_follow_the_gradient(rng):
    slopes = {"a": jnp.asarray(rng.normal(size=(2, 3, 3)), float).at[:, 0].set(0)}
    rule = shared_adam(0.1, 2)
    change, _ = rule.update(slopes, rule.init(slopes), slopes)
    counted = np.asarray(slopes["a"])[:, 1:]
    root = np.sqrt((counted**2).mean(axis=(1, 2), keepdims=True))
    np.testing.assert_allclose(change["a"], -0.1 * np.asarray(slopes["a"]) / root, rtol=1e-5)
    # Of one number it is Adam itself.
    single = jnp.asarray(0.3)
    rule, adam = shared_adam(0.1, None), optax.adam(0.1)
    one, other = rule.init(single), adam.init(single)
    for slope in (0.3, -0.2, 0.1):
        moved, one = rule.update(jnp.asarray(slope), one, single)
        expected, other = adam.update(jnp.asarray(slope), other, single)
        np.testing.assert_allclose(moved, expected, rtol=1e-5)


def test_normal_latents_are_in_units_of_their_prior():
    prior = dist.Normal(jnp.array([1.0, 2.0]), jnp.array([0.1, 10.0])).to_event(1)
    start = latent_start(prior, jax.random.key(0), jnp.zeros(()))
    guide = latent_guide(prior, start + 1, jnp.full(2, jnp.log(jnp.expm1(0.5))))
    np.testing.assert_allclose(guide.base_dist.mean, [1.1, 12])
    np.testing.assert_allclose(np.sqrt(guide.base_dist.variance), [0.05, 5])


def test_mirror_ascent_is_for_rounding():
    options = VIOptions.calibrated("stick_breaking").replace(optimiser="mirror")
    with pytest.raises(ValueError, match="optimiser must be 'adam' for stick_breaking, got 'mirr"):
        options.check_family("stick_breaking")
