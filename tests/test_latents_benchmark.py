"""The references of the benchmark of latents are right."""

import numpy as np

import permvi as pv
from benchmarks import latents


def test_chains_with_an_integrated_scale_agree_with_the_exact_method(monkeypatch):
    monkeypatch.setattr(latents, "_REFERENCE", 1_000_000)
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(6, 2))
    model = pv.models.PointMatching(centers + 0.5 * rng.normal(size=(6, 2)), centers, scale=None)
    exact = pv.fit(model, "exact")
    found, apart = latents.scale_reference(model, exact.mode, 2700)
    # Two runs of 16,700 sweeps each at the last level.
    assert apart < 0.03
    np.testing.assert_allclose(found, exact.marginals, atol=0.03)


def test_quadrature_sums_over_arrangements():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2, 1, 4, 4))
    found, p = latents.by_quadrature(np.array([0.0, 0.5]), lambda k: scores[k], 4)
    each = [pv.fit(pv.models.LinearMatching(table[0]), "exact") for table in scores]
    weights = np.exp([each[0].log_evidence, each[1].log_evidence + 0.5])
    weights /= weights.sum()
    np.testing.assert_allclose(p, weights, rtol=1e-6)
    wanted = weights[0] * each[0].marginals + weights[1] * each[1].marginals
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
