"""ArviZ itself where it is installed; elsewhere what it would be given, by both of its APIs."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from permvi.posterior import Latent
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
