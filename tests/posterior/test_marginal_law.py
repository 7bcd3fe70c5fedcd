"""The law of marginals alone: the Birkhoff-von Neumann decomposition."""

import warnings

import numpy as np
import pytest
from scipy import stats

import permvi as pv
from permvi.posterior import Posterior, load
from permvi.posterior.birkhoff import decompose_birkhoff
from permvi.posterior.marginal_law import MarginalsLaw
from tests.posterior import cases


def doubly_stochastic(rng, n, terms):
    perms = np.argsort(rng.random((terms, n)), axis=1)
    return np.einsum("k,kij->ij", rng.dirichlet(np.ones(terms)), np.eye(n)[perms])


@pytest.mark.parametrize(("n", "terms"), [(1, 1), (2, 2), (5, 3), (5, 200), (40, 4000)])
def test_the_mixture_has_the_marginals(n, terms, rng):
    P = doubly_stochastic(rng, n, terms)
    perms, weights = decompose_birkhoff(P)
    assert (np.sort(perms, axis=1) == np.arange(n)).all()
    assert (weights > 0).all()
    assert len(weights) <= n * n - 2 * n + 2
    mixture = np.zeros((n, n))
    for i in range(n):
        np.add.at(mixture[i], perms[:, i], weights)
    # At most n^2 entries below 1e-13 are dropped.
    np.testing.assert_allclose(mixture, P, atol=n * n * 1e-13 + 1e-12)


@pytest.mark.parametrize("name", ["square", "wide", "tall", "partial", "masked", "two_sites"])
def test_draws_have_the_marginals(name, rng):
    exact = cases.make("exact", cases.PROBLEMS[name](rng), rng)
    given = exact.marginals, exact.p_unmatched_rows, exact.p_unmatched_cols
    law = MarginalsLaw(*given)
    num = 20_000
    draws = law.sample(num, rng)
    assert draws.shape == (num, *exact.mode.shape)
    states = np.concatenate([given[0], given[1][..., None]], axis=-1)
    flat, probs = draws.reshape(num, -1), states.reshape(-1, states.shape[-1])
    for row, p in zip(flat.T, probs, strict=True):
        counts = np.bincount(row % len(p), minlength=len(p))
        assert not counts[p < 1e-12].any()
        kept = p >= 1e-12
        # Some thirty rows are tested in all, so that one in a thousand tests fails by chance.
        if kept.sum() > 1:
            expected = num * p[kept] / p[kept].sum()
            assert stats.chisquare(counts[kept], expected).pvalue > 3e-5
    for site in draws.reshape(num, -1, exact.shape[0])[:100].reshape(-1, exact.shape[0]):
        matched = site[site >= 0]
        assert len(set(matched.tolist())) == len(matched)


def test_top_is_in_order_and_sums_to_one(rng):
    law = MarginalsLaw(doubly_stochastic(rng, 4, 30))
    perms, probs = law.top(1000)
    assert (np.diff(probs) <= 0).all()
    assert probs.sum() == pytest.approx(1)
    assert len(np.unique(perms, axis=0)) == len(perms)
    assert len(law.top(2)[1]) == 2


def test_top_of_several_sites_are_products(rng):
    P = np.stack([doubly_stochastic(rng, 3, 4) for _ in range(2)])
    perms, probs = MarginalsLaw(P).top(1000)
    assert probs.sum() == pytest.approx(1)
    singles = [dict(zip(map(tuple, a.tolist()), b, strict=True)) for a, b in
               (MarginalsLaw(site).top(100) for site in P)]  # fmt: skip
    for perm, prob in zip(perms, probs, strict=True):
        product = np.prod([single[tuple(p)] for single, p in zip(singles, perm, strict=True)])
        assert prob == pytest.approx(product)


@pytest.mark.parametrize("method", ["sinkhorn", "bethe"])
def test_save_and_load(method, rng, tmp_path):
    model = pv.models.LinearMatching(rng.normal(size=(3, 4)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        posterior = pv.fit(model, method)
    assert posterior.joint_entropy is None
    posterior.save(tmp_path / "fit.nc")
    again = load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(again.sample(50, seed=3), posterior.sample(50, seed=3))
    np.testing.assert_array_equal(again.marginals, posterior.marginals)
    assert [m.probability for m in again.top(5)] == [m.probability for m in posterior.top(5)]


def test_joint_probabilities_are_refused():
    posterior = Posterior(
        law=MarginalsLaw(np.full((2, 2), 0.5)), marginals=np.full((2, 2), 0.5), mode=[0, 1]
    )
    with pytest.raises(ValueError, match="got a posterior made of marginals"):
        posterior.log_prob([0, 1])
