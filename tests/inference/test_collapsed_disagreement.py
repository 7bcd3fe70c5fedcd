"""Confidence includes what searches that ended elsewhere have found."""

import warnings

import numpy as np
import pytest

import permvi as pv
from permvi.inference.dynamics import collapsed_method as collapsed
from tests.inference.collapsed_cases import model_of_worms, worms

SEARCHES = 4


@pytest.fixture(scope="module", params=[1, 2], ids=["one worm", "two worms"])
def fitted(request):
    """A model, the rows that are open, and what the engine found."""
    found, *rest = worms(20, num_worms=request.param)
    model, results = model_of_worms(found, *rest), []
    run = collapsed.run_collapsed

    def keep(*args, **settings):
        results.append(run(*args, **settings))
        return results[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collapsed, "run_collapsed", keep)
        pv.fit(model, "collapsed", num_restarts=SEARCHES)
    return model, found.known < 0, results[0]


def elsewhere(result, unknown, share, searches):
    """The result as if all searches had ended in the mode, but some not in a share of open rows."""
    found = np.repeat(result.mode[None], SEARCHES, axis=0)
    definite = np.argsort(frequencies(result.draws).max(axis=-1)[unknown])[::-1]
    sites, rows = (index[definite[: round(share * unknown.sum())]] for index in np.nonzero(unknown))
    for site in range(found.shape[1]):
        moved = rows[sites == site]
        # A cycle of at least two rows, or it would be none.
        assert len(moved) != 1
        for search in searches:
            found[search, site, moved] = np.roll(found[search, site, moved], 1)
    return result._replace(found=found)


def frequencies(perms):
    """(..., J, m) permutations -> (J, m, m)."""
    J, m = perms.shape[-2:]
    return (perms.reshape(-1, J, m)[..., None] == np.arange(m)).mean(axis=0)


def fit(model, result, monkeypatch):
    monkeypatch.setattr(collapsed, "run_collapsed", lambda *_, **__: result)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "collapsed", num_restarts=SEARCHES)


@pytest.mark.parametrize("share", [0.06, 0.15, 0.5])
def test_optima_of_disagreeing_searches_get_their_weight(fitted, share, monkeypatch):
    model, unknown, result = fitted
    changed = elsewhere(result, unknown, share, range(1, SEARCHES))
    posterior = fit(model, changed, monkeypatch)
    actual = round(share * unknown.sum()) / unknown.sum()
    weight = 0.5 * min(1, (actual - 0.02) / 0.08)
    np.testing.assert_allclose(posterior.diagnostics.extras["search_surprises"][1:], actual)
    expected = (1 - weight) * frequencies(result.draws) + weight * frequencies(changed.found)
    np.testing.assert_allclose(
        posterior.marginals.reshape(expected.shape), expected, rtol=1e-9, atol=1e-12
    )
    assert posterior.diagnostics.verdict == ("check" if weight < 0.5 else "do not trust")
    right = expected.max(axis=-1)[unknown].mean()
    assert posterior.diagnostics.extras["expected_accuracy"] == pytest.approx(right)
    np.testing.assert_array_equal(posterior.mode.reshape(result.mode.shape), result.mode)


def test_two_searches_that_agree_are_enough(fitted, monkeypatch):
    model, unknown, result = fitted
    changed = elsewhere(result, unknown, 0.5, range(2, SEARCHES))
    posterior = fit(model, changed, monkeypatch)
    expected = frequencies(result.draws)
    np.testing.assert_allclose(posterior.marginals.reshape(expected.shape), expected, atol=1e-12)
    assert posterior.diagnostics.verdict == "trust"


def test_labels_among_many_of_small_probability_are_no_surprise(fitted, monkeypatch):
    """Searches that end in different places of a flat posterior have not missed anything."""
    model, _, result = fitted
    rng = np.random.default_rng(0)
    J, m = result.mode.shape
    flat = np.argsort(rng.random((SEARCHES, 2000, J, m)), axis=-1)
    drawn = result._replace(
        draws=flat,
        log_densities=np.zeros(flat.shape[:2]),
        found=flat[:, 0],
    )
    posterior = fit(model, drawn, monkeypatch)
    assert posterior.marginals.max() < 0.05
    np.testing.assert_array_equal(posterior.diagnostics.extras["search_surprises"], 0)
    assert posterior.diagnostics.verdict == "do not trust"
    assert "too little data" in posterior.diagnostics.reasons[0]
