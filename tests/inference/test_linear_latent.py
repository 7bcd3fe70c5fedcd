"""A scalar latent integrated out on top of the linear engine, against the exact method."""

import numpy as np
import pytest

import permvi as pv
from permvi import metrics


def points(n, scale, seed, **options):
    """Return a model of shuffled noisy points whose scale is not known."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n, 2))
    seen = centres[rng.permutation(n)] + scale * rng.normal(size=(n, 2))
    return pv.models.PointMatching(seen, centres, scale=None, **options)


CASES = {
    "plain": lambda: points(10, 0.4, 0),
    "known": lambda: points(10, 0.5, 1, known=[3, *[-1] * 9]),
    "partial": lambda: points(9, 0.4, 2, row_unmatched=-3.0, col_unmatched=0.0),
    "two_modes": lambda: pv.models.PointMatching(
        [[0.0], [0.1], [2.0]], [[0.0], [0.1], [9.0]], scale=None
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_exact_solutions_at_few_values_are_as_good_as_at_many(name):
    model = CASES[name]()
    exact = pv.fit(model, method="exact")
    found = pv.fit(model, method="linear")
    assert found.diagnostics.verdict == "trust"
    assert found.log_evidence_kind == "exact"
    np.testing.assert_allclose(found.marginals, exact.marginals, atol=2e-3)
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=5e-3)
    ours, theirs = found.latents["scale"], exact.latents["scale"]
    assert abs(ours.mean - theirs.mean) < 0.02 * theirs.sd
    np.testing.assert_allclose(ours.sd, theirs.sd, rtol=0.02)
    # Draws follow the density, and the grid has its moments.
    assert abs(ours.draws.mean() - ours.mean) < 5 * ours.sd / np.sqrt(len(ours.draws))
    extras = found.diagnostics.extras
    np.testing.assert_allclose(extras["scale_probabilities"] @ extras["scale_values"], ours.mean)


def test_chains_at_each_value_are_joined_by_their_slopes():
    model = points(10, 0.5, 3)
    exact = pv.fit(model, method="exact")
    found = pv.fit(model, method="linear", max_size=0, max_states=0, seed=1)
    assert found.diagnostics.verdict == "trust"
    distance = metrics.total_variation_per_row(found.marginals, exact.marginals)
    # About four times the error that it states.
    assert distance.mean() < 4 * found.diagnostics.sampling_error_by_row.mean()
    assert found.diagnostics.sampling_error_by_row.mean() < 0.005
    assert abs(found.log_evidence - exact.log_evidence) < 5 * found.log_evidence_se
    assert abs(found.latents["scale"].mean - exact.latents["scale"].mean) < 0.05 * (
        exact.latents["scale"].sd
    )


def test_auto_takes_it_for_any_size():
    found = pv.fit(points(26, 0.05, 4))
    assert found.method == "linear"
    assert found.diagnostics.verdict == "trust"
    low, high = np.quantile(found.latents["scale"].draws, [0.005, 0.995])
    assert low < 0.05 < high


def test_several_latents_are_refused_in_words():
    class Two(pv.models.PointMatching):
        @property
        def latents(self):
            return {"scale": super().latents["scale"], "other": super().latents["scale"]}

    model = points(4, 0.1, 0)
    two = Two(model.observations, model.centers, scale=None)
    with pytest.raises(ValueError, match="method 'linear' integrates out one scalar latent"):
        pv.fit(two, method="linear")
