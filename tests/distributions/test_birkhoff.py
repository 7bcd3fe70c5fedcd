"""Doubly-stochastic sites in NumPyro: the constraint, the transform and unmodified inference."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from numpyro.distributions.transforms import biject_to
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from permvi import transforms
from permvi.distributions import BirkhoffStickBreakingTransform, birkhoff


@pytest.mark.float32
@pytest.mark.parametrize("n", [2, pytest.param(5, marks=pytest.mark.slow), 100])
def test_the_constraint_accepts_samples_and_refuses_others(n, rng):
    X, _ = transforms.stick_breaking(jnp.asarray(3 * rng.normal(size=(4, n - 1, n - 1))))
    assert birkhoff(X).all()
    assert birkhoff(birkhoff.feasible_like(X)).all()
    assert not birkhoff(X.at[:, 0, 0].add(0.01)).any()
    swapped = X.at[:, 0, 0].add(-2.0).at[:, 0, 1].add(2.0)
    assert not birkhoff(swapped).any()
    assert birkhoff.event_dim == 2


@pytest.mark.parametrize("batch", [(), pytest.param((3,), marks=pytest.mark.slow), (2, 3)])
def test_the_transform_keeps_its_contract(batch, rng):
    n = 4
    transform = BirkhoffStickBreakingTransform(
        0.7, row_order=rng.permutation(n), col_order=rng.permutation(n)
    )
    psi = jnp.asarray(rng.normal(size=(*batch, n - 1, n - 1)))
    X, intermediates = transform.call_with_intermediates(psi)
    assert X.shape == transform.forward_shape(psi.shape)
    assert psi.shape == transform.inverse_shape(X.shape)
    np.testing.assert_array_equal(transform(psi), X)
    np.testing.assert_allclose(transform.inv(X), psi, atol=1e-9)
    _, log_det = transforms.stick_breaking(psi, 0.7)
    for known in (None, intermediates):
        np.testing.assert_allclose(transform.log_abs_det_jacobian(psi, X, known), log_det)


def test_the_transform_is_a_pytree_whose_arrays_are_leaves(rng):
    traces = []

    @jax.jit
    def apply(transform, psi):
        traces.append(None)
        return transform(psi)

    psi = jnp.asarray(rng.normal(size=(3, 3)))
    for temperature in (0.5, 0.9):
        transform = BirkhoffStickBreakingTransform(temperature)
        np.testing.assert_allclose(apply(transform, psi), transform(psi), rtol=1e-12)
    assert len(traces) == 1


def test_equality():
    transform = BirkhoffStickBreakingTransform(0.5, row_order=jnp.arange(3))
    assert transform == BirkhoffStickBreakingTransform(0.5, row_order=jnp.arange(3))
    assert transform != BirkhoffStickBreakingTransform(0.6, row_order=jnp.arange(3))
    assert transform != BirkhoffStickBreakingTransform(0.5)
    assert transform != BirkhoffStickBreakingTransform(0.5, row_order=jnp.arange(3), centered=True)
    assert transform != dist.transforms.IdentityTransform()


def test_shapes_of_transformed_distributions(rng):
    base = dist.Normal(jnp.zeros((5, 3, 3)), 1.0).to_event(2)
    law = dist.TransformedDistribution(base, BirkhoffStickBreakingTransform(0.8))
    assert law.batch_shape == (5,)
    assert law.event_shape == (4, 4)
    sample = law.sample(jax.random.key(0), (7,))
    assert sample.shape == (7, 5, 4, 4)
    assert law.log_prob(sample).shape == (7, 5)


def test_the_registered_bijection_sends_zero_to_the_barycentre():
    bijection = biject_to(birkhoff)
    np.testing.assert_allclose(bijection(jnp.zeros((3, 3))), jnp.full((4, 4), 0.25))


def test_non_square_shapes_are_refused():
    with pytest.raises(ValueError, match=r"shape must be that of square matrices, got \(2, 3\)"):
        BirkhoffStickBreakingTransform().forward_shape((2, 3))


def uniform_model(n):
    numpyro.sample("X", dist.ImproperUniform(birkhoff, (), (n, n)))


@pytest.mark.slow
def test_nuts_samples_the_uniform_law_of_the_polytope():
    """Uniform on B_2: x_11 ~ U(0, 1). On B_3: all means 1/3, by symmetry of rows and columns.

    The chart is not symmetric, so a wrong Jacobian would show in the means. Tolerances are four
    Monte Carlo standard errors with the effective sample size that NumPyro reports.
    """
    for n in (2, 3):
        sampler = MCMC(NUTS(uniform_model), num_warmup=300, num_samples=1500, progress_bar=False)
        sampler.run(jax.random.key(n), n)
        X = np.asarray(sampler.get_samples()["X"])
        ess = numpyro.diagnostics.effective_sample_size(X[None])
        error = 4 * X.std(0) / np.sqrt(ess)
        assert (np.abs(X.mean(0) - 1 / n) <= error).all()
        if n == 2:
            squares = X[:, 0, 0] ** 2
            ess = numpyro.diagnostics.effective_sample_size(squares[None])
            assert abs(squares.mean() - 1 / 3) <= 4 * squares.std() / np.sqrt(ess)


@pytest.mark.slow
def test_svi_fits_a_doubly_stochastic_site(rng):
    """A mixing matrix seen through noise: the posterior mean is near the truth."""
    truth, _ = transforms.stick_breaking(jnp.asarray(rng.normal(size=(3, 3))))
    inputs = jnp.asarray(rng.normal(size=(4, 200)))
    observed = truth @ inputs + 0.05 * jnp.asarray(rng.normal(size=(4, 200)))

    def model():
        X = numpyro.sample("X", dist.ImproperUniform(birkhoff, (), (4, 4)))
        numpyro.sample("y", dist.Normal(X @ inputs, 0.05), obs=observed)

    guide = AutoNormal(model)
    result = SVI(model, guide, optax.adam(0.05), Trace_ELBO()).run(
        jax.random.key(0), 1000, progress_bar=False
    )
    draws = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(500,))["X"]
    assert birkhoff(draws).all()
    # 200 observations of noise .05: standard errors of about .05 / sqrt(200) for each entry.
    assert np.abs(draws.mean(0) - truth).max() <= 5 * 0.05 / np.sqrt(200)
