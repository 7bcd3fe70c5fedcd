"""Von Mises-Fisher distributions of permutations on a sphere (Plis et al. 2011)."""

from permvi.inference.vmf.method import VmfFit as VmfFit
from permvi.inference.vmf.method import fit_to_density as fit_to_density
from permvi.inference.vmf.method import fit_to_marginals as fit_to_marginals
from permvi.inference.vmf.sphere import VonMisesFisher as VonMisesFisher
from permvi.inference.vmf.sphere import embed as embed
from permvi.inference.vmf.sphere import nearest_permutations as nearest_permutations
