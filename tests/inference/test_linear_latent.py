"""A scalar latent integrated out on top of the linear engine, against the exact method."""

import itertools
import math

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


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name == "plain" else []) for name in CASES],
)
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


@pytest.mark.parametrize("method", ["exact", "linear"])
@pytest.mark.parametrize("factor", [1e-3, 1e5, 1e9])
def test_scales_far_from_their_prior_are_found(factor, method):
    # One observation is in other units, so that the noise has to be a million times as large.
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(4, 2))
    seen = centres + 0.1 * rng.normal(size=(4, 2))
    seen[0] *= factor
    model = pv.models.PointMatching(seen, centres, scale=None)
    found = pv.fit(model, method=method)
    # The sum over all matchings on a fine grid, in float64.
    squares = ((seen[:, None] - centres) ** 2).sum(axis=-1)
    perms = np.array(list(itertools.permutations(range(4))))
    totals = squares[np.arange(4), perms].sum(axis=1)
    median, sd = model.scale_prior
    u = np.linspace(-20, 60, 80_001)
    log_scale = u + math.log(median)
    terms = -0.5 * totals[:, None] * np.exp(-2 * log_scale) - 8 * log_scale
    terms += (
        -4 * math.log(2 * math.pi) - 0.5 * (u / sd) ** 2 - math.log(sd * math.sqrt(2 * math.pi))
    )
    log_p = np.logaddexp.reduce(terms)
    total = np.logaddexp.reduce(log_p)
    weights = np.exp(log_p - total)
    assert found.diagnostics.verdict == "trust"
    assert found.log_evidence == pytest.approx(total + math.log(1e-3), abs=5e-3)
    mean = float(weights @ np.exp(log_scale))
    assert found.latents["scale"].mean == pytest.approx(mean, rel=0.01)
    shares = np.exp(np.logaddexp.reduce(terms, axis=1) - total)
    marginals = (shares[:, None, None] * np.eye(4)[perms]).sum(axis=0)
    np.testing.assert_allclose(found.marginals, marginals, atol=2e-3)


@pytest.mark.slow
def test_noise_without_bounds_is_not_trusted():
    # Copies of the centres: the density grows as long as the scale becomes smaller.
    centres = np.random.default_rng(0).normal(size=(30, 2))
    order = np.random.default_rng(1).permutation(30)
    model = pv.models.PointMatching(centres[order], centres, scale=None)
    with pytest.warns(pv.FitWarning):
        found = pv.fit(model)
    assert found.mode.tolist() == order.tolist()
    assert found.diagnostics.verdict == "check"
    assert "the posterior of 'scale' goes beyond" in found.diagnostics.reasons[0]
    assert found.log_evidence_kind == "estimate"
    assert found.check(model).verdict == "no check"


def test_centres_that_rounding_alone_tells_apart_have_a_prior():
    # The mean of equal numbers may be another number.
    centres = np.full((8, 2), 0.1)
    seen = np.random.default_rng(0).normal(size=(8, 2))
    found = pv.fit(pv.models.PointMatching(seen, centres, scale=None))
    assert 0.5 < found.latents["scale"].mean < 2
    np.testing.assert_allclose(found.marginals, 1 / 8, atol=1e-12)


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
