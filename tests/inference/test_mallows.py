"""Mallows models fitted to rankings and to densities."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import permvi as pv
from permvi import permutations
from permvi.distributions import Mallows
from permvi.distributions._mallows import DISTANCES
from permvi.inference.mallows import draw_by_swaps, draw_exactly, fit_rankings, fit_theta
from permvi.inference.mallows.method import MallowsLaw

PERMS = permutations.enumerate_permutations(4)


def fit(model, **options):
    seed = options.pop("seed", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "mallows", seed, **options)


def frequencies(draws):
    powers = 10 ** np.arange(draws.shape[1])
    return np.array([(draws @ powers == code).sum() for code in PERMS @ powers])


@pytest.mark.parametrize("distance", DISTANCES)
def test_rankings_give_back_centre_and_theta(distance, rng):
    n, num, theta = 8, 400, 0.8
    centre = rng.permutation(n)
    law = Mallows(jnp.asarray(centre), theta, distance)
    rankings = np.asarray(draw_exactly(law, jax.random.key(3), num))
    found = fit_rankings(rankings, distance)
    d = np.asarray(getattr(permutations, distance)(rankings, centre), float)
    # The Fisher information of theta is the variance of the distance.
    assert abs(found.theta - theta) < 4 / np.sqrt(num * d.var())
    np.testing.assert_array_equal(found.centre, centre)
    assert found.mean_distance == pytest.approx(d.mean())
    assert found.log_likelihood == pytest.approx(
        float(Mallows(centre, found.theta, distance).log_prob(rankings).sum()), rel=1e-9
    )


@pytest.mark.parametrize("distance", DISTANCES)
def test_the_centre_of_few_rankings_is_the_best_of_all(distance, rng):
    for _ in range(5):
        rankings = np.argsort(rng.random((5, 4)), axis=1)
        totals = np.asarray(getattr(permutations, distance)(rankings[:, None], PERMS)).sum(axis=0)
        found = fit_rankings(rankings, distance)
        assert 5 * found.mean_distance == pytest.approx(totals.min())


def test_extreme_rankings():
    same = fit_rankings(np.tile([2, 0, 1], (4, 1)))
    assert same.theta == pytest.approx(50, abs=30)
    np.testing.assert_array_equal(same.centre, [2, 0, 1])
    uniform = fit_rankings(permutations.enumerate_permutations(3), "kendall")
    assert uniform.theta == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("perms", "message"),
    [([[0, 0]], "must hold each of 0 to n-1 once"), ([0, 1], r"integers of shape \(K, n\)")],
)
def test_bad_rankings(perms, message):
    with pytest.raises(ValueError, match=message):
        fit_rankings(perms)


@pytest.mark.parametrize(
    "distance",
    ["footrule", *(pytest.param(name, marks=pytest.mark.slow) for name in DISTANCES[1:])],
)
def test_chains_of_swaps_follow_the_law(distance):
    law = Mallows(jnp.array([2, 0, 3, 1]), 0.4, distance)
    num = 10_000
    counts = frequencies(np.asarray(draw_by_swaps(law, jax.random.key(0), num, 400)))
    expected = num * np.exp(np.asarray(law.log_prob(PERMS)))
    assert stats.chisquare(counts, expected / expected.sum() * num).pvalue > 1e-4


def elbo_curve(scores, centre, distance):
    """The ELBO of any theta, by listing all permutations."""
    log_p = scores[np.arange(4), PERMS].sum(axis=1)
    d = np.asarray(getattr(permutations, distance)(PERMS, centre), float)

    def elbo(theta):
        log_q = -theta * d - np.log(np.exp(-theta * d).sum())
        return np.exp(log_q) @ (log_p - log_q)

    return elbo


@pytest.mark.parametrize("distance", DISTANCES)
def test_theta_is_near_the_best_elbo(distance, rng):
    scores = 1.5 * rng.normal(size=(4, 4))
    centre = pv.fit(pv.models.LinearMatching(scores), "exact").mode
    found = fit_theta(
        lambda perms: scores[np.arange(4), perms].sum(axis=1), centre, distance, jax.random.key(0)
    )
    elbo = elbo_curve(scores, centre, distance)
    best = max(elbo(theta) for theta in np.geomspace(0.02, 10, 60))
    # Means of a thousand draws whose log weights vary by less than 3.
    assert elbo(found.theta) > best - 0.1
    assert found.elbo == pytest.approx(elbo(found.theta), abs=0.3)
    assert found.num_evaluations <= 24


@pytest.mark.parametrize("sampler", ["exact", "mcmc"])
def test_the_method(sampler, rng):
    scores = rng.normal(size=(4, 4))
    model = pv.models.LinearMatching(scores)
    posterior = fit(model, theta=0.5, sampler=sampler, num_draws=4000, num_steps=300)
    exact = pv.fit(model, "exact")
    np.testing.assert_array_equal(posterior.mode, exact.mode)
    law = Mallows(jnp.asarray(exact.mode), 0.5, "footrule")
    np.testing.assert_allclose(posterior.log_prob(PERMS), law.log_prob(PERMS), atol=1e-5)
    p = np.exp(np.asarray(law.log_prob(PERMS), float))
    counts = frequencies(posterior.sample(4000, seed=2))
    assert stats.chisquare(counts, 4000 * p / p.sum()).pvalue > 1e-4
    marginals = np.einsum("k,kij->ij", p, np.eye(4)[PERMS])
    # Four standard errors of a frequency.
    np.testing.assert_allclose(posterior.marginals, marginals, atol=4 * 0.5 / np.sqrt(4000))
    assert posterior.joint_entropy == pytest.approx(-(p * np.log(p)).sum(), abs=1e-6)
    assert posterior.log_evidence <= exact.log_evidence + 1e-9
    assert posterior.diagnostics.extras["theta"] == 0.5
    assert posterior.diagnostics.verdict != "trust"


def test_a_general_density_with_a_known_pair(tmp_path):
    target = np.array([3, 1, 0, 4, 2])

    def density(perm):
        return -float(np.abs(np.asarray(perm) - target).sum())

    known = np.array([-1, 1, -1, -1, -1])
    model = pv.models.CallableModel(density, 5, "perm", jax=False)
    model = _with_known(model, known)
    posterior = fit(model)
    np.testing.assert_array_equal(posterior.mode, target)
    assert (posterior.sample(50)[:, 1] == 1).all()
    assert posterior.num_evaluations > 24
    posterior.save(tmp_path / "fit.nc")
    again = pv.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.sample(20, seed=3), posterior.sample(20, seed=3))
    np.testing.assert_array_equal(again.log_prob(target), posterior.log_prob(target))
    assert posterior.log_prob(np.array([1, 3, 0, 4, 2])) == -np.inf


class _Known:
    """Another model with known pairs."""

    def __init__(self, model, known):
        self._model, self.known = model, known

    def __getattr__(self, name):
        return getattr(self._model, name)


def _with_known(model, known):
    return _Known(model, known)


@pytest.mark.parametrize("distance", DISTANCES)
def test_top_is_what_a_list_of_all_says(distance):
    law = MallowsLaw([1, 3, 0, 2], 0.7, distance)
    perms, probs = law.top(30)
    assert len(np.unique(perms, axis=0)) == 24
    assert (np.diff(probs) <= 1e-15).all()
    assert probs.sum() == pytest.approx(1)
    np.testing.assert_array_equal(perms[0], [1, 3, 0, 2])
    np.testing.assert_allclose(law.top(5)[1], np.sort(np.exp(law.log_prob(PERMS)))[::-1][:5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"theta": -1.0}, "theta must be a finite number of at least 0, got -1.0"),
        ({"centre": [0, 1, 1]}, "centre must be a permutation"),
        ({"centre": [0, 1]}, "centre must be 3 integers"),
        ({"sampler": "gibbs", "theta": 1.0}, "sampler must be 'exact' or 'mcmc'"),
        ({"distance": "ulam"}, "distance must be one of"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        pv.fit(pv.models.LinearMatching(np.zeros((3, 3))), "mallows", **options)


def test_refusals():
    with pytest.raises(ValueError, match="as many items as labels"):
        pv.fit(pv.models.LinearMatching(np.zeros((3, 4))), "mallows")
    mask = ~np.eye(3, dtype=bool)
    with pytest.raises(ValueError, match="mask"):
        pv.fit(pv.models.LinearMatching(np.zeros((3, 3)), mask=mask), "mallows")
