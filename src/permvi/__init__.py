"""Bayesian inference over permutations.

The public names below load on first use, so that ``import permvi`` costs next to nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

from permvi._version import __version__ as __version__

if TYPE_CHECKING:
    from permvi import assignment as assignment
    from permvi import datasets as datasets
    from permvi import distributions as distributions
    from permvi import inference as inference
    from permvi import metrics as metrics
    from permvi import models as models
    from permvi import permutations as permutations
    from permvi import plots as plots
    from permvi import posterior as posterior
    from permvi import report as report
    from permvi import transforms as transforms
    from permvi._cache import enable_cache as enable_cache
    from permvi._compare import compare as compare
    from permvi._estimator import MatchingClassifier as MatchingClassifier
    from permvi._fit import FitWarning as FitWarning
    from permvi._fit import fit as fit
    from permvi._fit import fit_many as fit_many
    from permvi._rank import Ranking as Ranking
    from permvi._rank import rank as rank
    from permvi.inference.gibbs import PermutationGibbs as PermutationGibbs
    from permvi.inference.guides import AutoPermutation as AutoPermutation
    from permvi.inference.registry import methods as methods
    from permvi.inference.tracks import track as track
    from permvi.linkage import Linkage as Linkage
    from permvi.linkage import match_pairs as match_pairs
    from permvi.posterior import Posterior as Posterior
    from permvi.posterior import load as load

_SUBMODULES = (
    "assignment",
    "datasets",
    "distributions",
    "inference",
    "metrics",
    "models",
    "permutations",
    "plots",
    "posterior",
    "report",
    "transforms",
)
_HOMES = {
    "AutoPermutation": "permvi.inference.guides",
    "FitWarning": "permvi._fit",
    "MatchingClassifier": "permvi._estimator",
    "Linkage": "permvi.linkage",
    "PermutationGibbs": "permvi.inference.gibbs",
    "Posterior": "permvi.posterior",
    "compare": "permvi._compare",
    "enable_cache": "permvi._cache",
    "fit": "permvi._fit",
    "fit_many": "permvi._fit",
    "load": "permvi.posterior",
    "match_pairs": "permvi.linkage",
    "methods": "permvi.inference.registry",
    "Ranking": "permvi._rank",
    "rank": "permvi._rank",
    "track": "permvi.inference.tracks",
}

__all__ = ["__version__", *_SUBMODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"permvi.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'permvi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
