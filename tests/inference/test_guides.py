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


@pytest.mark.parametrize("family", ["rounding", "stick_breaking"])
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
