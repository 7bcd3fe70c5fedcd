"""One set of checkers: an argument is refused in the same way wherever it is given."""

import jax.numpy as jnp
import numpy as np
import pytest

import permvi as pv
from permvi import _checks
from permvi.inference.discrete.options import DiscreteOptions
from permvi.inference.linear import LinearOptions
from permvi.inference.map import MapOptions
from permvi.inference.mcmc import MCMCOptions
from permvi.inference.naive import NaiveOptions
from permvi.inference.vi import VIOptions

SCORES = np.zeros((3, 3))

# Every kind of place that takes a whole number, by a name that it has.
PLACES = {
    "num_steps of vi": lambda value: VIOptions.calibrated("rounding").replace(num_steps=value),
    "num_steps of sparse": lambda value: LinearOptions(num_steps=value),
    "num_steps of discrete": lambda value: DiscreteOptions(num_components=value),
    "num_restarts of map": lambda value: MapOptions(num_restarts=value),
    "num_chains of mcmc": lambda value: MCMCOptions(num_chains=value),
    "num_draws of naive": lambda value: NaiveOptions(num_draws=value),
    "num_steps of sinkhorn": lambda value: pv.transforms.sinkhorn(jnp.zeros((2, 2)), value),
    "num of sample": lambda value: pv.fit(pv.models.LinearMatching(SCORES)).sample(value),
    "k of k_best": lambda value: pv.inference.exact.k_best(SCORES, k=value),
    "n of identity": lambda value: pv.permutations.identity(value),
    "order of fourier": lambda value: pv.fit(
        pv.models.LinearMatching(SCORES), "fourier", order=value
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_whole_numbers_are_checked_in_one_way(place):
    call = PLACES[place]
    with pytest.raises(TypeError, match=r"must be an integer, got 1\.5"):
        call(1.5)
    with pytest.raises(TypeError, match="must be an integer, got True"):
        call(True)
    with pytest.raises(ValueError, match="must be an integer of at least 1, got 0"):
        call(0)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.filterwarnings("ignore::permvi.FitWarning")
def test_numpy_integers_are_integers(place):
    PLACES[place](np.int64(2))


@pytest.mark.parametrize("seed", [1.5, "0", None, True])
def test_seeds_are_integers(seed):
    with pytest.raises(TypeError, match="seed must be an integer, got"):
        pv.fit(pv.models.LinearMatching(SCORES), seed=seed)


def test_seeds_are_small_and_not_negative():
    assert _checks.seed(np.uint32(2**32 - 1)) == 2**32 - 1
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match="seed must be between 0 and 2"):
            pv.fit(pv.models.LinearMatching(SCORES), seed=seed)


def test_matchings_are_checked_in_one_way():
    posterior = pv.fit(pv.models.LinearMatching(SCORES))
    for call in (posterior.log_prob, lambda perm: _checks.check_matchings("perm", perm, (3, 3))):
        with pytest.raises(ValueError, match=r"must hold columns 0 to 2 or -1, got 3"):
            call(np.array([0, 1, 3]))
        with pytest.raises(TypeError, match="must be an integer array, got dtype float64"):
            call(np.array([0.0, 1.0, 2.0]))


def test_names_are_answered_with_the_nearest_one():
    with pytest.raises(ValueError, match="did you mean 'rounding'"):
        _checks.one_of("method", "roundin", ["exact", "rounding", "map"])
