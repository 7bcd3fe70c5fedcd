"""The method "collapsed" from worms to posteriors."""

import warnings

import numpy as np
import pytest

import permvi as pv
from permvi.inference.dynamics import CollapsedOptions
from tests.inference.collapsed_cases import model_of_worms, worms

QUICK = {"num_restarts": 2, "num_steps": 400, "num_draws": 50}


def fit(model, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "collapsed", **options)


@pytest.fixture(scope="module")
def recorded():
    return worms(0)


@pytest.fixture(scope="module")
def fitted(recorded):
    # A verdict other than "trust" would be a warning, and so an error.
    return pv.fit(model_of_worms(*recorded), "collapsed")


def test_worms_are_identified(recorded, fitted):
    found = recorded[0]
    assert fitted.marginals.shape == (2, 40, 40)
    assert (fitted.mode == found.truth).mean() > 0.95
    assert fitted.diagnostics.verdict == "trust"
    known = found.known >= 0
    np.testing.assert_array_equal(fitted.mode[known], found.known[known])
    assert (fitted.marginals.max(axis=-1)[known] == 1).all()
    assert len(fitted.credible_sets(0.9)) == 2
    assert fitted.num_evaluations > 0
    assert fitted.log_evidence_kind == "bound"


def test_scales_and_weights_are_learned(recorded, fitted):
    found, adjacency, positions = recorded
    model = model_of_worms(found, adjacency, positions)
    W = found.weights[tuple(model.edges.T)]
    latent = fitted.latents["W"]
    errors = (latent.mean - W) / latent.sd
    # 40 neurons with some 6 inputs each: the mean square is 1 within four standard errors.
    assert abs((errors**2).mean() - 1) < 4 * np.sqrt(2 / len(W)) + 0.1
    extras = fitted.diagnostics.extras
    assert extras["noise_scale"] == pytest.approx(1, abs=0.03)
    assert extras["weight_scale"] == pytest.approx(W.std(), rel=0.15)


def test_the_evidence_is_a_bound_that_the_mode_does_not_exceed(recorded, fitted):
    model = model_of_worms(*recorded)
    given = pv.models.SharedDynamics(
        list(recorded[0].recordings),
        recorded[1],
        weight_scale=float(fitted.diagnostics.extras["weight_scale"]),
        noise_scale=float(fitted.diagnostics.extras["noise_scale"]),
        mask=model.mask,
        known=model.known,
    )
    assert fitted.log_evidence >= given.collapsed_log_density(fitted.mode) - 1e-6


def test_the_truth_behind_the_scorer_changes_nothing(recorded):
    """Inference gets the same input whatever the truth is that scores are computed with."""
    found, *rest = recorded
    rng = np.random.default_rng(1)
    other = found._replace(
        truth=np.stack([rng.permutation(row) for row in found.truth]),
        weights=rng.permuted(found.weights, axis=1),
    )
    one, two = (fit(model_of_worms(each, *rest), **QUICK) for each in (found, other))
    np.testing.assert_array_equal(one.marginals, two.marginals)
    np.testing.assert_array_equal(one.mode, two.mode)
    np.testing.assert_array_equal(one.sample(20), two.sample(20))
    np.testing.assert_array_equal(one.latents["W"].mean, two.latents["W"].mean)
    assert one.log_evidence == two.log_evidence
    assert one.diagnostics.reasons == two.diagnostics.reasons
    assert (one.mode == found.truth).mean() > (two.mode == other.truth).mean()


def test_the_order_of_the_recorded_neurons_does_not_matter(recorded, fitted):
    """Shuffled recordings give shuffled identities, so order holds no hint of the truth."""
    found, *rest = recorded
    rng = np.random.default_rng(2)
    order = np.stack([rng.permutation(40) for _ in range(2)])
    shuffled = found._replace(
        recordings=np.take_along_axis(found.recordings, order[:, None, :], axis=2),
        positions=np.take_along_axis(found.positions, order, axis=1),
        known=np.take_along_axis(found.known, order, axis=1),
    )
    again = fit(model_of_worms(shuffled, *rest))
    np.testing.assert_array_equal(again.mode, np.take_along_axis(fitted.mode, order, axis=1))


def test_fewer_neurons_than_the_connectome_has():
    found, *rest = worms(3, num_recorded=36)
    posterior = fit(model_of_worms(found, *rest))
    assert posterior.marginals.shape == (2, 36, 40)
    assert (posterior.mode == found.truth).mean() > 0.9
    np.testing.assert_allclose(posterior.p_unmatched_cols.sum(axis=-1), 4)


def test_one_worm_without_positions():
    found, *rest = worms(4, num_worms=1, num_known=10)
    posterior = fit(model_of_worms(found, *rest, tolerance=np.inf))
    assert posterior.marginals.shape == (40, 40)
    assert (posterior.mode == found.truth[0]).mean() > 0.9


def test_too_little_data_is_not_trusted():
    found, *rest = worms(5, num_worms=1, num_steps=25, num_known=2)
    with pytest.warns(pv.FitWarning):
        posterior = pv.fit(model_of_worms(found, *rest, tolerance=np.inf), "collapsed")
    assert posterior.diagnostics.verdict == "do not trust"
    assert (posterior.mode == found.truth[0]).mean() < 0.7


def test_twins_share_their_probability():
    """Two neurons with the same neighbours, all others known: two permutations are left."""
    rng = np.random.default_rng(6)
    support = np.zeros((8, 8), bool)
    for a, b in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (1, 5), (6, 0), (7, 0), (5, 3)]:
        support[a, b] = support[b, a] = True
    y = rng.normal(size=(40, 8)).cumsum(axis=0) / 3
    known = np.array([0, 1, 2, 3, 4, 5, -1, -1])
    posterior = fit(pv.models.SharedDynamics(y, support, known=known))
    extras = posterior.diagnostics.extras
    model = pv.models.SharedDynamics(
        y,
        support,
        weight_scale=float(extras["weight_scale"]),
        noise_scale=float(extras["noise_scale"]),
    )
    both = np.array([[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 7, 6]])
    gap = np.diff(model.collapsed_log_density(both))[0]
    expected = 1 / (1 + np.exp(gap / CollapsedOptions().temperature))
    assert 0.1 < expected < 0.9
    # A thousand draws, three proposals apart on average: four standard errors, doubled.
    np.testing.assert_allclose(posterior.marginals[6, 6], expected, atol=8 * 0.5 / np.sqrt(1000))


def test_given_scales_are_kept(recorded):
    found, adjacency, _ = recorded
    model = pv.models.SharedDynamics(
        list(found.recordings), adjacency, weight_scale=0.2, noise_scale=1.0, known=found.known
    )
    extras = fit(model, **QUICK).diagnostics.extras
    assert (float(extras["weight_scale"]), float(extras["noise_scale"])) == (0.2, 1.0)


def test_the_same_seed_gives_the_same_posterior(recorded):
    model = model_of_worms(*recorded)
    one, two, other = (fit(model, seed=seed, **QUICK) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.sample(30), two.sample(30))
    assert one.log_evidence == two.log_evidence
    assert one.num_evaluations != other.num_evaluations


def test_one_search_is_never_trusted(recorded):
    posterior = fit(model_of_worms(*recorded), num_restarts=1, num_steps=400)
    assert posterior.diagnostics.verdict == "check"
    assert "only one search" in posterior.diagnostics.reasons[0]


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="must have shared dynamics") as caught:
        pv.fit(pv.models.LinearMatching(np.eye(4)), "collapsed")
    assert "\n" not in str(caught.value)


def test_a_saved_posterior_is_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "fit.nc")
    loaded = pv.load(tmp_path / "fit.nc")
    np.testing.assert_array_equal(loaded.marginals, fitted.marginals)
    np.testing.assert_array_equal(loaded.latents["W"].sd, fitted.latents["W"].sd)
    assert loaded.diagnostics.verdict == "trust"
