"""The kernel for NumPyro models with permutations, against enumeration times quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import HMC, MCMC, NUTS
from scipy.special import logsumexp

import permvi as pv
from permvi.inference.mcmc import informed
from permvi.permutations import enumerate_permutations

CENTRES = np.array([-1.0, 0.1, 0.6, 1.7, 2.4, 3.0])
NOISE = 0.7
GRID = np.linspace(-6.0, 6.0, 1201)


def run(
    model, *args, num_samples=1500, num_warmup=300, num_chains=4, seed=0, nuts=False, **options
):
    """Run the kernel and return it with its run; HMC compiles faster than NUTS."""
    inner = NUTS(model) if nuts else HMC(model, num_steps=6, trajectory_length=None)
    kernel = pv.PermutationGibbs(inner, **options)
    mcmc = MCMC(
        kernel,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), *args)
    return kernel, mcmc


def shifted(seed, sites, n):
    """Return points (sites, n) that are shuffled centres plus a shift of 0.4."""
    rng = np.random.default_rng(seed)
    perms = np.stack([rng.permutation(n) for _ in range(sites)])
    return CENTRES[perms] + 0.4 + NOISE * rng.normal(size=(sites, n))


def solve(seen, possible):
    """Integrate the shift with prior N(0, 1) out: marginals (S, n, n), its mean and its sd."""
    log_p, marginals = -0.5 * GRID**2, []
    n = seen.shape[1]
    for points in seen:
        residual = points[:, None] - CENTRES[:n] - GRID[:, None, None]
        scores = -0.5 * (residual / NOISE) ** 2
        values = scores[:, np.arange(n), possible].sum(-1)
        log_z = logsumexp(values, axis=1)
        log_p = log_p + log_z
        marginals.append(np.exp(values - log_z[:, None]) @ np.eye(n)[possible].reshape(-1, n * n))
    weights = np.exp(log_p - logsumexp(log_p))
    mean = weights @ GRID
    tables = np.einsum("g,sgk->sk", weights, marginals).reshape(-1, n, n)
    return np.clip(tables, 0, 1), mean, np.sqrt(weights @ (GRID - mean) ** 2)


def check(kernel, mcmc, seen, possible):
    """Compare a run with the solution by 5 standard errors of its own effective sample size."""
    tables, mean, sd = solve(seen, possible)
    posterior = kernel.posterior(mcmc, "X")
    summary = kernel.summary(mcmc)
    found = np.reshape(posterior.marginals, tables.shape)
    error = np.sqrt(tables * (1 - tables) / summary["X"].ess)
    assert (np.abs(found - tables) <= 5 * error + 1e-3).all()
    shift = posterior.latents["shift"]
    assert abs(shift.mean - mean) <= 5 * sd / np.sqrt(summary["shift"].ess)
    np.testing.assert_allclose(shift.sd, sd, rtol=0.1)
    assert max(one.r_hat for one in summary.values()) < 1.02
    return posterior


def plate_model(seen):
    """A shift that all permutations share."""
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    with numpyro.plate("sites", len(seen)):
        X = numpyro.sample("X", pv.distributions.Permutation(seen.shape[1]))
        mean = jnp.asarray(CENTRES)[X] + shift
        numpyro.deterministic("mean", mean)
        numpyro.sample("seen", dist.Normal(mean, NOISE).to_event(1), obs=seen)


@pytest.mark.parametrize("num_temperatures", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_plate_of_permutations_that_share_a_shift(num_temperatures):
    seen = shifted(0, 3, 4)
    kernel, mcmc = run(plate_model, jnp.asarray(seen), num_temperatures=num_temperatures)
    posterior = check(kernel, mcmc, seen, enumerate_permutations(4))
    assert posterior.diagnostics.verdict == "trust"
    assert posterior.num_sites == 3
    samples = mcmc.get_samples()
    X, shift = samples["X"], samples["shift"]
    assert X.shape == (6000, 3, 4)
    np.testing.assert_allclose(
        samples["mean"], CENTRES[np.asarray(X)] + np.asarray(shift)[:, None, None], rtol=1e-5
    )
    assert mcmc.get_extra_fields()["diverging"].shape == (6000,)


MASK = np.ones((6, 6), bool)
MASK[0, 3:] = MASK[5, :2] = False
KNOWN = np.array([-1, -1, 2, -1, -1, -1])


def allowed():
    """List the permutations of six items that mask and known pair allow."""
    perms = enumerate_permutations(6)
    return perms[MASK[np.arange(6), perms].all(1) & (perms[:, 2] == 2)]


def masked_model(seen):
    """One permutation with a mask and a known pair."""
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    X = numpyro.sample("X", pv.distributions.Permutation(6, MASK, KNOWN))
    numpyro.sample("seen", dist.Normal(jnp.asarray(CENTRES)[X] + shift, NOISE), obs=seen)


def relaxed_model(seen):
    """The same model with matrices, as guides need it."""
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    mask = MASK & ((KNOWN[:, None] < 0) | (KNOWN[:, None] == np.arange(6)))
    X = numpyro.sample("X", pv.distributions.PermutationPrior(6, mask=mask))
    mean = (X @ jnp.asarray(CENTRES)[:, None])[..., 0] + shift
    numpyro.sample("seen", dist.Normal(mean, NOISE).to_event(1), obs=seen)


@pytest.mark.parametrize(
    "model", [masked_model, pytest.param(relaxed_model, marks=pytest.mark.slow)]
)
def test_masks_known_pairs_and_both_kinds_of_sites(model):
    seen = shifted(1, 1, 6)
    kernel, mcmc = run(model, jnp.asarray(seen[0]), num_samples=2000)
    draws = np.asarray(mcmc.get_samples()["X"])
    assert draws.dtype.kind == "i"
    assert MASK[np.arange(6), draws].all()
    assert (draws[:, 2] == 2).all()
    check(kernel, mcmc, seen, allowed())


def two_modes(seen):
    """Points that are mirrored: the shift and all permutations are right in two ways."""
    shift = numpyro.sample("shift", dist.Uniform(-4.0, 4.0))
    X = numpyro.sample("X", pv.distributions.Permutation(4))
    centres = jnp.array([-2.0, -1.0, 1.0, 2.0])
    numpyro.sample("seen", dist.Normal(centres[X] + jnp.abs(shift), 0.3), obs=seen)


@pytest.mark.slow
def test_tempering_joins_modes_that_are_far_apart():
    seen = jnp.array([0.0, 1.0, 3.0, 4.0])
    _, mcmc = run(two_modes, seen, nuts=True, num_temperatures=3, hottest=0.02)
    shift = np.asarray(mcmc.get_samples(group_by_chain=True)["shift"])
    # Thirteen standard deviations lie between the modes, and every chain visits both.
    share = (shift > 0).mean(axis=1)
    assert ((share > 0.02) & (share < 0.98)).all()
    np.testing.assert_allclose(np.abs(shift).mean(), 2.0, atol=0.05)


def test_priors_of_permutations_count_and_other_latents_are_optional():
    centre = jnp.array([2, 0, 1, 3])

    def model():
        numpyro.sample("X", pv.distributions.Mallows(centre, 0.5))
        worths = jnp.array([0.0, 1.0, 0.5])
        numpyro.sample("Y", pv.distributions.PlackettLuce(worths))

    kernel, mcmc = run(model, num_warmup=10, num_samples=1000)
    for name, law in (
        ("X", pv.distributions.Mallows(centre, 0.5)),
        ("Y", pv.distributions.PlackettLuce(jnp.array([0.0, 1.0, 0.5]))),
    ):
        perms = enumerate_permutations(law.event_shape[0])
        p = np.exp(law.log_prob(perms))
        drawn = np.asarray(mcmc.get_samples()[name])
        counts = (drawn[:, None] == perms).all(-1).mean(0)
        # Each step draws from the exact conditional distribution, so draws are independent.
        assert (np.abs(counts - p) <= 5 * np.sqrt(p * (1 - p) / len(drawn))).all()
    with pytest.raises(ValueError, match="site must be 'X' or 'Y'"):
        kernel.posterior(mcmc)


def test_chains_in_sequence_with_given_starts():
    seen = jnp.asarray(shifted(2, 2, 3))
    kernel = pv.PermutationGibbs(NUTS(plate_model))
    mcmc = MCMC(
        kernel, num_warmup=20, num_samples=30, num_chains=2, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    start = {"X": jnp.tile(jnp.arange(3), (2, 2, 1)), "shift": jnp.zeros(2)}
    mcmc.run(jax.random.key(0), seen, init_params=start)
    assert mcmc.get_samples(group_by_chain=True)["X"].shape == (2, 30, 2, 3)
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(jax.random.key(1), seen)
    assert mcmc.get_samples()["X"].shape == (60, 2, 3)
    arviz = pytest.importorskip("arviz")
    data = arviz.from_numpyro(mcmc)
    assert data.posterior["X"].shape == (2, 30, 2, 3)


def test_bad_arguments_are_named():
    with pytest.raises(TypeError, match=r"inner_kernel must be NUTS\(model\) or HMC"):
        pv.PermutationGibbs(plate_model)
    with pytest.raises(ValueError, match="hottest must be in"):
        pv.PermutationGibbs(NUTS(plate_model), hottest=2.0)

    def without():
        numpyro.sample("shift", dist.Normal())

    with pytest.raises(ValueError, match=r"latent site with a Permutation.*'shift'"):
        run(without)


@pytest.mark.float32
@pytest.mark.parametrize("kind", ["block", "informed", "few_pairs"])
def test_moves_leave_the_density_invariant_and_balance_in_detail(kind):
    n, num = 4, 40_000
    perms = enumerate_permutations(n)
    rng = np.random.default_rng(0)
    table = rng.normal(size=(n, n)) * 1.5
    table[1, 2] = -np.inf
    log_p = table[np.arange(n), perms].sum(1)
    p = np.exp(log_p - logsumexp(log_p))

    def log_densities(many):
        return jnp.asarray(table, float)[jnp.arange(n), many].sum(-1)

    def move(perm, key):
        if kind == "block":
            return informed.block_step(log_densities, perm, key, 3).perm
        start = informed.Place(perm, log_densities(perm[None])[0])
        pairs = 3 if kind == "few_pairs" else 100
        return informed.informed_steps(log_densities, start, key, 2, pairs).perm

    start = rng.choice(len(perms), size=num, p=p)
    keys = jax.random.split(jax.random.key(0), num)
    after = np.asarray(jax.jit(jax.vmap(move))(jnp.asarray(perms)[start], keys))
    end = (after[:, None] == perms).all(-1).argmax(-1)
    flow = np.zeros((len(perms), len(perms)))
    np.add.at(flow, (start, end), 1)
    counts = flow.sum(0)
    assert (np.abs(counts - num * p) <= 5 * np.sqrt(num * p * (1 - p)) + 1e-9).all()
    # As many go from x to y as come back, within 5 standard deviations of a difference of counts.
    assert (np.abs(flow - flow.T) <= 5 * np.sqrt(flow + flow.T) + 1).all()
    assert np.trace(flow) < num
