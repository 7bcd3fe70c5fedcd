"""Settings beyond what the model says or the data tell: a wrong answer must not look right."""

import warnings

import numpy as np
import pytest

import permvi as pv
from permvi.experiments._worms import move_edges
from tests.inference.collapsed_cases import model_of_worms, worms

HOPELESS = {
    "very short": ({"num_steps": 25, "num_worms": 1}, {}),
    "no positions, few known": ({"num_steps": 150, "num_known": 2}, {"tolerance": np.inf}),
    "no positions, none known": ({"num_worms": 1, "num_known": 0}, {"tolerance": np.inf}),
}
HARMLESS = {"a fifth unobserved": {"num_recorded": 32}, "not linear": {"saturation": 1.0}}


def fit(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, "collapsed")


def scored(found, posterior):
    return float((posterior.mode.reshape(found.truth.shape) == found.truth).mean())


@pytest.mark.parametrize(("simulated", "seen"), HOPELESS.values(), ids=HOPELESS.keys())
def test_what_is_mostly_wrong_is_not_trusted(simulated, seen):
    found, *rest = worms(20, **simulated)
    posterior = fit(model_of_worms(found, *rest, **seen))
    assert scored(found, posterior) < 0.7
    assert posterior.diagnostics.verdict == "do not trust"


@pytest.mark.parametrize("simulated", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_does_little_harm_is_still_trusted(simulated):
    found, *rest = worms(20, **simulated)
    posterior = fit(model_of_worms(found, *rest))
    assert scored(found, posterior) > 0.9
    assert posterior.diagnostics.verdict == "trust"


def test_what_one_search_alone_has_found_is_not_trusted():
    """It happens to be right, which the other searches do not confirm."""
    found, *rest = worms(31, num_steps=50)
    posterior = fit(model_of_worms(found, *rest))
    assert scored(found, posterior) > 0.9
    assert posterior.diagnostics.verdict == "do not trust"
    assert "searches disagree" in posterior.diagnostics.reasons[0]


def test_wrong_edges():
    found, adjacency, positions = worms(21)
    believed = move_edges(adjacency, 0.1, np.random.default_rng(0))
    posterior = fit(model_of_worms(found, believed, positions))
    assert scored(found, posterior) > 0.7
