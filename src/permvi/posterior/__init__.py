"""The posterior that every method returns: its laws, its diagnostics and how it is saved."""

import importlib
from typing import Any

from permvi.posterior.diagnostics import Diagnostics as Diagnostics
from permvi.posterior.diagnostics import diagnose as diagnose
from permvi.posterior.diagnostics import judge as judge
from permvi.posterior.items import Decision as Decision
from permvi.posterior.items import Item as Item
from permvi.posterior.items import Matching as Matching
from permvi.posterior.items import NamedMatching as NamedMatching
from permvi.posterior.items import decode as decode
from permvi.posterior.joint import CredibleMatchings as CredibleMatchings
from permvi.posterior.joint import Probability as Probability
from permvi.posterior.joint import Together as Together
from permvi.posterior.latents import Latent as Latent
from permvi.posterior.laws import DrawsLaw, Law, register_law
from permvi.posterior.marginals import Marginals as Marginals
from permvi.posterior.marginals import normalise_marginals as normalise_marginals
from permvi.posterior.posterior import Posterior as Posterior
from permvi.posterior.predictive import ModelCheck as ModelCheck
from permvi.posterior.storage import load as load

__all__ = [
    "CredibleMatchings",
    "Decision",
    "Diagnostics",
    "DrawsLaw",
    "ExactLaw",
    "Item",
    "Latent",
    "Law",
    "Marginals",
    "Matching",
    "ModelCheck",
    "NamedMatching",
    "Posterior",
    "Probability",
    "TabularLaw",
    "Together",
    "decode",
    "diagnose",
    "judge",
    "load",
    "normalise_marginals",
    "register_law",
]

# Laws that are defined by their method, which this package does not import.
_LAWS = {"ExactLaw": "permvi.inference.exact.laws", "TabularLaw": "permvi.inference.exact.laws"}


def __getattr__(name: str) -> Any:
    if name in _LAWS:
        return getattr(importlib.import_module(_LAWS[name]), name)
    raise AttributeError(f"module 'permvi.posterior' has no attribute {name!r}")
