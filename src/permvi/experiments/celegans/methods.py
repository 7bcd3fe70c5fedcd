"""The methods that worms are identified with, and their budgets."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import permvi as pv
from permvi.experiments import _worm_settings
from permvi.models import SharedDynamics
from permvi.posterior import Posterior

OURS = "collapsed"
"""The method that goes beyond the settings of the paper."""


class Method(NamedTuple):
    """A row of the study.

    Attributes:
        name: Of the method in `permvi.fit`.
        options: Its options.
        budget: The option that says how long it runs.
        checkpoints: Values of it, for the figures of convergence.
        compiled: Whether a first fit takes longer, since JAX compiles it.
    """

    name: str
    options: Mapping[str, Any]
    budget: str
    checkpoints: tuple[int, ...]
    compiled: bool = False


_VI_CHECKPOINTS = (5, 20, 50, 100, 200, 400)

# Quick ones first, so that a run that is stopped has most of them.
METHODS: dict[str, dict[str, Method]] = {
    "paper": {
        "collapsed": Method("collapsed", {}, "num_restarts", (1, 2, 4)),
        "map": Method("map", _worm_settings.MAP, "max_iter", (1, 2, 5, 20)),
        "mcmc": Method("mcmc", _worm_settings.MCMC, "num_steps", (20, 100, 400)),
        "naive": Method("naive", {}, "num_steps", (20, 100, 200), compiled=True),
        "rounding_temperature_1": Method(
            "rounding", _worm_settings.ROUNDING_ONE, "num_steps", _VI_CHECKPOINTS, compiled=True
        ),
        "rounding": Method(
            "rounding", _worm_settings.ROUNDING, "num_steps", _VI_CHECKPOINTS, compiled=True
        ),
    },
}

# The smoke size is there to see that everything runs. With chunks of one length rounding compiles
# once.
_QUICK_VI = {"num_steps": 100, "chunk_size": 20}
_QUICK: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "collapsed": ({"num_restarts": 2}, (1, 2)),
    "map": ({"num_restarts": 2}, (1, 5)),
    "naive": ({"num_steps": 100, "num_draws": 100}, (100,)),
    "mcmc": ({"num_steps": 60}, (20, 60)),
    "rounding_temperature_1": (_QUICK_VI, (20, 100)),
    "rounding": (_QUICK_VI, (20, 100)),
}
METHODS["smoke"] = {
    name: method._replace(
        options={**method.options, **_QUICK[name][0]}, checkpoints=_QUICK[name][1]
    )
    for name, method in METHODS["paper"].items()
}


def fit(model: SharedDynamics, config: Mapping[str, Any], **options: Any) -> Posterior:
    """What the method of a task makes of a model. The verdict is a result here, and no warning."""
    method = METHODS[config["size"]][config["method"]]
    # Other simulations have other random numbers.
    seed = np.random.default_rng([config["seed"], config["repetition"]]).integers(2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pv.FitWarning)
        return pv.fit(model, method.name, int(seed), **{**method.options, **options})
