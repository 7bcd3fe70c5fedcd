"""`SharedDynamics` against densities of the recordings themselves, time step by time step."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.util import log_density as log_joint

import permvi as pv
from permvi.models import SharedDynamics

M = 5
SUPPORT = np.array(
    [[0, 1, 0, 1, 0], [1, 0, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 1, 0, 1], [0, 1, 0, 0, 0]], bool
)
SCALES = {"weight_scale": 0.4, "noise_scale": 0.8}


def recorded(rng, sizes=(5, 4, 3), steps=(9, 6, 7)):
    return [rng.normal(size=(t, n)) for t, n in zip(steps, sizes, strict=True)]


def some_perms(rng, num=1, sizes=(5, 4, 3)):
    """(num, J, 5) permutations, the rows that only fill up included."""
    return np.stack([[rng.permutation(M) for _ in sizes] for _ in range(num)])


def oracle(recordings, perms, weights, noise):
    """The log density of recordings given everything, from the time steps."""
    total = 0.0
    for y, perm in zip(recordings, perms, strict=True):
        p = perm[: y.shape[1]]
        mean = y[:-1] @ weights[np.ix_(p, p)].T
        total += scipy.stats.norm.logpdf(y[1:], mean, noise).sum()
    return total


def collapsed_oracle(recordings, perms, tau, sigma):
    """The same with normal weights integrated out: one normal vector for each canonical neuron."""
    total = 0.0
    for a in range(M):
        targets, designs = [], []
        inputs = np.flatnonzero(SUPPORT[a])
        for y, perm in zip(recordings, perms, strict=True):
            where = {label: row for row, label in enumerate(perm[: y.shape[1]])}
            if a in where:
                targets.append(y[1:, where[a]])
                columns = [y[:-1, where[b]] if b in where else np.zeros(len(y) - 1) for b in inputs]
                designs.append(np.stack(columns, axis=1))
        if targets:
            y, Z = np.concatenate(targets), np.concatenate(designs)
            cov = sigma**2 * np.eye(len(y)) + tau**2 * Z @ Z.T
            total += scipy.stats.multivariate_normal.logpdf(y, np.zeros(len(y)), cov)
    return total


def test_shapes_and_statistics(rng):
    recordings = recorded(rng)
    model = SharedDynamics(recordings, SUPPORT)
    assert model.shape == (5, 5)
    assert model.num_sites == 3
    assert isinstance(model, pv.models.Model)
    y = recordings[1]
    np.testing.assert_allclose(model.C0[1, :4, :4], sum(np.outer(v, v) for v in y[:-1]))
    cross = sum(np.outer(after, before) for before, after in itertools.pairwise(y))
    np.testing.assert_allclose(model.C1[1, :4, :4], cross)
    assert not model.C0[1, 4].any()
    assert model.recorded.sum(axis=1).tolist() == [5, 4, 3]
    assert model.num_steps.tolist() == [8, 5, 6]
    # Rows that only fill up may have any label.
    assert model.mask is None or model.mask[1, 4].all()
    again = SharedDynamics.from_statistics(
        [y[:-1].T @ y[:-1] for y in recordings],
        [y[1:].T @ y[:-1] for y in recordings],
        [(y[1:] ** 2).sum(axis=0) for y in recordings],
        [len(y) - 1 for y in recordings],
        SUPPORT,
    )
    for name in ("C0", "C1", "squares", "weight_scale", "noise_scale"):
        np.testing.assert_allclose(getattr(again, name), getattr(model, name))


@pytest.mark.float32
def test_the_density_is_that_of_the_time_steps(rng):
    recordings = recorded(rng)
    model = SharedDynamics(recordings, SUPPORT, **SCALES)
    perms, W = some_perms(rng, 3), rng.normal(size=(3, len(model.edges)))
    expected = [
        oracle(recordings, p, np.asarray(model.weights(w), np.float64), 0.8)
        for p, w in zip(perms, W, strict=True)
    ]
    np.testing.assert_allclose(model.log_density_of(perms, W), expected, rtol=2e-5)
    np.testing.assert_allclose(model.log_density(np.eye(M)[perms], W), expected, rtol=2e-5)
    assert not np.asarray(model.weights(W))[:, ~SUPPORT].any()


@pytest.mark.float32
def test_the_relaxed_density_uses_mixed_weights(rng):
    y = rng.normal(size=(7, 4))
    model = SharedDynamics(y, SUPPORT, **SCALES)
    X, W = rng.random((4, M)), rng.normal(size=len(model.edges))
    mixed = X @ np.asarray(model.weights(W), np.float64) @ X.T
    expected = scipy.stats.norm.logpdf(y[1:], y[:-1] @ mixed.T, 0.8).sum()
    np.testing.assert_allclose(model.log_density(X, W), expected, rtol=2e-5)
    gradient = jax.grad(lambda x: model.log_density(x, W))(jnp.asarray(X))
    assert np.isfinite(gradient).all()


def test_swap_differences(rng):
    model = SharedDynamics(recorded(rng), SUPPORT, **SCALES)
    perm, W = some_perms(rng)[0], rng.normal(size=len(model.edges))
    delta = jax.jit(lambda i, k, j: model.delta(perm, i, k, j, W=W))
    for j, (i, k) in itertools.product(range(3), itertools.combinations(range(M), 2)):
        swapped = perm.copy()
        swapped[j, [i, k]] = swapped[j, [k, i]]
        expected = model.log_density_of(swapped, W) - model.log_density_of(perm, W)
        np.testing.assert_allclose(delta(i, k, j), expected, atol=1e-9)


def test_swap_differences_of_one_subject(rng):
    model = SharedDynamics(rng.normal(size=(6, 4)), SUPPORT, **SCALES)
    perm, W = rng.permutation(M)[:4], rng.normal(size=len(model.edges))
    swapped = perm[[2, 1, 0, 3]]
    expected = model.log_density_of(swapped, W) - model.log_density_of(perm, W)
    np.testing.assert_allclose(model.delta(perm, 0, 2, W=W), expected, atol=1e-9)


def test_the_collapsed_density_integrates_the_weights_out(rng):
    recordings = recorded(rng)
    model = SharedDynamics(recordings, SUPPORT, **SCALES)
    perms = some_perms(rng, 4)
    expected = [collapsed_oracle(recordings, p, 0.4, 0.8) for p in perms]
    np.testing.assert_allclose(model.collapsed_log_density(perms), expected, rtol=1e-10)
    assert model.collapsed_log_density(perms[0]).shape == ()


def test_learned_scales_are_the_most_probable_ones_of_dense_weights(rng):
    """Against normal vectors whose covariance any pair of neurons contributes to."""
    recordings = recorded(rng, steps=(30, 25, 20))
    model = SharedDynamics(recordings, SUPPORT)
    density = SUPPORT.mean()

    def evidence(tau, sigma):
        total = 0.0
        for y in recordings:
            Z = y[:-1]
            cov = sigma**2 * np.eye(len(Z)) + density * tau**2 * Z @ Z.T
            normal = scipy.stats.multivariate_normal(np.zeros(len(Z)), cov)
            total += normal.logpdf(y[1:].T).sum()
        return total

    tau, sigma = float(model.weight_scale), float(model.noise_scale)
    best = evidence(tau, sigma)
    for factor in (0.97, 1.03):
        assert evidence(tau * factor, sigma) < best
        assert evidence(tau, sigma * factor) < best
    assert model.learned == (True, True)
    # Nobody's order matters.
    shuffled = [y[:, rng.permutation(y.shape[1])] for y in recordings]
    other = SharedDynamics(shuffled, SUPPORT)
    np.testing.assert_allclose([other.weight_scale, other.noise_scale], [tau, sigma])


@pytest.mark.parametrize("given", [{"weight_scale": 0.3}, {"noise_scale": 1.2}])
def test_a_given_scale_stays_and_the_other_is_learned(rng, given):
    model = SharedDynamics(recorded(rng, steps=(30, 25, 20)), SUPPORT, **given)
    [(name, value)] = given.items()
    assert getattr(model, name) == value
    assert model.learned == (name != "weight_scale", name != "noise_scale")
    assert model.weight_scale > 0
    assert 0.5 < model.noise_scale < 1.5


def test_constraints_of_subjects_of_different_sizes(rng):
    masks = [np.ones((n, M), bool) for n in (5, 4, 3)]
    masks[2][0] = [True, False, False, False, False]
    known = [np.full(5, -1), np.array([2, -1, -1, 0]), np.full(3, -1)]
    model = SharedDynamics(recorded(rng), SUPPORT, mask=masks, known=known)
    assert model.mask.shape == (3, 5, 5)
    assert model.mask[2, 0].tolist() == masks[2][0].tolist()
    assert model.mask[2, 3:].all()
    assert model.known[1].tolist() == [2, -1, -1, 0, -1]


def test_a_model_is_a_pytree_and_densities_vmap(rng):
    model = SharedDynamics(recorded(rng), SUPPORT, **SCALES)
    leaves, structure = jax.tree_util.tree_flatten(model)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    perm, W = some_perms(rng)[0], rng.normal(size=(2, len(model.edges)))
    value = jax.jit(lambda m, w: m.log_density_of(perm, w))(again, W[0])
    np.testing.assert_allclose(value, model.log_density_of(perm, W[0]))
    batched = jax.vmap(lambda w: model.log_density_of(perm, w))(W)
    np.testing.assert_allclose(batched[0], value)


def test_the_numpyro_programme(rng):
    recordings = recorded(rng, sizes=(4, 4), steps=(8, 8))
    known = np.array([[2, -1, -1, -1], [-1, -1, -1, -1]])
    prior = rng.normal(size=(2, 4, M))
    model = SharedDynamics(recordings, SUPPORT, known=known, prior_scores=prior, **SCALES)
    X, W = rng.random((2, M, M)), rng.normal(size=len(model.edges))
    value, trace = log_joint(model.numpyro_model, (), {}, {"X": X, "W": W})
    expected = model.log_density(X[:, :4], W) + (prior * X[:, :4]).sum()
    expected += scipy.stats.norm.logpdf(W, 0, 0.4).sum() + trace["X"]["fn"].log_prob(X).sum()
    np.testing.assert_allclose(value, expected)
    assert np.asarray(trace["X"]["fn"].mask)[0, 0].tolist() == [False, False, True, False, False]


@pytest.mark.slow
def test_auto_permutation_learns(rng):
    known = np.array([2, -1, -1, -1, -1])
    model = SharedDynamics(rng.normal(size=(8, 5)), SUPPORT, known=known, **SCALES)
    guide = pv.AutoPermutation(model.numpyro_model)
    svi = SVI(model.numpyro_model, guide, numpyro.optim.Adam(0.05), Trace_ELBO(num_particles=4))
    result = svi.run(jax.random.key(0), 300, progress_bar=False)
    assert result.losses[-50:].mean() < result.losses[:50].mean()
    draws = guide.sample_posterior(jax.random.key(1), result.params, sample_shape=(10,))
    assert (np.sort(draws["X"], axis=-1) == np.arange(5)).all()
    assert (draws["X"][:, 0] == 2).all()
    assert draws["W"].shape == (10, len(model.edges))


@pytest.mark.slow
def test_relaxed_inference_can_work_on_it(rng):
    model = SharedDynamics(recorded(rng, sizes=(5, 5), steps=(20, 20)), SUPPORT)
    with pytest.warns(pv.FitWarning):
        posterior = pv.fit(model, "rounding", num_steps=5, num_draws=8, num_restarts=1)
    assert posterior.marginals.shape == (2, 5, 5)
    assert posterior.latents["W"].mean.shape == (len(model.edges),)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"recordings": np.zeros((1, 5))}, ValueError, "at least two time steps"),
        ({"recordings": []}, ValueError, "at least one subject"),
        ({"recordings": 3}, TypeError, "sequence of arrays"),
        ({"recordings": np.full((4, 5), np.nan)}, ValueError, "recordings must be finite"),
        ({"recordings": np.zeros((4, 6))}, ValueError, "at most 5 neurons, as many as support"),
        ({"support": SUPPORT.astype(int)}, TypeError, "support must be a boolean array"),
        ({"support": SUPPORT[:4]}, ValueError, "support must be square"),
        ({"support": np.zeros((5, 5), bool)}, ValueError, "have an edge"),
        ({"weight_scale": -1.0}, ValueError, "weight_scale must be positive"),
        ({"noise_scale": 0.0}, ValueError, "noise_scale must be positive"),
        ({"known": np.zeros(3, int)}, ValueError, "known must have shape"),
        ({"mask": np.ones((3, 5), bool)}, ValueError, "mask must have shape"),
    ],
)
def test_bad_input_gets_one_sentence(rng, changes, error, message):
    given = {"recordings": rng.normal(size=(6, 5)), "support": SUPPORT, **changes}
    with pytest.raises(error, match=message) as caught:
        SharedDynamics(**given)
    assert "\n" not in str(caught.value)


def test_bad_statistics_get_one_sentence():
    good = {"C0": np.eye(5), "C1": np.eye(5), "squares": np.ones(5), "num_steps": 4}
    SharedDynamics.from_statistics(**good, support=SUPPORT)
    for changes, message in (
        ({"C1": np.eye(4)}, "must have shapes"),
        ({"C0": np.triu(np.ones((5, 5)))}, "C0 must be symmetric"),
        ({"num_steps": 0}, "num_steps must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            SharedDynamics.from_statistics(**{**good, **changes}, support=SUPPORT)


def test_sizes_of_constraints_are_checked(rng):
    masks = [np.ones((n, M), bool) for n in (5, 4, 2)]
    with pytest.raises(ValueError, match="mask must have 3 rows for a subject of 3 neurons"):
        SharedDynamics(recorded(rng), SUPPORT, mask=masks)
    with pytest.raises(ValueError, match="known must have one entry for each of 3 subjects"):
        SharedDynamics(recorded(rng), SUPPORT, known=[np.full(5, -1)])
