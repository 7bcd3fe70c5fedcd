"""Rounding of large log densities: avoided by "exact", and stated by all other methods."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import permvi as pv
from permvi.inference.exact import solve_exact

pytestmark = pytest.mark.filterwarnings("ignore::permvi.FitWarning")


@pytest.fixture
def single():
    """Let JAX compute in float32, as it does by default."""
    with jax.enable_x64(False):
        yield


@pytest.mark.parametrize("constant", [1e7, -3e8])
def test_exact_answers_are_exact_for_large_densities(rng, single, constant):
    scores = rng.normal(size=(5, 5))
    exact = solve_exact(scores)
    for _ in range(2):
        found = pv.fit(lambda X: constant + jnp.sum(scores * X), "exact", n=5)
        assert found.diagnostics.verdict == "trust"
        np.testing.assert_allclose(found.marginals, exact.marginals, atol=1e-6)
        assert found.log_evidence - constant == pytest.approx(exact.log_evidence, abs=1e-6)
        # The configuration is as before, and compiled code works.
        assert jnp.result_type(float) == jnp.float32
        assert jax.grad(lambda X: jnp.sum(scores * X))(jnp.ones((5, 5))).dtype == jnp.float32


def test_functions_in_float32_are_not_trusted(rng, single):
    scores = jnp.asarray(rng.normal(size=(5, 5)))

    def cast(X):
        return (1e7 + jnp.sum(scores * X)).astype(jnp.float32)

    def loop(X):
        def add(i, total):
            return total + jnp.sum(scores[i] * X[i])

        return jax.lax.fori_loop(0, 5, add, jnp.float32(1e7))

    for function in (cast, loop):
        found = pv.fit(function, "exact", n=5)
        assert found.diagnostics.verdict == "do not trust"
        assert "float32 rounds log densities" in found.diagnostics.reasons[0]
        assert found.log_evidence_kind == "estimate"


def test_other_methods_state_the_rounding(rng, single):
    scores = rng.normal(size=(5, 5))
    for method, options in (("mcmc", {"num_steps": 500}), ("importance", {})):
        for constant in (0.0, 1e7):
            model = pv.models.CallableModel(
                lambda X, c=constant: c + jnp.sum(scores * X), 5, known=[2, -1, -1, -1, -1]
            )
            found = pv.fit(model, method, **options).diagnostics
            stated = any("float32 rounds" in reason for reason in found.reasons)
            assert stated == (constant > 0)
            assert not stated or found.verdict == "do not trust"
    plain = pv.fit(lambda X: 1e7 + float(np.sum(scores * X)), "mcmc", n=5, jax=False, num_steps=500)
    assert not any("float32" in reason for reason in plain.diagnostics.reasons)


def scaled_scores(scores, constant):
    """Scores with an unknown factor, and a large constant."""
    return pv.models.CallableModel(
        lambda X, factor: constant + factor * jnp.sum(scores * X),
        len(scores),
        latents={"factor": dist.Normal(1.0, 0.5)},
    )


def test_latents_of_large_densities_are_integrated_out_exactly(rng, single):
    scores = rng.normal(size=(5, 5))
    plain, large = (pv.fit(scaled_scores(scores, c), "exact") for c in (0.0, 1e7))
    assert large.diagnostics.verdict == "trust"
    np.testing.assert_allclose(large.marginals, plain.marginals, atol=1e-4)
    assert large.log_evidence - 1e7 == pytest.approx(plain.log_evidence, abs=1e-4)
    assert large.latents["factor"].mean == pytest.approx(plain.latents["factor"].mean, abs=1e-4)


@pytest.mark.slow
def test_chains_with_other_latents_state_the_rounding(rng, single):
    scores = rng.normal(size=(4, 4))
    for constant in (0.0, 1e7):
        found = pv.fit(scaled_scores(scores, constant), "gibbs", num_warmup=50, num_samples=100)
        stated = any("float32 rounds" in reason for reason in found.diagnostics.reasons)
        assert stated == (constant > 0)
        assert not stated or found.diagnostics.verdict == "do not trust"
