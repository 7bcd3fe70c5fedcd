"""ArviZ itself where it is installed; elsewhere what it would be given, by both of its APIs."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from permvi.posterior import Latent, Posterior
from tests.posterior import cases


@pytest.fixture(params=["0.23.4", "1.2.0"])
def group(request, monkeypatch):
    """Turns a posterior into the 'posterior' group of what a version of ArviZ works with."""
    arviz = SimpleNamespace(__version__=request.param)
    if request.param.startswith("0"):
        arviz.InferenceData = lambda **groups: groups
    monkeypatch.setitem(sys.modules, "arviz", arviz)
    return lambda posterior, **options: posterior.to_arviz(**options)["posterior"]


def test_draws_keep_their_order_and_their_latents(group, rng):
    paired = Latent.from_draws(rng.normal(size=(400, 2)))
    latents = {
        "scope/paired": paired,
        "fewer": Latent.from_draws(rng.normal(size=30)),
        "none": Latent(np.zeros(2), np.ones(2)),
    }
    posterior = cases.make("draws", cases.square(rng), rng, latents=latents)
    chain = group(posterior)
    assert chain["perm"].dims == ("chain", "draw", "row")
    assert chain["perm"].shape == (1, 400, 4)
    np.testing.assert_array_equal(chain["perm"][0], posterior.law.draws)
    np.testing.assert_array_equal(chain["scope.paired"][0], paired.draws)
    assert chain["fewer"].shape == (1, 400)
    assert "none" not in chain


def test_weighted_draws_are_resampled_with_their_latents(group, rng):
    arguments = cases.two_sites_partial(rng)
    count = len(cases.table(arguments)[0])
    latents = {"which": Latent.from_draws(np.arange(count))}
    posterior = cases.make("weighted", arguments, rng, latents=latents)
    chain = group(posterior, num=200, seed=3)
    assert chain["perm"].dims == ("chain", "draw", "site", "row")
    which = chain["which"][0].values.astype(int)
    np.testing.assert_array_equal(chain["perm"][0], posterior.law.draws[which])


def test_laws_without_draws_are_sampled(group, rng):
    posterior = cases.make("exact", cases.square(rng), rng, labels=("abcd", None))
    chain = group(posterior)
    assert chain["perm"].shape == (1, 1000, 4)
    assert chain["row"].values.tolist() == list("abcd")
    assert chain.attrs["verdict"] == "trust"


def test_missing_arviz_is_said(monkeypatch, rng):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install arviz"):
        cases.make("exact", cases.square(rng), rng).to_arviz()


@pytest.mark.filterwarnings("default")
def test_arviz_summarises_it(rng):
    arviz = pytest.importorskip("arviz")
    latents = {"sigma": Latent.from_draws(rng.normal(size=400))}
    data = cases.make("draws", cases.square(rng), rng, latents=latents).to_arviz()
    assert "sigma" in arviz.summary(data, var_names=["sigma"]).index


@pytest.fixture
def named():
    """P(r1 is A) = 3/4; the third item of three has no label."""
    draws = [[0, 1, -1]] * 3 + [[1, 0, -1]]
    labels = (("r1", "r2", "r3"), ("A", "B"))
    return Posterior.from_draws(draws, shape=(3, 2), labels=labels)


def test_a_pair_by_name(named):
    assert named["r1", "A"] == 0.75
    assert named["r2", "A"] == 0.25
    assert named["r3", None] == 1.0
    assert named[0, 1] == 0.25
    with pytest.raises(ValueError, match="Zoe"):
        named["r1", "Zoe"]
    with pytest.raises(TypeError, match=r"takes a pair, got 'r1'"):
        named["r1"]


def test_a_frame_by_pairs(named):
    frame = named.to_frame(by="pairs")
    assert frame.to_dict("list") == {
        "item": ["r1", "r1", "r2", "r2", "r3"],
        "label": ["A", "B", "B", "A", "unmatched"],
        "probability": [0.75, 0.25, 0.75, 0.25, 1.0],
    }
    with pytest.raises(ValueError, match="by must be 'items' or 'pairs'"):
        named.to_frame(by="rows")


def test_labelled_marginals(named):
    found = named.to_xarray()
    assert float(found["marginals"].sel(item="r2", label="B")) == 0.75
    assert float(found["p_unmatched_items"].sel(item="r3")) == 1.0
    assert found.attrs["verdict"] == named.diagnostics.verdict


def test_labelled_marginals_of_several_sites(rng):
    posterior = Posterior.from_draws(np.array([[[0, 1], [1, 0]]]), shape=(2, 2))
    assert posterior.to_xarray()["marginals"].dims == ("site", "item", "label")
    assert posterior.to_frame(by="pairs")["site"].tolist() == [0, 0, 1, 1]
