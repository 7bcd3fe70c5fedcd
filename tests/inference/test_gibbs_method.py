"""Method "gibbs" against quadrature, and relaxed fits of the same models that it shows wrong."""

import itertools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import permvi as pv
from permvi.inference import auto
from permvi.inference.gibbs import method
from permvi.problem.prepare import prepare

CENTRES = np.array([-1.5, -0.4, 0.5, 1.2, 2.1])
SEEN = np.array([0.9, -0.8, 1.9, 0.3])
SHIFT, SPREAD = dist.Normal(0.0, 1.0), dist.LogNormal(-1.0, 0.5)


def log_density(X, shift, spread):
    residuals = SEEN - X @ jnp.asarray(CENTRES) - shift
    return -0.5 * jnp.sum(residuals**2) / spread**2 - len(SEEN) * jnp.log(spread)


def model(**constraints):
    latents = {"shift": SHIFT, "spread": SPREAD}
    return pv.models.CallableModel(log_density, (4, 5), latents=latents, **constraints)


def by_quadrature(allowed):
    """Return the marginals (4, 5), and mean and sd of the shift, on a fine grid."""
    shifts, logs = np.linspace(-4, 4, 401), np.linspace(-4, 1.5, 221)
    shift, spread = shifts[:, None], np.exp(logs)
    log_prior = np.asarray(SHIFT.log_prob(shift) + SPREAD.log_prob(spread)) + logs
    marginals, by_shift = np.zeros((4, 5)), np.zeros(len(shifts))
    for perm in itertools.permutations(range(5), 4):
        if all(allowed[i, j] for i, j in enumerate(perm)):
            residuals = SEEN - CENTRES[list(perm)] - shift[..., None]
            squares = (residuals**2).sum(axis=-1)
            p = np.exp(log_prior - 0.5 * squares / spread**2 - 4 * logs)
            marginals[np.arange(4), perm] += p.sum()
            by_shift += p.sum(axis=1)
    by_shift /= by_shift.sum()
    mean = by_shift @ shifts
    return marginals / marginals[0].sum(), mean, np.sqrt(by_shift @ (shifts - mean) ** 2)


@pytest.mark.float32
@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.slow), "constrained"])
def test_marginals_and_latents_are_those_of_quadrature(kind):
    allowed = np.ones((4, 5), bool)
    constraints: dict[str, object] = {}
    if kind == "constrained":
        allowed[0, 2] = allowed[3, 1] = False
        constraints = {"mask": allowed.copy(), "known": {2: 3}}
        allowed[2] = np.arange(5) == 3
    marginals, mean, sd = by_quadrature(allowed)
    found = pv.fit(model(**constraints), "gibbs", seed=1, num_samples=8000)
    # Chains seldom move between the two modes, so draws are worth a small part of their number.
    effective = found.diagnostics.ess_per_draw * len(found.law.draws)
    assert effective > 200
    np.testing.assert_allclose(found.marginals, marginals, atol=4 * 0.5 / np.sqrt(effective))
    assert (found.marginals[~allowed] == 0).all()
    assert found.latents["shift"].mean == pytest.approx(mean, abs=4 * sd / np.sqrt(effective))
    assert found.latents["shift"].sd == pytest.approx(sd, rel=0.15)
    assert found.diagnostics.verdict == "trust"
    assert found.p_unmatched_cols == pytest.approx(1 - marginals.sum(axis=0), abs=0.08)


def test_the_automatic_choice():
    assert auto.choose(prepare(model())).name == "gibbs"


@pytest.mark.slow
def test_a_relaxed_fit_that_is_too_sure_is_not_trusted():
    with pytest.warns(pv.FitWarning):
        found = pv.fit(model(), "rounding", num_steps=200)
    marginals, *_ = by_quadrature(np.ones((4, 5), bool))
    error = pv.metrics.total_variation_per_row(found.marginals, marginals).mean()
    assert error > 0.1
    assert found.diagnostics.verdict == "do not trust"


@pytest.mark.parametrize(
    ("latents", "error", "message"),
    [
        ([SHIFT], TypeError, "latents must be priors by name, got list"),
        ({"shift": 1.0}, TypeError, "latents must be NumPyro distributions, got float for 'shift'"),
    ],
)
def test_bad_latents_are_refused(latents, error, message):
    with pytest.raises(error, match=message):
        pv.models.CallableModel(log_density, 4, latents=latents)


def test_functions_on_the_host_are_refused():
    with pytest.raises(ValueError, match="function must be a JAX function"):
        pv.models.CallableModel(lambda perm, shift: 0.0, 4, latents={"shift": SHIFT}, jax=False)


def test_models_without_latents_are_refused():
    with pytest.raises(ValueError, match="must have other latents for method 'gibbs'"):
        pv.fit(pv.models.LinearMatching(np.eye(3)), "gibbs")


def test_discrete_latents_are_refused():
    counted = pv.models.CallableModel(
        lambda X, count: count * X[0, 0], 4, latents={"count": dist.Poisson(2.0)}
    )
    with pytest.raises(ValueError, match="latents must be continuous for method 'gibbs'"):
        pv.fit(counted, "gibbs")


@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_a_second_fit_compiles_nothing():
    def fit(seed, width):
        latents = {"shift": dist.Normal(0.0, width), "spread": SPREAD}
        again = pv.models.CallableModel(log_density, (4, 5), latents=latents)
        return pv.fit(again, "gibbs", seed, num_warmup=4, num_samples=16, num_chains=2)

    def sizes():
        return method._start._cache_size(), method._advance._cache_size()

    before = sizes()
    fit(0, 1.0)
    first = sizes()
    assert first[0] == before[0] + 1
    fit(1, 1.0)
    assert sizes() == first
    # Another prior is another programme.
    fit(1, 2.0)
    assert sizes()[0] == first[0] + 1
