"""`AutoPermutation` in NumPyro models with plates and other latent variables."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO

from permvi.distributions import (
    BirkhoffStickBreakingTransform,
    PermutationPrior,
    StickBreaking,
)
from permvi.inference.guides import AutoPermutation
from permvi.inference.verdict.pareto import smooth
from permvi.permutations import enumerate_permutations


def shifted_points(y, c):
    """Three shuffled copies of the same points, all shifted alike."""
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    centres = numpyro.deterministic("centres", c + shift)
    with numpyro.plate("copies", 3):
        X = numpyro.sample("X", PermutationPrior(5))
        numpyro.sample("y", dist.Normal(X @ centres, 0.1).to_event(2), obs=y)


def match(scores, mask=None):
    X = numpyro.sample("X", PermutationPrior(4, 0.5, mask))
    numpyro.factor("match", jnp.sum(X * scores))


def fit(model, guide, *args, steps=600):
    svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO(num_particles=4))
    return svi.run(jax.random.key(0), steps, *args, progress_bar=False)


@pytest.mark.parametrize(
    "family", ["rounding", pytest.param("stick_breaking", marks=pytest.mark.slow)]
)
def test_recovers_a_plate_of_permutations_and_a_shared_latent(rng, family):
    c, shift = rng.normal(size=(5, 2)), np.array([1.0, -0.5])
    perms = np.stack([rng.permutation(5) for _ in range(3)])
    y = c[perms] + shift + 0.1 * rng.normal(size=(3, 5, 2))
    guide = AutoPermutation(shifted_points, family=family)
    result = fit(shifted_points, guide, y, c)
    assert result.losses[-50:].mean() < result.losses[:50].mean()
    draws = guide.sample_posterior(jax.random.key(1), result.params, y, c, sample_shape=(400,))
    assert draws["X"].shape == (400, 3, 5)
    assert np.issubdtype(draws["X"].dtype, np.integer)
    assert (np.asarray(draws["X"]) == perms).mean() > 0.95
    # The exact posterior of the shift given the permutations is normal, with this sd.
    sd = 1 / np.sqrt(1 + 15 / 0.1**2)
    centre = (y - c[perms]).sum((0, 1)) / 0.1**2 * sd**2
    assert draws["shift"].shape == (400, 2)
    assert (np.abs(draws["shift"].mean(0) - centre) < 3 * sd + 0.02).all()
    assert (np.abs(draws["shift"].mean(0) - shift) < 3 * draws["shift"].std(0) + 0.02).all()


def test_samples_carry_what_the_density_needs():
    guide = handlers.seed(AutoPermutation(match, family="stick_breaking"), 0)
    trace = handlers.trace(guide).get_trace(jnp.zeros((4, 4)))
    assert isinstance(trace["X"]["fn"], StickBreaking)
    assert len(trace["X"]["intermediates"]) == 1
    assert set(trace) == {"X", "X_auto_loc", "X_auto_scale"}


def doubly_stochastic(scores):
    base = dist.Normal(jnp.zeros((3, 3)), 1.0).to_event(2)
    prior = dist.TransformedDistribution(base, BirkhoffStickBreakingTransform(centered=True))
    X = numpyro.sample("X", prior)
    numpyro.factor("match", jnp.sum(X * scores))


def test_doubly_stochastic_sites_are_permutation_sites_of_stick_breaking():
    guide = AutoPermutation(doubly_stochastic, family="stick_breaking")
    trace = handlers.trace(handlers.seed(guide, 0)).get_trace(jnp.zeros((4, 4)))
    assert isinstance(trace["X"]["fn"], StickBreaking)
    params = {name: trace[name]["value"] for name in ("X_auto_loc", "X_auto_scale")}
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(5,))
    assert (np.sort(draws["X"], axis=-1) == np.arange(4)).all()


BLOCKS = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]], bool)


def subsampled(scores):
    with numpyro.plate("copies", 6, subsample_size=2) as index:
        X = numpyro.sample("X", PermutationPrior(4, 0.5, BLOCKS))
        numpyro.factor("match", jnp.sum(X * scores[index], axis=(-2, -1)))


@pytest.mark.slow
def test_masks_and_subsampled_plates_without_other_latents():
    guide = AutoPermutation(subsampled)
    svi = SVI(subsampled, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0), jnp.zeros((6, 4, 4))))
    assert params["X_auto_loc"].shape == (6, 4, 4)
    draws = guide.sample_posterior(jax.random.key(1), params, sample_shape=(50,))
    assert draws["X"].shape == (50, 6, 4)
    assert BLOCKS[np.arange(4), draws["X"]].all()
    # With no preference both ways round occur in both blocks.
    assert len({tuple(row) for row in np.asarray(draws["X"]).reshape(-1, 4).tolist()}) == 4


def test_refusals():
    scores, key = jnp.zeros((4, 4)), jax.random.key(0)
    with pytest.raises(ValueError, match=r"family must be .*did you mean 'rounding'"):
        AutoPermutation(match, family="round")
    with pytest.raises(ValueError, match=r"temperature must be in \(0, 1\], got 2.0"):
        AutoPermutation(match, temperature=2.0)
    with pytest.raises(ValueError, match="site 'X' must have no mask for stick_breaking"):
        handlers.seed(AutoPermutation(match, family="stick_breaking"), key)(
            scores, np.ones((4, 4), bool)
        )
    with pytest.raises(ValueError, match="site 'X' must have a PermutationPrior for rounding"):
        handlers.seed(AutoPermutation(doubly_stochastic), key)(scores)
    with pytest.raises(ValueError, match=r"model must have a latent site with a PermutationPrior"):
        handlers.seed(AutoPermutation(lambda: numpyro.sample("z", dist.Normal())), key)()
    with pytest.raises(ValueError, match="sample_posterior needs a fitted guide"):
        AutoPermutation(match).sample_posterior(key, {})


def two_points(y, c):
    """A shift and a permutation of three points on a line, which noise makes uncertain."""
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    X = numpyro.sample("X", PermutationPrior(3))
    numpyro.sample("y", dist.Normal(X @ c + shift, 0.45).to_event(1), obs=y)


def exact_shift(y, c):
    """The posterior mean and sd of the shift, and the marginals, by enumeration and quadrature."""
    grid = np.linspace(-5, 5, 2001)
    perms = enumerate_permutations(3)
    log_p = -0.5 * grid[:, None] ** 2 - 0.5 * (
        ((y - c[perms])[None] - grid[:, None, None]) ** 2 / 0.45**2
    ).sum(-1)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    mean = p.sum(1) @ grid
    marginals = np.tensordot(p.sum(0), np.eye(3)[perms], axes=1)
    return mean, np.sqrt(p.sum(1) @ (grid - mean) ** 2), marginals


@pytest.mark.slow
def test_corrected_draws_follow_the_model_and_the_verdict_tells():
    c = np.array([-1.0, 0.0, 1.5])
    y = np.array([0.4, -0.9, 1.4])
    mean, sd, marginals = exact_shift(y, c)
    guide = AutoPermutation(two_points)
    data = jnp.asarray(y), jnp.asarray(c)
    params = fit(two_points, guide, *data).params
    key = jax.random.key(3)
    draws = guide.sample_posterior(key, params, *data, sample_shape=(4000,), corrected=True)
    assert draws["X"].shape == (4000, 3)
    # Weights and resampling leave at least a fifth of 16,000 draws' worth of independent ones.
    error = 5 / np.sqrt(16_000 / 5 / 4)
    assert abs(float(draws["shift"].mean()) - mean) < error * sd
    found = np.asarray(jax.nn.one_hot(draws["X"], 3).mean(0))
    assert (np.abs(found - marginals) < error * np.sqrt(marginals * (1 - marginals)) + 0.01).all()
    judged = guide.diagnose(key, params, *data, num_samples=500)
    assert judged.k_hat is not None
    assert judged.k_hat < 0.7
    plain = guide.sample_posterior(key, params, *data, sample_shape=(4000,))
    distance = 0.5 * np.abs(jax.nn.one_hot(plain["X"], 3).mean(0) - marginals).sum(1)
    np.testing.assert_allclose(judged.disagreement_by_row, distance, atol=0.06)
    # The same guide in the wrong place is far from the chains.
    wrong = {**params, "shift_auto_loc": params["shift_auto_loc"] + 1.0}
    assert guide.diagnose(key, wrong, *data, num_samples=500).verdict == "do not trust"


def test_draws_of_many_items_are_not_corrected():
    guide = AutoPermutation(many)
    svi = SVI(many, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    params = svi.get_params(svi.init(jax.random.key(0)))
    with pytest.raises(ValueError, match=r"corrected draws need known .*got unknown"):
        guide.sample_posterior(jax.random.key(0), params, sample_shape=(5,), corrected=True)


def many():
    numpyro.sample("X", PermutationPrior(9))


def test_smoothed_weights_recover_the_tail_of_a_pareto():
    rng = np.random.default_rng(0)
    for shape in (0.2, 0.5, 0.9):
        # The tail of exp(shape * exponential) is a generalised Pareto distribution of this shape.
        log_w = shape * rng.exponential(size=100_000)
        smoothed, k_hat = smooth(log_w)
        # The standard error of the shape from m values in the tail is about (1 + k) / sqrt(m).
        assert abs(k_hat - shape) < 4 * (1 + shape) / np.sqrt(3 * np.sqrt(len(log_w)))
        np.testing.assert_allclose(np.exp(smoothed).sum(), 1.0)
        exact = log_w - np.logaddexp.reduce(log_w)
        assert smoothed.max() <= exact.max() + 0.5
    smoothed, k_hat = smooth(np.zeros(100))
    assert k_hat == -np.inf
    np.testing.assert_allclose(np.exp(smoothed), 0.01)
