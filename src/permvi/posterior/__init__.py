"""What every method returns: a posterior over matchings, its laws, its diagnostics, its storage."""

from permvi.posterior.decoders import Decision as Decision
from permvi.posterior.decoders import decode as decode
from permvi.posterior.diagnostics import Diagnostics as Diagnostics
from permvi.posterior.diagnostics import diagnose as diagnose
from permvi.posterior.diagnostics import judge as judge
from permvi.posterior.draws import DrawsLaw as DrawsLaw
from permvi.posterior.exact_laws import ExactLaw as ExactLaw
from permvi.posterior.exact_laws import TabularLaw as TabularLaw
from permvi.posterior.items import Item as Item
from permvi.posterior.latents import Latent as Latent
from permvi.posterior.laws import Law as Law
from permvi.posterior.laws import register_law as register_law
from permvi.posterior.marginals import Marginals as Marginals
from permvi.posterior.marginals import normalise_marginals as normalise_marginals
from permvi.posterior.posterior import Matching as Matching
from permvi.posterior.posterior import Posterior as Posterior
from permvi.posterior.storage import load as load

__all__ = [
    "Decision",
    "Diagnostics",
    "DrawsLaw",
    "ExactLaw",
    "Item",
    "Latent",
    "Law",
    "Marginals",
    "Matching",
    "Posterior",
    "TabularLaw",
    "decode",
    "diagnose",
    "judge",
    "load",
    "normalise_marginals",
    "register_law",
]
