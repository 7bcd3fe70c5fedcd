"""How good the relaxed methods are on the paper's matching task, and what the verdict is worth."""

import warnings

import numpy as np
import pytest

import permvi as pv

# Mean absolute error of the marginals: the most allowed, by the noise.
ALLOWED = {0.25: 0.03, 0.5: 0.073}
NUM_PROBLEMS = 50


def problems(rng, sigma):
    for _ in range(NUM_PROBLEMS):
        centers = rng.normal(size=(6, 2))
        observations = centers[rng.permutation(6)] + sigma * rng.normal(size=(6, 2))
        yield pv.models.PointMatching(observations, centers, sigma)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["rounding", "stick_breaking"])
def test_marginals_are_near_and_trust_is_deserved(rng, method):
    models = [model for sigma in ALLOWED for model in problems(rng, sigma)]
    exact = pv.fit_many(models, "exact")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        fitted = pv.fit_many(models, method)
    pairs = list(zip(fitted, exact, strict=True))
    errors = [np.abs(a.marginals - b.marginals).mean() for a, b in pairs]
    for mean, allowed in zip(
        np.reshape(errors, (len(ALLOWED), -1)).mean(axis=1), ALLOWED.values(), strict=True
    ):
        assert mean < allowed
    distances = [pv.metrics.total_variation_per_row(a.marginals, b.marginals) for a, b in pairs]
    trusted = [
        distance.mean()
        for (posterior, _), distance in zip(pairs, distances, strict=True)
        if posterior.diagnostics.verdict == "trust"
    ]
    assert trusted
    assert np.mean(np.array(trusted) <= 0.05) >= 0.95
